//! The operations of this module on Burn's GPU backends: queued like Burn's own operations.

use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, backend_extension};
use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use burn_dispatch::backends::Cube;

use super::queue::queue;
use super::{
    CtcRule, EndTensors, EpilogueRule, HeadsRule, KernelBackend, WeightsRule, alignment, convolution, cross_entropy,
    ctc, depthwise, distances_shape, end_norm, epilogue, heads, moments_shape, norm, norm_back, norm_back_outputs,
    share_shapes, weights, windows,
};
use crate::geometry::Geometry;

/// The operations as Burn's queue of operations takes them.
#[backend_extension(Cube, Fusion)]
pub(crate) trait Kernels: Backend {
    /// [`KernelBackend::depthwise`].
    #[fusion(dtype = x, shape = x)]
    fn depthwise(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;

    /// [`KernelBackend::depthwise_back`].
    #[fusion(dtype = grad_output, shape = grad_output)]
    fn depthwise_back(grad_output: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;

    /// [`KernelBackend::depthwise_sums`].
    #[fusion(meta = |x, _, taps| (
        TensorSpec::new(Shape::new([x.shape[2], 1, *taps]), x.dtype),
        TensorSpec::new(Shape::new([x.shape[2]]), x.dtype),
    ))]
    fn depthwise_sums(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        taps: usize,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// [`KernelBackend::norm_rows`].
    #[fusion(meta = |x, _, _, _, to| (
        TensorSpec::new(x.shape.clone(), *to),
        TensorSpec::new(moments_shape(&x.shape), DType::F32),
    ))]
    fn norm_rows(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        epsilon: f32,
        to: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// [`KernelBackend::cut_windows`].
    #[fusion(dtype = x, shape = geometry.shape().into())]
    fn cut_windows(x: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self>;

    /// [`KernelBackend::add_windows`].
    #[fusion(dtype = windows, shape = geometry.input.into())]
    fn add_windows(windows: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self>;

    /// [`KernelBackend::convolve`].
    #[fusion(dtype = x, shape = Shape::new([geometry.places(), weight[1]]))]
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self>;

    /// [`KernelBackend::convolve_back`].
    #[fusion(meta = |x, _, weight, _| (x.clone(), weight.clone()))]
    fn convolve_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        geometry: Geometry,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// [`KernelBackend::convolve_weight_back`].
    #[fusion(dtype = x, shape = Shape::new([geometry.values(), grad_output[1]]))]
    fn convolve_weight_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        geometry: Geometry,
    ) -> FloatTensor<Self>;

    /// [`KernelBackend::norm_rows_sums`].
    #[fusion(meta = |_, x, _, to| (
        TensorSpec::new(Shape::new([x.shape[2]]), *to),
        TensorSpec::new(Shape::new([x.shape[2]]), *to),
    ))]
    fn norm_rows_sums(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        to: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

impl Kernels for CubeBackend {
    fn cut_windows(x: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        windows::cut(x, geometry)
    }

    fn add_windows(windows: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        windows::add(windows, geometry)
    }

    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        convolution::convolve(x, weight, geometry)
    }

    fn convolve_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        geometry: Geometry,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        convolution::convolve_back(x, grad_output, weight, geometry)
    }

    fn convolve_weight_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        geometry: Geometry,
    ) -> FloatTensor<Self> {
        convolution::convolve_weight_back(x, grad_output, geometry)
    }

    fn depthwise(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        depthwise::convolve(x, weight, Some(bias))
    }

    fn depthwise_back(grad_output: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        depthwise::convolve(grad_output, weight, None)
    }

    fn depthwise_sums(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        taps: usize,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        two(depthwise::sums(x, grad_output, taps))
    }

    fn norm_rows(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        epsilon: f32,
        to: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        norm::norm_rows(x, scale, shift, epsilon, to)
    }

    fn norm_rows_sums(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        to: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        two(norm::norm_rows_sums(grad_output, x, moments, to))
    }
}

impl KernelBackend for Cube {
    fn split_heads(
        projected: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        biases: Vec<FloatTensor<Self>>,
        rule: HeadsRule,
    ) -> Vec<FloatTensor<Self>> {
        let made = vec![(rule.output_shape(&projected.shape()), projected.dtype()); rule.outputs.len()];
        let has_bias = bias.is_some();
        let inputs = std::iter::once(projected).chain(bias).chain(biases).collect();
        queue("split_heads", inputs, made, move |mut inputs| {
            let projected = inputs.remove(0);
            let bias = has_bias.then(|| inputs.remove(0));
            heads::split(projected, bias, inputs, &rule)
        })
    }

    fn split_heads_back(
        grads: Vec<Option<FloatTensor<Self>>>,
        rule: HeadsRule,
    ) -> (FloatTensor<Self>, Vec<FloatTensor<Self>>) {
        let present: Vec<bool> = grads.iter().map(Option::is_some).collect();
        let inputs: Vec<FloatTensor<Self>> = grads.into_iter().flatten().collect();
        let (shape, dtype) = (inputs[0].shape(), inputs[0].dtype());
        let biases = rule.bias_shapes(&shape).map(|shape| (shape, dtype));
        let made = std::iter::once((rule.projected_shape(&shape), dtype)).chain(biases).collect();
        let mut made = queue("split_heads_back", inputs, made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let grads = present.iter().map(|is_present| if *is_present { inputs.next() } else { None }).collect();
            let (gradient, biases) = heads::split_back(grads, &rule);
            std::iter::once(gradient).chain(biases).collect()
        });
        let gradient = made.remove(0);
        (gradient, made)
    }

    fn end(
        product: FloatTensor<Self>,
        residual: Option<FloatTensor<Self>>,
        beside: EndTensors<Self>,
        rule: EpilogueRule,
    ) -> FloatTensor<Self> {
        let made = vec![(rule.output_shape(&product.shape()), rule.to)];
        let (has_residual, taken) = (residual.is_some(), beside.present());
        let inputs = std::iter::once(product).chain(residual).chain(beside.into_list()).collect();
        let mut made = queue("epilogue", inputs, made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            let (product, residual) = (next(), has_residual.then(&mut next));
            vec![epilogue::end(product, residual, beside_of(taken, next), &rule)]
        });
        made.remove(0)
    }

    fn end_back(
        grad_output: FloatTensor<Self>,
        product: Option<FloatTensor<Self>>,
        beside: EndTensors<Self>,
        rule: EpilogueRule,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let (shape, dtype) = (product.as_ref().unwrap_or(&grad_output).shape(), rule.from);
        let bias = beside.bias.as_ref().map(|bias| (bias.shape(), dtype));
        let made = std::iter::once((shape, dtype)).chain(bias).collect();
        let (has_product, taken) = (product.is_some(), beside.present());
        let inputs = std::iter::once(grad_output).chain(product).chain(beside.into_list()).collect();
        let mut made = queue("epilogue_back", inputs, made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            let (grad_output, product) = (next(), has_product.then(&mut next));
            let (gradient, bias) = epilogue::end_back(grad_output, product, beside_of(taken, next), &rule);
            std::iter::once(gradient).chain(bias).collect()
        });
        (made.remove(0), made.pop())
    }

    fn end_norm(
        product: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        beside: EndTensors<Self>,
        norm: [FloatTensor<Self>; 2],
        rule: EpilogueRule,
        (epsilon, to): (f32, DType),
    ) -> [FloatTensor<Self>; 3] {
        let (shape, taken) = (product.shape(), beside.present());
        let made = vec![(shape.clone(), rule.to), (shape.clone(), to), (moments_shape(&shape), DType::F32)];
        let inputs = [product, residual].into_iter().chain(norm).chain(beside.into_list()).collect();
        let mut made = queue("end_norm", inputs, made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            let (product, residual, norm) = (next(), next(), [next(), next()]);
            end_norm::end_norm(product, residual, beside_of(taken, next), norm, (&rule, epsilon, to))
        })
        .into_iter();
        std::array::from_fn(|_| made.next().expect("three tensors are made"))
    }

    fn norm_back(
        grad_output: FloatTensor<Self>,
        other: Option<FloatTensor<Self>>,
        kept: [FloatTensor<Self>; 3],
        added: Option<(EndTensors<Self>, EpilogueRule)>,
    ) -> Vec<FloatTensor<Self>> {
        let made = norm_back_outputs(&kept[0], kept[2].dtype(), added.as_ref()).concat();
        let has_other = other.is_some();
        let (beside, rule) = added.unzip();
        let taken = beside.as_ref().map_or([false; 3], EndTensors::present);
        let beside = beside.into_iter().flat_map(EndTensors::into_list);
        let inputs = [grad_output].into_iter().chain(kept).chain(other).chain(beside).collect();
        queue("norm_back", inputs, made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            let (grad_output, kept) = (next(), [next(), next(), next()]);
            let other = has_other.then(&mut next);
            let added = rule.as_ref().map(|rule| (beside_of(taken, next), rule));
            norm_back::norm_back(grad_output, other, kept, added)
        })
    }

    fn attention_weights(
        scores: FloatTensor<Self>,
        by_distance: Option<FloatTensor<Self>>,
        lengths: IntTensor<Self>,
        keys: Option<IntTensor<Self>>,
        rule: WeightsRule,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let has_distance = by_distance.is_some();
        let made = vec![(scores.shape(), scores.dtype()); if rule.dropout.is_some() { 2 } else { 1 }];
        let inputs = std::iter::once(scores).chain(by_distance).chain([lengths]).chain(keys).collect();
        let mut made = queue("attention_weights", inputs, made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            let (scores, by_distance) = (next(), has_distance.then(&mut next));
            let lengths = next();
            let (softmax, weights) = weights::weights(scores, by_distance, lengths, inputs.next(), &rule);
            std::iter::once(softmax).chain(weights).collect()
        });
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
        let losses = (Shape::new([shape[0]]), DType::F32);
        let made = std::iter::once(losses).chain(rule.has_gradient.then_some((shape, DType::F32))).collect();
        let mut made = queue("ctc", vec![logits, texts], made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            let (losses, gradient) = ctc::ctc(next(), next(), &rule);
            std::iter::once(losses).chain(gradient).collect()
        });
        let losses = made.remove(0);
        (losses, made.pop())
    }

    fn cross_entropy(logits: FloatTensor<Self>, labels: IntTensor<Self>, smoothing: f32) -> [FloatTensor<Self>; 2] {
        let shape = logits.shape();
        let made = vec![(Shape::new([shape[0] * shape[1]]), DType::F32); 2];
        let made = queue("cross_entropy", vec![logits, labels], made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            cross_entropy::losses(next(), next(), smoothing).into()
        });
        made.try_into().unwrap_or_else(|_| unreachable!("two tensors are made"))
    }

    fn cross_entropy_back(
        [logits, norms, grad_output]: [FloatTensor<Self>; 3],
        labels: IntTensor<Self>,
        smoothing: f32,
    ) -> FloatTensor<Self> {
        let made = vec![(logits.shape(), DType::F32)];
        let inputs = vec![logits, norms, grad_output, labels];
        let mut made = queue("cross_entropy_back", inputs, made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            vec![cross_entropy::gradient([next(), next(), next()], next(), smoothing)]
        });
        made.remove(0)
    }

    fn share_frames(
        scores: FloatTensor<Self>,
        tokens: IntTensor<Self>,
        frames: IntTensor<Self>,
        unit: f32,
    ) -> [FloatTensor<Self>; 3] {
        let made = share_shapes(&scores.shape()).into_iter().take(3).map(|shape| (shape, DType::F32)).collect();
        let made = queue("share_frames", vec![scores, tokens, frames], made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            alignment::share(next(), next(), next(), unit).into()
        });
        made.try_into().unwrap_or_else(|_| unreachable!("three tensors are made"))
    }

    fn attention_weights_back(
        softmax: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        keys: Option<IntTensor<Self>>,
        rule: WeightsRule,
        by_distance: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let (shape, dtype) = (softmax.shape(), softmax.dtype());
        let distances = by_distance.then(|| (distances_shape(&shape), dtype));
        let made = std::iter::once((shape, dtype)).chain(distances).collect();
        let inputs = [softmax, grad_output].into_iter().chain(keys).collect();
        let mut made = queue("attention_weights_back", inputs, made, move |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            let (softmax, grad_output) = (next(), next());
            let (scores, distances) = weights::weights_back(softmax, grad_output, inputs.next(), &rule, by_distance);
            std::iter::once(scores).chain(distances).collect()
        });
        (made.remove(0), made.pop())
    }

    fn cut_windows(x: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        <Self as Kernels>::cut_windows(x, geometry)
    }

    fn add_windows(windows: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        <Self as Kernels>::add_windows(windows, geometry)
    }

    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        <Self as Kernels>::convolve(x, weight, geometry)
    }

    fn convolve_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        geometry: Geometry,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        <Self as Kernels>::convolve_back(x, grad_output, weight, geometry)
    }

    fn convolve_weight_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        geometry: Geometry,
    ) -> FloatTensor<Self> {
        <Self as Kernels>::convolve_weight_back(x, grad_output, geometry)
    }

    fn depthwise(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        <Self as Kernels>::depthwise(x, weight, bias)
    }

    fn depthwise_back(grad_output: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        <Self as Kernels>::depthwise_back(grad_output, weight)
    }

    fn depthwise_sums(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        taps: usize,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        <Self as Kernels>::depthwise_sums(x, grad_output, taps)
    }

    fn norm_rows(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        epsilon: f32,
        to: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        <Self as Kernels>::norm_rows(x, scale, shift, epsilon, to)
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
        let mut made = queue("norm_rows_back", inputs, made, |inputs| {
            let mut inputs = inputs.into_iter();
            let mut next = || inputs.next().expect("the inputs that were queued");
            let (grad_output, x, moments, scale) = (next(), next(), next(), next());
            vec![norm::norm_rows_back(grad_output, x, moments, scale, inputs.next())]
        });
        made.remove(0)
    }

    fn norm_rows_sums(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        to: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        <Self as Kernels>::norm_rows_sums(grad_output, x, moments, to)
    }
}

fn two(tensors: Vec<CubeTensor>) -> (CubeTensor, CubeTensor) {
    let mut tensors = tensors.into_iter();
    let mut next = || tensors.next().expect("two tensors are made");
    (next(), next())
}

/// Takes the tensors beside a product that are there by `taken`.
fn beside_of([bias, lengths, keys]: [bool; 3], mut next: impl FnMut() -> CubeTensor) -> epilogue::Beside {
    epilogue::Beside { bias: bias.then(&mut next), lengths: lengths.then(&mut next), keys: keys.then(&mut next) }
}
