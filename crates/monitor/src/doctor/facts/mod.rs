//! Facts about the machine, as plain data: the checks judge them, and a test gives facts of its own.

mod kernel_cache;
mod libraries;
mod power;
mod space;
mod system;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use plimsoll_core::Bytes;

pub use self::kernel_cache::{KernelCache, user_cache};
pub(super) use self::libraries::LIBDEVICE;
pub use self::libraries::{CudaHome, FoundLibrary};
pub use self::power::GpuPower;
pub(super) use self::space::{DiskSpace, nearest_existing};
pub use self::system::{CpuFacts, DeviceNode, OpenFiles, SwapFacts};
use crate::{Machine, NoGpu};

/// Time that the driver has for its first answer. A GPU that sleeps needs up to some seconds to wake.
const DRIVER_LIMIT: Duration = Duration::from_secs(20);
/// Library of NVIDIA's driver that Windows gives to every distribution under WSL.
const WSL_LIBRARY: &str = "/usr/lib/wsl/lib/libnvidia-ml.so.1";

/// Facts about the machine that the checks judge.
#[derive(Clone, Debug)]
pub struct MachineFacts {
    /// Host, GPUs and driver.
    pub machine: Machine,
    /// Environment variables of this process.
    pub variables: BTreeMap<String, String>,
    /// Number of NVIDIA GPUs on the PCI bus; `None` if the bus cannot be read. The bus lists GPUs without a driver too.
    pub gpus_on_bus: Option<usize>,
    /// Device files of the NVIDIA driver.
    pub nodes: Vec<DeviceNode>,
    /// Power limits and clocks of the GPUs, in the order of NVML. Empty without driver.
    pub power: Vec<GpuPower>,
    /// Size of the shared memory of processes (`/dev/shm`); `None` if there is none.
    pub shared_memory: Option<Bytes>,
    /// Installed processors, and those that this process may use.
    pub cpus: CpuFacts,
    /// Swap space of the host.
    pub swap: SwapFacts,
    /// Limit of the number of open files; `None` if the system has none.
    pub open_files: Option<OpenFiles>,
    /// Libraries that the loader of the system finds.
    pub libraries: Vec<FoundLibrary>,
    /// Folder of the CUDA toolkit; `None` if it is not found.
    pub cuda_home: Option<CudaHome>,
    /// Files with the mathematical functions for GPUs (`libdevice.10.bc`), in the order in which they are looked for.
    pub libdevice: Vec<PathBuf>,
    /// File in which CubeCL keeps the results of tuning kernels.
    pub kernel_cache: KernelCache,
    /// Whether Windows gives its GPU driver to this distribution. `false` outside of WSL.
    pub has_wsl_library: bool,
    /// Current folder of this process.
    pub current_folder: PathBuf,
    /// Folder for temporary files.
    pub temp_folder: PathBuf,
}

impl MachineFacts {
    /// Reads the facts of this machine. A driver that does not answer becomes a fact too: this call returns in any case.
    pub fn read() -> Self {
        let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(key, value)| (text(key), text(value))).collect();
        let (current_folder, temp_folder) = (std::env::current_dir().unwrap_or_default(), std::env::temp_dir());
        let (machine, power) = read_gpus(DRIVER_LIMIT, || (Machine::probe(), power::read()));
        Self {
            machine,
            power,
            gpus_on_bus: system::gpus_on_bus(Path::new("/sys/bus/pci/devices")),
            nodes: system::device_nodes(Path::new("/dev")),
            shared_memory: system::shared_memory(),
            cpus: CpuFacts::read(),
            swap: SwapFacts::read(),
            open_files: OpenFiles::read(),
            libraries: libraries::find(&variables),
            cuda_home: CudaHome::find(&variables),
            libdevice: libraries::find_libdevice(&variables, Path::new("/")),
            kernel_cache: KernelCache::find(&variables, &current_folder, &temp_folder),
            has_wsl_library: Path::new(WSL_LIBRARY).exists(),
            current_folder,
            temp_folder,
            variables,
        }
    }

    /// Returns the value of an environment variable; `None` if it is not set.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Returns the number of GPUs and MIG instances that CUDA offers to this process.
    pub fn n_visible(&self) -> usize {
        self.machine.visible.uuids.len()
    }
}

/// Runs `read` on its own thread, and gives up after `limit`. Calls into a driver that hangs cannot be stopped.
fn read_gpus(
    limit: Duration,
    read: impl FnOnce() -> (Machine, Vec<GpuPower>) + Send + 'static,
) -> (Machine, Vec<GpuPower>) {
    let (sender, receiver) = sync_channel(1);
    let thread = std::thread::Builder::new().name("read GPUs".into());
    let started = thread.spawn(move || {
        let _ = sender.send(read());
    });
    let answer = started.ok().and_then(|_| receiver.recv_timeout(limit).ok());
    answer.unwrap_or_else(|| {
        let reason = format!("no answer within {} s", limit.as_secs_f64());
        (Machine::from_source(Err(NoGpu::Refused { reason })), Vec::new())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_this_machine_are_read() {
        let facts = MachineFacts::read();
        assert!(facts.cpus.installed > 0, "{facts:?}");
        assert_eq!(facts.variable("PLIMSOLL_NO_SUCH_VARIABLE"), None);
    }

    #[test]
    fn a_driver_without_answer_becomes_a_reason() {
        let limit = Duration::from_millis(20);
        let (machine, _) = read_gpus(limit, || {
            loop {
                std::thread::park();
            }
        });
        let why = machine.no_gpu.expect("there is no answer").to_string();
        assert!(why.contains("no answer within 0.02 s"), "{why}");
    }
}
