//! The state of the library: the GPUs, and what the program has handles of.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::abi::Handle;
use crate::books::Change;
use crate::capture::{Capture, Graph};
use crate::contents::Contents;
use crate::context;
use crate::counts::GraphCounts;
use crate::device::Gpu;
use crate::errors::{
    Answer, Code, INVALID_CONTEXT, INVALID_DEVICE, NO_DEVICE, NOT_INITIALIZED, OUT_OF_MEMORY, UNKNOWN,
};
use crate::kernels::{Function, KernelCounts, Module};
use crate::scenario::Scenario;
use crate::streams::{CaptureId, Event, Stream};
use crate::table::Table;
use crate::trace::Trace;

/// Environment variable with the path of the scenario.
const VARIABLE: &str = "STAND_IN_CUDA";

/// Functions that answer before `cuInit`.
const BEFORE_INIT: [&str; 5] =
    ["cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuGetProcAddress_v2"];

/// State of the library, or the code with which every function fails. The scenario is read at the first call.
static MACHINE: LazyLock<Mutex<Answer<Machine>>> = LazyLock::new(|| Mutex::new(Machine::read()));

/// State of the library.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) scenario: Scenario,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Table<Function>,
    pub(crate) streams: Table<Stream>,
    pub(crate) events: Table<Event>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) executables: Table<Graph>,
    /// Captures that have not ended.
    pub(crate) captures: BTreeMap<CaptureId, Capture>,
    pub(crate) last_capture: CaptureId,
    /// Pinned memory of the host by address: its size and the number of the GPU.
    pub(crate) pinned: BTreeMap<usize, (usize, usize)>,
    /// What was copied to GPUs, if the scenario keeps it.
    pub(crate) contents: Option<Contents>,
    pub(crate) kernels: KernelCounts,
    pub(crate) graph_counts: GraphCounts,
    /// Calls by function.
    pub(crate) calls: BTreeMap<&'static str, u64>,
    pub(crate) is_initialized: bool,
    n_calls: u64,
    trace: Option<Trace>,
    /// Number of lines on stderr about pointers to memory that is not allocated.
    n_wild_lines: u32,
}

/// Returns the state of the library.
pub(crate) fn machine() -> MutexGuard<'static, Answer<Machine>> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    /// Reads the scenario.
    fn read() -> Answer<Self> {
        let Some(path) = std::env::var_os(VARIABLE) else {
            eprintln!("stand-in-cuda: the environment variable {VARIABLE} names no scenario");
            return Err(NO_DEVICE);
        };
        let name = path.to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let scenario = text.and_then(|text| text.parse::<Scenario>());
        scenario.and_then(Self::new).map_err(|error| {
            eprintln!("stand-in-cuda: {name}: {error}");
            UNKNOWN
        })
    }

    /// Makes the machine of a scenario.
    fn new(scenario: Scenario) -> Result<Self, String> {
        let trace = scenario.trace.as_ref().map(|pattern| {
            let path = pattern.path();
            Trace::create(&path).map_err(|error| format!("cannot create {}: {error}", path.display()))
        });
        let gpus = scenario.gpus.iter().enumerate();
        Ok(Self {
            gpus: gpus.map(|(number, facts)| Gpu::new(number, facts.clone(), &scenario)).collect(),
            contents: scenario.keeps_contents.then(Contents::default),
            trace: trace.transpose()?,
            scenario,
            modules: Table::new(1),
            functions: Table::new(2),
            streams: Table::new(3),
            events: Table::new(4),
            graphs: Table::new(5),
            executables: Table::new(6),
            captures: BTreeMap::new(),
            last_capture: 0,
            pinned: BTreeMap::new(),
            kernels: KernelCounts::default(),
            graph_counts: GraphCounts::default(),
            calls: BTreeMap::new(),
            is_initialized: false,
            n_calls: 0,
            n_wild_lines: 0,
        })
    }

    /// Begins a call of a function: counts it, and lets it fail if the scenario says so.
    pub(crate) fn begin(&mut self, function: &'static str) -> Answer {
        let count = self.calls.entry(function).or_default();
        *count += 1;
        self.n_calls += 1;
        let numbers = [(function, *count), ("*", self.n_calls)];
        for (name, number) in numbers {
            let failure = self.scenario.failures.get(name).filter(|failure| number >= failure.from_call);
            // The texts of errors and the books can always be had.
            let is_lost = name != "*" || !(function.starts_with("cuGetError") || function.starts_with("stand_in"));
            if let Some(failure) = failure.filter(|_| is_lost) {
                return Err(failure.code);
            }
        }
        if self.is_initialized || BEFORE_INIT.contains(&function) { Ok(()) } else { Err(NOT_INITIALIZED) }
    }

    /// Returns the GPU with a number that the program passes.
    pub(crate) fn device(&mut self, number: i32) -> Answer<&mut Gpu> {
        usize::try_from(number).ok().and_then(|number| self.gpus.get_mut(number)).ok_or(INVALID_DEVICE)
    }

    /// Returns the number of the GPU whose context is current and works.
    pub(crate) fn current(&self) -> Answer<usize> {
        let gpu = context::current()?;
        self.gpus[gpu].check()?;
        if self.gpus[gpu].n_retained == 0 { Err(INVALID_CONTEXT) } else { Ok(gpu) }
    }

    /// Returns the number of the GPU of a context that the program passes.
    pub(crate) fn of_context(&self, handle: Handle) -> Answer<usize> {
        context::gpu_of_context(handle).filter(|gpu| *gpu < self.gpus.len()).ok_or(INVALID_CONTEXT)
    }

    /// Returns the handle of a stream: that of the current context for the streams without a handle of their own.
    pub(crate) fn stream_handle(&self, stream: Handle) -> Answer<Handle> {
        match stream {
            0..=2 => self.gpus[self.current()?].null_stream.ok_or(INVALID_CONTEXT),
            _ => Ok(stream),
        }
    }

    /// Returns a stream.
    pub(crate) fn stream(&mut self, stream: Handle) -> Answer<&mut Stream> {
        let handle = self.stream_handle(stream)?;
        self.streams.get_mut(handle)
    }

    /// Returns a stream whose GPU works.
    pub(crate) fn working_stream(&mut self, stream: Handle) -> Answer<&mut Stream> {
        let gpu = self.stream(stream)?.gpu;
        self.gpus[gpu].check()?;
        self.stream(stream)
    }

    /// Writes a change of a GPU's memory into the trace.
    pub(crate) fn trace(&mut self, gpu: usize, change: &Change) {
        if let Some(trace) = &mut self.trace {
            trace.add(gpu, change, &self.gpus[gpu].books);
        }
    }

    /// Writes an allocation into the trace, or that it was refused, and returns its address.
    pub(crate) fn traced(&mut self, gpu: usize, size: u64, answer: Answer<(u64, Change)>) -> Answer<u64> {
        match answer {
            Ok((address, change)) => {
                self.trace(gpu, &change);
                Ok(address)
            }
            Err(code) => {
                if code == OUT_OF_MEMORY {
                    self.trace(gpu, &Change { kind: "refused", address: 0, asked: size, granted: 0 });
                }
                Err(code)
            }
        }
    }

    /// Counts a use of memory that is not allocated, and says so on stderr for the first ones.
    pub(crate) fn count_wild(&mut self, gpu: usize, what: impl FnOnce() -> String) {
        const MOST_LINES: u32 = 20;
        self.gpus[gpu].counts.n_wild += 1;
        self.n_wild_lines += 1;
        if self.n_wild_lines <= MOST_LINES {
            eprintln!("stand-in-cuda: {}, which is not allocated", what());
        }
    }

    /// Makes the context of a GPU unusable.
    pub(crate) fn poison(&mut self, gpu: usize, code: Code) {
        self.gpus[gpu].poison = Some(code);
    }

    /// Destroys the context of a GPU, with all that is in it.
    pub(crate) fn destroy_context(&mut self, gpu: usize) {
        for (address, size) in self.gpus[gpu].books.close_context() {
            self.forget(address, size);
        }
        self.modules.retain(|module| module.gpu != gpu);
        self.functions.retain(|function| function.gpu != gpu);
        let streams = &self.streams;
        self.captures.retain(|_, capture| streams.get(capture.stream).is_ok_and(|stream| stream.gpu != gpu));
        self.streams.retain(|stream| stream.gpu != gpu);
        self.events.retain(|event| event.gpu != gpu);
        let gpu = &mut self.gpus[gpu];
        (gpu.n_retained, gpu.poison, gpu.null_stream) = (0, None, None);
        gpu.peers.clear();
    }

    /// Forgets what was copied to memory that is free now.
    pub(crate) fn forget(&mut self, address: u64, size: u64) {
        if let Some(contents) = &mut self.contents {
            contents.clear(address, size);
        }
    }
}
