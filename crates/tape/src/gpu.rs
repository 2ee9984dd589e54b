//! Burn's GPU backends: settings of memory pools and of tuning, measurements of kernels, and what has kernels only there: the CTC loss and
//! monotonic alignment.

mod calls;
pub(crate) mod counts;
mod kernel_clock;
mod observation;
mod timings;

pub use crate::fused::{FrameShares, ctc, share_frames};
pub use calls::{CallCounter, Calls};
pub use kernel_clock::KernelClock;
pub use timings::KernelTime;

use std::path::PathBuf;

/// Forgets what kernels of this crate keep on GPUs from one launch to the next. To be called when something failed on a GPU, such as an
/// allocation, and its queue has been flushed: what was kept may have inherited the failure, and would give it to later kernels. The
/// trainer and the decoder of `plimsoll-train` call it.
pub fn forget_kept() {
    #[cfg(feature = "cube")]
    crate::kernels::sums::forget();
}

/// Settings of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuSettings {
    /// Use of the pool for lasting tensors.
    pub persistent: PersistentPool,
    /// Whether pools take memory from the CUDA driver in the order of the stream, without waiting. The driver may then keep
    /// more memory than the pools have.
    pub has_async_allocator: bool,
    /// How many kernels are tried when an operation meets new sizes.
    pub tuning: Tuning,
    /// Folder for compiled kernels and for the results of tuning, which later processes then take from it. With `None`,
    /// `cubecl.toml` says where results of tuning are kept, and whether compiled kernels are.
    pub kernel_cache: Option<PathBuf>,
}

/// How many kernels a GPU tries for an operation that meets new sizes; the fastest one is used from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// The fewest: sizes that are close share a choice.
    Minimal,
    /// Burn's default.
    #[default]
    Balanced,
    /// More, for closer sizes.
    Extensive,
    /// All, for each size.
    Full,
}

/// Use of the pool that a GPU's memory management keeps for lasting tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PersistentPool {
    /// Only for tensors that ask for it.
    #[default]
    Enabled,
    /// Also for tensors as large as one that asked for it.
    SizeMatch,
    /// For no tensor.
    Disabled,
}

/// Sets up GPUs, beside what `cubecl.toml` and the environment say. The settings hold for the whole
/// process, from its first use of a GPU; later calls change nothing. Without a GPU backend this function does nothing.
///
/// ```
/// use plimsoll_tape::gpu::{GpuSettings, PersistentPool, set_up_gpus};
///
/// set_up_gpus(GpuSettings { persistent: PersistentPool::SizeMatch, ..GpuSettings::default() });
/// ```
pub fn set_up_gpus(settings: GpuSettings) {
    #[cfg(feature = "cube")]
    if settings != GpuSettings::default() {
        set_up(settings);
    }
    #[cfg(not(feature = "cube"))]
    let _ = settings;
}

#[cfg(feature = "cube")]
fn set_up(settings: GpuSettings) {
    use cubecl_server::config::autotune::AutotuneLevel;
    use cubecl_server::config::cache::CacheConfig;
    use cubecl_server::config::memory::{CudaAllocator, PersistentMemory};
    use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};

    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    match settings.persistent {
        PersistentPool::Enabled => {}
        PersistentPool::SizeMatch => config.memory.persistent_memory = PersistentMemory::SizeMatch,
        PersistentPool::Disabled => config.memory.persistent_memory = PersistentMemory::Disabled,
    }
    if settings.has_async_allocator {
        config.memory.cuda.allocator = CudaAllocator::Async;
    }
    // The default leaves the level to `cubecl.toml` and the environment.
    match settings.tuning {
        Tuning::Balanced => {}
        Tuning::Minimal => config.autotune.level = AutotuneLevel::Minimal,
        Tuning::Extensive => config.autotune.level = AutotuneLevel::Extensive,
        Tuning::Full => config.autotune.level = AutotuneLevel::Full,
    }
    if let Some(folder) = settings.kernel_cache {
        config.compilation.cache = true;
        config.environment.path = CacheConfig::Directory(folder);
    }
    CubeClRuntimeConfig::try_set(config);
}

/// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn::tensor::{Device, DeviceKind, Tensor};

    use super::counts::uploaded;
    use super::*;

    #[test]
    fn device_kernels_are_counted_and_timed() {
        let device = Device::wgpu(DeviceKind::DefaultDevice);
        let work = || {
            let x = Tensor::<2>::from_data(uploaded([[1.0, 2.0], [3.0, 4.0]]), &device);
            x.clone().matmul(x).into_data()
        };
        // The first time kernels are tried.
        work();
        let counter = CallCounter::new();
        let calls = || counter.calls().expect("a GPU backend is built in");
        let counted = || {
            let before = calls();
            work();
            calls().since(before)
        };
        let alone = counted();
        assert!(alone.launches > 0, "{alone:?}");
        // Tests run in one process under `cargo test`, so others may call too.
        let clock = KernelClock::start();
        let timed = counted();
        clock.read();
        let kernels = clock.finish();
        assert!(timed.launches >= 1 && timed.uploads >= 1, "{timed:?}");
        assert!(kernels.iter().any(|kernel| kernel.count > 0 && kernel.seconds > 0.0), "{kernels:?}");
        assert!(counted().launches > 0, "the counter goes on after the clock");
        drop(CallCounter::new());
        assert!(counted().launches > 0, "the counter goes on after another one");
    }
}
