//! Layer, group and batch norms that ignore padding.

use burn::module::{Module, Param, RunningState};
use burn::nn::{LayerNorm, Linear};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Pass;
use plimsoll_tape::epilogue::{Epilogue, NextNorm};
use plimsoll_tape::transfer::from_host;
use serde::{Deserialize, Serialize};

use crate::Lengths;

// Shapes: b batch, t frames, d channels, g groups.

/// Number added to a variance before the square root. The default of PyTorch and Burn.
const EPSILON: f64 = 1e-5;

/// Weight of a new batch in the running statistics. The default of PyTorch.
const MOMENTUM: f64 = 0.1;

/// Applies Burn's `norm` to `x` `[b, t, d]` in fp32, whatever the precision of `x`.
pub fn apply_layer_norm(norm: &LayerNorm, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
    pass.observe(norm.gamma.id, pass.layer_norm(x, norm.gamma.val(), shift_of(norm), EPSILON))
}

/// Applies Burn's `norm` as [`apply_layer_norm`] does, to a tensor that a matrix product takes: the result has the dtype of
/// matrix products.
pub(crate) fn layer_norm_to_compute(norm: &LayerNorm, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
    pass.observe(norm.gamma.id, pass.layer_norm_to_compute(x, norm.gamma.val(), shift_of(norm), EPSILON))
}

/// Applies Burn's `norm` as [`layer_norm_to_compute`] does, and returns the result with `x`, for a residual connection.
pub(crate) fn layer_norm_beside(norm: &LayerNorm, x: Tensor<3>, pass: &Pass) -> (Tensor<3>, Tensor<3>) {
    let (normed, x) = pass.layer_norm_beside(x, norm.gamma.val(), shift_of(norm), EPSILON);
    (pass.observe(norm.gamma.id, normed), x)
}

/// Applies `layer` and `end` to `x`, then `norm` to the result, and returns the norm and the result. The norm has the dtype of matrix
/// products if `to_compute`, otherwise fp32.
pub(crate) fn dense_then_norm(
    layer: &Linear,
    x: Tensor<3>,
    end: Epilogue,
    pass: &Pass,
    (norm, to_compute): (&LayerNorm, bool),
) -> (Tensor<3>, Tensor<3>) {
    let next = NextNorm { scale: norm.gamma.val(), shift: shift_of(norm), epsilon: EPSILON, to_compute };
    let (normed, x) = pass.dense_into_norm(layer, x, end, next);
    (pass.observe(norm.gamma.id, normed), x)
}

fn shift_of(norm: &LayerNorm) -> Tensor<1> {
    norm.beta.as_ref().map_or_else(|| Tensor::zeros_like(&norm.gamma.val()), Param::val)
}

/// Values over which a [`Norm`] computes its mean and variance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NormKind {
    /// Layer norm, over all channels of one frame. Equals PyTorch's `LayerNorm`.
    #[default]
    Layer,
    /// Group norm, over the channels of a group and all valid frames of one sequence. The value is the number of
    /// groups. Without padding it equals PyTorch's `GroupNorm`.
    Group(usize),
    /// Batch norm, for each channel over all valid frames of the batch; in evaluation with running statistics. Without
    /// padding it equals PyTorch's `BatchNorm1d`.
    ///
    /// Results depend on which utterances share a batch, and on the split into micro-batches. Batch norm is meant for
    /// models that were trained with it.
    Batch,
}

/// Configuration of a [`Norm`].
#[derive(Clone, Copy, Debug)]
pub struct NormConfig {
    /// Number of channels: the length of the last axis of the input.
    pub channels: usize,
    /// Values over which mean and variance are computed.
    pub kind: NormKind,
}

/// Norm that ignores padding: normalizes to mean 0 and variance 1, then applies a learned scale and shift to each
/// channel.
#[derive(Module, Debug)]
pub struct Norm {
    gamma: Param<Tensor<1>>,
    beta: Param<Tensor<1>>,
    mean: Option<RunningState<Tensor<1>>>,
    variance: Option<RunningState<Tensor<1>>>,
    groups: usize,
}

impl NormConfig {
    /// Builds the norm on `device`.
    ///
    /// # Panics
    /// If the number of groups does not divide the channels.
    pub fn init(&self, device: &Device) -> Norm {
        let d = self.channels;
        let groups = if let NormKind::Group(groups) = self.kind { groups } else { 0 };
        assert!(groups == 0 || d.is_multiple_of(groups), "{groups} groups do not divide {d} channels");
        let running = |value: Tensor<1>| (self.kind == NormKind::Batch).then(|| RunningState::new(value));
        Norm {
            gamma: Param::from_tensor(Tensor::ones([d], device)),
            beta: Param::from_tensor(Tensor::zeros([d], device)),
            mean: running(Tensor::zeros([d], device)),
            variance: running(Tensor::ones([d], device)),
            groups,
        }
    }
}

impl Norm {
    /// Applies the norm: `[b, t, d]` to `[b, t, d]` in fp32.
    ///
    /// On an autodiff device a batch norm uses and records the statistics of the batch; on other devices it uses the
    /// running statistics, like Burn's `BatchNorm`.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let y = match self.groups {
            _ if self.mean.is_some() => self.by_batch(pass.at_least_fp32(x), lengths),
            0 => pass.layer_norm(x, self.gamma.val(), self.beta.val(), EPSILON),
            groups => self.by_group(pass.at_least_fp32(x), lengths, groups),
        };
        pass.observe(self.gamma.id, y)
    }

    /// Returns the running mean and variance `[d]` of a batch norm; `None` for other kinds of norms.
    pub fn running_stats(&self) -> Option<(Tensor<1>, Tensor<1>)> {
        Some((self.mean.as_ref()?.value_sync(), self.variance.as_ref()?.value_sync()))
    }

    fn by_group(&self, x: Tensor<3>, lengths: &Lengths, groups: usize) -> Tensor<3> {
        let [b, t, d] = x.dims();
        let device = x.device();
        let counts: Tensor<4> = lengths.constants().get("values of a group", &[d / groups], &device, || {
            from_host([b, 1, 1, 1], &device, || {
                lengths.each().iter().map(|&n| n.max(1) as f32 * (d / groups) as f32).collect()
            })
        });
        let mean_of = |x: Tensor<3>| -> Tensor<4> {
            let sum = lengths.clear_padding(x).reshape([b, t, groups, d / groups]).sum_dim(1).sum_dim(3);
            sum / counts.clone()
        };
        let grouped = x.clone().reshape([b, t, groups, d / groups]);
        let centered = grouped - mean_of(x);
        let variance = mean_of(centered.clone().square().reshape([b, t, d]));
        self.scaled((centered / (variance + EPSILON).sqrt()).reshape([b, t, d]))
    }

    fn by_batch(&self, x: Tensor<3>, lengths: &Lengths) -> Tensor<3> {
        let [_, _, d] = x.dims();
        let (Some(mean), Some(variance)) = (&self.mean, &self.variance) else { return x };
        if !x.device().is_autodiff() {
            let centered = x - mean.value_sync().reshape([1, 1, d]);
            return self.scaled(centered / (variance.value_sync() + EPSILON).sqrt().reshape([1, 1, d]));
        }
        let n = lengths.each().iter().map(|&n| f64::from(n)).sum::<f64>().max(1.0);
        let mean_of = |x: Tensor<3>| lengths.clear_padding(x).sum_dim(0).sum_dim(1) / n;
        let batch_mean = mean_of(x.clone());
        let centered = x - batch_mean.clone();
        let batch_variance = mean_of(centered.clone().square());
        let update = |running: &RunningState<Tensor<1>>, now: Tensor<1>| {
            running.update((running.value_sync() * (1.0 - MOMENTUM) + now * MOMENTUM).detach());
            // Burn applies updates lazily. The read makes this one visible to the next reader of the state.
            running.value_sync();
        };
        update(mean, batch_mean.detach().reshape([d]));
        update(variance, batch_variance.clone().detach().reshape([d]) * (n / (n - 1.0).max(1.0)));
        self.scaled(centered / (batch_variance + EPSILON).sqrt())
    }

    fn scaled(&self, x: Tensor<3>) -> Tensor<3> {
        x * self.gamma.val().unsqueeze::<3>() + self.beta.val().unsqueeze::<3>()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{TensorData, Tolerance};
    use plimsoll_core::Key;

    use super::*;

    fn input(fill: f32) -> Tensor<3> {
        let values: Vec<f32> = (0..2 * 6 * 8)
            .map(
                |i| if (6 * 8 + 4 * 8..2 * 6 * 8).contains(&i) { fill } else { Key::new(1).at(i as u64).unit() as f32 },
            )
            .collect();
        Tensor::from_data(TensorData::new(values, [2, 6, 8]), &Device::flex().autodiff())
    }

    #[test]
    fn padding_values_change_no_result() {
        let lengths = Lengths::new(vec![6, 4], 6);
        for kind in [NormKind::Layer, NormKind::Group(2), NormKind::Batch] {
            let results = [0.0, 50.0].map(|fill| {
                let norm = NormConfig { channels: 8, kind }.init(&Device::flex().autodiff());
                let y = lengths.clear_padding(norm.forward(input(fill), &lengths, &Pass::plain()));
                (y.into_data(), norm.running_stats().map(|(mean, variance)| (mean.into_data(), variance.into_data())))
            });
            assert_eq!(results[0], results[1], "{kind:?}");
        }
    }

    #[test]
    fn batch_norm_evaluates_with_its_running_statistics() {
        let lengths = Lengths::new(vec![6, 4], 6);
        let norm = NormConfig { channels: 8, kind: NormKind::Batch }.init(&Device::flex().autodiff());
        let mut trained = input(0.0);
        for _ in 0..300 {
            trained = norm.forward(input(0.0), &lengths, &Pass::plain());
        }
        let evaluated = norm.valid().forward(input(0.0).inner(), &lengths, &Pass::plain());
        let [trained, evaluated] = [trained.inner(), evaluated].map(|y| lengths.clear_padding(y).into_data());
        // Training divides by the biased variance of 10 frames, evaluation by the unbiased one.
        evaluated.assert_approx_eq::<f32>(&trained, Tolerance::rel_abs(0.06, 1e-3));
    }
}
