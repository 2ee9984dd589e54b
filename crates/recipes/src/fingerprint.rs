//! The values that decide the batches of a run, and what changed in them since a checkpoint was written.

use std::collections::BTreeMap;

use plimsoll_audio::LogMelConfig;
use plimsoll_core::SampleId;
use plimsoll_data::{BATCHING_VERSION, BatchSize, CorpusFingerprint};
use plimsoll_text::Tokenizer;
use serde_json::Value;

use crate::config::{RunConfig, TokenizerChoice};
use crate::error::{Failure, FailureExt};
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
    let features = mapping::features(&config.features);
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
    Ok(values.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
}

/// Describes the choice of tokens, with the content of the tokenizer file if there is one.
fn tokenizer(config: &RunConfig) -> Result<String, Failure> {
    let data = &config.data;
    Ok(match (&data.tokenizer_file, data.tokenizer) {
        (Some(file), _) => {
            let tokens = serde_json::to_string(&Tokenizer::from_file(file).invalid()?).expect("tokens are plain data");
            format!("a file with the sum {:016x}", SampleId::from_name(&tokens).0)
        }
        (None, TokenizerChoice::Characters) => "char".into(),
        (None, TokenizerChoice::Bpe) => format!("bpe of {}", data.bpe_size),
    })
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
            FEATURES => changes.model.extend(feature_changes(old, new)),
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

/// Lists the settings of features that differ.
fn feature_changes(old: &str, new: &str) -> Vec<String> {
    let read = |text: &str| -> BTreeMap<String, Value> { serde_json::from_str(text).unwrap_or_default() };
    let (old, new) = (read(old), read(new));
    let differs = |(name, value): (&String, &Value)| {
        let before = old.get(name).unwrap_or(&Value::Null);
        (before != value).then(|| format!("features.{name} {before} -> {value}"))
    };
    new.iter().filter_map(differs).collect()
}

/// Lists the settings of features that differ between a model and a configuration, for a run without a fingerprint.
pub(crate) fn changed_features(model: &LogMelConfig, configured: &LogMelConfig) -> Vec<String> {
    let text = |features: &LogMelConfig| serde_json::to_string(features).expect("settings are plain data");
    feature_changes(&text(model), &text(configured))
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Seconds;
    use plimsoll_data::Utterance;
    use plimsoll_data::utterances::Utterances;

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
        assert_eq!(between(|_| (), 14).data, ["4 utterances added"]);
        // What does not decide batches may change.
        assert_eq!(data(&|config| config.training.learning_rate = 1.0), "");
        assert_eq!(data(&|config| config.data.num_workers = Some(4)), "");
        assert_eq!(data(&|config| config.data.manifest = Some("elsewhere".into())), "");
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
