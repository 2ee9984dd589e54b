//! "Did you mean": the nearest known key, section or word.

use super::aliases::ALIASES;
use super::key::split_name;
use super::keys::{self, SECTIONS};

/// Smallest similarity of a suggestion, from 0 to 1; less similar suggestions confuse more than they help. Found by
/// trying the misspellings in the tests.
const SIMILARITY_MIN: f64 = 0.55;

/// Weight of the section names in the similarity of two keys; the names within the sections have the rest. Just enough
/// to choose the more similar section among keys whose names are equally similar.
const SECTION_SHARE: f64 = 0.1;

/// Finds the key that is most similar to `name`, in any section; `None` if no key is similar enough.
pub(super) fn key(name: &str) -> Option<&'static str> {
    // One underscore where a variable needs two: PLIMSOLL_TRAINING_STEPS.
    if let Some((section, leaf)) = name.split_once('_').filter(|(section, _)| keys::is_section(section)) {
        return key(&format!("{section}.{leaf}"));
    }
    let present = keys::keys().map(|key| (key.name, key.name));
    let older = ALIASES.iter().map(|alias| (alias.old, alias.key));
    best(present.chain(older).map(|(written, key)| (key_similarity(name, written), key)))
}

/// Finds the section that is most similar to `name`; `None` if no section is similar enough.
pub(super) fn section(name: &str) -> Option<&'static str> {
    word(name, SECTIONS.iter().map(|section| section.name).filter(|name| !name.is_empty()))
}

/// Finds the word in `words` that is most similar to `text`; `None` if no word is similar enough.
pub(super) fn word<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    best(words.map(|word| (similarity(&text.to_lowercase(), word), word)))
}

/// Returns the second part of the candidate whose first part, its similarity, is the highest; `None` if that similarity
/// is below `SIMILARITY_MIN`.
fn best<T>(candidates: impl Iterator<Item = (f64, T)>) -> Option<T> {
    let (similarity, candidate) = candidates.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (similarity >= SIMILARITY_MIN).then_some(candidate)
}

/// Computes the similarity of two keys. Mostly the names within their sections count, as a key is often written in the
/// wrong section.
fn key_similarity(a: &str, b: &str) -> f64 {
    let ((a_section, a_leaf), (b_section, b_leaf)) = (split_name(a), split_name(b));
    (1.0 - SECTION_SHARE) * similarity(a_leaf, b_leaf) + SECTION_SHARE * similarity(a_section, b_section)
}

fn similarity(a: &str, b: &str) -> f64 {
    let spelling = strsim::normalized_damerau_levenshtein(a, b);
    // `heads` for `attention_heads`: a long edit distance, but a clear meaning.
    let is_part = a.len() >= 4 && b.split('_').any(|word| word == a);
    if is_part { spelling.max(0.7) } else { spelling }
}

#[cfg(test)]
mod tests {
    #[test]
    fn misspelled_names_get_the_nearest_known_one() {
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
            ("training.favorite_color", None),
        ] {
            assert_eq!(super::key(written), meant, "{written}");
        }
        assert_eq!(super::section("modle"), Some("model"));
        assert_eq!(super::word("FP32", ["fp32", "bf16"].into_iter()), Some("fp32"));
        assert_eq!(super::word("yellow", ["fp32", "bf16"].into_iter()), None);
    }
}
