//! Heads of attention: a projection cut into queries, keys and values, and heads joined again.
//!
//! On a GPU each is one kernel forward and one backward, with biases and factors inside; the results lie in memory as the
//! matrix products of attention read them. Elsewhere they are slices and turns of Burn.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use plimsoll_tape::heads::{Head, join, split};
//!
//! // Keys and values of four heads from one projection.
//! let projected = Tensor::<3>::ones([2, 5, 2 * 24], &Device::flex());
//! let [keys, values] = split(projected, 4, 2, [Head::of(0), Head::of(1)]);
//! assert_eq!(keys.dims(), [2, 4, 5, 6]);
//! assert_eq!(join(values).dims(), [2, 5, 24]);
//! ```

use std::sync::Arc;

use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use burn_backend::tensor::FloatTensor;

use crate::Pass;
pub use crate::fused::{is_tiled, tiled_attention};
use crate::host::MaybeTracked;
use crate::kernels::{HeadOutput, HeadsRule, KernelBackend, on_kernels};
use crate::remat::nodes::{Exit, Outcome, Slots, hub_of, with_nodes};
use crate::tensors::FloatMapper;

// Shapes: b samples, t rows of a sample, h heads, w width of a head.

/// One result of a projection that is [`split`] into heads.
#[derive(Clone, Debug)]
pub struct Head {
    /// Index of the part of the projection that the result takes.
    pub part: usize,
    /// Bias `[h, w]` of the type of the projection. The first two results may have one.
    pub bias: Option<Tensor<2>>,
    /// Factor of the result, after the bias.
    pub factor: f64,
}

impl Head {
    /// Makes the result that is the part `part` of the projection.
    pub fn of(part: usize) -> Self {
        Self { part, bias: None, factor: 1.0 }
    }
}

impl Pass {
    /// Applies `layer` to `x` as [`dense`](Self::dense) does, and cuts the result `[b, t, parts * h * w]` into `results`
    /// `[b, h, t, w]`.
    ///
    /// # Panics
    /// If `parts` times `heads` does not divide the width, if there are more than four results, or a result after the second
    /// has a bias.
    pub fn dense_heads<const N: usize>(
        &self,
        layer: &Linear,
        x: Tensor<3>,
        heads: usize,
        parts: usize,
        results: [Head; N],
    ) -> [Tensor<4>; N] {
        let device = x.device();
        let found = on_kernels!(
            &device,
            _B => {
                let projected = self.observe(layer.weight.id, self.product(layer, x));
                let bias = layer.bias.as_ref().map(|bias| self.to_compute_dtype(bias.val()));
                split_to(projected, bias, heads, parts, results.into())
            },
            otherwise split_to(self.dense(layer, x), None, heads, parts, results.into())
        );
        found.try_into().expect("a tensor for each result")
    }
}

/// Cuts `projected` `[b, t, parts * h * w]` into results `[b, h, t, w]`.
///
/// # Panics
/// If `parts` times `heads` does not divide the width, if there are more than four results, or a result after the second
/// has a bias.
pub fn split<const N: usize>(projected: Tensor<3>, heads: usize, parts: usize, results: [Head; N]) -> [Tensor<4>; N] {
    let found = split_to(projected, None, heads, parts, results.into());
    found.try_into().expect("a tensor for each result")
}

fn split_to(
    projected: Tensor<3>,
    bias: Option<Tensor<1>>,
    heads: usize,
    parts: usize,
    results: Vec<Head>,
) -> Vec<Tensor<4>> {
    let [_, _, width] = projected.dims();
    assert!(width.is_multiple_of(parts * heads), "{parts} parts of {heads} heads do not divide a width of {width}");
    assert!(results.len() <= 4, "a projection has at most four results");
    assert!(results.iter().skip(2).all(|result| result.bias.is_none()), "the first two results may have a bias");
    let device = projected.device();
    on_kernels!(
        &device,
        B => split_on::<B>(projected, bias, (heads, parts), results, &device),
        otherwise {
            let projected = match bias {
                Some(bias) => projected + bias.unsqueeze(),
                None => projected,
            };
            composed(projected, heads, parts, results)
        }
    )
}

/// Joins heads `[b, h, t, w]` to rows `[b, t, h * w]`.
pub fn join(x: Tensor<4>) -> Tensor<3> {
    let [b, h, t, w] = x.dims();
    let device = x.device();
    on_kernels!(
        &device,
        B => join_on::<B>(x),
        otherwise x.swap_dims(1, 2).reshape([b, t, h * w])
    )
}

fn composed(projected: Tensor<3>, h: usize, parts: usize, results: Vec<Head>) -> Vec<Tensor<4>> {
    let [b, t, width] = projected.dims();
    let w = width / parts / h;
    let cut = projected.reshape([b, t, parts, h, w]);
    let of_part = |part: usize| -> Tensor<4> {
        match parts {
            1 => cut.clone().reshape([b, t, h, w]),
            _ => {
                let one = cut.clone().slice([0..b, 0..t, part..part + 1, 0..h, 0..w]);
                one.reshape([b, t, h, w])
            }
        }
    };
    // Results of the same part share one slice, and the last of them owns it, so that it may be changed in place.
    let mut cuts: Vec<Option<Tensor<4>>> = vec![None; parts];
    let uses: Vec<usize> = results.iter().map(|head| head.part).collect();
    let result = |(index, Head { part, bias, factor }): (usize, Head)| {
        let x = cuts[part].take().unwrap_or_else(|| of_part(part));
        if uses[index + 1..].contains(&part) {
            cuts[part] = Some(x.clone());
        }
        let x = match bias {
            Some(bias) => x + bias.reshape([1, 1, h, w]),
            None => x,
        };
        // Turned at last: the values lie as attention on the CPU reads them.
        if factor == 1.0 { x } else { x * factor }.swap_dims(1, 2)
    };
    results.into_iter().enumerate().map(result).collect()
}

fn split_on<B: KernelBackend>(
    projected: Tensor<3>,
    bias: Option<Tensor<1>>,
    (heads, parts): (usize, usize),
    results: Vec<Head>,
    device: &Device,
) -> Vec<Tensor<4>> {
    let output =
        |head: &Head| HeadOutput { part: head.part, has_bias: head.bias.is_some(), factor: head.factor as f32 };
    let rule = HeadsRule { heads, parts, has_bias: bias.is_some(), outputs: results.iter().map(output).collect() };
    let projected = MaybeTracked::<B>::new(projected);
    let biases: Vec<_> = results.into_iter().filter_map(|head| head.bias).map(MaybeTracked::<B>::new).collect();
    let bias = bias.map(MaybeTracked::<B>::new);
    let x = projected.primitive();
    let own = bias.as_ref().map(MaybeTracked::primitive);
    let outputs = B::split_heads(x.clone(), own, biases.iter().map(MaybeTracked::primitive).collect(), rule.clone());
    if !device.is_autodiff() {
        return outputs.into_iter().map(B::from_plain).collect();
    }
    let inputs = std::iter::once(projected).chain(bias).chain(biases).map(MaybeTracked::tracked);
    // The nodes of the inputs, at which the gradients are registered; `None` for one that needs none.
    let (nodes, guards) = with_nodes::<B>(inputs);
    if guards.is_empty() {
        return outputs.into_iter().map(B::constant).collect();
    }
    let slots = Slots::<B>::default();
    let found = slots.clone();
    let run = move || -> Outcome<B> {
        let grads: Vec<Option<FloatTensor<B>>> = found.take();
        if grads.iter().all(Option::is_none) {
            return Vec::new();
        }
        let (gradient, biases) = B::split_heads_back(grads, rule.clone());
        let all = std::iter::once(gradient).chain(biases).zip(&nodes);
        all.filter_map(|(gradient, node)| Some(((*node)?, gradient))).collect()
    };
    let mut exit = Exit { hub: hub_of::<B>(guards, Arc::new(run), x), slots };
    outputs.into_iter().map(|output| exit.map_float(B::constant::<4>(output))).collect()
}

fn join_on<B: KernelBackend>(x: Tensor<4>) -> Tensor<3> {
    let [_, heads, _, _] = x.dims();
    let rule = HeadsRule {
        heads,
        parts: 1,
        has_bias: false,
        outputs: vec![HeadOutput { part: 0, has_bias: false, factor: 1.0 }],
    };
    let x = MaybeTracked::<B>::new(x);
    let (joined, _) = B::split_heads_back(vec![Some(x.primitive())], rule.clone());
    let MaybeTracked::Tracked(input) = x else { return B::from_plain(joined) };
    if !input.is_tracked() {
        return B::constant(joined);
    }
    let (node, slots) = (input.id(), Slots::<B>::default());
    let found = slots.clone();
    let run = move || -> Outcome<B> {
        let Some(Some(gradient)) = found.take().pop() else { return Vec::new() };
        let gradient = B::split_heads(gradient, None, Vec::new(), rule.clone()).remove(0);
        vec![(node, gradient)]
    };
    let mut exit = Exit { hub: hub_of::<B>(vec![input], Arc::new(run), joined.clone()), slots };
    exit.map_float(B::constant::<3>(joined))
}

#[cfg(test)]
mod tests {
    use burn::tensor::{FloatDType, TensorData};
    use plimsoll_core::Key;

    use super::*;

    /// Splits and joins on `device` in `dtype`, and returns the results and the gradients of the projection and the biases.
    fn on(device: &Device, [b, t, h, w]: [usize; 4], kind: usize, dtype: FloatDType) -> Vec<Vec<f32>> {
        let values = |count: usize, key: u64| -> Vec<f32> {
            (0..count as u64).map(|i| Key::new(key).at(i).unit() as f32 - 0.5).collect()
        };
        let parts = [1, 2, 3, 3][kind];
        let x =
            Tensor::<3>::from_data(TensorData::new(values(b * t * parts * h * w, 1), [b, t, parts * h * w]), device);
        let bias = |key| Tensor::<2>::from_data(TensorData::new(values(h * w, key), [h, w]), device).require_grad();
        let own =
            Tensor::<1>::from_data(TensorData::new(values(parts * h * w, 4), [parts * h * w]), device).require_grad();
        let (x, first, second) = (x.require_grad(), bias(2), bias(3));
        let low = |bias: &Tensor<2>| Some(bias.clone().cast(dtype));
        let results = match kind {
            0 => vec![Head { factor: 0.25, ..Head::of(0) }],
            1 => vec![Head::of(0), Head::of(1)],
            2 => vec![Head { factor: 0.5, bias: low(&first), part: 0 }, Head::of(1), Head::of(2)],
            _ => vec![
                Head { factor: 0.5, bias: low(&first), part: 0 },
                Head { factor: 0.5, bias: low(&second), part: 0 },
                Head::of(1),
                Head::of(2),
            ],
        };
        let bias = (kind != 1).then(|| own.clone().cast(dtype));
        let outputs = split_to(x.clone().cast(dtype), bias, h, parts, results);
        let wide = |x: Tensor<4>| x.cast(FloatDType::F32);
        // The last result is not used where there are others: it has no gradient.
        let used = if outputs.len() > 1 { outputs.len() - 1 } else { 1 };
        let mut loss = join(outputs[0].clone()).cast(FloatDType::F32).powi_scalar(3).sum();
        for output in &outputs[..used] {
            loss = loss + wide(output.clone()).square().sum();
        }
        let grads = loss.backward();
        let read = |x: Tensor<1>| x.cast(FloatDType::F32).into_data().try_to_vec::<f32>().expect("numbers");
        let mut all: Vec<_> = outputs.iter().map(|x| read(x.clone().without_autodiff().reshape([-1]))).collect();
        all.push(read(x.grad(&grads).expect("a gradient").reshape([-1])));
        all.extend(own.grad(&grads).map(read));
        all.extend([first, second].iter().filter_map(|bias| bias.grad(&grads)).map(|x| read(x.reshape([-1]))));
        all
    }

    #[test]
    fn heads_are_parts_of_the_projection() {
        let device = Device::flex();
        let values: Vec<f32> = (0..2 * 3 * 8).map(|i| i as f32).collect();
        let x = Tensor::<3>::from_data(TensorData::new(values, [2, 3, 8]), &device);
        let [first, second] = split(x.clone(), 2, 2, [Head::of(0), Head { factor: 2.0, ..Head::of(1) }]);
        let part = |from: usize| x.clone().slice([0..2, 0..3, from..from + 4]).into_data();
        assert_eq!(join(first).into_data(), part(0));
        assert_eq!((join(second) / 2.0).into_data(), part(4));
        for kind in 0..4 {
            let found = on(&Device::flex().autodiff(), [2, 5, 2, 3], kind, FloatDType::F32);
            assert_eq!(found.len(), [3, 3, 6, 8][kind]);
        }
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn kernels_equal_the_operations_of_the_cpu() {
        let cpu = Device::flex().autodiff();
        let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
        crate::kernels::sums::in_both_ways(|| {
            for (index, shape) in [[1, 1, 1, 1], [2, 5, 3, 7], [3, 130, 2, 16], [1, 65, 4, 9]].into_iter().enumerate() {
                for kind in 0..4 {
                    let expected = on(&cpu, shape, kind, FloatDType::F32);
                    for (dtype, bound) in [(FloatDType::F32, 1e-5), (FloatDType::F16, 1e-2)] {
                        let found = on(&gpu, shape, kind, dtype);
                        assert_eq!(found.len(), expected.len());
                        for (found, expected) in found.iter().zip(&expected) {
                            let largest = expected.iter().fold(1.0_f32, |largest, x| largest.max(x.abs()));
                            let far = found.iter().zip(expected).find(|(a, b)| (*a - *b).abs() > bound * largest);
                            assert_eq!(far, None, "{index}, {kind}, {dtype:?}");
                            assert_eq!(found.len(), expected.len());
                        }
                    }
                }
            }
        });
    }
}
