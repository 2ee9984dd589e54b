//! Discriminators: they learn to tell recordings from generated sound.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor};
use plimsoll_layers::{WindowConvolution, WindowConvolutionConfig};
use plimsoll_tape::activation::leaky_relu;
use plimsoll_tape::{Pass, detach};

use super::DiscriminatorConfig;

// Shapes: b waveforms, n samples, p period, t frames, k bins, r rows, q columns, c channels.

/// Slope of the activation below 0, as in HiFi-GAN.
const SLOPE: f64 = 0.1;

/// Discriminators of periods (Kong et al. 2020) and of resolutions (Jang et al. 2021).
///
/// Their convolutions have no weight norm: with AdamW and few channels they train without it.
#[derive(Module, Debug)]
pub struct Discriminators {
    periods: Vec<ConvolutionStack>,
    resolutions: Vec<ConvolutionStack>,
    #[module(skip)]
    config: DiscriminatorConfig,
}

/// What one discriminator found in a batch of sound.
#[derive(Clone, Debug)]
pub struct Judgment {
    /// Scores `[b, rows, columns, 1]`: above 0 for what looks like a recording.
    pub scores: Tensor<4>,
    /// Hidden values `[b, rows, columns, channels]` of each layer.
    pub features: Vec<Tensor<4>>,
}

/// Convolutions with leaky ReLU between them, and one that makes scores of the last values.
#[derive(Module, Debug)]
struct ConvolutionStack {
    layers: Vec<WindowConvolution>,
    scores: WindowConvolution,
}

impl DiscriminatorConfig {
    /// Makes the discriminators on `device`, with Burn's initial weights.
    pub fn init_unseeded(&self, device: &Device) -> Discriminators {
        Discriminators {
            periods: self.periods.iter().map(|_| self.period_stack(device)).collect(),
            resolutions: self.resolutions.iter().map(|_| self.resolution_stack(device)).collect(),
            config: self.clone(),
        }
    }

    /// Makes convolutions along the samples of a period: rows of kernels have one place, columns have five.
    fn period_stack(&self, device: &Device) -> ConvolutionStack {
        let last = self.period_channels.len() - 1;
        let layer = |index: usize, inputs: usize| WindowConvolutionConfig {
            inputs,
            outputs: self.period_channels[index],
            kernel: [1, 5],
            stride: [1, if index == last && last > 0 { 1 } else { 3 }],
            padding: [0, 2],
        };
        stack(&self.period_channels, layer, [1, 3], device)
    }

    /// Makes convolutions over frames and bins. They shrink the bins fast, and from the second layer on the frames.
    fn resolution_stack(&self, device: &Device) -> ConvolutionStack {
        let layer = |index: usize, inputs: usize| WindowConvolutionConfig {
            inputs,
            outputs: self.resolution_channels[index],
            kernel: if index == 0 { [3, 8] } else { [3, 4] },
            stride: if index == 0 { [1, 4] } else { [2, 2] },
            padding: if index == 0 { [1, 2] } else { [1, 1] },
        };
        stack(&self.resolution_channels, layer, [3, 3], device)
    }
}

fn stack(
    channels: &[usize],
    layer: impl Fn(usize, usize) -> WindowConvolutionConfig,
    last: [usize; 2],
    device: &Device,
) -> ConvolutionStack {
    let inputs = std::iter::once(1).chain(channels.iter().copied());
    let layers = inputs.take(channels.len()).enumerate().map(|(index, inputs)| layer(index, inputs).init(device));
    let scores = WindowConvolutionConfig {
        inputs: channels[channels.len() - 1],
        outputs: 1,
        kernel: last,
        stride: [1, 1],
        padding: last.map(|length| length / 2),
    };
    ConvolutionStack { layers: layers.collect(), scores: scores.init(device) }
}

impl ConvolutionStack {
    fn forward(&self, x: Tensor<4>, pass: &Pass) -> Judgment {
        let mut features = Vec::new();
        let mut x = x;
        for layer in &self.layers {
            x = leaky_relu(pass.at_least_fp32(layer.forward(x, pass)), SLOPE);
            features.push(x.clone());
        }
        Judgment { scores: pass.at_least_fp32(self.scores.forward(x, pass)), features }
    }
}

impl Discriminators {
    /// Returns the configuration that the discriminators were built from.
    pub fn config(&self) -> &DiscriminatorConfig {
        &self.config
    }

    /// Judges the waveforms `samples` `[b, n]` by their samples and by `spectra` `[b, t, k]`, the logarithms of their
    /// magnitudes at each resolution.
    ///
    /// # Panics
    /// If there is not one spectrum for each resolution.
    pub fn forward(&self, samples: &Tensor<2>, spectra: Vec<Tensor<3>>, pass: &Pass) -> Vec<Judgment> {
        self.judge(samples, spectra, pass).collect()
    }

    /// Computes the scores alone of what [`forward`](Self::forward) judges, and keeps no hidden values.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub(super) fn scores(&self, samples: Tensor<2>, spectra: Vec<Tensor<3>>, pass: &Pass) -> Vec<Tensor<4>> {
        self.judge(&samples, spectra, pass).map(|judgment| judgment.scores).collect()
    }

    fn judge(&self, samples: &Tensor<2>, spectra: Vec<Tensor<3>>, pass: &Pass) -> impl Iterator<Item = Judgment> {
        assert!(spectra.len() == self.resolutions.len(), "a spectrum for each resolution");
        let periods = self.periods.iter().zip(&self.config.periods);
        let by_period = periods.map(|(stack, &period)| stack.forward(in_periods(samples.clone(), period), pass));
        let resolutions = self.resolutions.iter().zip(spectra);
        let by_resolution = resolutions.map(|(stack, spectrum)| {
            // About 0, with a spread of about 1.
            let x = (spectrum + 2.0) / 3.0;
            stack.forward(x.unsqueeze_dim::<4>(3), pass)
        });
        by_period.chain(by_resolution)
    }

    /// Returns the discriminators with constant weights: a loss of theirs has no gradient for them.
    #[must_use]
    pub fn frozen(&self) -> Self {
        struct Constants;
        impl ModuleMapper for Constants {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                let (id, value, mapper) = param.consume();
                Param::from_mapped_value(id, detach(value), mapper)
            }
        }
        self.clone().map(&mut Constants)
    }
}

/// Sorts the samples `[b, n]` by their place in the period: `[b, p, n / p, 1]`. The last samples that fill no period are
/// left out.
fn in_periods(samples: Tensor<2>, period: usize) -> Tensor<4> {
    let [b, n] = samples.dims();
    let rows = n / period;
    samples.narrow(1, 0, rows * period).reshape([b, rows, period]).swap_dims(1, 2).unsqueeze_dim::<4>(3)
}
