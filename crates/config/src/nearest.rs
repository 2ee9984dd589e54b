//! "Did you mean": the nearest known key, section or word.

use super::aliases::ALIASES;
use super::key::split_name;
use super::keys::{self, SECTIONS};

/// Smallest similarity of a suggestion, from 0 to 1; less similar suggestions confuse more than they help. Found by
/// trying the misspellings in the tests.
const SIMILARITY_MIN: f64 = 0.55;

/// Smallest similarity of each word of two names with equally many words.
const WORD_SIMILARITY_MIN: f64 = 0.5;

/// Smallest similarity of two names with another number of words, such as `learningrate` and `learning_rate`.
const SPELLING_MIN: f64 = 0.75;

/// Weight of the section names in the similarity of two keys; the names within the sections have the rest. Just enough
/// to choose the more similar section among keys whose names are equally similar.
const SECTION_SHARE: f64 = 0.1;

/// Finds the key that is most similar to `name`, in any section; `None` if none is near enough in spelling and meaning.
pub fn key(name: &str) -> Option<&'static str> {
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

/// Finds the word that is most similar to `text`; `None` if none is near enough in spelling and meaning.
pub fn word<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
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

/// Computes the similarity of two names: by their spelling, and 0 if one of their words has another meaning.
fn similarity(a: &str, b: &str) -> f64 {
    let spelling = strsim::normalized_damerau_levenshtein(a, b);
    let (words_a, words_b): (Vec<&str>, Vec<&str>) = (a.split('_').collect(), b.split('_').collect());
    // `heads` for `attention_heads`: a long edit distance, but a clear meaning.
    if a.len() >= 4 && words_b.contains(&a) {
        return spelling.max(0.7);
    }
    // `pin_memory` is not `max_memory`, although most of their letters are equal.
    let all_similar = match words_a.len() == words_b.len() {
        true => words_a.iter().zip(&words_b).all(|(a, b)| is_same_word(a, b)),
        false => spelling >= SPELLING_MIN,
    };
    if all_similar { spelling } else { 0.0 }
}

/// Returns whether `a` is a misspelling or an abbreviation of `b`.
fn is_same_word(a: &str, b: &str) -> bool {
    strsim::normalized_damerau_levenshtein(a, b) >= WORD_SIMILARITY_MIN || a.len() >= 3 && b.starts_with(a)
}

#[cfg(test)]
mod tests {
    use super::super::keys::{self, keys};

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
            ("model.enc_layers", Some("model.encoder_layers")),
            ("training.learningrate", Some("training.learning_rate")),
            // Options of other systems that have no counterpart: a wrong hint is worse than none.
            ("data.pin_memory", None),
            ("training.enable_xla_compilation", None),
            ("training.memory_growth", None),
            ("data.shuffle_buffer_multiplier", None),
            ("training.min_memory", None),
        ] {
            assert_eq!(super::key(written), meant, "{written}");
        }
        assert_eq!(super::section("modle"), Some("model"));
        assert_eq!(super::word("FP32", ["fp32", "bf16"].into_iter()), Some("fp32"));
        assert_eq!(super::word("yellow", ["fp32", "bf16"].into_iter()), None);
    }

    /// Each key with each of its letters left out, and with each two neighbors swapped, gets a hint: itself, or a key that is
    /// no farther away.
    #[test]
    fn every_key_is_found_from_a_slip() {
        for key in keys().filter(|key| key.leaf().len() > 5) {
            let letters: Vec<char> = key.name.chars().collect();
            let start = letters.len() - key.leaf().len();
            // A slip at an underscore makes other words.
            for place in (start + 1..letters.len()).filter(|place| !letters[place - 1..=*place].contains(&'_')) {
                let mut missing = letters.clone();
                missing.remove(place);
                let mut swapped = letters.clone();
                swapped.swap(place - 1, place);
                for slip in [missing, swapped].map(|letters| letters.into_iter().collect::<String>()) {
                    let Some(found) = super::key(&slip) else { panic!("{slip} gets no hint") };
                    let [own, other] = [key.name, found].map(|name| super::key_similarity(&slip, name));
                    assert!(found == key.name || other >= own || keys::find(&slip).is_some(), "{slip}: {found}");
                }
            }
        }
    }
}
