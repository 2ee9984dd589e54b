//! Files that `fixtures/language.py` has made.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use plimsoll_language::NgramModel;

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/language").join(name)
}

pub(crate) fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

pub(crate) fn model(name: &str) -> NgramModel {
    NgramModel::read_arpa_file(path(name)).unwrap()
}

/// Compares the score of each word with that of the kenlm package.
pub(crate) fn check_scores(model: &NgramModel, name: &str) {
    for line in text(name).lines() {
        let (sentence, expected) = line.split_once('\t').unwrap();
        let expected: Vec<f32> = expected.split(' ').map(|score| score.parse().unwrap()).collect();
        let mut state = model.begin_state();
        let mut found = Vec::new();
        for word in sentence.split_whitespace().chain(["</s>"]) {
            let (prob, next) = model.score_word(&state, word);
            found.push(prob);
            state = next;
        }
        assert_eq!(found.len(), expected.len(), "{sentence}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{sentence}: {found} and not {expected}");
        }
    }
}

/// Log-probability and back-off of each n-gram of an ARPA text.
pub(crate) fn entries(arpa: &str) -> BTreeMap<String, (f32, f32)> {
    let grams = arpa.lines().filter(|line| line.contains('\t'));
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| fields.get(at).map_or(0.0, |field: &&str| field.parse().unwrap());
        (fields[1].to_owned(), (number(0), number(2)))
    };
    grams.map(entry).collect()
}

pub(crate) fn written(model: &NgramModel) -> String {
    let mut text = Vec::new();
    model.write_arpa(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}
