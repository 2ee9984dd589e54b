//! Settings of the memory pools of Burn's GPU backends.

/// Settings of the memory pools of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuPools {
    /// Use of the pool for lasting tensors.
    pub persistent: PersistentPool,
    /// Whether pools take memory from the CUDA driver in the order of the stream, without waiting. The driver may then keep
    /// more memory than the pools have.
    pub has_async_allocator: bool,
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

/// Sets up the memory pools of GPUs, beside what `cubecl.toml` and the environment say. The settings hold for the whole
/// process, from its first use of a GPU; later calls change nothing. Without a GPU backend this function does nothing.
///
/// ```
/// use plimsoll_tape::{GpuPools, PersistentPool, set_up_gpu_pools};
///
/// set_up_gpu_pools(GpuPools { persistent: PersistentPool::SizeMatch, ..GpuPools::default() });
/// ```
pub fn set_up_gpu_pools(pools: GpuPools) {
    #[cfg(feature = "cube")]
    if pools != GpuPools::default() {
        set_up(pools);
    }
    #[cfg(not(feature = "cube"))]
    let _ = pools;
}

#[cfg(feature = "cube")]
fn set_up(pools: GpuPools) {
    use cubecl_server::config::memory::{CudaAllocator, PersistentMemory};
    use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};

    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    match pools.persistent {
        PersistentPool::Enabled => {}
        PersistentPool::SizeMatch => config.memory.persistent_memory = PersistentMemory::SizeMatch,
        PersistentPool::Disabled => config.memory.persistent_memory = PersistentMemory::Disabled,
    }
    if pools.has_async_allocator {
        config.memory.cuda.allocator = CudaAllocator::Async;
    }
    CubeClRuntimeConfig::try_set(config);
}
