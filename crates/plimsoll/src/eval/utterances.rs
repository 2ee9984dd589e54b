//! Which utterances are judged: those of a manifest, or those that the run held out of its training.

use std::path::Path;

use plimsoll_data::Utterance;
use plimsoll_text::Tokenizer;

use super::EvalArgs;
use crate::terminal::Terminal;
use plimsoll_recipes::Failure;
use plimsoll_recipes::config::{ConfigArgs, DataConfig, RunConfig, load};
use plimsoll_recipes::data;
use plimsoll_recipes::texts::read_manifest;

/// The utterances that `args` ask for, with their texts as the model learned texts.
///
/// `tokenizer` is that of the model: other texts than those it learned from have other tokens.
pub(super) fn chosen(args: &EvalArgs, tokenizer: &Tokenizer) -> Result<Vec<Utterance>, Failure> {
    let run = &args.run;
    let listed = |manifest: &Path, data: &DataConfig| {
        let manifest = read_manifest(manifest, data)?;
        data::report_flaws(&manifest, &Terminal);
        let mut utterances = manifest.utterances;
        for utterance in &mut utterances {
            utterance.text = tokenizer.numbers().apply(&utterance.text).into_owned();
        }
        Ok(utterances)
    };
    match (&args.manifest, configuration(run)?) {
        (Some(manifest), Some(config)) => listed(manifest, &config.data),
        (Some(manifest), None) => {
            eprintln!("note: {} has no config.toml, so texts are compared in the case they have", run.display());
            listed(manifest, &DataConfig::default())
        }
        (None, Some(config)) => held_out(run, &config, tokenizer),
        (None, None) => {
            let message = format!("{} does not say what was held out: it has no config.toml", run.display());
            Err(Failure::invalid(message, "name a list of utterances: --manifest FILE"))
        }
    }
}

/// The configuration that the run in `folder` was started with; an exported model has none.
///
/// The environment has no say: with another seed, what was trained on would count as held out.
fn configuration(folder: &Path) -> Result<Option<RunConfig>, Failure> {
    let path = folder.join("config.toml");
    if !path.is_file() {
        return Ok(None);
    }
    let args = ConfigArgs { config: Some(path), ..ConfigArgs::default() };
    Ok(Some(load(&args, std::iter::empty())?.config))
}

fn held_out(run: &Path, config: &RunConfig, tokenizer: &Tokenizer) -> Result<Vec<Utterance>, Failure> {
    let prepared = data::prepare(config, &Terminal)?;
    // Other letters are a sign of other texts, and other texts are divided in another way.
    if prepared.tokenizer != *tokenizer {
        let message =
            format!("the texts that {} was trained on have changed: its letters are others now", run.display());
        return Err(Failure::invalid(message, "name a list of utterances: --manifest FILE"));
    }
    let validation = &prepared.validation;
    Ok((0..validation.len()).map(|index| validation.utterance(index).clone()).collect())
}
