//! The prenet of a synthesiser: what it said last, through a bottleneck that forgets.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Noise, Pass};

// Shapes: b batch, u steps, f features, w width.

/// How to build a [`Prenet`].
#[derive(Clone, Copy, Debug)]
pub struct PrenetConfig {
    /// Features of a frame.
    pub features: usize,
    /// Width of its layers.
    pub width: usize,
    /// How many layers.
    pub layers: usize,
    /// Share of values dropped, in training and in synthesis alike.
    pub dropout: f64,
}

/// Linear layers with ReLU and a dropout that stays on (Wang et al. 2017).
///
/// A frame says nearly all about the next one. What is dropped here cannot be copied, and has to come from the text; and
/// a synthesiser that heard its frames whole would have learned to trust what it will not get.
#[derive(Module, Debug)]
pub struct Prenet {
    layers: Vec<Linear>,
    dropout: f64,
}

impl PrenetConfig {
    /// A prenet on `device`.
    pub fn init(&self, device: &Device) -> Prenet {
        let input = |index| if index == 0 { self.features } else { self.width };
        let layer = |index| LinearConfig::new(input(index), self.width).init(device);
        Prenet { layers: (0..self.layers).map(layer).collect(), dropout: self.dropout }
    }
}

impl Prenet {
    /// Frames `[b, u, f]`, of which the first stands at step `first`, to `[b, u, w]`.
    ///
    /// What is dropped follows from `noise` and the step, so that a sequence that grows drops what the whole would.
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
    use plimsoll_tape::initialise;

    use super::*;

    #[test]
    fn it_forgets_while_it_speaks_and_a_part_forgets_what_the_whole_does() {
        let device = Device::flex();
        let config = PrenetConfig { features: 6, width: 32, layers: 2, dropout: 0.5 };
        let prenet = initialise(config.init(&device), Key::new(1));
        let x = Tensor::<3>::random([2, 9, 6], Default::default(), &device);
        let noise = Noise::new(Key::new(7), &["a", "b"].map(SampleId::of));
        let heard = |x: Tensor<3>, first, noise: &Noise| prenet.forward(x, first, noise, &Pass::plain());
        let whole = heard(x.clone(), 0, &noise);
        assert_ne!(whole.to_data(), heard(x.clone(), 0, &Noise::off()).into_data());
        assert_ne!(whole.to_data(), heard(x.clone(), 0, &noise.at(1)).into_data());
        let part = heard(x.narrow(1, 5, 3), 5, &noise);
        assert_eq!(whole.narrow(1, 5, 3).into_data(), part.into_data());
    }
}
