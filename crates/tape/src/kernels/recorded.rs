//! The operations as a capture device records them: with the memory that the kernels take.

use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_dispatch::backends::Capture;

use super::{
    CtcRule, EndTensors, EpilogueRule, HeadsRule, KernelBackend, MOST_JOINED_WIDTH, WeightsRule, column_groups,
    distances_shape, ends_at_once, moments_shape, norm_back_outputs, norm_back_sums_shape, norm_sums_shape,
    parts_shape, share_shapes, sums_shape, tap_groups,
};
use crate::capture::{CustomOp, record_kernel};
use crate::geometry::Geometry;

/// Records a kernel that makes tensors, and of `sums` over segments others, which follow them. It counts in `places` which of its groups
/// of threads are done.
fn record_with_sums(
    name: &str,
    inputs: Vec<FloatTensor<Capture>>,
    made: Vec<(Shape, DType)>,
    (sums, places): (Option<Shape>, usize),
    of_sums: Vec<(Shape, DType)>,
) -> Vec<FloatTensor<Capture>> {
    let Some(sums) = sums else { return record_kernel(name, inputs, made) };
    let (count, is_at_once) = (made.len(), ends_at_once(&sums, places));
    let all = made.into_iter().chain([(sums, DType::F32)]).chain(of_sums).collect();
    let ending = if is_at_once { CustomOp::WITH_SUMS } else { "" };
    let mut made = record_kernel(&format!("{name}{ending}"), inputs, all);
    let sums = made.remove(count);
    if !is_at_once {
        record_kernel(name, vec![sums], Vec::new());
    }
    made
}

/// Takes the two tensors of a list.
fn two_of(made: Vec<FloatTensor<Capture>>) -> (FloatTensor<Capture>, FloatTensor<Capture>) {
    let mut made = made.into_iter();
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
        let sums = ((!biases.is_empty()).then_some(segments), column_groups(rows[2]));
        let gradient = (rule.projected_shape(&shape), dtype);
        let mut made = record_with_sums("heads", inputs, vec![gradient], sums, biases);
        (made.remove(0), made)
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
        let sums = (bias.is_some().then_some(segments), column_groups(rule.output_shape(&shape)[2]));
        let inputs = std::iter::once(grad_output).chain(product).chain(beside.into_list()).collect();
        let bias = bias.map(|bias| (bias, dtype)).into_iter().collect();
        let mut made = record_with_sums("epilogue", inputs, vec![(shape, dtype)], sums, bias);
        (made.remove(0), made.pop())
    }

    fn end_norm(
        product: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        beside: EndTensors<Self>,
        norm: [FloatTensor<Self>; 2],
        rule: EpilogueRule,
        (_, to): (f32, DType),
    ) -> [FloatTensor<Self>; 3] {
        let shape = product.shape();
        let made = vec![(shape.clone(), rule.to), (shape.clone(), to), (moments_shape(&shape), DType::F32)];
        let inputs = [product, residual].into_iter().chain(beside.into_list()).chain(norm).collect();
        let mut made = record_kernel("epilogue", inputs, made).into_iter();
        std::array::from_fn(|_| made.next().expect("three tensors are made"))
    }

    fn norm_back(
        grad_output: FloatTensor<Self>,
        other: Option<FloatTensor<Self>>,
        kept: [FloatTensor<Self>; 3],
        added: Option<(EndTensors<Self>, EpilogueRule)>,
    ) -> Vec<FloatTensor<Self>> {
        let [made, of_sums] = norm_back_outputs(&kept[0], kept[2].dtype(), added.as_ref());
        let shape = kept[0].shape();
        if shape[2] > MOST_JOINED_WIDTH {
            let [x, moments, scale] = kept;
            let to = scale.dtype();
            let of_x = Self::norm_rows_back(grad_output.clone(), x.clone(), moments.clone(), scale, other);
            let (of_scale, of_shift) = Self::norm_rows_sums(grad_output, x, moments, to);
            return vec![of_x, of_scale, of_shift];
        }
        let sums = norm_back_sums_shape(&shape, of_sums.len() > 2);
        let beside = added.into_iter().flat_map(|(beside, _)| beside.into_list());
        let inputs = [grad_output].into_iter().chain(other).chain(kept).chain(beside).collect();
        record_with_sums("layer_norm", inputs, made, (Some(sums), 1), of_sums)
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

    fn ctc(
        logits: FloatTensor<Self>,
        texts: IntTensor<Self>,
        rule: CtcRule,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let shape = logits.shape();
        let [b, t] = [shape[0], shape[1]];
        let gradient = rule.has_gradient.then_some(shape);
        let beside = [Shape::new([b, t, 2]), Shape::new(rule.paths_shape(b, t))];
        let made =
            std::iter::once(Shape::new([b])).chain(gradient).chain(beside).map(|shape| (shape, DType::F32)).collect();
        let mut made = record_kernel("ctc", vec![logits, texts], made);
        let paths = made.pop().expect("the sums over paths are made");
        // The kernels after the first.
        for _ in 0..if rule.has_gradient { 2 } else { 1 } {
            record_kernel("ctc", vec![paths.clone()], Vec::new());
        }
        let losses = made.remove(0);
        (losses, rule.has_gradient.then(|| made.remove(0)))
    }

    fn cross_entropy(logits: FloatTensor<Self>, labels: IntTensor<Self>, _smoothing: f32) -> [FloatTensor<Self>; 2] {
        let shape = logits.shape();
        let made = vec![(Shape::new([shape[0] * shape[1]]), DType::F32); 2];
        let (losses, norms) = two_of(record_kernel("cross_entropy", vec![logits, labels], made));
        [losses, norms]
    }

    fn cross_entropy_back(
        [logits, norms, grad_output]: [FloatTensor<Self>; 3],
        labels: IntTensor<Self>,
        _smoothing: f32,
    ) -> FloatTensor<Self> {
        let made = vec![(logits.shape(), DType::F32)];
        record_kernel("cross_entropy", vec![logits, norms, grad_output, labels], made).remove(0)
    }

    fn share_frames(
        scores: FloatTensor<Self>,
        tokens: IntTensor<Self>,
        frames: IntTensor<Self>,
        _unit: f32,
    ) -> [FloatTensor<Self>; 3] {
        let made = share_shapes(&scores.shape()).map(|shape| (shape, DType::F32)).to_vec();
        let mut made = record_kernel("alignment", vec![scores, tokens, frames], made);
        let (begins, entered) = (made.pop(), made.pop());
        // The kernels after the first.
        for beside in [entered, begins] {
            record_kernel("alignment", beside.into_iter().collect(), Vec::new());
        }
        made.try_into().unwrap_or_else(|_| unreachable!("three tensors are left"))
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
        let places = tap_groups(shape[2], taps);
        let made = vec![(Shape::new([shape[2], 1, taps]), dtype), (Shape::new([shape[2]]), dtype)];
        two_of(record_with_sums("depthwise", vec![x, grad_output], Vec::new(), (Some(shape), places), made))
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
        let (inputs, places) = (vec![grad_output, x, moments], column_groups(shape[2]));
        two_of(record_with_sums("layer_norm", inputs, Vec::new(), (Some(shape), places), made))
    }
}
