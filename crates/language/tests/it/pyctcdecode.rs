//! The search finds what pyctcdecode finds with kenlm.

use std::fs;

use plimsoll_language::{FusionOptions, Hotwords, LanguageScorer, fused_beam};

use crate::fixtures::{model, path, text};

/// Reads the emissions of several utterances.
fn emissions(name: &str) -> Vec<Vec<f32>> {
    let bytes = fs::read(path(name)).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = 4;
    let mut rows = Vec::new();
    for _ in 0..word(0) {
        let n_values = (word(at) * word(at + 4)) as usize;
        at += 8;
        rows.push(bytes[at..at + 4 * n_values].chunks(4).map(|v| f32::from_le_bytes(v.try_into().unwrap())).collect());
        at += 4 * n_values;
    }
    rows
}

/// Compares the texts and their scores.
fn check(name: &str) {
    let tokens: Vec<String> = text(&format!("{name}.tokens")).split('\n').map(str::to_owned).collect();
    let emissions = emissions(&format!("{name}.emissions"));
    let expected = text(&format!("{name}.tsv"));
    for (index, line) in expected.lines().enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| fields[at].parse::<f64>().unwrap();
        let options = FusionOptions::default().with_weights(number(0), number(1));
        let scorer = LanguageScorer::new(&tokens, &options)
            .with_model(model("words3.arpa.gz"))
            .with_hotwords(Hotwords::new(fields[2].split('|'), Hotwords::WEIGHT));
        let best = fused_beam(&emissions[index % emissions.len()], &scorer, &options).swap_remove(0);
        let (text, acoustic, score) = (fields[3], number(4), number(5));
        assert_eq!(best.text, text, "{name}, line {}: {} and not {score}", index + 1, best.score);
        // A hypothesis keeps its paths that end in a blank and in a token together here and apart there, so the beams drop
        // other unlikely paths.
        let far = (best.score - score).abs().max((best.acoustic - acoustic).abs());
        assert!(far < 0.2, "{name}, line {}: {} and not {score}", index + 1, best.score);
    }
}

#[test]
fn finds_the_same_texts_with_letters() {
    check("search-letters");
}

#[test]
fn finds_the_same_texts_with_pieces() {
    check("search-pieces");
}
