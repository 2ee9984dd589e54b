//! Preallocation of device memory before a run.

use burn::tensor::{Device, Tensor};
use plimsoll_core::Bytes;

/// Allocates `page` bytes on `device` in one piece and frees them again.
///
/// Burn's GPU backends cut memory from pages as large as the largest tensor so far. When a larger tensor comes, they
/// add larger pages, and free space on the old pages is lost to that tensor. A run that first allocates as much as a page
/// shall have (see `plimsoll_memory::Plan::page`) has pages of one size. On the CPU this call has no lasting effect.
///
/// # Errors
/// The device's message if it does not have enough memory.
pub fn preallocate_pages(device: &Device, page: Bytes) -> Result<(), String> {
    let values = usize::try_from(page.0 / size_of::<f32>() as u64).map_err(|error| error.to_string())?;
    // Empty, since a page may have more values than a kernel can count.
    let tensor = Tensor::<1>::empty([values], &device.clone().inner());
    // Synchronize before the drop: the backend may never allocate a tensor that is dropped first.
    let done = device.sync().map_err(|error| error.to_string());
    drop(tensor);
    done
}
