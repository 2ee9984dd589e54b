//! Loads configurations on this machine, and that of a run whose corpus chooses what is not set.

use plimsoll_core::Seconds;
use plimsoll_data::utterances::Utterances;

use plimsoll_config::choices::Task;
use plimsoll_config::{
    ConfigArgs, ConfigError, CorpusSize, Loaded, Recipe, RunConfig, RunLength, VoiceFacts, load_with_recipe,
};

use crate::beginning;
use crate::error::Failure;
use crate::machine;
use crate::reporter::Reporter;
use crate::texts::read_manifest;
use crate::voice_facts::voice_facts;

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
pub fn load_run(
    args: &ConfigArgs,
    environment: impl Iterator<Item = (String, String)>,
    reporter: &dyn Reporter,
) -> Result<Loaded, Failure> {
    let measure = |loaded: &Loaded| {
        let config = &loaded.config;
        let path = config.data.manifest.as_ref()?;
        // The run reads it again, and reports what is wrong in its own order.
        let utterances = read_manifest(path, &config.data, reporter).ok()?.utterances;
        let facts = match config.task {
            Task::Tts => voice_facts(&utterances, loaded),
            Task::Asr | Task::Vocoder => VoiceFacts::default(),
        };
        Some((size(&utterances, config), facts))
    };
    load_chosen(args, environment, measure)
}

/// Loads the configuration of a run: over the model that it begins with, or else over what its corpus chooses.
fn load_chosen(
    args: &ConfigArgs,
    environment: impl Iterator<Item = (String, String)>,
    measure: impl Fn(&Loaded) -> Option<(CorpusSize, VoiceFacts)>,
) -> Result<Loaded, Failure> {
    load_with_recipe(args, environment, &machine::memory, |loaded| {
        let config = &loaded.config;
        let training = &config.training;
        let passes = training.epochs.filter(|_| loaded.is_set("training.epochs")).map(RunLength::Passes);
        let asked = training.steps.filter(|_| loaded.is_set("training.steps")).map(RunLength::Steps).or(passes);
        let task = Some(config.task).filter(|_| loaded.is_set("task"));
        let measured = || measure(loaded).map(|(size, facts)| (CorpusSize { asked, ..size }, facts));
        match beginning::base_folder(config)? {
            Some(folder) => Ok(Some(beginning::recipe(&folder, measured().map(|(size, _)| size).as_ref(), task)?)),
            None if args.config.is_some() => Ok(None),
            None => Ok(match config.task {
                Task::Asr => measured().map(|(size, _)| Recipe::for_recognizer(&size)),
                Task::Tts => measured().map(|(size, facts)| Recipe::for_synthesizer(&size, &facts)),
                Task::Vocoder => None,
            }),
        }
    })
}

/// Loads the configuration of a run over a corpus that was not measured: what it says about each utterance holds for
/// every size.
///
/// # Errors
/// If the configuration is wrong.
pub fn load_rules(args: &ConfigArgs, environment: impl Iterator<Item = (String, String)>) -> Result<Loaded, Failure> {
    load_chosen(args, environment, |_| Some(Default::default()))
}

/// Measures the utterances that are no longer than a run takes.
fn size(utterances: &Utterances, config: &RunConfig) -> CorpusSize {
    let durations = (0..utterances.len()).map(|index| utterances.duration(index));
    let usable = durations.filter(|duration| *duration <= config.data.max_seconds);
    usable.fold(CorpusSize::default(), |size, duration| CorpusSize {
        utterances: size.utterances + 1,
        seconds: Seconds(size.seconds.0 + duration.0),
        ..size
    })
}
