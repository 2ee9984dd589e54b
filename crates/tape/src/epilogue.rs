//! What follows a matrix product: bias, activation, zeros in the padding, dropout, and the sum with a residual.
//!
//! On a GPU all of it is one kernel forward and two backward, where Burn has a kernel for nearly each step. On the CPU the
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

use burn::nn::Linear;
use burn::tensor::{FloatDType, Int, Tensor, activation};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;

use crate::activation::{Activation, glu, silu};
use crate::host::MaybeTracked;
use crate::kernels::{EndTensors, EpilogueRule, KernelBackend, on_kernels};
use crate::noise::Mask;
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

impl Pass {
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
        let kinds = [None, Some(Activation::Silu), Some(Activation::Relu), Some(Activation::Glu)];
        let case = |round: usize| {
            let shape @ [b, t, _] = [1 + below(3), 1 + below(150), 1 + below(20)];
            let lengths = round.is_multiple_of(3).then(|| (0..b).map(|_| below(t + 2) as u32).collect());
            let width = 2 * (1 + below(40));
            let dropout = if round.is_multiple_of(2) { 0.3 } else { 0.0 };
            let factor = [None, Some(1.0), Some(0.5)][round % 3];
            Case {
                shape,
                width,
                activation: kinds[round % 4],
                lengths,
                dropout,
                factor,
                has_bias: !round.is_multiple_of(5),
            }
        };
        (0..12).map(case).collect()
    }

    /// Applies a layer and what follows by operations that know nothing of each other.
    fn one_by_one(pass: &Pass, layer: &Linear, x: Tensor<3>, end: Epilogue) -> Tensor<3> {
        let y = layer.forward(x);
        let y = match end.activation {
            Some(Activation::Silu) => activation::silu(y),
            Some(Activation::Relu) => activation::relu(y),
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
    }
}
