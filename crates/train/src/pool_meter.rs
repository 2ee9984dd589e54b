//! Meter of the memory pools of a GPU.

use burn::tensor::Device;
use plimsoll_core::{Bytes, MemoryMeter, PoolMemory, PoolPages};

/// Meter of a GPU's memory, which reads the pools of Burn's backend.
///
/// Pools never shrink by themselves, so what they have reserved is the peak, even if it is read after the step. With
/// [`PoolGate`](plimsoll_core::PoolGate) it holds a budget:
///
/// ```no_run
/// use burn::tensor::Device;
/// use plimsoll_core::{Bytes, MemoryMeter, PoolGate};
/// use plimsoll_train::pools::PoolMeter;
///
/// let meter = PoolMeter::new(&Device::default());
/// println!("{} reserved", meter.peak());
/// let gate = PoolGate::new(meter, Bytes::gib(2));
/// # drop(gate);
/// ```
#[derive(Clone, Debug)]
pub struct PoolMeter {
    device: Device,
}

impl PoolMeter {
    /// Makes the meter of `device`. On a device without pools it always reads 0.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone().inner() }
    }
}

impl MemoryMeter for PoolMeter {
    fn current(&self) -> Bytes {
        Bytes(self.device.memory_pool_usage().map_or(0, |usage| usage.bytes_in_use))
    }

    fn peak(&self) -> Bytes {
        Bytes(self.device.memory_pool_usage().map_or(0, |usage| usage.bytes_reserved))
    }

    fn reset_peak(&self) {}

    fn pools(&self) -> Option<PoolMemory> {
        let usage = self.device.memory_pool_usage()?;
        let pages = self.device.memory_pool_report().unwrap_or_default().into_iter().map(|pool| PoolPages {
            page_bytes: Bytes(pool.page_size),
            count: pool.pages,
            most: pool.pages_peak,
            largest_bytes: Bytes(pool.largest_alloc),
        });
        Some(PoolMemory {
            reserved_bytes: Bytes(usage.bytes_reserved),
            in_use_bytes: Bytes(usage.bytes_in_use),
            pages: pages.collect(),
        })
    }
}
