//! Subsampling: strided convolutions over time and frequency that reduce the number of frames.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Pass;
use plimsoll_tape::transfer::send_queued;

use crate::Lengths;
use crate::window_convolution::convolve;

// Shapes: b batch, t frames, f features, t' frames after subsampling, d model width, c channels.

/// Configuration of a [`Subsampling`].
#[derive(Clone, Copy, Debug)]
pub struct SubsamplingConfig {
    /// Number of features in an input frame.
    pub features: usize,
    /// Width of an output frame.
    pub d_model: usize,
    /// Number of channels of the convolutions.
    pub channels: usize,
    /// Factor by which the frame rate is reduced: 2, 4 or 8.
    pub factor: usize,
}

/// Subsampling layer: convolutions of 3 x 3 with stride 2 and ReLU, each of which halves time and frequency, then a
/// linear layer. With a factor of 4 it equals ESPnet's `Conv2dSubsampling` without positions.
///
/// The convolutions add no padding at the edges, so a valid output frame depends on valid input frames only. An
/// utterance too short for one output frame gets one output frame that covers padding, too.
#[derive(Module, Debug)]
pub struct Subsampling {
    layers: Vec<Conv2d>,
    project: Linear,
}

impl SubsamplingConfig {
    /// Builds the layer on `device`.
    ///
    /// # Panics
    /// If the factor is not 2, 4 or 8, or there are too few features to halve that often.
    pub fn init(&self, device: &Device) -> Subsampling {
        assert!([2, 4, 8].contains(&self.factor), "the subsampling factor must be 2, 4 or 8, not {}", self.factor);
        let halvings = self.factor.ilog2();
        let features = (0..halvings).fold(self.features, |n, _| halved(n));
        assert!(features > 0, "{} features are too few to be halved {halvings} times", self.features);
        let layer = |inputs: usize| Conv2dConfig::new([inputs, self.channels], [3, 3]).with_stride([2, 2]).init(device);
        Subsampling {
            layers: (0..halvings).map(|i| layer(if i == 0 { 1 } else { self.channels })).collect(),
            project: LinearConfig::new(self.channels * features, self.d_model).init(device),
        }
    }

    /// Returns the smallest number of features that can be halved as often as `factor` needs.
    pub fn features_min(factor: usize) -> usize {
        let halvings = factor.max(1).ilog2();
        (1..).find(|&features| (0..halvings).fold(features, |n, _| halved(n)) > 0).expect("numbers do not end")
    }

    /// Computes the number of output frames for `frames` input frames. At least 1: `forward` pads short inputs.
    pub fn frames_after(factor: usize, frames: u32) -> u32 {
        (0..factor.max(1).ilog2()).fold(frames as usize, |n, _| halved(n)).max(1) as u32
    }
}

impl Subsampling {
    /// Reduces the frames: `[b, t, f]` to `[b, t', d]`. Also returns the valid lengths after subsampling.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> (Tensor<3>, Lengths) {
        let factor = 1 << self.layers.len();
        // The fewest input frames that give one output frame: 3 for a factor of 2, 7 for 4, 15 for 8.
        let [b, t, f] = x.dims();
        let x = if t < 2 * factor - 1 {
            let missing = Tensor::zeros([b, 2 * factor - 1 - t, f], &x.device());
            Tensor::cat(vec![x, missing], 1)
        } else {
            x
        };
        let cast = |layer: &Conv2d| {
            let bias = layer.bias.as_ref().map(|bias| pass.to_compute_dtype(bias.val()));
            (pass.to_compute_dtype(layer.weight.val()), bias)
        };
        let parameters: Vec<Parameters> = self.layers.iter().map(cast).collect();
        let x = pass.to_compute_dtype(x);
        // With the casts between the convolutions, a GPU would fuse nothing here, and keep more.
        send_queued(&x.device());
        let y = self.reduced(x, parameters, pass);
        let left = lengths.each().iter().map(|&n| SubsamplingConfig::frames_after(factor, n)).collect();
        let [_, t, _] = y.dims();
        (y, Lengths::new(left, t))
    }

    /// Reduces the frames with products of windows and weights. Their memory on a GPU depends on shapes only, where that of
    /// Burn's convolution depends on what tuning finds; on a CPU a step of a small recognizer takes a fifth less time
    /// (docs/log/cpu-speed.md, "Where the time of the default went").
    fn reduced(&self, x: Tensor<3>, parameters: Vec<Parameters>, pass: &Pass) -> Tensor<3> {
        let convolved = |maps: Tensor<4>, (layer, (weight, bias)): (&Conv2d, Parameters)| {
            relu(pass.observe(layer.weight.id, convolve(layer, maps, weight, bias)))
        };
        let maps = self.layers.iter().zip(parameters).fold(x.unsqueeze_dim(3), convolved);
        let [b, t, f, c] = maps.dims();
        // The rows of the weight are in the order of channels, then features: sorting them is less work than sorting the maps.
        let weight = pass.to_compute_dtype(self.project.weight.val());
        let [_, d] = weight.dims();
        let weight = weight.reshape([c, f, d]).swap_dims(0, 1).reshape([f * c, d]);
        let mut y = maps.reshape([b * t, f * c]).matmul(weight);
        if let Some(bias) = &self.project.bias {
            y = y + pass.to_compute_dtype(bias.val()).unsqueeze::<2>();
        }
        pass.observe(self.project.weight.id, y.reshape([b, t, d]))
    }
}

/// Weight and bias of a convolution in the type of its input.
type Parameters = (Tensor<4>, Option<Tensor<1>>);

/// Computes the output size of a convolution with kernel 3 and stride 2 over `n` positions.
fn halved(n: usize) -> usize {
    n.saturating_sub(1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_match_espnet() {
        for (frames, left) in [(1, 1), (6, 1), (7, 1), (11, 2), (100, 24), (3001, 749)] {
            assert_eq!(SubsamplingConfig::frames_after(4, frames), left, "{frames}");
        }
    }

    #[test]
    fn products_with_windows_equal_burns_convolution() {
        let device = Device::flex();
        let layer = SubsamplingConfig { features: 40, d_model: 16, channels: 4, factor: 4 }.init(&device);
        let layer = plimsoll_tape::initialize(layer, plimsoll_core::Key::new(4));
        let values: Vec<f32> = (0..2 * 31 * 40).map(|i| plimsoll_core::Key::new(5).at(i).unit() as f32 - 0.5).collect();
        let x = Tensor::<1>::from_floats(&values[..], &device).reshape([2, 31, 40]);
        let convolved = |maps: Tensor<4>, layer: &Conv2d| relu(layer.forward(maps));
        let maps = layer.layers.iter().fold(x.clone().unsqueeze_dim(1), convolved);
        let [b, c, t, f] = maps.dims();
        let theirs = layer.project.forward(maps.swap_dims(1, 2).reshape([b, t, c * f]));
        let (ours, _) = layer.forward(x, &Lengths::new(vec![31, 31], 31), &Pass::plain());
        assert_eq!(ours.dims(), theirs.dims());
        assert!((ours - theirs).abs().max().into_scalar::<f32>() < 1e-5);
    }

    #[test]
    fn tensor_shape_matches_lengths() {
        let device = Device::flex();
        let config = SubsamplingConfig { features: 40, d_model: 16, channels: 4, factor: 4 };
        let layer = config.init(&device);
        for frames in [1, 7, 64] {
            let (y, lengths) = layer.forward(
                Tensor::ones([2, frames, 40], &device),
                &Lengths::new(vec![frames as u32, 1], frames),
                &Pass::plain(),
            );
            let left = SubsamplingConfig::frames_after(4, frames as u32);
            assert_eq!(y.dims(), [2, left as usize, 16]);
            assert_eq!(lengths.each(), [left, 1]);
        }
    }
}
