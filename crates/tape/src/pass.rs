//! One forward pass: its randomness and the choices it is computed by, handed from layer to layer.

use burn::nn::Linear;
use burn::tensor::{DType, FloatDType, Tensor};
use plimsoll_core::{Choice, Precision};

use crate::Noise;

/// What every layer of a forward pass must know besides its input.
///
/// Matrix products and convolutions are computed in the numbers of the choice's precision: a layer lowers what it
/// multiplies ([`to_compute_dtype`](Pass::to_compute_dtype)). Norms, softmax sums and losses are computed in fp32 ([`at_least_fp32`](Pass::at_least_fp32)).
/// Parameters stay fp32, and so do their gradients: they are the master weights.
///
/// ```
/// use burn::tensor::{DType, Device, Tensor};
/// use plimsoll_core::{Choice, Precision};
/// use plimsoll_tape::{Noise, Pass};
///
/// let pass = Pass::new(Choice { precision: Precision::Bf16, ..Choice::default() }, Noise::off());
/// let x = Tensor::<2>::ones([3, 3], &Device::flex());
/// assert_eq!(pass.matmul(x.clone(), x).dtype(), DType::BF16);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pass {
    choice: Choice,
    noise: Noise,
}

impl Pass {
    /// A pass computed by `choice` under `noise`.
    pub fn new(choice: Choice, noise: Noise) -> Self {
        Self { choice, noise }
    }

    /// A pass without randomness, everything in fp32 and at once: validation, decoding, examples.
    pub fn plain() -> Self {
        Self::default()
    }

    /// How it is computed.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Its randomness.
    pub fn noise(&self) -> &Noise {
        &self.noise
    }

    /// The branch called `name`: each place that draws must have its own.
    #[must_use]
    pub fn with(&self, name: &str) -> Self {
        Self { choice: self.choice, noise: self.noise.with(name) }
    }

    /// The branch numbered `index`, such as a block of a stack.
    #[must_use]
    pub fn at(&self, index: usize) -> Self {
        Self { choice: self.choice, noise: self.noise.at(index) }
    }

    /// The same pass under another choice.
    #[must_use]
    pub fn with_choice(&self, choice: Choice) -> Self {
        Self { choice, noise: self.noise.clone() }
    }

    /// Drops each value with probability `rate`: see [`Noise::dropout`].
    pub fn dropout<const D: usize>(&self, x: Tensor<D>, rate: f64) -> Tensor<D> {
        self.noise.dropout(x, rate)
    }

    /// `x` in the numbers that matrix products are computed in.
    pub fn to_compute_dtype<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let (wanted, float) = match self.choice.precision {
            Precision::Fp32 => (DType::F32, FloatDType::F32),
            Precision::Bf16 => (DType::BF16, FloatDType::BF16),
            Precision::Fp16 => (DType::F16, FloatDType::F16),
        };
        // In fp32 nothing is lowered, and what is wider (fp64 in a test of gradients) stays so.
        if x.dtype() == wanted || self.choice.precision == Precision::Fp32 { x } else { x.cast(float) }
    }

    /// `x` in fp32, whatever it was computed in: for sums, norms and losses, and where branches join again.
    pub fn at_least_fp32<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if matches!(x.dtype(), DType::F16 | DType::BF16) { x.cast(FloatDType::F32) } else { x }
    }

    /// The matrix product of `a` and `b`, in the numbers of the pass.
    pub fn matmul<const D: usize>(&self, a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
        self.to_compute_dtype(a).matmul(self.to_compute_dtype(b))
    }

    /// The last axis of `x` through `layer`, as one matrix product in the numbers of the pass.
    ///
    /// Burn 0.22 computes a linear layer over three axes as one product for each of the first whenever that looks
    /// better tiled. On the CPU one product over all rows makes a whole step 1.04x faster (docs/LOG.md, 2026-11-21); a
    /// GPU has not been measured.
    pub fn dense<const D: usize>(&self, layer: &Linear, x: Tensor<D>) -> Tensor<D> {
        let mut shape = x.dims();
        let rows = shape[..D - 1].iter().product::<usize>();
        let flat: Tensor<2> = self.to_compute_dtype(x).reshape([rows, shape[D - 1]]);
        let product = flat.matmul(self.to_compute_dtype(layer.weight.val()));
        let [_, width] = product.dims();
        shape[D - 1] = width;
        let y = match &layer.bias {
            Some(bias) => product + self.to_compute_dtype(bias.val()).unsqueeze::<2>(),
            None => product,
        };
        y.reshape(shape)
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::LinearConfig;
    use burn::tensor::{Device, TensorData};
    use plimsoll_core::Key;

    use super::*;
    use crate::{backward, initialize};

    fn input(device: &Device) -> Tensor<3> {
        let values: Vec<f32> = (0..40).map(|i| Key::new(3).at(i).unit() as f32 - 0.5).collect();
        Tensor::from_data(TensorData::new(values, [2, 5, 4]), device)
    }

    #[test]
    fn dense_equals_linear() {
        let device = Device::flex();
        let layer = initialize(LinearConfig::new(4, 3).init(&device), Key::new(1));
        let x = input(&device);
        let found = Pass::plain().dense(&layer, x.clone()).into_data();
        found.assert_approx_eq::<f32>(&layer.forward(x).into_data(), burn::tensor::Tolerance::absolute(1e-6));
    }

    #[test]
    fn low_precision_leaves_parameters_and_gradients_in_fp32() {
        let device = Device::flex().autodiff();
        let layer = initialize(LinearConfig::new(4, 3).init(&device), Key::new(1));
        let gradient = |precision| {
            let pass = Pass::new(Choice { precision, ..Choice::default() }, Noise::off());
            let y = pass.at_least_fp32(pass.dense(&layer, input(&device)));
            assert_eq!(y.dtype(), DType::F32);
            let gradients = backward(y.square().sum(), &layer);
            gradients.get::<2>(layer.weight.id).unwrap().into_data()
        };
        let exact = gradient(Precision::Fp32);
        for low in [Precision::Bf16, Precision::Fp16] {
            let found = gradient(low);
            assert_eq!(found.dtype(), DType::F32);
            found.assert_approx_eq::<f32>(&exact, burn::tensor::Tolerance::rel_abs(0.05, 0.05));
        }
    }
}
