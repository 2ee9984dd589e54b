//! What follows a matrix product: bias, activation, zeros in the padding, dropout, and the sum with a residual.
//!
//! On a GPU all of it is one kernel each way, where Burn has a kernel for nearly each step. On the CPU the
//! steps are the operations of this crate, one after another.
//!
//! ```
//! use burn::nn::LinearConfig;
//! use burn::tensor::{Device, Tensor};
//! use plimsoll_tape::Pass;
//! use plimsoll_tape::activation::Activation;
//! use plimsoll_tape::epilogue::Epilogue;
//!
//! let device = Device::flex();
//! let (layer, x) = (LinearConfig::new(4, 6).init(&device), Tensor::<3>::ones([2, 5, 4], &device));
//! let gated = Epilogue { activation: Some(Activation::Glu), ..Epilogue::default() };
//! assert_eq!(Pass::plain().dense_into(&layer, x, gated).dims(), [2, 5, 3]);
//! ```

use std::marker::PhantomData;
use std::sync::Arc;

use burn::nn::Linear;
use burn::tensor::{FloatDType, Int, Tensor, activation};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;

use crate::activation::{Activation, gelu, glu, silu};
use crate::host::MaybeTracked;
use crate::kernels::{EndTensors, EpilogueRule, KernelBackend, MOST_JOINED_WIDTH, on_kernels};
use crate::noise::Mask;
use crate::remat::nodes::{Exit, Outcome, Slots, hub_of, with_nodes};
use crate::tensors::FloatMapper;
use crate::{AttentionMask, Pass};

// Shapes: b samples, t rows of a sample, d values of a row.

/// What follows a matrix product, in the order of the fields. The default does nothing.
#[derive(Clone, Debug, Default)]
pub struct Epilogue {
    /// Activation; `None` for none.
    pub activation: Option<Activation>,
    /// Numbers of valid rows of the samples; later rows become zeros.
    pub valid: Option<AttentionMask>,
    /// Probability of dropout, with the noise of the pass.
    pub dropout: f64,
    /// Tensor to which the result is added, and the factor before. The sum has the type of this tensor; without one the result
    /// has the dtype of matrix products.
    pub residual: Option<(Tensor<3>, f64)>,
}

/// Layer norm of a result, for what takes it next.
#[derive(Clone, Debug)]
pub struct NextNorm {
    /// Scale of each value of a row.
    pub scale: Tensor<1>,
    /// Shift of each value of a row.
    pub shift: Tensor<1>,
    /// Number added to the variance before the square root.
    pub epsilon: f64,
    /// Whether the norm has the dtype of matrix products; otherwise it has that of the scale.
    pub to_compute: bool,
}

impl Pass {
    /// Applies `layer` and `end` to `x` as [`dense_into`](Self::dense_into) does, and returns the layer norm of the result, and the result.
    ///
    /// On a GPU a sum with a residual and its norm are one kernel forward and one backward.
    pub fn dense_into_norm(
        &self,
        layer: &Linear,
        x: Tensor<3>,
        end: Epilogue,
        norm: NextNorm,
    ) -> (Tensor<3>, Tensor<3>) {
        let device = x.device();
        on_kernels!(
            &device,
            B => {
                let bias = layer.bias.as_ref().map(|bias| self.to_compute_dtype(bias.val()));
                let product = self.observe(layer.weight.id, self.product(layer, x));
                ended_normed::<B>(self, product, bias, end, norm)
            },
            otherwise self.normed_beside(self.dense_into(layer, x, end), norm)
        )
    }

    fn normed_beside(&self, x: Tensor<3>, norm: NextNorm) -> (Tensor<3>, Tensor<3>) {
        let NextNorm { scale, shift, epsilon, to_compute } = norm;
        match to_compute {
            true => self.layer_norm_beside(x, scale, shift, epsilon),
            false => (self.layer_norm(x.clone(), scale, shift, epsilon), x),
        }
    }

    /// Applies `layer` to `x` as [`dense`](Self::dense) does, and then `end`.
    pub fn dense_into(&self, layer: &Linear, x: Tensor<3>, end: Epilogue) -> Tensor<3> {
        let device = x.device();
        on_kernels!(
            &device,
            B => {
                let bias = layer.bias.as_ref().map(|bias| self.to_compute_dtype(bias.val()));
                ended::<B>(self, self.observe(layer.weight.id, self.product(layer, x)), bias, end)
            },
            otherwise self.composed(self.dense(layer, x), end)
        )
    }

    /// Applies `end` to `x`.
    pub fn end(&self, x: Tensor<3>, end: Epilogue) -> Tensor<3> {
        let device = x.device();
        on_kernels!(&device, B => ended::<B>(self, x, None, end), otherwise self.composed(x, end))
    }

    fn composed(&self, x: Tensor<3>, end: Epilogue) -> Tensor<3> {
        let Epilogue { activation, valid, dropout, residual } = end;
        let x = match activation {
            Some(Activation::Silu) => silu(x),
            Some(Activation::Relu) => activation::relu(x),
            Some(Activation::Gelu) => gelu(x),
            Some(Activation::Glu) => glu(x),
            None => x,
        };
        let x = match valid {
            Some(valid) => valid.clear_padding(x),
            None => x,
        };
        let x = self.dropout(x, dropout);
        match residual {
            Some((residual, 1.0)) => residual + self.at_least_fp32(x),
            Some((residual, factor)) => residual + self.at_least_fp32(x) * factor,
            None => self.to_compute_dtype(x),
        }
    }
}

/// Ends a product as one operation of the tape, which keeps the product if there is an activation.
fn ended<B: KernelBackend>(pass: &Pass, product: Tensor<3>, bias: Option<Tensor<1>>, end: Epilogue) -> Tensor<3> {
    let Epilogue { activation, valid, dropout, residual } = end;
    let device = product.device().inner();
    let rows = product.dims()[1];
    let valid = valid.filter(|valid| valid.key_lengths.iter().any(|&length| (length as usize) < rows));
    assert!(
        valid.as_ref().is_none_or(|valid| valid.key_lengths.len() == product.dims()[0]),
        "padding needs one length for each entry of the first axis"
    );
    let mask = pass.noise().mask(dropout, 0);
    mask.iter().for_each(|mask| mask.check_samples(product.dims()[0]));
    let factor = residual.as_ref().map_or(1.0, |(_, factor)| *factor as f32);
    let keys: Option<Tensor<3, Int>> = mask.as_ref().map(|mask| mask.sample_keys(&device));
    let low = match pass.compute_dtype() {
        FloatDType::F32 => product.dtype(),
        low => low.into(),
    };
    let to = residual.as_ref().map_or(low, |(residual, _)| residual.dtype());
    let has_nothing = activation.is_none() && valid.is_none() && mask.is_none() && bias.is_none() && residual.is_none();
    if has_nothing && to == product.dtype() {
        return product;
    }
    if let Some((residual, _)) = &residual {
        let [b, t, width] = product.dims();
        let width = if activation == Some(Activation::Glu) { width / 2 } else { width };
        assert_eq!(residual.dims(), [b, t, width], "a residual has the shape of the result");
    }
    let rule = EpilogueRule { activation, dropout: mask.as_ref().map(Mask::rule), from: product.dtype(), to, factor };
    let lengths = valid.map(|valid| B::plain_ints(valid.lengths(&device)));
    let product = MaybeTracked::<B>::new(product);
    let bias = bias.map(MaybeTracked::<B>::new);
    let residual = residual.map(|(residual, _)| MaybeTracked::<B>::new(residual));
    let plain = |tensor: &Option<MaybeTracked<B>>| tensor.as_ref().map(MaybeTracked::primitive);
    let beside = EndTensors { bias: plain(&bias), lengths, keys: keys.map(B::plain_ints) };
    let plain_product = product.primitive();
    let y = B::end(plain_product.clone(), plain(&residual), beside.clone(), rule.clone());
    let inputs = [Some(product), bias, residual];
    if inputs.iter().flatten().all(|input| matches!(input, MaybeTracked::Plain(_))) {
        return B::from_plain(y);
    }
    // What is missing is a constant of the graph.
    let nodes =
        inputs.map(|input| input.unwrap_or_else(|| MaybeTracked::Plain(plain_product.clone())).tracked().node());
    let kept = activation.map(|_| plain_product);
    let step = EndStep::<B>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish((kept, beside, rule), y),
        OpsKind::UnTracked(step) => step.finish(y),
    })
}

/// Ends a product as [`ended`] does, and normalizes the result: one operation of the tape with two results, the norm and the result.
fn ended_normed<B: KernelBackend>(
    pass: &Pass,
    product: Tensor<3>,
    bias: Option<Tensor<1>>,
    end: Epilogue,
    norm: NextNorm,
) -> (Tensor<3>, Tensor<3>) {
    let [samples, rows, width] = product.dims();
    let shows_all = |valid: &AttentionMask| valid.key_lengths.iter().all(|&length| length as usize >= rows);
    let is_plain = end.activation.is_none() && end.valid.as_ref().is_none_or(shows_all) && width <= MOST_JOINED_WIDTH;
    let (dropout, residual) = match end {
        Epilogue { dropout, residual: Some(residual), .. } if is_plain => (dropout, residual),
        end => return pass.normed_beside(ended::<B>(pass, product, bias, end), norm),
    };
    let (residual, factor) = residual;
    assert_eq!(residual.dims(), [samples, rows, width], "a residual has the shape of the result");
    let mask = pass.noise().mask(dropout, 0);
    mask.iter().for_each(|mask| mask.check_samples(samples));
    let keys = mask.as_ref().map(|mask| B::plain_ints(mask.sample_keys(&product.device().inner())));
    let rule = EpilogueRule {
        activation: None,
        dropout: mask.as_ref().map(Mask::rule),
        from: product.dtype(),
        to: residual.dtype(),
        factor: factor as f32,
    };
    let to = match pass.compute_dtype() {
        low if norm.to_compute && low != FloatDType::F32 => low.into(),
        _ => norm.scale.dtype(),
    };
    let inputs = [product, residual].map(MaybeTracked::<B>::new).into_iter();
    let inputs: Vec<MaybeTracked<B>> =
        inputs.chain([norm.scale, norm.shift].map(MaybeTracked::new)).chain(bias.map(MaybeTracked::new)).collect();
    let plain = |index: usize| inputs[index].primitive();
    let beside = EndTensors { bias: inputs.get(4).map(MaybeTracked::primitive), lengths: None, keys };
    let (scale, numbers) = (plain(2), (norm.epsilon as f32, to));
    let [sum, normed, moments] =
        B::end_norm(plain(0), plain(1), beside.clone(), [scale.clone(), plain(3)], rule.clone(), numbers);
    if inputs.iter().all(|input| matches!(input, MaybeTracked::Plain(_))) {
        return (B::from_plain(normed), B::from_plain(sum));
    }
    let (nodes, guards) = with_nodes::<B>(inputs.into_iter().map(MaybeTracked::tracked));
    if guards.is_empty() {
        return (B::constant::<3>(normed), B::constant::<3>(sum));
    }
    let slots = Slots::<B>::default();
    let (found, kept) = (slots.clone(), [sum.clone(), moments, scale]);
    let run = move || -> Outcome<B> {
        let mut found = found.take().into_iter();
        let (of_norm, of_sum) = (found.next().flatten(), found.next().flatten());
        // In the order of the inputs.
        let gradients: Vec<Option<FloatTensor<B>>> = match (of_norm, of_sum) {
            (Some(of_norm), of_sum) => {
                let added = Some((beside.clone(), rule.clone()));
                let all = B::norm_back(of_norm, of_sum, kept.clone(), added);
                let mut all: Vec<_> = all.into_iter().map(Some).collect();
                all.swap(0, 1);
                all
            }
            // What took the norm had no gradient.
            (None, Some(of_sum)) => {
                let (of_product, of_bias) = B::end_back(of_sum.clone(), None, beside.clone(), rule.clone());
                vec![Some(of_product), Some(of_sum), None, None, of_bias]
            }
            (None, None) => Vec::new(),
        };
        nodes.iter().zip(gradients).filter_map(|(node, gradient)| node.zip(gradient)).collect()
    };
    let mut exit = Exit { hub: hub_of::<B>(guards, Arc::new(run), sum.clone()), slots };
    (exit.map_float(B::constant::<3>(normed)), exit.map_float(B::constant::<3>(sum)))
}

#[derive(Debug)]
struct EndStep<B>(PhantomData<B>);

impl<B: KernelBackend> Backward<B, 3> for EndStep<B> {
    type State = (Option<FloatTensor<B>>, EndTensors<B>, EpilogueRule);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output = gradients.consume::<B>(&ops.node);
        let (product, beside, rule) = ops.state;
        let [for_product, for_bias, for_residual] = ops.parents;
        if let Some(parent) = for_residual {
            gradients.register::<B>(parent.id, grad_output.clone());
        }
        if for_product.is_none() && for_bias.is_none() {
            return;
        }
        let (gradient, bias) = B::end_back(grad_output, product, beside, rule);
        for (parent, gradient) in [(for_product, Some(gradient)), (for_bias, bias)] {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use burn::nn::LinearConfig;
    use burn::tensor::{DType, Device, FloatDType, TensorData};
    use plimsoll_core::{Choice, Key, Precision, SampleId};

    use super::*;
    use crate::transfer::Constants;
    use crate::{Noise, initialize};

    #[derive(Clone, Debug)]
    struct Case {
        shape: [usize; 3],
        width: usize,
        activation: Option<Activation>,
        lengths: Option<Vec<u32>>,
        dropout: f64,
        factor: Option<f64>,
        has_bias: bool,
    }

    /// Computes the result of a case on `device`, and the gradients of the input, the residual, the weight and the bias.
    fn on(device: &Device, case: &Case, precision: Precision) -> Vec<Vec<f32>> {
        by(device, case, precision, Pass::dense_into)
    }

    /// Computes a case as [`on`] does, with `apply` for the layer and what follows it.
    fn by(
        device: &Device,
        case: &Case,
        precision: Precision,
        apply: impl Fn(&Pass, &Linear, Tensor<3>, Epilogue) -> Tensor<3>,
    ) -> Vec<Vec<f32>> {
        let [b, t, d] = case.shape;
        let config = LinearConfig::new(d, case.width).with_bias(case.has_bias);
        let layer = initialize(config.init(device), Key::new(3));
        let output = case.width / if case.activation == Some(Activation::Glu) { 2 } else { 1 };
        let leaf = |key: u64, width: usize| {
            let values: Vec<f32> =
                (0..(b * t * width) as u64).map(|i| Key::new(key).at(i).unit() as f32 * 2.0 - 1.0).collect();
            Tensor::<3>::from_data(TensorData::new(values, [b, t, width]), device).require_grad()
        };
        let samples: Vec<SampleId> = (0..b as u64).map(SampleId).collect();
        let pass = Pass::new(Choice { precision, ..Choice::default() }, Noise::new(Key::new(7), &samples)).with("here");
        let (x, residual) = (leaf(1, d), leaf(2, output));
        let valid = case.lengths.as_ref().map(|lengths| AttentionMask {
            key_lengths: Arc::from(&lengths[..]),
            causal: false,
            first_query: 0,
            constants: Constants::default(),
        });
        let end = Epilogue {
            activation: case.activation,
            valid,
            dropout: case.dropout,
            residual: case.factor.map(|factor| (residual.clone(), factor)),
        };
        let y = apply(&pass, &layer, x.clone(), end);
        let wide = pass.at_least_fp32(y.clone());
        assert_eq!(y.dtype(), if case.factor.is_some() { DType::F32 } else { pass.compute_dtype().into() });
        let loss = (wide.clone().square() * 0.5 + wide.clone() * 0.3).sum();
        let read = |x: Tensor<1>| x.cast(FloatDType::F32).into_data().try_to_vec::<f32>().expect("numbers");
        let mut all = vec![read(wide.without_autodiff().reshape([-1]))];
        let grads = loss.clone().backward();
        all.push(read(x.grad(&grads).expect("a gradient").reshape([-1])));
        all.extend(residual.grad(&grads).map(|x| read(x.reshape([-1]))));
        let weight = layer.weight.val().grad(&grads).expect("a gradient");
        all.push(read(weight.reshape([-1])));
        all.extend(layer.bias.as_ref().and_then(|bias| bias.val().grad(&grads)).map(read));
        all
    }

    fn cases() -> Vec<Case> {
        let mut draw = (0..).map(|index| Key::new(5).at(index).bits() as usize);
        let mut below = move |limit: usize| draw.next().expect("draws never end") % limit;
        let some = [Activation::Silu, Activation::Relu, Activation::Gelu, Activation::Glu].map(Some);
        let case = |round: usize| {
            let shape @ [b, t, _] = [1 + below(3), 1 + below(150), 1 + below(20)];
            let lengths = round.is_multiple_of(3).then(|| (0..b).map(|_| below(t + 2) as u32).collect());
            let width = 2 * (1 + below(40));
            let dropout = if round.is_multiple_of(2) { 0.3 } else { 0.0 };
            let factor = [None, Some(1.0), Some(0.5)][round % 3];
            Case {
                shape,
                width,
                activation: some.into_iter().chain([None]).nth(round % 5).flatten(),
                lengths,
                dropout,
                factor,
                has_bias: !round.is_multiple_of(4),
            }
        };
        (0..20).map(case).collect()
    }

    /// Applies a layer and what follows by operations that know nothing of each other.
    fn one_by_one(pass: &Pass, layer: &Linear, x: Tensor<3>, end: Epilogue) -> Tensor<3> {
        let y = layer.forward(x);
        let y = match end.activation {
            Some(Activation::Silu) => activation::silu(y),
            Some(Activation::Relu) => activation::relu(y),
            Some(Activation::Gelu) => activation::gelu(y),
            Some(Activation::Glu) => activation::glu(y, 2),
            None => y,
        };
        let [b, t, width] = y.dims();
        let y = match &end.valid {
            Some(valid) => {
                let ones = |count: usize| (0..t).map(move |row| if row < count { 1.0_f32 } else { 0.0 });
                let rows: Vec<f32> = valid.key_lengths.iter().flat_map(|&length| ones(length as usize)).collect();
                let rows = Tensor::<3>::from_data(TensorData::new(rows, [b, t, 1]), &y.device());
                y * rows.expand([b, t, width])
            }
            None => y,
        };
        let y = pass.noise().dropout(y, end.dropout);
        match end.residual {
            Some((residual, factor)) => residual + y * factor,
            None => y,
        }
    }

    #[test]
    fn the_cpu_computes_single_operations_in_their_order() {
        let device = Device::flex().autodiff();
        for case in cases() {
            let found = on(&device, &case, Precision::Fp32);
            let expected = by(&device, &case, Precision::Fp32, one_by_one);
            assert_eq!(found.len(), expected.len(), "{case:?}");
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.len(), expected.len());
                let far = found.iter().zip(expected).find(|(a, b)| (*a - *b).abs() > 1e-5 * (1.0 + b.abs()));
                assert_eq!(far, None, "{case:?}");
            }
        }
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn kernels_equal_the_operations_of_the_cpu() {
        let cpu = Device::flex().autodiff();
        let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
        crate::kernels::sums::in_both_ways(|| {
            for case in cases() {
                let expected = on(&cpu, &case, Precision::Fp32);
                for (precision, bound) in [(Precision::Fp32, 2e-5), (Precision::Fp16, 1e-2)] {
                    let found = on(&gpu, &case, precision);
                    assert_eq!(found.len(), expected.len(), "{case:?}");
                    for (found, expected) in found.iter().zip(&expected) {
                        assert_eq!(found.len(), expected.len());
                        let largest = expected.iter().fold(1.0_f32, |largest, x| largest.max(x.abs()));
                        if (precision, case.activation) == (Precision::Fp16, Some(Activation::Relu)) {
                            // A product near zero may get another sign, and then another gradient.
                            let errors = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
                            assert!(errors.sum::<f32>() < bound * largest * found.len() as f32, "{case:?}");
                            continue;
                        }
                        let far = found.iter().zip(expected).find(|(a, b)| (*a - *b).abs() > bound * largest);
                        assert_eq!(far, None, "{precision:?}, {case:?}");
                    }
                }
            }
        });
    }

    /// A sum and its norm: rows of a sample, samples, width, factor, dropout, whether the layer has a bias.
    type NormCase = (usize, usize, usize, f64, f64, bool);

    /// Computes on `device` the norm of a sum and the sum, of which the loss uses those that `uses` says, and the gradients of input,
    /// residual, weight, bias, scale and shift.
    fn normed(
        device: &Device,
        case: NormCase,
        uses: [bool; 2],
        precision: Precision,
        to_compute: bool,
    ) -> Vec<Vec<f32>> {
        let (t, b, width, factor, dropout, has_bias) = case;
        let layer = initialize(LinearConfig::new(5, width).with_bias(has_bias).init(device), Key::new(3));
        let random = |key: u64, shape: [usize; 3]| {
            let count = shape.iter().product::<usize>() as u64;
            let values: Vec<f32> = (0..count).map(|i| Key::new(key).at(i).unit() as f32 * 2.0 - 1.0).collect();
            Tensor::<3>::from_data(TensorData::new(values, shape), device)
        };
        let (x, residual) = (random(1, [b, t, 5]).require_grad(), random(2, [b, t, width]).require_grad());
        let [scale, shift] = [3, 4].map(|key| random(key, [1, 1, width]).reshape([width]).require_grad());
        let samples: Vec<SampleId> = (0..b as u64).map(SampleId).collect();
        let pass = Pass::new(Choice { precision, ..Choice::default() }, Noise::new(Key::new(7), &samples)).with("here");
        let end = Epilogue { dropout, residual: Some((residual.clone(), factor)), ..Epilogue::default() };
        let norm = NextNorm { scale: scale.clone(), shift: shift.clone(), epsilon: 1e-5, to_compute };
        let (y, sum) = pass.dense_into_norm(&layer, x.clone(), end, norm);
        assert_eq!(y.dtype(), if to_compute { pass.compute_dtype().into() } else { DType::F32 });
        assert_eq!(sum.dtype(), DType::F32);
        let y = pass.at_least_fp32(y);
        let read = |x: Tensor<1>| x.cast(FloatDType::F32).into_data().try_to_vec::<f32>().expect("numbers");
        let mut all = [&y, &sum].map(|x| read(x.clone().without_autodiff().reshape([-1]))).to_vec();
        let mut loss = (x.clone() * 0.1).sum();
        if uses[0] {
            loss = loss + (y * random(5, [b, t, width])).sum();
        }
        if uses[1] {
            loss = loss + (sum.square() * random(6, [b, t, width])).sum();
        }
        let grads = loss.backward();
        all.push(read(x.grad(&grads).expect("a gradient").reshape([-1])));
        all.extend(residual.grad(&grads).map(|x| read(x.reshape([-1]))));
        all.extend(layer.weight.val().grad(&grads).map(|x| read(x.reshape([-1]))));
        all.extend(layer.bias.as_ref().and_then(|bias| bias.val().grad(&grads)).map(read));
        all.extend([scale, shift].iter().filter_map(|leaf| leaf.grad(&grads)).map(read));
        all
    }

    #[test]
    fn a_norm_beside_its_sum_has_the_values_of_both() {
        let device = Device::flex().autodiff();
        let found = normed(&device, (3, 2, 4, 0.5, 0.0, true), [true, true], Precision::Fp32, true);
        // Two results, and the gradients of input, residual, weight, bias, scale and shift.
        assert_eq!(found.len(), 8);
        for row in found[0].chunks(4).zip(found[1].chunks(4)).map(|(norm, sum)| (norm.len(), sum.len())) {
            assert_eq!(row, (4, 4));
        }
        assert_eq!(normed(&device, (3, 2, 4, 0.5, 0.0, true), [false, false], Precision::Fp32, true).len(), 3);
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn kernels_of_a_norm_beside_its_sum_equal_the_operations_of_the_cpu() {
        let cpu = Device::flex().autodiff();
        let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
        let cases: [NormCase; 5] = [
            (1, 1, 1, 1.0, 0.0, true),
            (70, 3, 33, 0.5, 0.3, true),
            (33, 2, 96, 1.0, 0.3, false),
            (5, 40, 64, 0.5, 0.0, true),
            (40, 2, 1100, 1.0, 0.3, true),
        ];
        crate::kernels::sums::in_both_ways(|| {
            for case in cases {
                for uses in [[true, true], [true, false], [false, true], [false, false]] {
                    let expected = normed(&cpu, case, uses, Precision::Fp32, true);
                    for (precision, bound) in [(Precision::Fp32, 2e-5), (Precision::Fp16, 2e-2)] {
                        let to_compute = case.0 != 33;
                        let found = normed(&gpu, case, uses, precision, to_compute);
                        assert_eq!(found.len(), expected.len(), "{case:?} {uses:?}");
                        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                            assert_eq!(found.len(), expected.len());
                            let largest = expected.iter().fold(1.0_f32, |largest, x| largest.max(x.abs()));
                            let far = found.iter().zip(expected).find(|(a, b)| (*a - *b).abs() > bound * largest);
                            assert_eq!(far, None, "{precision:?}, {case:?} {uses:?} {index}");
                        }
                    }
                }
            }
        });
    }
}
