//! Conversion between Burn's tensors and the primitives of one backend, with and without autodiff.
//!
//! The code of this workspace that depends on private structure of Burn 0.22.1 is in this file.

use std::sync::RwLock;

use burn::tensor::{BoolDType, Device, DeviceConfig, Float, FloatDType, Int, IntDType, Tensor};
use burn_autodiff::Autodiff;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{AutodiffBackend, Backend, BackendTypes};
use burn_dispatch::backends::Capture;
use burn_dispatch::{DispatchDevice, DispatchKindConversion, DispatchTensor};

/// Kind of backend of a device, with or without autodiff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Backend Flex, for the CPU.
    Flex,
    /// Burn's capture device, which records operations and computes nothing.
    Capture,
    /// Backend of all GPUs, and of software devices with the same backend.
    #[cfg(feature = "cube")]
    Cube,
}

/// Returns the backend family of `device`.
pub(crate) fn family(device: &Device) -> Family {
    match device.clone().inner().as_dispatch() {
        DispatchDevice::Flex(_) => Family::Flex,
        DispatchDevice::Capture(_) => Family::Capture,
        #[cfg(feature = "cube")]
        DispatchDevice::Cube(_) => Family::Cube,
        other => panic!("{}", UnsupportedDevice { device: format!("{other:?}") }),
    }
}

/// A device of a backend that this build has no operations for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no operations for the device {device} were built in: enable the feature `cuda` or `wgpu` of the Plimsoll crate that you \
     use, as that of `burn`"
)]
pub struct UnsupportedDevice {
    /// Device as Burn names it.
    pub device: String,
}

/// Checks that the operations of this crate run on `device`. A program whose `burn` has the feature `cuda` also needs it
/// of this crate, or of a Plimsoll crate above it.
///
/// ```
/// assert!(plimsoll_tape::failure::check_device(&burn::tensor::Device::flex()).is_ok());
/// ```
///
/// # Errors
/// If the backend of the device was not built in.
pub fn check_device(device: &Device) -> Result<(), UnsupportedDevice> {
    match device.clone().inner().as_dispatch() {
        DispatchDevice::Flex(_) | DispatchDevice::Capture(_) => Ok(()),
        #[cfg(feature = "cube")]
        DispatchDevice::Cube(_) => Ok(()),
        other => Err(UnsupportedDevice { device: format!("{other:?}") }),
    }
}

/// Returns whether `device` is the CPU, with or without autodiff: its tensors lie in host memory, so reading them waits
/// for nothing.
pub fn is_host_device(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), DispatchDevice::Flex(_))
}

/// Returns whether operations over host slices run on `device`: the device is the CPU, or a capture device that
/// simulates the CPU.
pub fn runs_host_ops(device: &Device) -> bool {
    match device.clone().inner().as_dispatch() {
        DispatchDevice::Flex(_) => true,
        DispatchDevice::Capture(device) => SIMULATED_CPUS.read().is_ok_and(|hosts| hosts.contains(device)),
        _ => false,
    }
}

/// Capture devices that simulate the CPU.
static SIMULATED_CPUS: RwLock<Vec<<Capture as BackendTypes>::Device>> = RwLock::new(Vec::new());

/// Makes the capture device `device` simulate the CPU from now on.
pub(crate) fn simulate_cpu(device: &Device) {
    if let (DispatchDevice::Capture(device), Ok(mut hosts)) = (device.as_dispatch(), SIMULATED_CPUS.write()) {
        hosts.push(*device);
    }
}

/// Sets the default types of integers and truth values on the capture device `device`: of tensors that a user makes, and of
/// those that Burn's operations make inside, such as the mask of a leaky ReLU. Burn holds them apart.
pub(crate) fn set_default_dtypes(device: &Device, ints: IntDType, bools: BoolDType) {
    let config = DeviceConfig::default().int_dtype(ints).bool_dtype(bools);
    // A device that was set before has these types already.
    let _ = device.clone().configure(config);
    if let DispatchDevice::Capture(inside) = device.clone().inner().as_dispatch() {
        let _ = burn_backend::set_default_dtypes::<Capture>(inside, FloatDType::F32, ints, bools);
    }
}

/// Runs `$body` with `$B` as the backend type of `$device`.
macro_rules! on_backend {
    ($device:expr, $B:ident => $body:expr) => {
        match $crate::bridge::family($device) {
            $crate::bridge::Family::Flex => {
                type $B = burn_dispatch::backends::Flex;
                $body
            }
            $crate::bridge::Family::Capture => {
                type $B = burn_dispatch::backends::Capture;
                $body
            }
            #[cfg(feature = "cube")]
            $crate::bridge::Family::Cube => {
                type $B = burn_dispatch::backends::Cube;
                $body
            }
        }
    };
}
pub(crate) use on_backend;

/// Backend whose primitives can be extracted from Burn's [`Tensor`] and wrapped again. "Tracked" means on the autodiff
/// backend.
pub(crate) trait PrimitiveBackend: Backend {
    /// Extracts the autodiff primitive of a tensor on an autodiff device.
    fn tracked<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Autodiff<Self>>;
    /// Wraps an autodiff primitive in a tensor.
    fn from_tracked<const D: usize>(primitive: FloatTensor<Autodiff<Self>>) -> Tensor<D>;
    /// Extracts the primitive of a tensor without autodiff. A tensor on an autodiff device loses its graph.
    fn plain<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Self>;
    /// Extracts the primitive of a tensor of integers without autodiff.
    fn plain_ints<const D: usize>(tensor: Tensor<D, Int>) -> IntTensor<Self>;
    /// Wraps a primitive without autodiff in a tensor.
    fn from_plain<const D: usize>(primitive: FloatTensor<Self>) -> Tensor<D>;
    /// Creates a tensor on the autodiff device that has no parents in the graph and requires no gradient.
    fn constant<const D: usize>(primitive: FloatTensor<Self>) -> Tensor<D>;
}

impl<B: Backend> PrimitiveBackend for B
where
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
{
    fn tracked<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Autodiff<B>> {
        tensor.try_into_primitive::<Autodiff<B>>().expect("the caller chose the backend by the device")
    }

    fn from_tracked<const D: usize>(primitive: FloatTensor<Autodiff<B>>) -> Tensor<D> {
        Tensor::<D, Float>::from_primitive::<Autodiff<B>>(primitive)
    }

    fn plain<const D: usize>(tensor: Tensor<D>) -> FloatTensor<B> {
        if tensor.is_autodiff() {
            // `Tensor::without_autodiff` panics on the capture device.
            return <Autodiff<B> as AutodiffBackend>::inner(B::tracked(tensor));
        }
        tensor.try_into_primitive::<B>().expect("the caller chose the backend by the device")
    }

    fn plain_ints<const D: usize>(tensor: Tensor<D, Int>) -> IntTensor<B> {
        tensor.try_into_primitive::<B>().expect("the caller chose the backend by the device")
    }

    fn from_plain<const D: usize>(primitive: FloatTensor<B>) -> Tensor<D> {
        Tensor::<D, Float>::from_primitive::<B>(primitive)
    }

    fn constant<const D: usize>(primitive: FloatTensor<B>) -> Tensor<D> {
        Self::from_tracked(<Autodiff<B> as AutodiffBackend>::from_inner(primitive))
    }
}

/// Returns `tensor` without its autodiff graph, on every device.
///
/// The result equals [`Tensor::without_autodiff`], which panics on the capture device.
pub fn without_autodiff<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let device = tensor.device();
    on_backend!(&device, B => B::from_plain(B::plain(tensor)))
}

/// Returns `tensor` as a constant: with autodiff where the device has it, and without its graph. No gradient reaches what it
/// was computed from. Works on every device, also where Burn's `detach` does not.
pub fn detach<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let device = tensor.device();
    match tensor.is_autodiff() {
        true => on_backend!(&device, B => B::constant(B::plain(tensor))),
        false => tensor,
    }
}

/// Returns `device` without autodiff.
pub fn inner_device(device: &Device) -> Device {
    device.clone().inner()
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::*;

    /// Returns all devices that need no GPU, with their backend families.
    fn devices() -> [(Device, Family); 2] {
        [(Device::flex(), Family::Flex), (Device::capture(), Family::Capture)]
    }

    fn tensor(device: &Device) -> Tensor<2> {
        Tensor::from_data(TensorData::new(vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2]), device)
    }

    #[test]
    fn a_device_has_the_same_family_with_and_without_autodiff() {
        for (device, expected) in devices() {
            assert_eq!(family(&device), expected);
            assert_eq!(family(&device.clone().autodiff()), expected);
        }
    }

    /// Runs each conversion once and checks the results, which must not depend on the backend.
    fn check_conversions(device: &Device) {
        let x = tensor(&device.clone().autodiff()).require_grad();
        on_backend!(device, B => {
            let back = B::from_tracked::<2>(B::tracked(x.clone()));
            assert!(back.is_autodiff() && back.is_tracked());
            let plain = B::from_plain::<2>(B::plain(x.clone()));
            assert!(!plain.is_autodiff());
            assert!(!B::from_plain::<2>(B::plain(plain.clone())).is_autodiff());
            let constant = B::constant::<2>(B::plain(plain));
            assert!(constant.is_autodiff() && !constant.is_tracked() && !constant.is_require_grad());
        });
        assert!(!without_autodiff(x).is_autodiff());
    }

    #[test]
    fn tensors_convert_on_every_device() {
        check_conversions(&Device::flex());
        let device = Device::capture();
        let captured = device.capture_scope(|scope| {
            check_conversions(&device);
            scope.complete([], [])
        });
        assert!(captured.is_ok());
    }

    #[test]
    fn conversions_keep_values() {
        let device = Device::flex();
        let x = tensor(&device.clone().autodiff());
        let expected = tensor(&device).into_data();
        on_backend!(&device, B => {
            let round = B::from_tracked::<2>(B::tracked(B::constant::<2>(B::plain(x.clone()))));
            assert_eq!(B::from_plain::<2>(B::plain(round)).into_data(), expected);
        });
    }
}
