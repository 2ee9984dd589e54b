//! The flags of every command that reads a configuration.

use std::path::PathBuf;

use super::bounds::shortened;
use super::choices::BackendChoice;
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
    /// What to train: asr (speech recognition), tts (text-to-speech) or vocoder (sound from log-mels).
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub task: Option<String>,
    /// Corpus to train on: a folder or a list, in any layout that `data import` reads. Default: a built-in corpus.
    #[cfg_attr(any(feature = "clap", test), arg(long, visible_alias = "data", value_name = "PATH"))]
    pub manifest: Option<String>,
    /// Begin with the weights of this run or exported model, and with its model, features and tokens.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "RUN"))]
    pub from: Option<String>,
    /// Stop after this many passes over the data.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub epochs: Option<String>,
    /// Stop after this many optimizer steps.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub steps: Option<String>,
    /// Effective batch size in utterances: the data of one optimizer step. The number computed at once is derived. With
    /// --gradient-accumulation-steps: the size of a micro-batch.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub batch_size: Option<String>,
    /// Number of micro-batches per step, each of --batch-size utterances. Default: as few as fit into memory.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub gradient_accumulation_steps: Option<String>,
    /// Largest amount of device memory to use, such as 8GiB, or share of it, such as 85% or 0.85.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "AMOUNT", allow_negative_numbers = true))]
    pub max_memory: Option<String>,
    /// Number format to compute in: auto, fp32, bf16 or fp16.
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub precision: Option<String>,
    /// Device: its number, counted from 0, if there are several; or a backend, such as cuda or cpu; or both, such as cuda:1.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N|BACKEND", allow_negative_numbers = true))]
    pub device: Option<String>,
    /// Backend to compute with: auto, cpu, cuda or wgpu.
    #[cfg_attr(any(feature = "clap", test), arg(long))]
    pub backend: Option<String>,
    /// Width of the model.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub d_model: Option<String>,
    /// Number of encoder blocks of a recognizer.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub encoder_layers: Option<String>,
    /// Number of decoder blocks.
    #[cfg_attr(any(feature = "clap", test), arg(long, value_name = "N", allow_negative_numbers = true))]
    pub decoder_layers: Option<String>,
    /// Compute in the fastest safe number format, as with --precision auto, which is the default.
    #[cfg_attr(any(feature = "clap", test), arg(long, hide = true, conflicts_with = "precision"))]
    pub mixed_precision: bool,
    /// Accepted for command lines of other systems, where it says what to do; here the command says that.
    #[cfg_attr(any(feature = "clap", test), arg(long, hide = true, value_parser = ["train"]))]
    pub mode: Option<String>,
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
    /// Reads the settings of the flags, and adds mistakes to `issues`. Named flags come before `--set`, so that `--set`
    /// wins.
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

    /// Lists the named flags: each flag, the key that it sets, and the given value.
    fn named(&self) -> Vec<(&'static str, &'static str, Option<String>)> {
        let (backend, index) = self.device.as_deref().map_or((None, None), device);
        let precision = self.precision.clone().or(self.mixed_precision.then(|| "auto".into()));
        let accumulation = self.gradient_accumulation_steps.clone();
        vec![
            ("--task", "task", self.task.clone()),
            ("--manifest", "data.manifest", self.manifest.clone()),
            ("--from", "training.from", self.from.clone()),
            ("--epochs", "training.epochs", self.epochs.clone()),
            ("--steps", "training.steps", self.steps.clone()),
            ("--batch-size", "data.batch_size", self.batch_size.clone()),
            ("--gradient-accumulation-steps", "training.gradient_accumulation_steps", accumulation),
            ("--max-memory", "training.max_memory", self.max_memory.clone()),
            ("--precision", "training.precision", precision),
            ("--device", "device.index", index),
            ("--device", "device.backend", backend),
            ("--backend", "device.backend", self.backend.clone()),
            ("--d-model", "model.d_model", self.d_model.clone()),
            ("--encoder-layers", "model.encoder_layers", self.encoder_layers.clone()),
            ("--decoder-layers", "model.decoder_layers", self.decoder_layers.clone()),
            ("--name", "name", self.name.clone()),
            ("--seed", "seed", self.seed.clone()),
        ]
    }
}

/// Splits the value of `--device` into a backend and a number, such as `1`, `cuda` or `cuda:1`; either may be missing. A
/// text that is neither counts as a number, whose check then reports it.
fn device(text: &str) -> (Option<String>, Option<String>) {
    let is_backend = |text: &str| BackendChoice::NAMES.contains(&text);
    match text.split_once(':') {
        Some((backend, index)) if is_backend(backend) => (Some(backend.into()), Some(index.into())),
        None if is_backend(text) => (Some(text.into()), None),
        _ => (None, Some(text.into())),
    }
}

/// Returns the setting of a named flag, from the flag, its key and its value; `None` if the flag is not given.
fn named_setting((flag, key, value): (&str, &'static str, Option<String>)) -> Option<RawSetting> {
    let value = value?;
    let share = if key == "training.max_memory" { share(&value) } else { None };
    let (key, value) = match share {
        Some(share) => ("training.max_memory_fraction", share.to_string()),
        None => (key, value),
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
