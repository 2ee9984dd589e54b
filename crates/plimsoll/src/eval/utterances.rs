//! The utterances to evaluate on: those of a manifest, or those that the run held out of its training.

use std::path::Path;

use plimsoll_config::{ConfigArgs, DataConfig, RunConfig};
use plimsoll_data::Utterance;
use plimsoll_recipes::Failure;
use plimsoll_recipes::data;
use plimsoll_recipes::earlier::EarlierRun;
use plimsoll_recipes::load;
use plimsoll_recipes::texts::read_manifest;
use plimsoll_recipes::training::written_config;
use plimsoll_text::Tokenizer;

use super::EvalArgs;
use crate::terminal::Terminal;

/// Reads the utterances to evaluate on, with texts normalized as in training.
///
/// `tokenizer` is the tokenizer of the model; a vocoder has none. Held-out utterances are an error if the texts of the run now give a
/// different tokenizer: the texts have changed since training, so different utterances would be held out.
pub(super) fn chosen(args: &EvalArgs, tokenizer: Option<&Tokenizer>) -> Result<Vec<Utterance>, Failure> {
    let run = &args.run;
    let listed = |manifest: &Path, data: &DataConfig| {
        let manifest = read_manifest(manifest, data)?;
        data::report_flaws(&manifest, &Terminal);
        let normalized = |text: &str| tokenizer.map_or_else(|| text.to_owned(), |tokenizer| tokenizer.normalized(text));
        Ok(manifest.utterances.map_texts(normalized).to_vec())
    };
    match (&args.manifest, configuration(run)?) {
        (Some(manifest), Some(config)) => listed(manifest, &config.data),
        (Some(manifest), None) => {
            eprintln!("note: {} has no config.toml, so texts are compared without lowercasing them", run.display());
            listed(manifest, &DataConfig::default())
        }
        (None, Some(config)) => held_out(run, &config, tokenizer),
        (None, None) => {
            let message = format!("{} has no config.toml, so its held-out utterances are unknown", run.display());
            Err(Failure::invalid(message, "give a list of utterances: --manifest FILE"))
        }
    }
}

/// Reads the configuration that the run in `folder` was started with; `None` for an exported model, which has none.
///
/// Environment variables are ignored: another seed would count training utterances as held out.
fn configuration(folder: &Path) -> Result<Option<RunConfig>, Failure> {
    let Some(path) = written_config(folder)? else { return Ok(None) };
    let args = ConfigArgs { config: Some(path), ..ConfigArgs::default() };
    Ok(Some(load(&args, std::iter::empty())?.config))
}

/// Reads the utterances that `run` held out, if its data has not changed.
fn held_out(run: &Path, config: &RunConfig, tokenizer: Option<&Tokenizer>) -> Result<Vec<Utterance>, Failure> {
    let prepared = match EarlierRun::read(run, config.task)? {
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
