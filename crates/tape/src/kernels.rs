//! Operations that a GPU computes with kernels of this crate, and a capture device records.

use std::fmt;

use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_dispatch::backends::Capture;

use crate::activation::Activation;
use crate::bridge::PrimitiveBackend;
use crate::capture::record_kernel;
use crate::geometry::Geometry;
use crate::noise::DropRule;

/// Bytes to whose multiples a part of a tensor must begin, on any GPU.
const PART_ALIGNMENT: usize = 512;

#[cfg(feature = "cube")]
mod convolution;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "cube")]
mod depthwise;
#[cfg(feature = "cube")]
mod epilogue;
pub(crate) mod flat;
#[cfg(feature = "cube")]
mod heads;
#[cfg(feature = "cube")]
mod norm;
#[cfg(feature = "cube")]
mod queue;
#[cfg(feature = "cube")]
mod random;
#[cfg(feature = "cube")]
mod rows;
#[cfg(feature = "cube")]
mod sums;
#[cfg(feature = "cube")]
mod weights;
#[cfg(feature = "cube")]
mod windows;

/// Frames of an utterance that one thread adds up for the gradient of weights. A segment ends with its utterance.
pub(crate) const SEGMENT_FRAMES: usize = 256;

/// Rows that one thread adds up for the gradients of scale and shift of layer norm. A segment ends with its sample.
pub(crate) const NORM_SEGMENT_ROWS: usize = 64;

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

/// Returns the shape of the moments of a layer norm for an input of shape `x`.
pub(crate) fn moments_shape(x: &Shape) -> Shape {
    Shape::new([x[0], x[1], 2])
}

/// Returns the shape of the sums over segments of a layer norm for an input of shape `x`.
pub(crate) fn norm_sums_shape(x: &Shape) -> Shape {
    Shape::new([x[0] * x[1].div_ceil(NORM_SEGMENT_ROWS), 2, x[2]])
}

/// Returns the shape of the scores by distance of attention whose scores have the shape `scores`.
pub(crate) fn distances_shape(scores: &Shape) -> Shape {
    Shape::new([scores[0], scores[1], scores[2], (scores[2] + scores[3]).saturating_sub(1)])
}

/// Returns the shape of the gradients of a weight of `shape` in `count` pieces. Each begins where a GPU allows a tensor to begin.
pub(crate) fn parts_shape(shape: [usize; 2], count: usize, width: usize) -> [usize; 2] {
    [count, (shape[0] * shape[1] * width).next_multiple_of(PART_ALIGNMENT) / width]
}

/// Returns the type of addresses that reach all values of `tensors`.
#[cfg(feature = "cube")]
fn address_of(tensors: &[&burn_cubecl::tensor::CubeTensor]) -> burn_cubecl::cubecl::prelude::AddressType {
    tensors.iter().map(|tensor| tensor.required_address_type()).max().unwrap_or_default()
}

/// Records two sums over segments: first the sums of each segment, of the shape `segments`, then the two in one kernel.
fn record_sums(
    name: &str,
    inputs: Vec<FloatTensor<Capture>>,
    segments: Shape,
    made: Vec<(Shape, DType)>,
) -> (FloatTensor<Capture>, FloatTensor<Capture>) {
    let of_segments = record_kernel(name, inputs, vec![(segments, DType::F32)]);
    let mut made = record_kernel(name, of_segments, made).into_iter();
    let mut next = || made.next().expect("two tensors are made");
    (next(), next())
}

/// Names of a convolution, of its gradients, and of what both take for a piece, in a capture.
const CONVOLUTION: &str = "convolution";
const CONVOLUTION_BACK: &str = "convolution gradient";
const PIECE: &str = "piece of a convolution";

/// Records what the gradients of a convolution take beside their results.
fn record_pieces(x: FloatTensor<Capture>, grad_output: FloatTensor<Capture>, geometry: Geometry) {
    let (dtype, outputs) = (x.dtype(), grad_output.shape()[1]);
    let pieces = geometry.pieces(dtype.size());
    let shape = parts_shape([geometry.values(), outputs], pieces.len(), dtype.size());
    let parts =
        (pieces.len() > 1).then(|| record_kernel(PIECE, vec![x.clone()], vec![(shape.into(), dtype)]).remove(0));
    for piece in &pieces {
        let made = vec![(Shape::new([geometry.places_of(piece), outputs]), dtype)];
        let some = match pieces.len() {
            1 => vec![grad_output.clone()],
            _ => record_kernel(PIECE, vec![grad_output.clone()], made),
        };
        let inputs = std::iter::once(x.clone()).chain(some.iter().cloned()).collect();
        record_kernel(PIECE, inputs, vec![(geometry.shape_of(piece).into(), dtype)]);
    }
    if let Some(parts) = parts {
        // They are there until they are added up.
        record_kernel(PIECE, vec![parts], Vec::new());
    }
}

impl KernelBackend for Capture {
    fn split_heads(
        projected: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        biases: Vec<FloatTensor<Self>>,
        rule: HeadsRule,
    ) -> Vec<FloatTensor<Self>> {
        let made = vec![(rule.output_shape(&projected.shape()), projected.dtype()); rule.outputs.len()];
        record_kernel("heads", std::iter::once(projected).chain(bias).chain(biases).collect(), made)
    }

    fn split_heads_back(
        grads: Vec<Option<FloatTensor<Self>>>,
        rule: HeadsRule,
    ) -> (FloatTensor<Self>, Vec<FloatTensor<Self>>) {
        let inputs: Vec<FloatTensor<Self>> = grads.into_iter().flatten().collect();
        let (shape, dtype) = (inputs[0].shape(), inputs[0].dtype());
        let biases: Vec<_> = rule.bias_shapes(&shape).map(|shape| (shape, dtype)).collect();
        let rows = Shape::new([shape[0], shape[2], shape[1] * shape[3]]);
        let segments = Shape::new([norm_sums_shape(&rows)[0], rule.sums(), rows[2]]);
        let sums = (!biases.is_empty()).then_some((segments, DType::F32));
        let made = std::iter::once((rule.projected_shape(&shape), dtype)).chain(sums).collect();
        let mut made = record_kernel("heads", inputs, made);
        let gradient = made.remove(0);
        let biases = if made.is_empty() { made } else { record_kernel("heads", made, biases) };
        (gradient, biases)
    }

    fn end(
        product: FloatTensor<Self>,
        residual: Option<FloatTensor<Self>>,
        beside: EndTensors<Self>,
        rule: EpilogueRule,
    ) -> FloatTensor<Self> {
        let made = vec![(rule.output_shape(&product.shape()), rule.to)];
        let inputs = std::iter::once(product).chain(residual).chain(beside.into_list()).collect();
        record_kernel("epilogue", inputs, made).remove(0)
    }

    fn end_back(
        grad_output: FloatTensor<Self>,
        product: Option<FloatTensor<Self>>,
        beside: EndTensors<Self>,
        rule: EpilogueRule,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let (shape, dtype) = (product.as_ref().unwrap_or(&grad_output).shape(), rule.from);
        let segments = Shape::new([norm_sums_shape(&shape)[0], 1, shape[2]]);
        let bias = beside.bias.as_ref().map(TensorMetadata::shape);
        let sums = bias.is_some().then_some((segments, DType::F32));
        let made = std::iter::once((shape, dtype)).chain(sums).collect();
        let inputs = std::iter::once(grad_output).chain(product).chain(beside.into_list()).collect();
        let mut made = record_kernel("epilogue", inputs, made);
        let bias = bias.map(|bias| {
            let sums = made.pop().into_iter().collect();
            record_kernel("epilogue", sums, vec![(bias, dtype)]).remove(0)
        });
        (made.remove(0), bias)
    }

    fn attention_weights(
        scores: FloatTensor<Self>,
        by_distance: Option<FloatTensor<Self>>,
        lengths: IntTensor<Self>,
        keys: Option<IntTensor<Self>>,
        rule: WeightsRule,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let one = (scores.shape(), scores.dtype());
        let made = vec![one; if rule.dropout.is_some() { 2 } else { 1 }];
        let inputs = std::iter::once(scores).chain(by_distance).chain([lengths]).chain(keys).collect();
        let mut made = record_kernel("attention_weights", inputs, made);
        let softmax = made.remove(0);
        let weights = made.pop().unwrap_or_else(|| softmax.clone());
        (softmax, weights)
    }

    fn attention_weights_back(
        softmax: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        keys: Option<IntTensor<Self>>,
        _: WeightsRule,
        by_distance: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let (shape, dtype) = (softmax.shape(), softmax.dtype());
        let distances = by_distance.then(|| (distances_shape(&shape), dtype));
        let made = std::iter::once((shape, dtype)).chain(distances).collect();
        let mut made =
            record_kernel("attention_weights", [softmax, grad_output].into_iter().chain(keys).collect(), made);
        (made.remove(0), made.pop())
    }

    fn cut_windows(x: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        let made = vec![(geometry.shape().into(), x.dtype())];
        record_kernel("windows", vec![x], made).remove(0)
    }

    fn add_windows(windows: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        let made = vec![(geometry.input.into(), windows.dtype())];
        record_kernel("windows", vec![windows], made).remove(0)
    }

    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        let (dtype, outputs) = (x.dtype(), weight.shape()[1]);
        let made = vec![(Shape::new([geometry.places(), outputs]), dtype)];
        let out = record_kernel(CONVOLUTION, vec![x.clone(), weight], made).remove(0);
        let pieces = geometry.pieces(dtype.size());
        for piece in &pieces {
            let windows = record_kernel(PIECE, vec![x.clone()], vec![(geometry.shape_of(piece).into(), dtype)]);
            if pieces.len() > 1 {
                record_kernel(PIECE, windows, vec![(Shape::new([geometry.places_of(piece), outputs]), dtype)]);
            }
        }
        out
    }

    fn convolve_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        geometry: Geometry,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let made = vec![(x.shape(), x.dtype()), (weight.shape(), x.dtype())];
        let inputs = vec![x.clone(), grad_output.clone(), weight];
        let mut made = record_kernel(CONVOLUTION_BACK, inputs, made).into_iter();
        record_pieces(x, grad_output, geometry);
        let mut next = || made.next().expect("two tensors are made");
        (next(), next())
    }

    fn convolve_weight_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        geometry: Geometry,
    ) -> FloatTensor<Self> {
        let made = vec![(Shape::new([geometry.values(), grad_output.shape()[1]]), x.dtype())];
        let out = record_kernel(CONVOLUTION_BACK, vec![x.clone(), grad_output.clone()], made).remove(0);
        record_pieces(x, grad_output, geometry);
        out
    }

    fn depthwise(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        let made = vec![(x.shape(), x.dtype())];
        record_kernel("depthwise", vec![x, weight, bias], made).remove(0)
    }

    fn depthwise_back(grad_output: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        let made = vec![(grad_output.shape(), grad_output.dtype())];
        record_kernel("depthwise", vec![grad_output, weight], made).remove(0)
    }

    fn depthwise_sums(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        taps: usize,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (dtype, shape) = (x.dtype(), sums_shape(&x.shape(), taps));
        let made = vec![(Shape::new([shape[2], 1, taps]), dtype), (Shape::new([shape[2]]), dtype)];
        record_sums("depthwise", vec![x, grad_output], shape, made)
    }

    fn norm_rows(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        _: f32,
        to: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let outputs = vec![(x.shape(), to), (moments_shape(&x.shape()), DType::F32)];
        let mut made = record_kernel("layer_norm", vec![x, scale, shift], outputs).into_iter();
        let mut next = || made.next().expect("two tensors are made");
        (next(), next())
    }

    fn norm_rows_back(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        other: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let made = vec![(x.shape(), x.dtype())];
        let inputs = [grad_output, x, moments, scale].into_iter().chain(other).collect();
        record_kernel("layer_norm", inputs, made).remove(0)
    }

    fn norm_rows_sums(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        to: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let shape = norm_sums_shape(&x.shape());
        let made = vec![(Shape::new([shape[2]]), to); 2];
        record_sums("layer_norm", vec![grad_output, x, moments], shape, made)
    }
}
