//! Samples of this machine: the host and the GPUs of the NVIDIA driver.

use std::time::Duration;

use super::Sample;
use super::host_reader::HostReader;
use super::nvml_reader::NvmlReader;
use super::sampler::SampleSource;
use super::watched::WatchedProcess;
use crate::probe::{NoGpu, NvmlGpus, ProcessEnv};

/// Source of samples of this machine. The host is always read; the GPUs if there are any.
pub struct MachineSource {
    host: HostReader,
    gpus: Result<NvmlReader, String>,
}

impl MachineSource {
    /// Opens this machine, and its GPUs through the NVIDIA driver if there is one.
    pub fn open() -> Self {
        Self::with_gpus(NvmlGpus::load())
    }

    /// Opens this machine with `gpus`, or with the reason why there are none.
    pub fn with_gpus(gpus: Result<NvmlGpus, NoGpu>) -> Self {
        Self {
            host: HostReader::new(WatchedProcess::this()),
            gpus: gpus.map(NvmlReader::new).map_err(|why| why.to_string()),
        }
    }

    /// Shows the use of the machine by `process` in place of that by this process: a program that watches another is not the
    /// run.
    #[must_use]
    pub fn with_process(mut self, process: &WatchedProcess) -> Self {
        self.host = HostReader::new(process.clone());
        if let Ok(gpus) = &mut self.gpus {
            gpus.watch(process.clone());
        }
        self
    }

    /// Replaces the detected environment of this process, which decides what the process numbers of the driver mean.
    #[must_use]
    pub fn with_process_env(mut self, env: ProcessEnv) -> Self {
        if let Ok(gpus) = &mut self.gpus {
            gpus.set_env(env);
        }
        self
    }
}

impl SampleSource for MachineSource {
    fn read(&mut self, elapsed: Duration) -> Sample {
        let host = self.host.read(elapsed);
        match &mut self.gpus {
            Ok(gpus) => Sample { time: 0.0, host, gpus: gpus.read(elapsed), no_gpu: None },
            Err(why) => Sample { time: 0.0, host, gpus: Vec::new(), no_gpu: Some(why.clone()) },
        }
    }
}

impl std::fmt::Debug for MachineSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineSource").field("no_gpu", &self.gpus.as_ref().err()).finish_non_exhaustive()
    }
}
