//! Loads configurations on this machine, and that of a run whose corpus chooses what is not set.

use plimsoll_core::Seconds;

use plimsoll_config::{ConfigArgs, ConfigError, CorpusSize, Loaded, RunConfig, load_for_corpus};

use crate::error::Failure;
use crate::machine;
use crate::texts::read_manifest;

/// Loads a configuration as [`plimsoll_config::load`] does. `auto` stands for the shipped configuration for the memory of the
/// local GPU, or of the host if there is no GPU.
///
/// # Errors
/// If the configuration is wrong.
pub fn load(args: &ConfigArgs, environment: impl Iterator<Item = (String, String)>) -> Result<Loaded, ConfigError> {
    plimsoll_config::load(args, environment, &machine::memory)
}

/// Loads the configuration of a run from `args` and `environment`. Where no file is named, a corpus of the person's own
/// [chooses](plimsoll_config::Recipe) what is not set.
///
/// # Errors
/// If the configuration is wrong.
pub fn load_run(args: &ConfigArgs, environment: impl Iterator<Item = (String, String)>) -> Result<Loaded, Failure> {
    load_for_corpus(args, environment, &machine::memory, |config| {
        let Some(path) = &config.data.manifest else { return Ok(None) };
        // The run reads it again, and reports what is wrong in its own order.
        Ok(read_manifest(path, &config.data).ok().map(|manifest| size(&manifest.utterances, config)))
    })
}

/// Loads the configuration of a run over a corpus that was not measured: what it says about each utterance holds for
/// every size.
///
/// # Errors
/// If the configuration is wrong.
pub fn load_rules(args: &ConfigArgs, environment: impl Iterator<Item = (String, String)>) -> Result<Loaded, Failure> {
    load_for_corpus(args, environment, &machine::memory, |_| Ok(Some(CorpusSize::default())))
}

/// Measures the utterances that are no longer than a run takes.
fn size(utterances: &plimsoll_data::utterances::Utterances, config: &RunConfig) -> CorpusSize {
    let durations = (0..utterances.len()).map(|index| utterances.duration(index));
    let usable = durations.filter(|duration| *duration <= config.data.max_seconds);
    usable.fold(CorpusSize::default(), |CorpusSize { utterances, seconds }, duration| CorpusSize {
        utterances: utterances + 1,
        seconds: Seconds(seconds.0 + duration.0),
    })
}
