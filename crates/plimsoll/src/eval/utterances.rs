//! The utterances to evaluate on: those of a manifest, or those that the run held out of its training.

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

use plimsoll_config::invocation::command;
use plimsoll_config::{ConfigArgs, DataConfig, RunConfig, variable_name};
use plimsoll_core::{Skipped, counted};
use plimsoll_data::Utterance;
use plimsoll_data::dropped::Dropped;
use plimsoll_recipes::Failure;
use plimsoll_recipes::data;
use plimsoll_recipes::earlier::EarlierRun;
use plimsoll_recipes::load;
use plimsoll_recipes::texts::read_manifest;
use plimsoll_recipes::training::written_config;
use plimsoll_text::Tokenizer;
use serde_json::Value;

use super::EvalArgs;
use crate::data::accept;
use crate::environment;
use crate::terminal::Terminal;

/// Keys that `--set` and the environment may change. They say where the sound is, and how much of it may be missing; another value of
/// any other key could count training utterances as held out.
const KEYS: [&str; 4] = ["data.audio_root", "data.unpack_dir", "data.unpack_size", "data.unusable_share"];

/// The utterances to evaluate on, and what their list has lost.
pub(super) struct Chosen {
    pub(super) utterances: Vec<Utterance>,
    /// Utterances of the list that cannot be used; those of a run are held to its rule when it begins.
    dropped: Dropped,
    data: DataConfig,
}

impl Chosen {
    /// Reads the utterances to evaluate on, with texts normalized as in training.
    ///
    /// `tokenizer` is the tokenizer of the model; a vocoder has none. Held-out utterances are an error if the texts of the run now
    /// give a different tokenizer: the texts have changed since training, so different utterances would be held out.
    pub(super) fn read(args: &EvalArgs, tokenizer: Option<&Tokenizer>) -> Result<Self, Failure> {
        let run = &args.run;
        let written = written_config(run)?;
        let has_config = written.is_some();
        let config = configuration(ConfigArgs { config: written, set: args.set.clone(), ..ConfigArgs::default() })?;
        let mut chosen = match &args.manifest {
            Some(manifest) => {
                if !has_config && tokenizer.is_some() {
                    eprintln!("note: {} has no config.toml, so texts are taken as they are written", run.display());
                }
                listed(manifest, if has_config { config.data } else { of_no_run(config.data) }, tokenizer)?
            }
            None if has_config => {
                let utterances = held_out(run, &config, tokenizer)?;
                Self { utterances, dropped: Dropped::default(), data: config.data }
            }
            None => {
                let message = format!("{} has no config.toml, so its held-out utterances are unknown", run.display());
                return Err(Failure::invalid(message, "give a list of utterances: --manifest FILE"));
            }
        };
        chosen.utterances.truncate(args.limit.map_or(usize::MAX, NonZeroUsize::get));
        Ok(chosen)
    }

    /// Refuses an evaluation on nothing: `skipped` are the utterances that could not be read.
    pub(super) fn refuse_if_none_is_read(&self, skipped: &[Skipped]) -> Result<(), Failure> {
        match skipped.first() {
            Some(Skipped { name, reason }) if skipped.len() == self.utterances.len() => {
                let count = counted(self.utterances.len(), "utterance");
                let message = format!("none of {count} can be read; the first, `{name}`: {reason}");
                let help = format!("`{}` finds wrong paths, offsets and durations", command("data check LIST"));
                Err(Failure::invalid(message, help))
            }
            _ => Ok(()),
        }
    }

    /// Ends a command that printed its result: fails if more is missing than a run accepts. `skipped` are the utterances that could
    /// not be read.
    pub(super) fn verdict(&self, skipped: &[Skipped]) -> Result<ExitCode, Failure> {
        // What was read is a sample of the list, if there is a limit.
        let (listed, read) = (self.dropped.share(), skipped.len() as f64 / self.utterances.len().max(1) as f64);
        accept(listed + (1.0 - listed) * read, &self.data)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Adds the number of utterances that the list has lost to the `result` of the evaluation.
    pub(super) fn with_missing(&self, mut result: Value) -> Value {
        result["missing"] = self.dropped.lost().into();
        result
    }
}

/// Returns how the texts of `run` were read in training; the defaults for a model that no run belongs to.
///
/// # Errors
/// If the configuration of the run cannot be read.
pub(super) fn data_of(run: &Path) -> Result<DataConfig, Failure> {
    Ok(match written_config(run)? {
        Some(written) => configuration(ConfigArgs { config: Some(written), ..ConfigArgs::default() })?.data,
        None => DataConfig::default(),
    })
}

/// Returns how texts are read for a model that no run belongs to. `given` has the values of [`KEYS`].
fn of_no_run(given: DataConfig) -> DataConfig {
    let DataConfig { audio_root, unpack_dir, unpack_size, unusable_share, .. } = given;
    DataConfig { audio_root, unpack_dir, unpack_size, unusable_share, ..DataConfig::default() }
}

/// Reads the utterances of the list `manifest`.
fn listed(manifest: &Path, data: DataConfig, tokenizer: Option<&Tokenizer>) -> Result<Chosen, Failure> {
    let manifest = read_manifest(manifest, &data, &Terminal)?;
    data::report_flaws(&manifest, &Terminal);
    let normalized = |text: &str| tokenizer.map_or_else(|| text.to_owned(), |tokenizer| tokenizer.normalized(text));
    let dropped = manifest.dropped();
    Ok(Chosen { utterances: manifest.utterances.map_texts(normalized).to_vec(), dropped, data })
}

/// Loads a configuration whose `set` and whose environment may only change [`KEYS`].
fn configuration(args: ConfigArgs) -> Result<RunConfig, Failure> {
    let key = |setting: &str| setting.split('=').next().unwrap_or_default().trim().to_owned();
    if let Some(other) = args.set.iter().map(|setting| key(setting)).find(|key| !KEYS.contains(&key.as_str())) {
        let message = format!("--set {other}: an evaluation has the settings of the run");
        return Err(Failure::invalid(message, format!("it can change {}", KEYS.join(", "))));
    }
    let allowed = KEYS.map(variable_name);
    Ok(load(&args, environment().filter(|(name, _)| allowed.contains(name)))?.config)
}

/// Reads the utterances that `run` held out, if its data has not changed.
fn held_out(run: &Path, config: &RunConfig, tokenizer: Option<&Tokenizer>) -> Result<Vec<Utterance>, Failure> {
    let prepared = match EarlierRun::read(run, config)? {
        Some(earlier) => {
            let prepared = data::prepare_again(config, &earlier, &Terminal)?;
            // A run of an older version recorded no data, and chose its utterances in another way.
            let is_unknown = earlier.state.fingerprint.is_empty() && config.data.validation_manifest.is_none();
            if is_unknown || !prepared.has_data_of(&earlier) {
                return Err(changed(run, "other utterances would count as held out"));
            }
            prepared
        }
        None => data::prepare(config, &Terminal)?,
    };
    // Another tokenizer means other texts, and those would be divided differently.
    if tokenizer.is_some_and(|tokenizer| prepared.tokenizer != *tokenizer) {
        return Err(changed(run, "they give other tokens now"));
    }
    Ok(prepared.validation.utterances().to_vec())
}

/// Makes the failure of a run whose data has changed.
fn changed(run: &Path, reason: &str) -> Failure {
    let message =
        format!("the utterances that {} was trained on have changed, or are not known: {reason}", run.display());
    Failure::invalid(message, "give a list of utterances: --manifest FILE")
}
