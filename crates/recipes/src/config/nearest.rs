//! "Did you mean": the nearest known key, section or word.

use super::aliases::ALIASES;
use super::key::split;
use super::keys::{self, KEYS};

/// Below this likeness a guess confuses more than it helps (found by trying the misspellings in the tests).
const LIKENESS_LEAST: f64 = 0.55;

/// How much of the likeness of two keys is that of their sections: enough to choose between equals.
const SECTION_SHARE: f64 = 0.1;

/// The key meant by `name`, in its own section or in another one.
pub(super) fn key(name: &str) -> Option<&'static str> {
    // One underscore where a variable needs two: PLIMSOLL_TRAINING_STEPS.
    if let Some((section, leaf)) = name.split_once('_').filter(|(section, _)| keys::is_section(section)) {
        return key(&format!("{section}.{leaf}"));
    }
    let own = keys::keys().map(|key| (key.name, key.name));
    let older = ALIASES.iter().map(|alias| (alias.old, alias.key));
    best(own.chain(older).map(|(written, key)| (likeness_of_keys(name, written), key)))
}

/// The section meant by `name`.
pub(super) fn section(name: &str) -> Option<&'static str> {
    word(name, KEYS.iter().map(|section| section.name).filter(|name| !name.is_empty()))
}

/// The word meant by `text`.
pub(super) fn word<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    best(words.map(|word| (likeness(&text.to_lowercase(), word), word)))
}

fn best<T>(guesses: impl Iterator<Item = (f64, T)>) -> Option<T> {
    let (likeness, guess) = guesses.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (likeness >= LIKENESS_LEAST).then_some(guess)
}

/// Mostly the likeness of the last words: a key in the wrong section is still the same word.
fn likeness_of_keys(a: &str, b: &str) -> f64 {
    let ((a_section, a_leaf), (b_section, b_leaf)) = (split(a), split(b));
    (1.0 - SECTION_SHARE) * likeness(a_leaf, b_leaf) + SECTION_SHARE * likeness(a_section, b_section)
}

fn likeness(a: &str, b: &str) -> f64 {
    let spelling = strsim::normalized_damerau_levenshtein(a, b);
    // `heads` for `attention_heads`: few letters in common, and yet clearly meant.
    let part = a.len() >= 4 && b.split('_').any(|word| word == a);
    if part { spelling.max(0.7) } else { spelling }
}

#[cfg(test)]
mod tests {
    #[test]
    fn guesses() {
        for (written, meant) in [
            ("data.batch_siz", Some("data.batch_size")),
            ("model.batch_size", Some("data.batch_size")),
            ("batch_size", Some("data.batch_size")),
            ("traning.steps", Some("training.steps")),
            ("model.heads", Some("model.attention_heads")),
            ("training.lerning_rate", Some("training.learning_rate")),
            ("training.num_epoch", Some("training.epochs")),
            ("sede", Some("seed")),
            ("training_steps", Some("training.steps")),
            ("training.favourite_colour", None),
        ] {
            assert_eq!(super::key(written), meant, "{written}");
        }
        assert_eq!(super::section("modle"), Some("model"));
        assert_eq!(super::word("FP32", ["fp32", "bf16"].into_iter()), Some("fp32"));
        assert_eq!(super::word("yellow", ["fp32", "bf16"].into_iter()), None);
    }
}
