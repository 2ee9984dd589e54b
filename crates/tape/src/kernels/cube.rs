//! The operations of this module on Burn's GPU backends: queued like Burn's own operations.

use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_dispatch::backends::Cube;

use super::depthwise::sum_segments;
use super::{KernelBackend, convolution, depthwise, moments_shape, norm, norm_sums_shape, sums_shape, windows};
use crate::geometry::Geometry;

/// The operations as Burn's queue of operations takes them.
#[backend_extension(Cube, Fusion)]
pub(crate) trait Kernels: Backend {
    /// [`KernelBackend::depthwise`].
    #[fusion(dtype = x, shape = x)]
    fn depthwise(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;

    /// [`KernelBackend::depthwise_back`].
    #[fusion(dtype = grad_output, shape = grad_output)]
    fn depthwise_back(grad_output: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;

    /// [`KernelBackend::depthwise_sums`].
    #[fusion(dtype = DType::F32, shape = sums_shape(x, *taps))]
    fn depthwise_sums(x: FloatTensor<Self>, grad_output: FloatTensor<Self>, taps: usize) -> FloatTensor<Self>;

    /// [`KernelBackend::norm_rows`].
    #[fusion(meta = |x, _, _, _| (x.clone(), TensorSpec::new(moments_shape(&x.shape), DType::F32)))]
    fn norm_rows(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// [`KernelBackend::norm_rows_back`].
    #[fusion(dtype = x, shape = x)]
    fn norm_rows_back(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        scale: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// [`KernelBackend::cut_windows`].
    #[fusion(dtype = x, shape = geometry.shape().into())]
    fn cut_windows(x: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self>;

    /// [`KernelBackend::add_windows`].
    #[fusion(dtype = windows, shape = geometry.input.into())]
    fn add_windows(windows: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self>;

    /// [`KernelBackend::convolve`].
    #[fusion(dtype = x, shape = Shape::new([geometry.places(), weight[1]]))]
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self>;

    /// [`KernelBackend::convolve_back`].
    #[fusion(meta = |x, _, weight, _| (x.clone(), weight.clone()))]
    fn convolve_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        geometry: Geometry,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// [`KernelBackend::convolve_weight_back`].
    #[fusion(dtype = x, shape = Shape::new([geometry.values(), grad_output[1]]))]
    fn convolve_weight_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        geometry: Geometry,
    ) -> FloatTensor<Self>;

    /// [`KernelBackend::norm_rows_sums`].
    #[fusion(dtype = DType::F32, shape = norm_sums_shape(x))]
    fn norm_rows_sums(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl Kernels for CubeBackend {
    fn cut_windows(x: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        windows::cut(x, geometry)
    }

    fn add_windows(windows: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        windows::add(windows, geometry)
    }

    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        convolution::convolve(x, weight, geometry)
    }

    fn convolve_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        geometry: Geometry,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        convolution::convolve_back(x, grad_output, weight, geometry)
    }

    fn convolve_weight_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        geometry: Geometry,
    ) -> FloatTensor<Self> {
        convolution::convolve_weight_back(x, grad_output, geometry)
    }

    fn depthwise(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        depthwise::convolve(x, weight, Some(bias))
    }

    fn depthwise_back(grad_output: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        depthwise::convolve(grad_output, weight, None)
    }

    fn depthwise_sums(x: FloatTensor<Self>, grad_output: FloatTensor<Self>, taps: usize) -> FloatTensor<Self> {
        sum_segments(x, grad_output, taps)
    }

    fn norm_rows(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        norm::norm_rows(x, scale, shift, epsilon)
    }

    fn norm_rows_back(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        scale: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        norm::norm_rows_back(grad_output, x, moments, scale)
    }

    fn norm_rows_sums(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        norm::norm_rows_sums(grad_output, x, moments)
    }
}

impl KernelBackend for Cube {
    fn cut_windows(x: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        <Self as Kernels>::cut_windows(x, geometry)
    }

    fn add_windows(windows: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        <Self as Kernels>::add_windows(windows, geometry)
    }

    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, geometry: Geometry) -> FloatTensor<Self> {
        <Self as Kernels>::convolve(x, weight, geometry)
    }

    fn convolve_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        geometry: Geometry,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        <Self as Kernels>::convolve_back(x, grad_output, weight, geometry)
    }

    fn convolve_weight_back(
        x: FloatTensor<Self>,
        grad_output: FloatTensor<Self>,
        geometry: Geometry,
    ) -> FloatTensor<Self> {
        <Self as Kernels>::convolve_weight_back(x, grad_output, geometry)
    }

    fn depthwise(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        <Self as Kernels>::depthwise(x, weight, bias)
    }

    fn depthwise_back(grad_output: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        <Self as Kernels>::depthwise_back(grad_output, weight)
    }

    fn depthwise_sums(x: FloatTensor<Self>, grad_output: FloatTensor<Self>, taps: usize) -> FloatTensor<Self> {
        <Self as Kernels>::depthwise_sums(x, grad_output, taps)
    }

    fn norm_rows(
        x: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        <Self as Kernels>::norm_rows(x, scale, shift, epsilon)
    }

    fn norm_rows_back(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        scale: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        <Self as Kernels>::norm_rows_back(grad_output, x, moments, scale)
    }

    fn norm_rows_sums(
        grad_output: FloatTensor<Self>,
        x: FloatTensor<Self>,
        moments: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        <Self as Kernels>::norm_rows_sums(grad_output, x, moments)
    }
}
