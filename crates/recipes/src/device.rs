//! The device that trains: chosen from the configuration, with its memory meter and its replicas.

use burn::tensor::Device;
use plimsoll_config::DeviceConfig;
use plimsoll_config::choices::{BackendChoice, CudaAllocatorChoice, PersistentMemoryChoice, SumsChoice, TuningChoice};
use plimsoll_core::{
    Bytes, CountingAllocator, MemoryGate, MemoryMeter, OpenGate, PoolGate, Precision, SingleReplica, counted,
};
use plimsoll_memory::BackendRules;
use plimsoll_monitor::doctor::KernelCache;
use plimsoll_tape::gpu::{GpuSettings, PersistentPool, Tuning, set_up_gpus};
use plimsoll_train::pools::PoolMeter;
use plimsoll_train::{GpuReplica, HostReplica, Replica, ThreadReplica};

use crate::error::Failure;
use crate::machine::GpuFreeMemory;
use crate::opening::open_quietly;
use crate::processes::Processes;
use crate::target::Target;

/// Memory of a GPU that stays free beside the pools: the driver needs it to load kernels, and so do other processes.
const ROOM_FOR_OTHERS: Bytes = Bytes::mib(64);

/// A device for training, with its properties for the plan.
#[derive(Clone, Debug)]
pub struct TrainingDevice {
    /// Burn device, without autodiff.
    pub device: Device,
    /// Name of the device, for messages.
    pub name: String,
    /// Whether the device is the CPU: then the memory of the device is the memory of the process.
    pub is_host: bool,
    /// Rules by which the backend of the device allocates memory.
    pub rules: BackendRules,
    /// Number of lanes: micro-batches that the device computes at the same time. Threads on the CPU, 1 on a GPU.
    pub lanes: usize,
    /// Fastest precision that is safe on the device.
    pub precision: Precision,
    /// Index of the device among the devices of its backend, from 0.
    pub index: usize,
    /// Index of the device in CUDA; `None` if it is no CUDA device of this machine.
    pub cuda_index: Option<usize>,
    /// Number of replicas of the run in this process.
    pub replicas: usize,
    /// Number of processes of the run that share this machine; 1 unless several processes train together.
    pub sharing_processes: usize,
}

/// One replica of a run: its device with autodiff, and its connection to the other replicas.
pub(crate) struct ReplicaDevice {
    /// Device of the replica, with autodiff.
    pub(crate) device: Device,
    /// Connection to the other replicas.
    pub(crate) replica: Box<dyn Replica>,
}

impl TrainingDevice {
    /// Opens the device that `config` selects. `auto` selects CUDA if the program was built with it, else the CPU.
    ///
    /// # Errors
    /// If the program was built without the selected backend.
    pub fn choose(config: &DeviceConfig) -> Result<Self, Failure> {
        let index = config.index as usize;
        set_up(config);
        let device = match config.backend {
            BackendChoice::Auto if cfg!(feature = "cuda") => cuda(index),
            BackendChoice::Auto | BackendChoice::Cpu if index > 0 => Err(Failure::invalid(
                format!("there is no device {index}: the CPU is one device, with the number 0"),
                "leave out --device, or name the backend of the GPU: --backend cuda or --backend wgpu",
            )),
            BackendChoice::Auto | BackendChoice::Cpu => Ok(cpu()),
            BackendChoice::Cuda => cuda(index),
            BackendChoice::Wgpu => wgpu(index),
        };
        Ok(Self { replicas: config.replicas.max(1) as usize, ..device? })
    }

    /// Opens the device of this process of a run: its own GPU, or its share of the processors of the machine.
    ///
    /// # Errors
    /// As for [`choose`](Self::choose).
    pub(crate) fn choose_for(config: &DeviceConfig, processes: &Processes) -> Result<Self, Failure> {
        if processes.is_alone() {
            return Self::choose(config);
        }
        let (replicas, sharing_processes) = (1, processes.local_ranks());
        if !is_host(config) {
            let own = DeviceConfig { index: config.index + processes.local_rank() as u32, ..config.clone() };
            return Ok(Self { replicas, sharing_processes, ..Self::choose(&own)? });
        }
        let device = Self::choose(config)?;
        let lanes = (device.lanes / sharing_processes).max(1);
        let name = format!("the CPU, {}", counted(lanes, "thread"));
        Ok(Self { name, lanes, replicas, sharing_processes, ..device })
    }

    /// Returns a device with the properties of `target`, for a plan only: nothing can be trained on it.
    pub(crate) fn for_planning(target: &Target, config: &DeviceConfig, processes: &Processes) -> Self {
        let (is_host, lanes) = match target {
            Target::Host { threads, .. } => (true, (*threads / processes.local_ranks()).max(1)),
            Target::Gpu { .. } => (false, 1),
        };
        let precision = target.precision();
        Self {
            device: Device::flex(),
            name: target.name(),
            is_host,
            rules: target.rules(),
            lanes,
            precision,
            index: 0,
            cuda_index: None,
            replicas: if processes.is_alone() { config.replicas.max(1) as usize } else { 1 },
            sharing_processes: processes.local_ranks(),
        }
    }

    /// Opens the device, of all replicas, if it is a GPU: a driver that cannot is named before any work, and not by a panic later.
    /// Takes no memory of the GPU.
    ///
    /// # Errors
    /// If a device does not open; the message has the reason.
    pub(crate) fn open(&self) -> Result<(), Failure> {
        if self.is_host {
            return Ok(());
        }
        (0..self.replicas.max(1)).try_for_each(|rank| {
            let name = if rank == 0 { self.name.clone() } else { format!("the device of replica {rank}") };
            // Without replicas, the device itself, which is not always a CUDA GPU.
            let device = if rank == 0 { self.device.clone() } else { self.of_rank(rank) };
            open_quietly(&name, || _ = device.memory_pool_usage())
        })
    }

    /// Returns the meter of this device's memory: `process` on the CPU, the backend's pools on a GPU.
    pub fn meter(&self, process: &'static CountingAllocator) -> Box<dyn MemoryMeter> {
        match self.is_host {
            true => Box::new(process),
            false => Box::new(PoolMeter::new(&self.device)),
        }
    }

    /// Returns a gate that reports when a phase of a step has exceeded the memory budget.
    ///
    /// On the CPU, `process` compares the memory of the process with `budget`. On a GPU the memory that the backend's
    /// pools have reserved is compared with it, or with less while other processes use a CUDA GPU; without a budget the gate reports nothing, because operations fail when
    /// the memory of the GPU runs out.
    pub fn gate(&self, process: &'static CountingAllocator, budget: Option<Bytes>) -> Box<dyn MemoryGate> {
        match budget {
            _ if self.is_host => {
                process.set_budget(budget);
                Box::new(process)
            }
            Some(budget) => {
                let gate = PoolGate::new(self.meter(process), budget);
                // The pools of several replicas are on several GPUs, and only the first has this index.
                let index = self.cuda_index.filter(|_| self.replicas == 1);
                match index.and_then(GpuFreeMemory::open) {
                    Some(device) => Box::new(gate.beside_others(device, ROOM_FOR_OTHERS)),
                    None => Box::new(gate),
                }
            }
            None => Box::new(OpenGate),
        }
    }

    /// Connects the replicas of this process, in the order of their ranks: the one replica of a run of several processes,
    /// GPUs from this one on, or threads that share the CPU.
    pub(crate) fn replicas(&self, processes: &Processes, sums: SumsChoice) -> Vec<ReplicaDevice> {
        let on =
            |device: &Device, replica: Box<dyn Replica>| ReplicaDevice { device: device.clone().autodiff(), replica };
        if !processes.is_alone() {
            let replica = HostReplica::new(processes.collective()).in_any_order(sums == SumsChoice::Library);
            return vec![on(&self.device, Box::new(replica))];
        }
        let count = self.replicas;
        if count <= 1 {
            return vec![on(&self.device, Box::new(SingleReplica))];
        }
        if self.is_host {
            return ThreadReplica::for_ranks(count)
                .into_iter()
                .map(|thread| on(&self.device, Box::new(thread)))
                .collect();
        }
        let devices: Vec<Device> = (0..count).map(|rank| self.of_rank(rank)).collect();
        let gpus = GpuReplica::for_devices(&devices);
        devices.iter().zip(gpus).map(|(device, gpu)| on(device, Box::new(gpu))).collect()
    }

    /// Returns the device of the replica with this rank.
    #[cfg(feature = "cuda")]
    fn of_rank(&self, rank: usize) -> Device {
        Device::cuda(self.index + rank)
    }

    #[cfg(not(feature = "cuda"))]
    fn of_rank(&self, _: usize) -> Device {
        self.device.clone()
    }
}

/// Returns whether `config` selects the CPU.
pub fn is_host(config: &DeviceConfig) -> bool {
    match config.backend {
        BackendChoice::Cpu => true,
        BackendChoice::Auto => !cfg!(feature = "cuda"),
        BackendChoice::Cuda | BackendChoice::Wgpu => false,
    }
}

/// Returns the number of the CUDA GPU that `config` selects; `None` if it selects another device.
pub(crate) fn cuda_index(config: &DeviceConfig) -> Option<usize> {
    let is_cuda = match config.backend {
        BackendChoice::Cuda => true,
        BackendChoice::Auto => cfg!(feature = "cuda"),
        BackendChoice::Cpu | BackendChoice::Wgpu => false,
    };
    is_cuda.then_some(config.index as usize)
}

/// Sets up GPUs as `config` asks, before the first device is opened.
fn set_up(config: &DeviceConfig) {
    let kernel_cache = (config.kernel_cache && !is_host(config)).then(|| {
        let cache = KernelCache::for_process();
        cache.remove_if_large();
        cache.folder().to_owned()
    });
    set_up_gpus(GpuSettings {
        persistent: match config.persistent_memory {
            PersistentMemoryChoice::Enabled => PersistentPool::Enabled,
            PersistentMemoryChoice::SizeMatch => PersistentPool::SizeMatch,
            PersistentMemoryChoice::Disabled => PersistentPool::Disabled,
        },
        has_async_allocator: config.cuda_allocator == CudaAllocatorChoice::Async,
        tuning: match config.tuning {
            TuningChoice::Minimal => Tuning::Minimal,
            TuningChoice::Balanced => Tuning::Balanced,
            TuningChoice::Extensive => Tuning::Extensive,
            TuningChoice::Full => Tuning::Full,
        },
        kernel_cache,
    });
}

fn cpu() -> TrainingDevice {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    TrainingDevice {
        device: Device::flex(),
        name: format!("the CPU, {}", counted(threads, "thread")),
        is_host: true,
        rules: BackendRules::host(),
        lanes: threads,
        precision: Precision::Fp32,
        index: 0,
        cuda_index: None,
        replicas: 1,
        sharing_processes: 1,
    }
}

#[cfg(feature = "cuda")]
fn cuda(index: usize) -> Result<TrainingDevice, Failure> {
    let precision = precision_of_gpu(index);
    Ok(TrainingDevice {
        device: Device::cuda(index),
        name: format!("CUDA device {index}"),
        is_host: false,
        rules: BackendRules::cuda(),
        lanes: 1,
        precision,
        index,
        cuda_index: Some(index),
        replicas: 1,
        sharing_processes: 1,
    })
}

/// Returns the fastest safe precision of the CUDA device `index`.
#[cfg(feature = "cuda")]
fn precision_of_gpu(index: usize) -> Precision {
    let machine = plimsoll_monitor::Machine::probe();
    let uuid = machine.visible.uuids.get(index);
    let found = machine.gpus.iter().map(|report| &report.gpu).find(|gpu| Some(&gpu.uuid) == uuid);
    crate::target::fastest_precision(found.and_then(|gpu| gpu.compute_capability).map(|version| version.major as u8))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: usize) -> Result<TrainingDevice, Failure> {
    Err(not_built("cuda"))
}

#[cfg(feature = "wgpu")]
fn wgpu(index: usize) -> Result<TrainingDevice, Failure> {
    use burn::tensor::DeviceKind;
    // The default device may be a software driver, which computes on the CPU.
    let kind = if index == 0 { DeviceKind::DefaultDevice } else { DeviceKind::DiscreteGpu(index) };
    let device = Device::wgpu(kind);
    let name = format!("graphics device {index}");
    let (rules, precision) = (BackendRules::wgpu(), Precision::Fp32);
    let (lanes, replicas, sharing_processes) = (1, 1, 1);
    let cuda_index = None;
    Ok(TrainingDevice {
        device,
        name,
        is_host: false,
        rules,
        lanes,
        precision,
        index,
        cuda_index,
        replicas,
        sharing_processes,
    })
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(_: usize) -> Result<TrainingDevice, Failure> {
    Err(not_built("wgpu"))
}

#[cfg(not(all(feature = "cuda", feature = "wgpu")))]
fn not_built(backend: &str) -> Failure {
    Failure::invalid(
        format!("this program was built without {backend}"),
        format!("build the program with `--features {backend}`, or use `--backend cpu`"),
    )
}
