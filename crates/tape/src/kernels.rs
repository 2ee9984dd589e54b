//! Operations that a GPU computes with kernels of this crate, and a capture device records.

use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_dispatch::backends::Capture;

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
pub(crate) mod flat;
#[cfg(feature = "cube")]
mod norm;
#[cfg(feature = "cube")]
mod queue;
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

    /// Normalizes the rows of `x` `[b, t, d]`, multiplies them by `scale` `[d]` and adds `shift` `[d]`. Returns the result
    /// and the moments of the rows `[b, t, 2]` in fp32: the mean, and one over the standard deviation.
    fn norm_rows(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Computes the gradient of the input of a layer norm from `grad_output` `[b, t, d]`, the input and its moments.
    fn norm_rows_back(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        scale: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// Computes the gradients of scale and shift of a layer norm, both `[d]`, in the type of `x`.
    fn norm_rows_sums(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
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
    Shape::new([scores[0], scores[1], scores[2], scores[2] + scores[3] - 1])
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
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let outputs = vec![(x.shape(), x.dtype()), (moments_shape(&x.shape()), DType::F32)];
        let mut made = record_kernel("layer_norm", vec![x, scale, shift], outputs).into_iter();
        let mut next = || made.next().expect("two tensors are made");
        (next(), next())
    }

    fn norm_rows_back(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        scale: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let made = vec![(x.shape(), x.dtype())];
        record_kernel("layer_norm", vec![grad_output, x, moments, scale], made).remove(0)
    }

    fn norm_rows_sums(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (dtype, shape) = (x.dtype(), norm_sums_shape(&x.shape()));
        let made = vec![(Shape::new([shape[2]]), dtype); 2];
        record_sums("layer_norm", vec![grad_output, x, moments], shape, made)
    }
}
