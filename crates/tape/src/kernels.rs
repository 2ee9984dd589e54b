//! Operations that a GPU computes with kernels of this crate, and a capture device records.

use std::fmt;

use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};

use crate::activation::Activation;
use crate::bridge::PrimitiveBackend;
use crate::geometry::Geometry;
use crate::noise::DropRule;

/// Bytes to whose multiples a part of a tensor must begin, on any GPU.
const PART_ALIGNMENT: usize = 512;

#[cfg(feature = "cube")]
mod alignment;
#[cfg(feature = "cube")]
mod convolution;
#[cfg(feature = "cube")]
mod cross_entropy;
#[cfg(feature = "cube")]
mod ctc;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "cube")]
mod depthwise;
#[cfg(feature = "cube")]
mod end_norm;
#[cfg(feature = "cube")]
mod epilogue;
pub(crate) mod flat;
#[cfg(feature = "cube")]
mod heads;
#[cfg(feature = "cube")]
mod norm;
#[cfg(feature = "cube")]
mod norm_back;
#[cfg(feature = "cube")]
mod queue;
#[cfg(feature = "cube")]
mod random;
mod recorded;
#[cfg(feature = "cube")]
mod rows;
#[cfg(feature = "cube")]
pub(crate) mod sums;
#[cfg(feature = "cube")]
mod weights;
#[cfg(feature = "cube")]
mod windows;

/// Frames of an utterance that one thread adds up for the gradient of weights. A segment ends with its utterance.
pub(crate) const SEGMENT_FRAMES: usize = 256;

/// Rows that one thread adds up for the gradients of scale and shift of layer norm. A segment ends with its sample.
pub(crate) const NORM_SEGMENT_ROWS: usize = 64;

/// Rows of which one group of threads computes all gradients of layer norm. They end with their sample.
pub(crate) const NORM_GROUP_ROWS: usize = 32;

/// Widest rows of which one kernel computes all gradients of layer norm: a thread holds a 32nd of a row.
pub(crate) const MOST_JOINED_WIDTH: usize = 1024;

// Shapes: b batch, t frames, d channels, k frames of the kernel.

/// Runs `$body` with `$B` as the [`KernelBackend`] of `$device`: of a GPU, or of a capture device that simulates one. On the
/// CPU, real or simulated, runs `$otherwise`.
macro_rules! on_kernels {
    ($device:expr, $B:ident => $body:expr, otherwise $otherwise:expr) => {
        match $crate::bridge::family($device) {
            #[cfg(feature = "cube")]
            $crate::bridge::Family::Cube => {
                type $B = burn_dispatch::backends::Cube;
                $body
            }
            $crate::bridge::Family::Capture if !$crate::bridge::runs_host_ops($device) => {
                type $B = burn_dispatch::backends::Capture;
                $body
            }
            $crate::bridge::Family::Flex | $crate::bridge::Family::Capture => $otherwise,
        }
    };
}
pub(crate) use on_kernels;

/// What attention weights are computed by, beside tensors.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "cube"), expect(dead_code, reason = "a capture reads nothing of it"))]
pub(crate) struct WeightsRule {
    /// Whether a query sees only the keys up to its own position.
    pub(crate) causal: bool,
    /// Position in the whole sequence of the first query.
    pub(crate) first_query: u32,
    /// `None` if nothing is dropped.
    pub(crate) dropout: Option<DropRule>,
}

/// Numbers before the states of a text in its row of the texts of a CTC loss.
pub(crate) const CTC_HEAD: usize = 3;

/// The texts of a CTC loss, beside tensors.
///
/// The texts are a row of numbers each: frames, states (0 for a text that is left out), and distinct tokens; the token of each state;
/// the distinct tokens, ordered; for each of them where its states begin in what follows, and where the last end; and the states by
/// token. Each part is as long as that of the longest text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CtcRule {
    /// States of the longest text.
    pub(crate) states: usize,
    /// Tokens of the longest text.
    pub(crate) tokens: usize,
    pub(crate) has_gradient: bool,
}

impl CtcRule {
    /// Returns the length of a row.
    pub(crate) fn width(&self) -> usize {
        CTC_HEAD + self.states + 3 * self.tokens + 1
    }

    /// Returns the number of states that a kernel has room for: few sizes, as each is a kernel of its own.
    #[cfg(feature = "cube")]
    pub(crate) fn room(&self) -> usize {
        room_for(self.states)
    }

    /// Returns the shape of the sums over the paths from both ends of `b` samples of `t` frames. All frames are one row: rows have gaps
    /// between them.
    pub(crate) fn paths_shape(&self, b: usize, t: usize) -> [usize; 3] {
        if self.has_gradient { [2, b, t * self.states] } else { [1; 3] }
    }
}

/// What follows a matrix product, beside tensors.
#[derive(Clone, Debug)]
pub(crate) struct EpilogueRule {
    pub(crate) activation: Option<Activation>,
    /// `None` if nothing is dropped.
    #[cfg_attr(not(feature = "cube"), expect(dead_code, reason = "a capture reads nothing of it"))]
    pub(crate) dropout: Option<DropRule>,
    /// Type of the product.
    pub(crate) from: DType,
    /// Type of the result.
    pub(crate) to: DType,
    /// Factor before the residual is added.
    #[cfg_attr(not(feature = "cube"), expect(dead_code, reason = "a capture reads nothing of it"))]
    pub(crate) factor: f32,
}

impl EpilogueRule {
    /// Returns the shape of the result for a product of the shape `product`.
    pub(crate) fn output_shape(&self, product: &Shape) -> Shape {
        let halves = if self.activation == Some(Activation::Glu) { 2 } else { 1 };
        Shape::new([product[0], product[1], product[2] / halves])
    }
}

/// How a projection is cut into heads.
#[derive(Clone, Debug)]
pub(crate) struct HeadsRule {
    pub(crate) heads: usize,
    /// Number of parts of the projection, each as wide as all heads.
    pub(crate) parts: usize,
    /// Whether the projection has a bias.
    pub(crate) has_bias: bool,
    pub(crate) outputs: Vec<HeadOutput>,
}

/// One result of a projection that is cut into heads.
#[derive(Clone, Debug)]
pub(crate) struct HeadOutput {
    #[cfg_attr(not(feature = "cube"), expect(dead_code, reason = "a capture reads nothing of it"))]
    pub(crate) part: usize,
    pub(crate) has_bias: bool,
    #[cfg_attr(not(feature = "cube"), expect(dead_code, reason = "a capture reads nothing of it"))]
    pub(crate) factor: f32,
}

impl HeadsRule {
    /// Returns the shape of each result for a projection of the shape `projected`.
    pub(crate) fn output_shape(&self, projected: &Shape) -> Shape {
        Shape::new([projected[0], self.heads, projected[1], projected[2] / self.parts / self.heads])
    }

    /// Returns the shape of the projection whose results have the shape `output`.
    pub(crate) fn projected_shape(&self, output: &Shape) -> Shape {
        Shape::new([output[0], output[2], self.parts * output[1] * output[3]])
    }

    /// Returns the shapes of the gradients of the bias of the projection and of the other biases, for results of the shape
    /// `output`.
    pub(crate) fn bias_shapes(&self, output: &Shape) -> impl Iterator<Item = Shape> {
        let shape = Shape::new([output[1], output[3]]);
        let own = self.has_bias.then(|| Shape::new([self.parts * output[1] * output[3]]));
        let others = self.outputs.iter().filter(|output| output.has_bias).map(move |_| shape.clone());
        own.into_iter().chain(others)
    }

    /// Returns the number of rows of sums for these gradients.
    pub(crate) fn sums(&self) -> usize {
        let own = if self.has_bias { self.parts } else { 0 };
        own + self.outputs.iter().filter(|output| output.has_bias).count()
    }
}

/// Tensors beside the product of an [`EpilogueRule`], each of which may be missing: the bias in the type of the product, the
/// number of valid rows of each sample, the [keys of the samples](crate::noise::Mask::sample_keys).
pub(crate) struct EndTensors<B: PrimitiveBackend> {
    pub(crate) bias: Option<FloatTensor<B>>,
    pub(crate) lengths: Option<IntTensor<B>>,
    pub(crate) keys: Option<IntTensor<B>>,
}

impl<B: PrimitiveBackend> Clone for EndTensors<B> {
    fn clone(&self) -> Self {
        Self { bias: self.bias.clone(), lengths: self.lengths.clone(), keys: self.keys.clone() }
    }
}

impl<B: PrimitiveBackend> fmt::Debug for EndTensors<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tensors beside a product")
    }
}

impl<B: PrimitiveBackend<IntTensorPrimitive = FloatTensor<B>>> EndTensors<B> {
    /// Returns which of the tensors are there.
    #[cfg(feature = "cube")]
    fn present(&self) -> [bool; 3] {
        [self.bias.is_some(), self.lengths.is_some(), self.keys.is_some()]
    }

    /// Returns the tensors that are there, in order.
    fn into_list(self) -> impl Iterator<Item = FloatTensor<B>> {
        self.bias.into_iter().chain(self.lengths).chain(self.keys)
    }
}

/// Backend with the operations of this module. All tensors of an operation have one type, but for the moments and the sums:
/// a kernel reads memory as what it takes it for.
///
/// The trait that queues the operations (`cube::Kernels`) is another one: Burn's macro makes it, and only with a GPU backend.
pub(crate) trait KernelBackend: PrimitiveBackend {
    /// Convolves `x` `[b, t, d]` over time with `weight` `[d, 1, k]`, one kernel per channel, and adds `bias` `[d]`.
    fn depthwise(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Computes the gradient of the input of a depthwise convolution from `grad_output` `[b, t, d]`.
    fn depthwise_back(grad_output: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Computes the gradients of the weights `[d, 1, k]` and the bias `[d]` of a depthwise convolution, in the type of `x`.
    fn depthwise_sums(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        taps: usize,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Normalizes the rows of `x` `[b, t, d]`, multiplies them by `scale` `[d]` and adds `shift` `[d]`. Returns the result in
    /// the type `to`, and the moments of the rows `[b, t, 2]` in fp32: the mean, and one over the standard deviation. The types of
    /// `x` and of scale and shift may differ.
    fn norm_rows(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        epsilon: f32,
        to: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Computes the gradient of the input of a layer norm from `grad_output` `[b, t, d]`, the input and its moments, and adds
    /// `other`, a gradient from elsewhere.
    fn norm_rows_back(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        other: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self>;

    /// Computes the gradients of scale and shift of a layer norm, both `[d]`, in the type `to`.
    fn norm_rows_sums(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        to: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Computes the softmax of `scores` `[samples, heads, queries, keys]`, to which the scores `by_distance`
    /// `[samples, heads, queries, queries - 1 + keys]` are added, over the first `lengths` `[samples]` keys, and the weights,
    /// which are the softmax after dropout. Both are one tensor without dropout, for which `keys` are the
    /// [keys of the samples](crate::noise::Mask::sample_keys).
    fn attention_weights(
        scores: FloatTensor<Self>,
        by_distance: Option<FloatTensor<Self>>,
        lengths: IntTensor<Self>,
        keys: Option<IntTensor<Self>>,
        rule: WeightsRule,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Computes the negative log-probabilities `[b]` of texts by `logits` `[b, t, v]`, and their gradient if `rule` asks for it. `texts`
    /// `[b, i]` are as the rule says.
    fn ctc(
        logits: FloatTensor<Self>,
        texts: IntTensor<Self>,
        rule: CtcRule,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>);

    /// Computes the cross-entropy of each row of `logits` `[b, u, v]` in fp32 with the token in `labels` `[b * u]`, of which `smoothing` is
    /// spread over all tokens, and the logarithm of the sum of the exponentials of the row, both `[b * u]`. A row with a label below zero
    /// has a loss of zero.
    fn cross_entropy(logits: FloatTensor<Self>, labels: IntTensor<Self>, smoothing: f32) -> [FloatTensor<Self>; 2];

    /// Computes the gradient of the logits of [`cross_entropy`](Self::cross_entropy) from the logits, the logarithms, and the gradient `[1]`
    /// of the sum of all losses.
    fn cross_entropy_back(kept: [FloatTensor<Self>; 3], labels: IntTensor<Self>, smoothing: f32) -> FloatTensor<Self>;

    /// Shares the frames of utterances among their tokens by `scores` `[b, t, k]` in fp32, of which the first `frames` and `tokens`, both `[b]`,
    /// count. Returns 1 at the token of each frame `[b, t, k]`, the place of each frame in its token and the frames of the token by `unit`
    /// `[b, t, 2]`, and the frames of each token `[b, k]`.
    fn share_frames(
        scores: FloatTensor<Self>,
        tokens: IntTensor<Self>,
        frames: IntTensor<Self>,
        unit: f32,
    ) -> [FloatTensor<Self>; 3];

    /// Computes the gradients of a layer norm from that of the norm, `grad_output`, and `other`, that of its input beside it. `kept` are the
    /// input, its moments, and the scale. `added` says how a product ended that was added to the input, of rows that are at most
    /// [`MOST_JOINED_WIDTH`] wide. Returns the gradients of the input, of the product if there was one, of scale and shift, and of the bias
    /// of the product if there is one.
    fn norm_back(
        grad_output: FloatTensor<Self>,
        other: Option<FloatTensor<Self>>,
        kept: [FloatTensor<Self>; 3],
        added: Option<(EndTensors<Self>, EpilogueRule)>,
    ) -> Vec<FloatTensor<Self>>;

    /// Computes the gradient of the scores from the softmax and the gradient of the weights. If `by_distance`, also computes the
    /// gradient of the scores by distance.
    fn attention_weights_back(
        softmax: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        keys: Option<IntTensor<Self>>,
        rule: WeightsRule,
        by_distance: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>);

    /// Ends `product` `[b, t, d]` by `rule`: bias, activation, zeros in the padding, dropout, factor, and the sum with `residual`,
    /// which has the shape and the type of the result, `rule.to`.
    fn end(
        product: FloatTensor<Self>,
        residual: Option<FloatTensor<Self>>,
        beside: EndTensors<Self>,
        rule: EpilogueRule,
    ) -> FloatTensor<Self>;

    /// Computes the gradients of the product and of the bias of [`end`](Self::end). That of the residual is `grad_output`. The
    /// product is needed only for an activation.
    fn end_back(
        grad_output: FloatTensor<Self>,
        product: Option<FloatTensor<Self>>,
        beside: EndTensors<Self>,
        rule: EpilogueRule,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>);

    /// Ends `product` by `rule` as [`end`](Self::end) does, without an activation or zeros in the padding, and computes the layer norm of
    /// the result with the `norm`'s scale and shift, in the type `to`. Rows are at most [`MOST_JOINED_WIDTH`] wide. Returns the result, the
    /// norm, and the moments of the rows.
    fn end_norm(
        product: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        beside: EndTensors<Self>,
        norm: [FloatTensor<Self>; 2],
        rule: EpilogueRule,
        numbers: (f32, DType),
    ) -> [FloatTensor<Self>; 3];

    /// Cuts `projected` `[b, t, p * h * w]`, to which `bias` `[p * h * w]` is added if `rule` says so, into results `[b, h, t, w]`,
    /// with the `biases` `[h, w]` of those that have one.
    fn split_heads(
        projected: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        biases: Vec<FloatTensor<Self>>,
        rule: HeadsRule,
    ) -> Vec<FloatTensor<Self>>;

    /// Joins the gradients of the results of [`split_heads`](Self::split_heads), at least one, to that of the projection, and
    /// computes those of the bias of the projection and of the other biases.
    fn split_heads_back(
        grads: Vec<Option<FloatTensor<Self>>>,
        rule: HeadsRule,
    ) -> (FloatTensor<Self>, Vec<FloatTensor<Self>>);

    /// Cuts the windows of `geometry` out of `x`.
    fn cut_windows(x: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self>;

    /// Adds up the windows of `geometry` at their places.
    fn add_windows(windows: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self>;

    /// Multiplies each window `v` of `x` by `weight` `[v, o]`: `[windows, o]`.
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self>;

    /// Computes the gradients of `x` and `weight` of a convolution from `grad_output` `[windows, o]`.
    fn convolve_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        geometry: Geometry,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Computes the gradient of the weight `[v, o]` of a convolution from `grad_output` `[windows, o]`.
    fn convolve_weight_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        geometry: Geometry,
    ) -> FloatTensor<Self>;
}

/// Returns the shape of the sums over segments for an input of shape `x` and a kernel of `taps` frames.
pub(crate) fn sums_shape(x: &Shape, taps: usize) -> Shape {
    Shape::new([x[0] * x[1].div_ceil(SEGMENT_FRAMES), taps + 1, x[2]])
}

/// Most groups of threads that count which of them are done.
pub(crate) const MOST_PLACES: usize = 1024;

/// Most sums of segments that one group of threads adds up while the rest of the device waits.
const MOST_SUMS: usize = 1 << 18;

/// Returns whether sums over segments of the shape `sums` may be added up by the last groups of threads of the kernel that makes them,
/// which count in `places`: if not, another kernel adds them up faster.
pub(crate) fn ends_at_once(sums: &Shape, places: usize) -> bool {
    let count = sums.num_elements();
    places <= MOST_PLACES && count > 0 && count / places.max(1) <= MOST_SUMS
}

/// Returns the number of groups of 32 columns, each of which ends its sums alone.
pub(crate) fn column_groups(columns: usize) -> usize {
    columns.div_ceil(32)
}

/// Returns the number of groups of columns and taps of a depthwise convolution, each of which ends its sums alone.
pub(crate) fn tap_groups(columns: usize, taps: usize) -> usize {
    column_groups(columns) * (taps + 1).div_ceil(8)
}

/// Returns the shape of the moments of a layer norm for an input of shape `x`.
pub(crate) fn moments_shape(x: &Shape) -> Shape {
    Shape::new([x[0], x[1], 2])
}

/// Returns the shape of the sums over segments of a layer norm for an input of shape `x`.
pub(crate) fn norm_sums_shape(x: &Shape) -> Shape {
    Shape::new([x[0] * x[1].div_ceil(NORM_SEGMENT_ROWS), 2, x[2]])
}

/// Returns the shape of the sums over segments of [`KernelBackend::norm_back`] for an input of shape `x`.
pub(crate) fn norm_back_sums_shape(x: &Shape, has_bias: bool) -> Shape {
    Shape::new([x[0] * x[1].div_ceil(NORM_GROUP_ROWS), if has_bias { 3 } else { 2 }, x[2]])
}

/// Lists what [`KernelBackend::norm_back`] makes of an input of shape `x`: tensors of this shape, and those that are sums over its rows.
fn norm_back_outputs<B: PrimitiveBackend>(
    x: &FloatTensor<B>,
    scale: DType,
    added: Option<&(EndTensors<B>, EpilogueRule)>,
) -> [Vec<(Shape, DType)>; 2] {
    let (shape, of_product) = (x.shape(), added.map(|(_, rule)| rule.from));
    let width = Shape::new([shape[2]]);
    let of_bias = added.filter(|(beside, _)| beside.bias.is_some()).map(|(_, rule)| rule.from);
    let rows = std::iter::once(x.dtype()).chain(of_product).map(|dtype| (shape.clone(), dtype)).collect();
    [rows, [scale, scale].into_iter().chain(of_bias).map(|dtype| (width.clone(), dtype)).collect()]
}

/// Returns the shape of the scores by distance of attention whose scores have the shape `scores`.
pub(crate) fn distances_shape(scores: &Shape) -> Shape {
    Shape::new([scores[0], scores[1], scores[2], (scores[2] + scores[3]).saturating_sub(1)])
}

/// Returns the shape of the gradients of a weight of `shape` in `count` pieces. Each begins where a GPU allows a tensor to begin.
pub(crate) fn parts_shape(shape: [usize; 2], count: usize, width: usize) -> [usize; 2] {
    [count, (shape[0] * shape[1] * width).next_multiple_of(PART_ALIGNMENT) / width]
}

/// Most tokens of a text whose frames a kernel finds: it holds a number for each in the memory of a group.
pub(crate) const MOST_TOKENS: usize = 2048;

/// Frames whose bits are in one word.
pub(crate) const FRAMES_IN_WORD: usize = 32;

/// Returns the shapes of what [`KernelBackend::share_frames`] makes for scores of the shape `scores`, and of what it needs beside: a bit for
/// each token and frame, and the first frame of each token.
fn share_shapes(scores: &Shape) -> [Shape; 5] {
    let [b, t, k] = [scores[0], scores[1], scores[2]];
    let bits = [b, t.div_ceil(FRAMES_IN_WORD) * k];
    [scores.clone(), Shape::new([b, t, 2]), Shape::new([b, k]), Shape::new(bits), Shape::new([b, k + 1])]
}

/// Returns the number of places that a kernel has for `count`: few sizes, as each is a kernel of its own.
#[cfg(feature = "cube")]
fn room_for(count: usize) -> usize {
    count.next_power_of_two().max(128)
}

/// Returns the type of addresses that reach all values of `tensors`.
#[cfg(feature = "cube")]
fn address_of(tensors: &[&burn_cubecl::tensor::CubeTensor]) -> burn_cubecl::cubecl::prelude::AddressType {
    tensors.iter().map(|tensor| tensor.required_address_type()).max().unwrap_or_default()
}
