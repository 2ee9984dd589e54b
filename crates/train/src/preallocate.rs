//! Memory laid out before a run begins.

use burn::tensor::{Device, Tensor};
use plimsoll_core::Bytes;

/// Makes something of `largest` bytes on `device` and drops it again.
///
/// Burn's GPU backends cut memory from pages that are as large as the largest thing so far, and leave pages behind when
/// something larger comes: what still lies on them keeps them, and what is free on them is of no use. A run that makes
/// its largest thing first (`plimsoll_memory::Trace::largest` knows it) has pages of one size. On the CPU it does nothing
/// that lasts.
///
/// # Errors
/// With what the device said, where it has no room for it.
pub fn preallocate_pages(device: &Device, largest: Bytes) -> Result<(), String> {
    let values = usize::try_from(largest.0 / size_of::<f32>() as u64).map_err(|error| error.to_string())?;
    let page = Tensor::<1>::zeros([values], &device.clone().inner());
    // The page is in use until the device has come to it: what nobody holds may never be made.
    let done = device.sync().map_err(|error| error.to_string());
    drop(page);
    done
}
