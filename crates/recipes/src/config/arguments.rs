//! The flags of every command that reads a configuration.

use std::path::PathBuf;

use super::bounds::shortened;
use super::error::{ConfigIssue, IssueKind};
use super::origin::ValueOrigin;
use super::setting::{RawSetting, RawValue};

/// Flags that select a configuration file and override its keys.
///
/// Values are texts, so that they are checked like those of a file and with the same messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(any(feature = "clap", test), derive(clap::Args), command(next_help_heading = "Configuration"))]
pub struct ConfigArgs {
    /// Configuration file, TOML or YAML; `auto` selects the shipped one for the memory of the local GPU. Default: the built-in
    /// configuration.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "FILE"))]
    pub config: Option<PathBuf>,
    /// What to train: asr (speech recognition) or tts (text-to-speech).
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub task: Option<String>,
    /// Corpus to train on: a folder or a list, in any layout that `data import` reads. Default: a built-in corpus.
    #[cfg_attr(any(feature = "clap", test), arg(long, visible_alias = "data", value_name = "PATH"))]
    pub manifest: Option<String>,
    /// Stop after this many passes over the data.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub epochs: Option<String>,
    /// Stop after this many optimizer steps.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub steps: Option<String>,
    /// Effective batch size in utterances: the data of one optimizer step. The number computed at once is derived.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub batch_size: Option<String>,
    /// Number of micro-batches per step. Default: as few as fit into memory.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub gradient_accumulation_steps: Option<String>,
    /// Largest amount of device memory to use, such as 8GiB, or share of it, such as 85% or 0.85.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "AMOUNT", allow_negative_numbers = true))]
    pub max_memory: Option<String>,
    /// Number format to compute in: auto, fp32, bf16 or fp16.
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub precision: Option<String>,
    /// Number of the device, counted from 0, if there are several.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub device: Option<String>,
    /// Backend to compute with: auto, cpu, cuda or wgpu.
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub backend: Option<String>,
    /// Width of the model.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub d_model: Option<String>,
    /// Name of the run and of its folder.
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub name: Option<String>,
    /// Seed of all random numbers.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub seed: Option<String>,
    /// Set any key, as section.key=value; can be repeated.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "KEY=VALUE"))]
    pub set: Vec<String>,
}

impl ConfigArgs {
    /// Reads the settings of the flags. Named flags come before `--set`, so that `--set` wins.
    pub(super) fn read(&self, issues: &mut Vec<ConfigIssue>) -> Vec<RawSetting> {
        let mut settings: Vec<RawSetting> = self.named().into_iter().filter_map(named_setting).collect();
        for text in &self.set {
            match text.split_once('=') {
                Some((key, value)) => settings.push(RawSetting {
                    name: key.trim().into(),
                    value: RawValue::Text(value.trim().into()),
                    origin: ValueOrigin::Flag("--set".into()),
                }),
                None => {
                    let kind = IssueKind::MissingEquals { text: shortened(text) };
                    issues.push(ConfigIssue::new(&ValueOrigin::Flag("--set".into()), kind));
                }
            }
        }
        settings
    }

    /// Lists each named flag with the key that it sets, and its value.
    fn named(&self) -> [(&'static str, &'static str, Option<&String>); 13] {
        [
            ("--task", "task", self.task.as_ref()),
            ("--manifest", "data.manifest", self.manifest.as_ref()),
            ("--epochs", "training.epochs", self.epochs.as_ref()),
            ("--steps", "training.steps", self.steps.as_ref()),
            ("--batch-size", "data.batch_size", self.batch_size.as_ref()),
            (
                "--gradient-accumulation-steps",
                "training.gradient_accumulation_steps",
                self.gradient_accumulation_steps.as_ref(),
            ),
            ("--max-memory", "training.max_memory", self.max_memory.as_ref()),
            ("--precision", "training.precision", self.precision.as_ref()),
            ("--device", "device.index", self.device.as_ref()),
            ("--backend", "device.backend", self.backend.as_ref()),
            ("--d-model", "model.d_model", self.d_model.as_ref()),
            ("--name", "name", self.name.as_ref()),
            ("--seed", "seed", self.seed.as_ref()),
        ]
    }
}

/// Returns the setting of a named flag, if the flag is given.
fn named_setting((flag, key, value): (&str, &'static str, Option<&String>)) -> Option<RawSetting> {
    let value = value?;
    let share = if key == "training.max_memory" { share(value) } else { None };
    let (key, value) = match share {
        Some(share) => ("training.max_memory_fraction", share.to_string()),
        None => (key, value.clone()),
    };
    Some(RawSetting { name: key.into(), value: RawValue::Text(value), origin: ValueOrigin::Flag(flag.into()) })
}

/// Parses the share of a device in texts such as `85%` and `0.85`; `None` for an amount such as `8GiB`.
fn share(text: &str) -> Option<f64> {
    if let Some(percent) = text.trim().strip_suffix('%') {
        return percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0);
    }
    // A number up to 1 is a share: an amount of one byte makes no sense.
    text.trim().parse::<f64>().ok().filter(|share| *share <= 1.0)
}
