//! Convolutions over two axes with strides, as one matrix product each.

use burn::module::Module;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Pass, windows};

// Shapes: b samples, r rows, q columns, i input channels, o output channels.

/// Configuration of a [`WindowConvolution`].
#[derive(Clone, Copy, Debug)]
pub struct WindowConvolutionConfig {
    /// Number of input channels.
    pub inputs: usize,
    /// Number of output channels.
    pub outputs: usize,
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Rows and columns from one output to the next.
    pub stride: [usize; 2],
    /// Rows and columns of zeros at each edge.
    pub padding: [usize; 2],
}

/// Convolution over rows and columns with the channels in the last axis, and a bias. Equals PyTorch's `Conv2d`.
///
/// The windows are cut out and multiplied by the kernels in one matrix product, which uses the processor better than
/// Burn's convolution with few channels.
#[derive(Module, Debug)]
pub struct WindowConvolution {
    convolution: Conv2d,
}

impl WindowConvolutionConfig {
    /// Builds the convolution on `device`.
    pub fn init(&self, device: &Device) -> WindowConvolution {
        let &Self { inputs, outputs, kernel, stride, padding: [rows, columns] } = self;
        let convolution = Conv2dConfig::new([inputs, outputs], kernel)
            .with_stride(stride)
            .with_padding(PaddingConfig2d::Explicit(rows, columns, rows, columns))
            .init(device);
        WindowConvolution { convolution }
    }
}

impl WindowConvolution {
    /// Applies the convolution: `[b, r, q, i]` to `[b, rows, columns, o]`.
    ///
    /// # Panics
    /// If the kernel is longer than an axis with its padding.
    pub fn forward(&self, x: Tensor<4>, pass: &Pass) -> Tensor<4> {
        let Conv2d { weight, bias, .. } = &self.convolution;
        let bias = bias.as_ref().map(|bias| pass.to_compute_dtype(bias.val()));
        let y = convolve(&self.convolution, pass.to_compute_dtype(x), pass.to_compute_dtype(weight.val()), bias);
        pass.observe(weight.id, y)
    }
}

/// Convolves `x` `[b, r, q, i]` as `layer` says, with these weights and biases, which have the type of `x`:
/// `[b, rows, columns, o]`. Only the first rows and columns of the padding count: it is the same at each edge.
pub(crate) fn convolve(layer: &Conv2d, x: Tensor<4>, weight: Tensor<4>, bias: Option<Tensor<1>>) -> Tensor<4> {
    let padding = match layer.padding {
        PaddingConfig2d::Explicit(top, left, ..) => [top, left],
        _ => [0, 0],
    };
    let ([b, r, q, _], [o, i, k, l]) = (x.dims(), weight.dims());
    let kernels = weight.permute([2, 3, 1, 0]).reshape([k * l * i, o]);
    let mut y = windows::convolve(x, kernels, [k, l], layer.stride, padding);
    if let Some(bias) = bias {
        y = y + bias.unsqueeze::<2>();
    }
    let count = |length: usize, axis: usize| (length + 2 * padding[axis] - [k, l][axis]) / layer.stride[axis] + 1;
    y.reshape([b, count(r, 0), count(q, 1), o])
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Key;
    use plimsoll_tape::initialize;

    use super::*;

    #[test]
    fn result_equals_that_of_burns_convolution() {
        let device = Device::flex();
        let config = WindowConvolutionConfig { inputs: 3, outputs: 4, kernel: [3, 5], stride: [2, 3], padding: [1, 2] };
        let layer = initialize(config.init(&device), Key::new(1));
        let x: Vec<f32> = (0..2 * 7 * 11 * 3).map(|i| Key::new(2).at(i).unit() as f32 - 0.5).collect();
        let x = Tensor::<1>::from_floats(&x[..], &device).reshape([2, 7, 11, 3]);
        let found = layer.forward(x.clone(), &Pass::plain());
        let expected = layer.convolution.forward(x.permute([0, 3, 1, 2])).permute([0, 2, 3, 1]);
        assert_eq!(found.dims(), expected.dims());
        assert!((found - expected).abs().max().into_scalar::<f32>() < 1e-5);
    }
}
