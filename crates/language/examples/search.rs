//! Trains a model on text, scores sentences, and decodes made-up output of a recognizer with it.
//!
//! `cargo run -p plimsoll-language --example search -- texts.txt`: one sentence a line; optional.

use std::num::NonZeroUsize;

use plimsoll_language::{FusionOptions, LanguageScorer, TrainOptions, fused_beam, train};

const SENTENCES: &str = "\
the tide lifts the ship
a loaded ship sinks deeper than an empty ship
the mark on the hull shows how deep it may sink
the ship left the harbor on the tide";
/// What was said, and what the recognizer hears best.
const SAID: &str = "the ship sinks";
const HEARD: &str = "tha shap sinks";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let texts = std::env::args().nth(1).map_or(Ok(SENTENCES.to_owned()), std::fs::read_to_string)?;
    let (model, report) = train(texts.lines(), &TrainOptions::new(3))?;
    println!("{} sentences, {} words, n-grams by order: {:?}", report.n_sentences, report.n_tokens, model.counts());
    for sentence in [SAID, HEARD] {
        println!("{sentence:?}: log10 probability {:.2}", model.score_sentence(sentence));
    }

    // One token for each letter behind the blank and the space; two frames for each letter.
    let tokens: Vec<String> = ["".into(), " ".into()].into_iter().chain(('a'..='z').map(String::from)).collect();
    let token = |letter: char| tokens.iter().position(|token| token.chars().eq([letter])).unwrap_or(0);
    let mut rows = Vec::new();
    for (said, heard) in SAID.chars().zip(HEARD.chars()) {
        let mut row = vec![0.002f32.ln(); tokens.len()];
        row[token(said)] = 0.4f32.ln();
        row[token(heard)] = 0.5f32.ln();
        let mut blank = vec![0.002f32.ln(); tokens.len()];
        blank[0] = 0.9f32.ln();
        rows.extend([row, blank].concat());
    }

    let n_best = NonZeroUsize::new(3).ok_or("three texts")?;
    let options = FusionOptions::default().with_n_best(n_best);
    let plain = LanguageScorer::new(&tokens, &options);
    for (name, scorer) in [("without a model", plain.clone()), ("with the model", plain.with_model(model))] {
        println!("{name}:");
        for found in fused_beam(&rows, &scorer, &options) {
            println!("  {:<18} score {:.2}, by CTC {:.2}", found.text, found.score, found.acoustic);
        }
    }
    Ok(())
}
