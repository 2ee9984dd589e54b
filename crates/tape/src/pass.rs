//! Settings of one forward pass: randomness, precision, rematerialization and attention chunks, passed from layer to
//! layer.

use std::num::NonZeroU32;
use std::sync::Arc;

use burn::module::ParamId;
use burn::nn::Linear;
use burn::tensor::{DType, FloatDType, Tensor};
use plimsoll_core::{Choice, Precision};

use crate::flat::copy_of;
use crate::lora::low_rank;
use crate::observe::{Observed, observed};
use crate::{Noise, PassObserver};

/// Number of queries for which inference attends at a time.
const INFERENCE_CHUNK: u32 = 256;

/// Settings that each layer of a forward pass needs besides its input.
///
/// Matrix products and convolutions run in the precision of the [`Choice`]: a layer casts their operands with
/// [`to_compute_dtype`](Pass::to_compute_dtype). Norms, softmax sums and losses run in fp32: a layer casts their inputs
/// with [`at_least_fp32`](Pass::at_least_fp32). Parameters and their gradients stay fp32, as master weights.
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
    observer: Option<Observed>,
}

impl Pass {
    /// Creates a pass with the settings of `choice` and the randomness of `noise`.
    pub fn new(choice: Choice, noise: Noise) -> Self {
        Self { choice, noise, observer: None }
    }

    /// Sets who is called for each layer of the pass; `None` for no one.
    #[must_use]
    pub fn with_observer(self, observer: Option<Arc<dyn PassObserver>>) -> Self {
        Self { observer: observer.map(Observed), ..self }
    }

    /// Creates a pass without randomness, in fp32, without rematerialization and attention chunks: for decoding step by step,
    /// for examples and for tests.
    pub fn plain() -> Self {
        Self::default()
    }

    /// Creates a plain pass that attends for 256 queries at a time: for validation and for the use of a model. Its memory grows
    /// with the length of an input, not with the square of the length.
    pub fn inference() -> Self {
        Self::new(Choice { attention_chunk: NonZeroU32::new(INFERENCE_CHUNK), ..Choice::default() }, Noise::off())
    }

    /// Returns the precision, rematerialization and attention chunk of the pass.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Returns the randomness of the pass.
    pub fn noise(&self) -> &Noise {
        &self.noise
    }

    /// Returns this pass with other random numbers, the branch named `name`. Each place in a model that draws random
    /// numbers needs its own branch.
    #[must_use]
    pub fn with(&self, name: &str) -> Self {
        self.with_noise(self.noise.with(name))
    }

    /// Returns this pass with other random numbers, the branch with number `index`, such as for one block of a stack.
    #[must_use]
    pub fn at(&self, index: usize) -> Self {
        self.with_noise(self.noise.at(index))
    }

    fn with_noise(&self, noise: Noise) -> Self {
        Self { choice: self.choice, noise, observer: self.observer.clone() }
    }

    /// Returns a copy of the pass with another choice.
    #[must_use]
    pub fn with_choice(&self, choice: Choice) -> Self {
        Self { choice, ..self.clone() }
    }

    /// Shows `x`, the output of the layer with the parameter `layer`, to the observer of the pass, and in the backward
    /// pass the gradient of `x`. Returns `x`. Without an observer this does nothing.
    pub fn observe<const D: usize>(&self, layer: ParamId, x: Tensor<D>) -> Tensor<D> {
        self.observe_at(Some(layer), x)
    }

    /// Shows a loss to the observer of the pass, as [`observe`](Self::observe) shows the output of a layer.
    pub fn observe_loss(&self, loss: Tensor<1>) -> Tensor<1> {
        self.observe_at(None, loss)
    }

    fn observe_at<const D: usize>(&self, layer: Option<ParamId>, x: Tensor<D>) -> Tensor<D> {
        match &self.observer {
            Some(observer) => observed(observer, layer, x),
            None => x,
        }
    }

    /// Sets each value of `x` to zero with probability `rate`: see [`Noise::dropout`].
    pub fn dropout<const D: usize>(&self, x: Tensor<D>, rate: f64) -> Tensor<D> {
        self.noise.dropout(x, rate)
    }

    /// Returns the dtype of matrix products.
    pub fn compute_dtype(&self) -> FloatDType {
        match self.choice.precision {
            Precision::Fp32 => FloatDType::F32,
            Precision::Bf16 => FloatDType::BF16,
            Precision::Fp16 => FloatDType::F16,
        }
    }

    /// Casts `x` to the dtype of matrix products. In fp32 nothing is cast, so fp64 tensors of a gradient test stay
    /// fp64.
    ///
    /// A parameter that has a [copy](crate::flat::LowParameters) in this dtype gives the copy.
    pub fn to_compute_dtype<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let wanted = self.compute_dtype();
        // fp32 is a lower bound: wider tensors (fp64 in a gradient test) stay as they are.
        if x.dtype() == DType::from(wanted) || wanted == FloatDType::F32 {
            return x;
        }
        copy_of(&x, wanted.into()).unwrap_or_else(|| x.cast(wanted))
    }

    /// Casts `x` to fp32 if it has 16 bits; wider tensors stay unchanged. For sums, norms and losses, and where
    /// branches are added.
    pub fn at_least_fp32<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if matches!(x.dtype(), DType::F16 | DType::BF16) { x.cast(FloatDType::F32) } else { x }
    }

    /// Computes the matrix product of `a` and `b` in the precision of the pass.
    pub fn matmul<const D: usize>(&self, a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
        self.to_compute_dtype(a).matmul(self.to_compute_dtype(b))
    }

    /// Applies `layer` to the last axis of `x`, as one matrix product in the precision of the pass.
    ///
    /// Burn 0.22 computes a linear layer over three axes as one product per entry of the first axis whenever this
    /// appears to tile better. On the CPU one product over all rows makes a whole step 1.04x faster
    /// (docs/log/cpu-speed.md, "Where a step of the CPU backend goes"). The speed on a GPU was not measured.
    pub fn dense<const D: usize>(&self, layer: &Linear, x: Tensor<D>) -> Tensor<D> {
        let mut shape = x.dims();
        let product = self.rows_product(layer, x);
        shape[D - 1] = product.dims()[1];
        let y = match &layer.bias {
            Some(bias) => product + self.to_compute_dtype(bias.val()).unsqueeze::<2>(),
            None => product,
        };
        self.observe(layer.weight.id, y.reshape(shape))
    }

    /// Computes the matrix product of `layer`, without its bias.
    pub(crate) fn product(&self, layer: &Linear, x: Tensor<3>) -> Tensor<3> {
        let [b, t, _] = x.dims();
        let product = self.rows_product(layer, x);
        let [_, width] = product.dims();
        product.reshape([b, t, width])
    }

    fn rows_product<const D: usize>(&self, layer: &Linear, x: Tensor<D>) -> Tensor<2> {
        let shape = x.dims();
        let rows = shape[..D - 1].iter().product::<usize>();
        let flat: Tensor<2> = self.to_compute_dtype(x).reshape([rows, shape[D - 1]]);
        let weight = self.to_compute_dtype(layer.weight.base());
        match layer.weight.adapter() {
            None => flat.matmul(weight),
            // Without the sum of the weight and its adapter, which would have a gradient as large as the weight.
            Some(adapter) => {
                let low = low_rank(adapter, flat.clone(), |factor| self.to_compute_dtype(factor));
                flat.matmul(weight) + low
            }
        }
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
