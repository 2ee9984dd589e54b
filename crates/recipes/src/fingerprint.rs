//! The values that decide the batches of a run, and what changed in them since a checkpoint was written.

use std::collections::BTreeMap;

use plimsoll_audio::LogMelConfig;
use plimsoll_config::RunConfig;
use plimsoll_config::choices::{TextChoice, TokenizerChoice};
use plimsoll_core::{SampleId, counted};
use plimsoll_data::{BATCHING_VERSION, BatchSize, CorpusFingerprint};
use plimsoll_text::Tokenizer;
use serde_json::Value;

use crate::error::{Failure, FailureExt};
use crate::families::family;
use crate::features::features;
use crate::mapping;

/// Values that decide the batches of a run, by name.
pub(crate) type Fingerprint = BTreeMap<String, String>;

/// Name of the value that describes the utterances.
pub(crate) const CORPUS: &str = "corpus";
/// Name of the unit that is held out for validation.
pub(crate) const HELD_OUT_BY: &str = "held out by";
/// Name of the settings of the features, as JSON.
const FEATURES: &str = "features";
/// Name of the version of the rules that make batches. Runs before the second version do not have it.
const BATCHING: &str = "batching version";
/// Name of the choice of tokens.
const TOKENIZER: &str = "data.tokenizer";
/// Name of the hash of the content of the audio files.
pub(crate) const AUDIO: &str = "audio";
/// Name of the random changes to the audio, as JSON.
const AUGMENT: &str = "augment";

/// Collects the values that decide the batches of a run of `config` with the utterances of `corpus`.
///
/// # Errors
/// If the file `data.tokenizer_file` cannot be read.
pub(crate) fn fingerprint(
    config: &RunConfig,
    corpus: &CorpusFingerprint,
    held_out_by: &str,
) -> Result<Fingerprint, Failure> {
    let batching = mapping::batching(config);
    let (size, amount) = match batching.size {
        BatchSize::Utterances(utterances) => ("data.batch_size", utterances.to_string()),
        BatchSize::Seconds(seconds) => ("data.batch_seconds", seconds.to_string()),
    };
    let number = |number: Option<std::num::NonZeroU32>| number.map_or_else(|| "none".into(), |n| n.to_string());
    let features = features(&config.features);
    let values = [
        (CORPUS, corpus.summary()),
        (HELD_OUT_BY, held_out_by.into()),
        ("seed", config.seed.to_string()),
        (size, amount),
        ("data.shuffle_window", number(batching.window)),
        ("data.frame_grid", batching.frame_grid.to_string()),
        // As written: without the key it depends on the device, and changes no batch.
        ("data.shapes", config.data.shapes.map_or_else(|| "none".into(), |n| n.to_string())),
        (BATCHING, BATCHING_VERSION.to_string()),
        (TOKENIZER, tokenizer(config)?),
        (FEATURES, serde_json::to_string(&features).expect("settings are plain data")),
    ];
    let values = values.into_iter().chain(seen_by_steps(config)).chain(corpus.audio_summary().map(|sum| (AUDIO, sum)));
    Ok(values.map(|(name, value)| (name.to_string(), value)).collect())
}

/// Returns what else decides the input of a step. Runs of older versions do not have it, and then it is not compared.
fn seen_by_steps(config: &RunConfig) -> impl Iterator<Item = (&'static str, String)> {
    let family = family(config);
    let has_features = family.crop(config).is_none();
    let is_rounded = has_features && config.data.cache_dir.is_some() && config.data.cache_half;
    let augment = match family.augment(config) {
        Some(_) => serde_json::to_string(&config.augment).expect("settings are plain data"),
        // The other keys have no effect.
        None => r#"{"enabled":false}"#.into(),
    };
    [(AUGMENT, augment), ("data.cache_half", is_rounded.to_string())].into_iter().chain(family.samples_key(config))
}

/// Describes the choice of tokens, with the content of the tokenizer file if there is one.
fn tokenizer(config: &RunConfig) -> Result<String, Failure> {
    let data = &config.data;
    let phonemes = match (data.text, &data.language) {
        (TextChoice::Characters, _) => String::new(),
        (TextChoice::Phonemes, None) => " of phonemes".into(),
        (TextChoice::Phonemes, Some(voice)) => format!(" of phonemes of `{voice}`"),
    };
    let tokens = match (&data.tokenizer_file, data.tokenizer) {
        (Some(file), _) => {
            let tokens = serde_json::to_string(&Tokenizer::from_file(file).invalid()?).expect("tokens are plain data");
            format!("a file with the sum {:016x}", SampleId::from_name(&tokens).0)
        }
        (None, TokenizerChoice::Characters) => "char".into(),
        (None, TokenizerChoice::Bpe) => format!("bpe of {}", data.bpe_size),
    };
    Ok(tokens + &phonemes)
}

/// Changes since a checkpoint, in words.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Changes of the data or its order, after which training can go on with a whole epoch.
    pub(crate) data: Vec<String>,
    /// Changes of the model's input or tokens, after which its weights mean something else.
    pub(crate) model: Vec<String>,
    /// Whether other utterances are held out, so that scores cannot be compared.
    pub(crate) validation: bool,
}

/// Compares the fingerprint of a checkpoint with the present one. `before` and `now` are the utterances of both; those
/// of the checkpoint may be unknown.
pub(crate) fn changes(
    earlier: &Fingerprint,
    present: &Fingerprint,
    before: Option<&CorpusFingerprint>,
    now: &CorpusFingerprint,
) -> Changes {
    let mut changes = Changes::default();
    let batch = |values: &Fingerprint| {
        ["data.batch_size", "data.batch_seconds"]
            .into_iter()
            .find_map(|name| values.get(name).map(|value| (name, value.clone())))
    };
    if let (Some(old), Some(new)) = (batch(earlier), batch(present))
        && old.0 != new.0
    {
        changes.data.push(format!("{} {} -> {} {}", old.0, old.1, new.0, new.1));
    }
    let first_version = (BATCHING.to_string(), "1".to_string());
    let unversioned = (!earlier.contains_key(BATCHING)).then_some((&first_version.0, &first_version.1));
    for (name, old) in earlier.iter().chain(unversioned) {
        let Some(new) = present.get(name).filter(|new| *new != old) else { continue };
        match name.as_str() {
            CORPUS => {
                let known = before.filter(|before| before.summary() == *old);
                let words = known.map(|before| now.changes_since(before)).unwrap_or_default();
                changes.validation = known.is_none_or(|before| before.held_out() != now.held_out());
                match words.is_empty() {
                    true => changes.data.push(format!("{} -> {}", counts(old), counts(new))),
                    false => changes.data.extend(words),
                }
            }
            // Of a corpus that changed, it is not known whether this is the reason.
            AUDIO if before.is_none() && earlier.get(CORPUS) != present.get(CORPUS) => {}
            AUDIO => changes.data.extend(audio_changes(before, now)),
            AUGMENT => changes.data.extend(augment_changes(old, new)),
            FEATURES => changes.model.extend(setting_changes(FEATURES, old, new)),
            BATCHING => changes.data.push(format!("this version of the program makes other batches ({old} -> {new})")),
            TOKENIZER => changes.model.push(format!("{name} {old} -> {new}")),
            _ => changes.data.push(format!("{name} {old} -> {new}")),
        }
    }
    changes
}

/// Returns a summary of utterances without its hash.
fn counts(summary: &str) -> &str {
    summary.rsplit_once(", ").map_or(summary, |(counts, _)| counts)
}

/// Describes the utterances whose audio changed; `None` if other utterances are the reason of another hash.
fn audio_changes(before: Option<&CorpusFingerprint>, now: &CorpusFingerprint) -> Option<String> {
    let Some(before) = before.filter(|before| before.audio_summary().is_some()) else {
        return Some("the audio of the utterances changed".into());
    };
    let changed = now.changed_audio(before);
    let first = changed.first()?;
    let more = if changed.len() > 1 { ", ..." } else { "" };
    Some(format!("the audio of {} changed (`{first}`{more})", counted(changed.len(), "utterance")))
}

/// Lists the settings of the random changes to the audio that differ. What an older version did not record is not compared.
fn augment_changes(old: &str, new: &str) -> Vec<String> {
    let mut changes = setting_changes(AUGMENT, old, new);
    match changes.iter().position(|change| change.starts_with("augment.enabled ")) {
        Some(index) => vec![changes.swap_remove(index)],
        None => changes.into_iter().filter(|change| !change.contains(" null -> ")).collect(),
    }
}

/// Lists the settings of `section` that differ, from their values as JSON.
fn setting_changes(section: &str, old: &str, new: &str) -> Vec<String> {
    let read = |text: &str| -> BTreeMap<String, Value> { serde_json::from_str(text).unwrap_or_default() };
    let (old, new) = (read(old), read(new));
    let differs = |(name, value): (&String, &Value)| {
        let before = old.get(name).unwrap_or(&Value::Null);
        (before != value).then(|| format!("{section}.{name} {before} -> {value}"))
    };
    new.iter().filter_map(differs).collect()
}

/// Lists the settings of features that differ between a model and a configuration, for a run without a fingerprint.
pub(crate) fn changed_features(model: &LogMelConfig, configured: &LogMelConfig) -> Vec<String> {
    let text = |features: &LogMelConfig| serde_json::to_string(features).expect("settings are plain data");
    setting_changes(FEATURES, &text(model), &text(configured))
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Seconds;
    use plimsoll_data::Utterance;
    use plimsoll_data::utterances::Utterances;

    use plimsoll_config::choices::Task;

    use super::*;

    fn corpus(count: usize) -> CorpusFingerprint {
        let utterance = |id: usize| Utterance {
            id: id.to_string(),
            audio: "x.wav".into(),
            offset: Seconds(0.0),
            duration: Seconds(1.0),
            text: "x".into(),
            speaker: None,
            language: None,
        };
        let all: Vec<Utterance> = (0..count).map(utterance).collect();
        CorpusFingerprint::new(&Utterances::from(&all[2..]), &Utterances::from(&all[..2]))
    }

    fn between(change: impl Fn(&mut RunConfig), count: usize) -> Changes {
        let mut config = RunConfig::default();
        let before = fingerprint(&config, &corpus(10), "voices").unwrap();
        change(&mut config);
        let now = fingerprint(&config, &corpus(count), "voices").unwrap();
        changes(&before, &now, Some(&corpus(10)), &corpus(count))
    }

    #[test]
    fn changes_name_the_key_and_both_values() {
        let data = |change: &dyn Fn(&mut RunConfig)| {
            let changes = between(change, 10);
            assert_eq!(changes.model, Vec::<String>::new());
            changes.data.join("; ")
        };
        assert_eq!(data(&|_| ()), "");
        assert_eq!(data(&|config| config.data.batch_size = Some(8)), "data.batch_size 16 -> 8");
        let seconds = data(&|config| config.data.batch_seconds = Some(Seconds(60.0)));
        assert!(seconds.starts_with("data.batch_size 16 -> data.batch_seconds"), "{seconds}");
        assert_eq!(data(&|config| config.data.shuffle_window = Some(3)), "data.shuffle_window none -> 3");
        assert_eq!(data(&|config| config.data.frame_grid = 8), "data.frame_grid 16 -> 8");
        assert_eq!(data(&|config| config.data.shapes = Some(9)), "data.shapes none -> 9");
        assert_eq!(data(&|config| config.augment.time_masks = 3), "augment.time_masks 2 -> 3");
        assert_eq!(data(&|config| config.augment.speeds = vec![0.9, 1.0]), "augment.speeds [1.0] -> [0.9,1.0]");
        assert_eq!(data(&|config| config.augment.enabled = false), "augment.enabled true -> false");
        let rounded = data(&|config| (config.data.cache_dir, config.data.cache_half) = (Some("x".into()), true));
        assert_eq!(rounded, "data.cache_half false -> true");
        assert_eq!(between(|_| (), 14).data, ["4 utterances added"]);
        // What does not decide batches may change.
        assert_eq!(data(&|config| config.training.learning_rate = 1.0), "");
        assert_eq!(data(&|config| config.data.num_workers = Some(4)), "");
        assert_eq!(data(&|config| config.data.cache_half = true), "");
        assert_eq!(data(&|config| config.data.crop_seconds = Seconds(9.0)), "");
        assert_eq!(data(&|config| config.data.manifest = Some("elsewhere".into())), "");
    }

    #[test]
    fn keys_of_other_tasks_are_not_compared() {
        let data = |task, change: &dyn Fn(&mut RunConfig)| {
            let mut config = RunConfig { task, ..RunConfig::default() };
            let before = fingerprint(&config, &corpus(10), "voices").unwrap();
            change(&mut config);
            let now = fingerprint(&config, &corpus(10), "voices").unwrap();
            changes(&before, &now, Some(&corpus(10)), &corpus(10)).data.join("; ")
        };
        assert_eq!(
            data(Task::Vocoder, &|config| config.data.crop_seconds = Seconds(1.0)),
            "data.crop_seconds 0.5 -> 1"
        );
        let longer = |config: &mut RunConfig| config.data.reference_seconds = Seconds(3.0);
        assert_eq!(data(Task::Tts, &longer), "data.reference_seconds 2 -> 3");
        assert_eq!(data(Task::Vocoder, &longer), "");
        // Only a recognizer's audio is changed.
        assert_eq!(data(Task::Tts, &|config| config.augment.time_masks = 3), "");
    }

    #[test]
    fn what_an_older_version_did_not_record_is_not_compared() {
        let now = fingerprint(&RunConfig::default(), &corpus(10).with_audio(), "voices").unwrap();
        for name in [AUDIO, AUGMENT, "data.cache_half"] {
            let mut before = now.clone();
            assert!(before.remove(name).is_some(), "{name}");
            let found = changes(&before, &now, Some(&corpus(10)), &corpus(10));
            assert_eq!(found, Changes::default(), "{name}");
        }
    }

    #[test]
    fn batches_of_an_older_version_are_a_change() {
        let now = fingerprint(&RunConfig::default(), &corpus(10), "voices").unwrap();
        let mut before = now.clone();
        before.remove(BATCHING);
        let found = changes(&before, &now, Some(&corpus(10)), &corpus(10));
        assert_eq!(found.data, ["this version of the program makes other batches (1 -> 2)"]);
    }

    #[test]
    fn tokens_and_features_belong_to_the_model() {
        let model = |change: &dyn Fn(&mut RunConfig)| {
            let changes = between(change, 10);
            assert_eq!(changes.data, Vec::<String>::new());
            changes.model.join("; ")
        };
        assert_eq!(model(&|config| config.data.tokenizer = TokenizerChoice::Bpe), "data.tokenizer char -> bpe of 500");
        assert_eq!(model(&|config| config.features.n_mels = Some(40)), "features.n_mels 80 -> 40");
    }

    #[test]
    fn unknown_utterances_are_compared_by_their_number() {
        let config = RunConfig::default();
        let of = |count| fingerprint(&config, &corpus(count), "voices").unwrap();
        let found = changes(&of(10), &of(14), None, &corpus(14));
        assert_eq!(found.data, ["8 training and 2 validation utterances -> 12 training and 2 validation utterances"]);
        assert!(found.validation);
    }
}
