//! The flags that every command with a configuration understands.

use std::path::PathBuf;

use super::error::{Finding, Problem};
use super::origin::ValueOrigin;
use super::setting::{Raw, Written};

/// Flags that choose and override the configuration.
///
/// Values are taken as texts: they go the same way as those of the file, and a mistake in one reads the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(any(feature = "clap", test), derive(clap::Args), command(next_help_heading = "Configuration"))]
pub struct ConfigArgs {
    /// Configuration file, TOML or YAML; without one the built-in main job runs, and `auto` takes the one that ships for a
    /// card of the size of the one that is here.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "FILE"))]
    pub config: Option<PathBuf>,
    /// What is learned: asr (speech recognition) or tts (text-to-speech).
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub task: Option<String>,
    /// Corpus to train on: a folder or a list, in any layout that `data import` reads.
    #[cfg_attr(any(feature = "clap", test), arg(long, visible_alias = "data", value_name = "PATH"))]
    pub manifest: Option<String>,
    /// Stops after this many passes over the data.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub epochs: Option<String>,
    /// Stops after this many steps.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub steps: Option<String>,
    /// Effective batch in utterances; what fits at once is derived.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub batch_size: Option<String>,
    /// Micro-batches of a step; derived from the memory when not given.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub gradient_accumulation_steps: Option<String>,
    /// Most device memory to use: an amount such as 8GiB, or a share of the device such as 85% or 0.85.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "AMOUNT", allow_negative_numbers = true))]
    pub max_memory: Option<String>,
    /// Numbers to compute in: auto, fp32, bf16 or fp16.
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub precision: Option<String>,
    /// Which of several devices, counted from 0.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub device: Option<String>,
    /// Kind of device: auto, cpu, cuda or wgpu.
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub backend: Option<String>,
    /// Width of the model.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub d_model: Option<String>,
    /// Name of the run and of its folder.
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub name: Option<String>,
    /// Where all randomness starts.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub seed: Option<String>,
    /// Any other key, as section.key=value; may be repeated.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "KEY=VALUE"))]
    pub set: Vec<String>,
}

impl ConfigArgs {
    /// The settings that the flags make, named flags before `--set`, so that the more exact one wins.
    pub(super) fn read(&self, findings: &mut Vec<Finding>) -> Vec<Written> {
        let mut settings: Vec<Written> = self.named().into_iter().filter_map(named_setting).collect();
        for text in &self.set {
            match text.split_once('=') {
                Some((key, value)) => settings.push(Written {
                    name: key.trim().into(),
                    value: Raw::Text(value.trim().into()),
                    origin: ValueOrigin::Flag("--set".into()),
                }),
                None => {
                    let problem = Problem::NoEquals { text: text.clone() };
                    findings.push(Finding::new(&ValueOrigin::Flag("--set".into()), problem));
                }
            }
        }
        settings
    }

    /// Each named flag with its key and value.
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

fn named_setting((flag, key, value): (&str, &'static str, Option<&String>)) -> Option<Written> {
    let value = value?;
    let share = if key == "training.max_memory" { share(value) } else { None };
    let (key, value) = match share {
        Some(share) => ("training.max_memory_fraction", share.to_string()),
        None => (key, value.clone()),
    };
    Some(Written { name: key.into(), value: Raw::Text(value), origin: ValueOrigin::Flag(flag.into()) })
}

/// `85%` and `0.85` are shares of a device, and `8GiB` is none.
fn share(text: &str) -> Option<f64> {
    if let Some(percent) = text.trim().strip_suffix('%') {
        return percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0);
    }
    // No device has one byte, so a plain number up to 1 is never an amount.
    text.trim().parse::<f64>().ok().filter(|share| *share <= 1.0)
}
