//! A trained recognizer on a device, with the search that it reads by.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_core::Samples;
use plimsoll_speech::asr::{Search, Transcriber};

use crate::config::{BackendChoice, DeviceConfig};
use crate::device::TrainingDevice;
use crate::error::{Failure, FailureExt};
use crate::reporter::{Level, Reporter};

/// A trained recognizer with its search.
pub struct Reader {
    transcriber: Transcriber,
    /// The search.
    pub search: Search,
}

impl Reader {
    /// Loads the model in `folder`, a run's or an exported one, onto `device`.
    ///
    /// # Errors
    /// Where the folder holds no recognizer, or one that cannot search so.
    pub fn load(folder: &Path, search: Search, device: &Device) -> Result<Self, Failure> {
        let transcriber = Transcriber::load(folder, device).invalid()?;
        if !transcriber.supports(&search) {
            let message = format!("the model in {} has no attention decoder", folder.display());
            return Err(Failure::invalid(message, "use `--search greedy` or `--search prefix-beam`"));
        }
        Ok(Self { transcriber, search })
    }

    /// Samples a second that [`text`](Self::text) expects.
    pub fn sample_rate(&self) -> u32 {
        self.transcriber.sample_rate()
    }

    /// The text of `samples`.
    pub fn text(&self, samples: &[f32], reporter: &dyn Reporter) -> String {
        let length = Samples(samples.len() as u64).at(self.sample_rate());
        if self.transcriber.truncates(length) {
            let text = format!("of a recording of {length} the end is cut, as the model's length policy has it");
            reporter.line(Level::Warning, &text);
        }
        self.transcriber.transcribe(samples, &self.search)
    }
}

/// The device that `backend` names: auto, cpu, cuda or wgpu.
///
/// # Errors
/// Where the program was built without that backend, or it has no such name.
pub fn device(backend: &str) -> Result<Device, Failure> {
    let backend = match backend {
        "auto" => BackendChoice::Auto,
        "cpu" => BackendChoice::Cpu,
        "cuda" => BackendChoice::Cuda,
        "wgpu" => BackendChoice::Wgpu,
        other => return Err(Failure::invalid(format!("there is no backend `{other}`"), "use auto, cpu, cuda or wgpu")),
    };
    Ok(TrainingDevice::choose(&DeviceConfig { backend, ..DeviceConfig::default() })?.device)
}
