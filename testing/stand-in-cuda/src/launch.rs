//! Launching kernels: their limits and arguments are checked, and nothing runs.

use crate::abi::{Arguments, Handle};
use crate::addresses::gpu_of;
use crate::architecture::{BLOCK, GRID, REGISTERS, SHARED_PER_BLOCK, THREADS_PER_BLOCK};
use crate::capture::{KernelNode, Node, Pointer};
use crate::device::Gpu;
use crate::errors::{Answer, INVALID_HANDLE, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, is_sticky};
use crate::kernels::Function;
use crate::machine::Machine;
use crate::streams::Work;

/// Made-up microseconds of the shortest kernel.
const LEAST_TIME: f64 = 4.0;
/// Factor of the time of a slow kernel.
const SLOWNESS: f64 = 1000.0;

/// Launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub(crate) shared: u32,
    pub(crate) stream: Handle,
}

impl Machine {
    /// Launches a kernel, or records it if the stream is captured.
    pub(crate) fn launch(&mut self, launch: &Launch, arguments: Arguments) -> Answer {
        let function = self.functions.get(launch.function)?;
        let gpu = function.gpu;
        self.gpus[gpu].check()?;
        launch.check(function)?;
        let sizes: Vec<usize> = function.parameters.iter().map(|parameter| parameter.size).collect();
        let values = arguments.read(&sizes);
        if values.is_none() && !sizes.is_empty() {
            return Err(INVALID_VALUE);
        }
        let values = values.unwrap_or_default();
        let work = launch.work(function, &self.gpus[gpu], &values);
        let node = KernelNode { function: launch.function, pointers: self.pointers(function, &values), work };
        let stream = self.working_stream(launch.stream)?;
        if stream.gpu != gpu {
            return Err(INVALID_HANDLE);
        }
        match stream.capture {
            Some(capture) => {
                self.graph_counts.n_captured_launches += 1;
                self.record(capture, Node::Kernel(node))
            }
            None => self.run_kernel(&node, launch.stream, false),
        }
    }

    /// Runs a kernel: counts it, and checks its pointers again.
    pub(crate) fn run_kernel(&mut self, node: &KernelNode, stream: Handle, is_replay: bool) -> Answer {
        let function = self.functions.get(node.function)?;
        let (gpu, name) = (function.gpu, function.name.clone());
        let on = &mut self.gpus[gpu];
        on.n_run += 1;
        let failure = on.facts.launch_failures.get(&on.n_run).copied();
        if let Some(code) = failure.filter(|code| !is_sticky(*code)) {
            return Err(code);
        }
        let count = if is_replay { &mut on.counts.n_replayed_launches } else { &mut on.counts.n_launches };
        *count += 1;
        self.kernels.count(&name, is_replay);
        if let Some(code) = failure {
            // A kernel faults after the launch has returned.
            self.poison(gpu, code);
            return Ok(());
        }
        node.pointers.iter().for_each(|pointer| self.use_pointer(gpu, &name, pointer));
        self.stream(stream)?.progress.add(node.work);
        Ok(())
    }

    /// Checks that a kernel on a GPU can use a pointer, and notes what it may write.
    fn use_pointer(&mut self, gpu: usize, kernel: &str, pointer: &Pointer) {
        let Pointer { address, parameter, is_in_structure, is_written } = *pointer;
        let owner = gpu_of(address).filter(|owner| *owner < self.gpus.len());
        let reaches = owner.filter(|owner| *owner == gpu || self.gpus[gpu].peers.contains(owner));
        let is_live = reaches.is_some_and(|owner| self.gpus[owner].books.block_at(address).is_some());
        if is_live {
            if let Some(contents) = self.contents.as_mut().filter(|_| is_written) {
                contents.kernel_writes(address);
            }
        } else if !is_in_structure {
            self.count_wild(gpu, || format!("parameter {parameter} of {kernel} is {address:#x}"));
        }
    }

    /// Finds the arguments that look like addresses on a GPU.
    fn pointers(&self, function: &Function, values: &[Vec<u8>]) -> Vec<Pointer> {
        let mut pointers = Vec::new();
        for (number, (value, parameter)) in values.iter().zip(&function.parameters).enumerate() {
            let is_in_structure = parameter.size > 8;
            let is_written = is_in_structure || parameter.is_written;
            for word in value.chunks_exact(8) {
                let address = u64::from_le_bytes(word.try_into().expect("a chunk has eight bytes"));
                if gpu_of(address).is_some_and(|gpu| gpu < self.gpus.len()) {
                    pointers.push(Pointer { address, parameter: number, is_in_structure, is_written });
                }
            }
        }
        pointers
    }
}

impl Launch {
    /// Checks the limits of a launch.
    fn check(&self, function: &Function) -> Answer {
        let within = |sizes: [u32; 3], limits: [u32; 3]| {
            sizes.iter().zip(limits).all(|(size, limit)| (1..=limit).contains(size))
        };
        let threads: u64 = self.block.iter().map(|size| u64::from(*size)).product();
        let shared = function.shared_dynamic.max(SHARED_PER_BLOCK);
        if !within(self.grid, GRID) || !within(self.block, BLOCK) || threads > u64::from(THREADS_PER_BLOCK) {
            return Err(INVALID_VALUE);
        }
        if self.shared > shared {
            return Err(INVALID_VALUE);
        }
        let registers = function.resources.map_or(0, |resources| u64::from(resources.registers));
        if threads > u64::from(function.max_threads) || threads * registers > u64::from(REGISTERS) {
            return Err(LAUNCH_OUT_OF_RESOURCES);
        }
        Ok(())
    }

    /// Makes up the time: a few microseconds, and one more for each time that the GPU is full.
    fn work(&self, function: &Function, gpu: &Gpu, values: &[Vec<u8>]) -> Work {
        let threads: u64 = self.block.iter().map(|size| u64::from(*size)).product();
        let blocks: f64 = self.grid.iter().map(|size| f64::from(*size)).product();
        let fills = blocks * threads.next_multiple_of(32) as f64 / gpu.threads() as f64;
        let factor = if function.is_slow { SLOWNESS } else { 1.0 };
        let wait = repetitions(&function.name, values);
        Work { clock: factor * (LEAST_TIME + fills) + wait, wait }
    }
}

/// Returns the microseconds of CubeCL's measurements of throughput, and zero for other kernels.
///
/// They look for how often a kernel must repeat its work to be timed well, and would never find it if repeating took no
/// time. They time it by the clock of the host. The last argument is a structure that ends with the repetitions, after
/// the size of the window for memory (`cubecl-std`, `throughput/runners`).
fn repetitions(kernel: &str, values: &[Vec<u8>]) -> f64 {
    const MICROSECONDS_OF_COMPUTING: f64 = 0.5;
    const BYTES_PER_MICROSECOND: f64 = 300e3;
    let Some(last) = values.last().filter(|last| last.len() >= 16 && kernel.contains("_throughput")) else {
        return 0.0;
    };
    let number = |index: usize| {
        let word = last[index * 4..].first_chunk().expect("the structure has four numbers");
        f64::from(u32::from_le_bytes(*word))
    };
    if !kernel.starts_with("memory_") {
        return number(0) * MICROSECONDS_OF_COMPUTING;
    }
    // Numbers have 64 bits where buffers are large.
    let repeated = if last.len() > 16 { number(2) } else { number(1) };
    repeated * number(0) * 16.0 / BYTES_PER_MICROSECOND
}
