//! The device that examples measure.

use burn::tensor::Device;

#[cfg(feature = "cuda")]
pub(crate) fn device() -> Device {
    Device::cuda(0)
}

#[cfg(all(feature = "wgpu", not(feature = "cuda")))]
pub(crate) fn device() -> Device {
    Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
pub(crate) fn device() -> Device {
    Device::flex()
}
