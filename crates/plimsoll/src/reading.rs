//! What every command that reads shares: a trained recogniser on a device, and what is said on the way.

use std::path::Path;

use burn::tensor::Device;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::Samples;
use plimsoll_speech::asr::{Search, Transcriber};

use crate::config::{BackendChoice, DeviceConfig};
use crate::device;
use crate::failure::{Failure, Told};
use crate::search::SearchArgs;

/// A trained recogniser with the search that it reads by.
pub(crate) struct Reader {
    transcriber: Transcriber,
    /// The search.
    pub(crate) search: Search,
}

impl Reader {
    /// Loads the model in `folder`, a run's or an exported one, onto the device that `backend` names.
    pub(crate) fn load(folder: &Path, search: &SearchArgs, backend: &str) -> Result<Self, Failure> {
        let search = search.settle()?;
        let transcriber = Transcriber::load(folder, &device(backend)?).wrong()?;
        if !transcriber.can(&search) {
            let message = format!("the model in {} has no attention decoder", folder.display());
            return Err(Failure::wrong(message, "use `--search greedy` or `--search prefix-beam`"));
        }
        Ok(Self { transcriber, search })
    }

    /// Samples a second that [`text`](Self::text) expects.
    pub(crate) fn sample_rate(&self) -> u32 {
        self.transcriber.sample_rate()
    }

    /// The text of `samples`.
    pub(crate) fn text(&self, samples: &[f32]) -> String {
        let length = Samples(samples.len() as u64).at(self.sample_rate());
        if self.transcriber.cuts(length) {
            eprintln!("warning: of a recording of {length} the end is cut, as the model's length policy has it");
        }
        self.transcriber.read(samples, &self.search)
    }
}

/// The device that `backend` names.
pub(crate) fn device(backend: &str) -> Result<Device, Failure> {
    Ok(device::choose(&DeviceConfig { backend: choice(backend)?, ..DeviceConfig::default() })?.device)
}

fn choice(backend: &str) -> Result<BackendChoice, Failure> {
    match backend {
        "auto" => Ok(BackendChoice::Auto),
        "cpu" => Ok(BackendChoice::Cpu),
        "cuda" => Ok(BackendChoice::Cuda),
        "wgpu" => Ok(BackendChoice::Wgpu),
        other => Err(Failure::wrong(format!("there is no backend `{other}`"), "use auto, cpu, cuda or wgpu")),
    }
}

/// A bar for the reading of `count` recordings; a single one needs none, and away from a terminal it is not seen.
pub(crate) fn bar(count: usize) -> ProgressBar {
    if count < 2 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("reading {bar:40} {pos}/{len} recordings, {eta} left");
    ProgressBar::new(count as u64).with_style(style.expect("the template is valid"))
}
