//! Prenet of a synthesizer: feeds the previous frame back through linear layers with permanent dropout.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Noise, Pass};

// Shapes: b batch, u decoder steps, f features, w width.

/// Configuration of a [`Prenet`].
#[derive(Clone, Copy, Debug)]
pub struct PrenetConfig {
    /// Number of features in a frame.
    pub features: usize,
    /// Width of each linear layer.
    pub width: usize,
    /// Number of linear layers.
    pub layers: usize,
    /// Dropout probability, in training and in synthesis, in `[0, 1)`.
    pub dropout: f64,
}

/// Prenet of a synthesizer: linear layers with ReLU and dropout that stays on in synthesis (Tacotron, Wang et al.
/// 2017).
///
/// A frame nearly determines the next frame. Dropout prevents the decoder from copying the previous frame, so that it
/// must use the text. In synthesis the input is a predicted frame, which is worse than the true frames of training; a
/// decoder trained with dropout does not rely on this input.
#[derive(Module, Debug)]
pub struct Prenet {
    layers: Vec<Linear>,
    dropout: f64,
}

impl PrenetConfig {
    /// Builds the prenet on `device`.
    pub fn init(&self, device: &Device) -> Prenet {
        let input = |index| if index == 0 { self.features } else { self.width };
        let layer = |index| LinearConfig::new(input(index), self.width).init(device);
        Prenet { layers: (0..self.layers).map(layer).collect(), dropout: self.dropout }
    }
}

impl Prenet {
    /// Applies the prenet: frames `[b, u, f]` to `[b, u, w]`. The first frame belongs to decoder step `first`.
    ///
    /// The dropout mask depends on `noise` and on the step, so that decoding step by step drops the same values as one
    /// call over the whole sequence. With [`Noise::off`] nothing is dropped.
    pub fn forward(&self, x: Tensor<3>, first: usize, noise: &Noise, pass: &Pass) -> Tensor<3> {
        self.layers.iter().enumerate().fold(x, |x, (index, layer)| {
            let y = relu(pass.dense(layer, x));
            noise.with("prenet").at(index).dropout_from(y, self.dropout, first)
        })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{Key, SampleId};
    use plimsoll_tape::initialize;

    use super::*;

    #[test]
    fn dropout_stays_on_and_depends_on_the_step_only() {
        let device = Device::flex();
        let config = PrenetConfig { features: 6, width: 32, layers: 2, dropout: 0.5 };
        let prenet = initialize(config.init(&device), Key::new(1));
        let x = Tensor::<3>::random([2, 9, 6], Default::default(), &device);
        let noise = Noise::new(Key::new(7), &["a", "b"].map(SampleId::from_name));
        let run = |x: Tensor<3>, first, noise: &Noise| prenet.forward(x, first, noise, &Pass::plain());
        let whole = run(x.clone(), 0, &noise);
        assert_ne!(whole.to_data(), run(x.clone(), 0, &Noise::off()).into_data());
        assert_ne!(whole.to_data(), run(x.clone(), 0, &noise.at(1)).into_data());
        let part = run(x.narrow(1, 5, 3), 5, &noise);
        assert_eq!(whole.narrow(1, 5, 3).into_data(), part.into_data());
    }
}
