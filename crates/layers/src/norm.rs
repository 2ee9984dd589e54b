//! Norms that padding does not move: over a frame, over a group of channels, over a batch.

use burn::module::{Module, Param, RunningState};
use burn::nn::LayerNorm;
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Pass, layer_norm};
use serde::{Deserialize, Serialize};

use crate::Lengths;

// Shapes: b batch, t frames, d channels, g groups.

/// Added to a variance before its root is taken: PyTorch's number, and Burn's.
const EPSILON: f64 = 1e-5;

/// How much of a batch's statistics goes into the running ones: PyTorch's number.
const MOMENTUM: f64 = 0.1;

/// `x` through a layer norm, in fp32 whatever `x` is in.
pub fn normed(norm: &LayerNorm, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
    let shift = norm.beta.as_ref().map_or_else(|| Tensor::zeros_like(&norm.gamma.val()), Param::val);
    layer_norm(pass.full(x), norm.gamma.val(), shift, EPSILON)
}

/// What a [`Norm`] takes its mean and variance over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// All channels of a frame. Does not see other frames, and so no padding.
    #[default]
    Layer,
    /// The channels of a group, over all valid frames of an utterance.
    Group(usize),
    /// Each channel by itself, over all valid frames of the batch; in evaluation, what training saw on average.
    ///
    /// The result then depends on how a step is cut into pieces, and on who is in a batch with whom. It is here for
    /// models that were made with it.
    Batch,
}

/// How to build a [`Norm`].
#[derive(Clone, Copy, Debug)]
pub struct NormConfig {
    /// Channels.
    pub channels: usize,
    /// What mean and variance are taken over.
    pub kind: NormKind,
}

/// Mean zero and variance one, then a scale and a shift for each channel; padding counts for nothing.
#[derive(Module, Debug)]
pub struct Norm {
    gamma: Param<Tensor<1>>,
    beta: Param<Tensor<1>>,
    mean: Option<RunningState<Tensor<1>>>,
    variance: Option<RunningState<Tensor<1>>>,
    groups: usize,
}

impl NormConfig {
    /// A norm on `device`.
    ///
    /// # Panics
    /// Where the groups do not share the channels evenly.
    pub fn init(&self, device: &Device) -> Norm {
        let d = self.channels;
        let groups = if let NormKind::Group(groups) = self.kind { groups } else { 0 };
        assert!(groups == 0 || d.is_multiple_of(groups), "{groups} groups cannot share {d} channels");
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
    /// `[b, t, d]` to the same in fp32.
    ///
    /// A batch norm trains on an autodiff device and evaluates on a plain one, as Burn's does.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let x = pass.full(x);
        if self.mean.is_some() {
            return self.by_batch(x, lengths);
        }
        match self.groups {
            0 => layer_norm(x, self.gamma.val(), self.beta.val(), EPSILON),
            groups => self.by_group(x, lengths, groups),
        }
    }

    /// The mean and variance that evaluation uses, for a batch norm.
    pub fn running(&self) -> Option<(Tensor<1>, Tensor<1>)> {
        Some((self.mean.as_ref()?.value_sync(), self.variance.as_ref()?.value_sync()))
    }

    fn by_group(&self, x: Tensor<3>, lengths: &Lengths, groups: usize) -> Tensor<3> {
        let [b, t, d] = x.dims();
        let counts: Vec<f32> = lengths.each().iter().map(|&n| n.max(1) as f32 * (d / groups) as f32).collect();
        let counts = Tensor::<1>::from_floats(counts.as_slice(), &x.device()).reshape([b, 1, 1, 1]);
        let mean_of = |x: Tensor<3>| -> Tensor<4> {
            let sum = lengths.clear_padding(x).reshape([b, t, groups, d / groups]).sum_dim(1).sum_dim(3);
            sum / counts.clone()
        };
        let grouped = x.clone().reshape([b, t, groups, d / groups]);
        let centred = grouped - mean_of(x);
        let variance = mean_of(centred.clone().square().reshape([b, t, d]));
        self.scaled((centred / (variance + EPSILON).sqrt()).reshape([b, t, d]))
    }

    fn by_batch(&self, x: Tensor<3>, lengths: &Lengths) -> Tensor<3> {
        let [_, _, d] = x.dims();
        let (Some(mean), Some(variance)) = (&self.mean, &self.variance) else { return x };
        if !x.device().is_autodiff() {
            let centred = x - mean.value_sync().reshape([1, 1, d]);
            return self.scaled(centred / (variance.value_sync() + EPSILON).sqrt().reshape([1, 1, d]));
        }
        let n = lengths.each().iter().map(|&n| f64::from(n)).sum::<f64>().max(1.0);
        let mean_of = |x: Tensor<3>| lengths.clear_padding(x).sum_dim(0).sum_dim(1) / n;
        let now = mean_of(x.clone());
        let centred = x - now.clone();
        let spread = mean_of(centred.clone().square());
        let moved = |running: &RunningState<Tensor<1>>, now: Tensor<1>| {
            running.update((running.value_sync() * (1.0 - MOMENTUM) + now * MOMENTUM).detach());
            // Asked for at once, so that who looks at the state next sees this batch in it.
            running.value_sync();
        };
        moved(mean, now.detach().reshape([d]));
        moved(variance, spread.clone().detach().reshape([d]) * (n / (n - 1.0).max(1.0)));
        self.scaled(centred / (spread + EPSILON).sqrt())
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
    fn what_stands_in_the_padding_changes_nothing() {
        let lengths = Lengths::new(vec![6, 4], 6);
        for kind in [NormKind::Layer, NormKind::Group(2), NormKind::Batch] {
            let results = [0.0, 50.0].map(|fill| {
                let norm = NormConfig { channels: 8, kind }.init(&Device::flex().autodiff());
                let y = lengths.clear_padding(norm.forward(input(fill), &lengths, &Pass::plain()));
                (y.into_data(), norm.running().map(|(mean, variance)| (mean.into_data(), variance.into_data())))
            });
            assert_eq!(results[0], results[1], "{kind:?}");
        }
    }

    #[test]
    fn a_batch_norm_evaluates_by_what_it_saw() {
        let lengths = Lengths::new(vec![6, 4], 6);
        let norm = NormConfig { channels: 8, kind: NormKind::Batch }.init(&Device::flex().autodiff());
        let mut trained = input(0.0);
        for _ in 0..300 {
            trained = norm.forward(input(0.0), &lengths, &Pass::plain());
        }
        let evaluated = norm.valid().forward(input(0.0).inner(), &lengths, &Pass::plain());
        let [trained, evaluated] = [trained.inner(), evaluated].map(|y| lengths.clear_padding(y).into_data());
        // One is divided by the spread of 10 frames, the other by that of 9.
        evaluated.assert_approx_eq::<f32>(&trained, Tolerance::rel_abs(0.06, 1e-3));
    }
}
