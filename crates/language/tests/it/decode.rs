//! The search with a language model.

use std::num::NonZeroUsize;

use plimsoll_language::{FusionOptions, Hotwords, LanguageScorer, Lexicon, TrainOptions, Unit, fused_beam, train};

/// Rows in which one token is likely and another one is possible.
fn rows(n_tokens: usize, frames: &[(u32, u32)]) -> Vec<f32> {
    let row = |&(likely, possible): &(u32, u32)| {
        (0..n_tokens as u32).map(move |token| match token {
            token if token == likely => 0.6f32.ln(),
            token if token == possible => 0.35f32.ln(),
            _ => (0.05 / n_tokens as f32).ln(),
        })
    };
    frames.iter().flat_map(row).collect()
}

const CHARACTERS: [&str; 7] = ["", " ", "a", "h", "i", "o", "s"];
/// "a sho" with a doubtful vowel, then the rest of "ship" or "shop" without its last letter.
const FRAMES: [(u32, u32); 6] = [(2, 0), (1, 0), (6, 0), (3, 0), (5, 4), (0, 1)];

fn found(scorer: &LanguageScorer, options: &FusionOptions) -> String {
    fused_beam(&rows(CHARACTERS.len(), &FRAMES), scorer, options)[0].text.clone()
}

#[test]
fn a_model_changes_the_text() {
    let options = FusionOptions::default();
    let scorer = LanguageScorer::new(&CHARACTERS[..], &options);
    assert_eq!(found(&scorer, &options), "a sho");
    let (model, _) = train(["a shi", "a shi", "a his"], &TrainOptions::new(2)).unwrap();
    assert_eq!(found(&scorer.with_model(model), &options), "a shi");
}

#[test]
fn hotwords_change_the_text() {
    let options = FusionOptions::default();
    let scorer = LanguageScorer::new(&CHARACTERS[..], &options);
    assert_eq!(found(&scorer.clone().with_hotwords(Hotwords::new(["shi"], 5.0)), &options), "a shi");
    assert_eq!(found(&scorer.with_hotwords(Hotwords::new(["other words"], 5.0)), &options), "a sho");
}

#[test]
fn a_lexicon_changes_the_text() {
    let options = FusionOptions::default();
    let scorer = LanguageScorer::new(&CHARACTERS[..], &options);
    assert_eq!(found(&scorer.clone().with_lexicon(Lexicon::new(["a", "shi"])), &options), "a shi");
    let nothing = fused_beam(
        &rows(CHARACTERS.len(), &[(6, 3)]),
        &scorer.with_lexicon(Lexicon::new(["xyz"])),
        &options.with_width(NonZeroUsize::MIN),
    );
    assert_eq!((nothing.len(), nothing[0].text.as_str()), (1, ""));
}

#[test]
fn words_have_frames() {
    let options = FusionOptions::default();
    let best = fused_beam(&rows(CHARACTERS.len(), &FRAMES), &LanguageScorer::new(&CHARACTERS[..], &options), &options);
    let words: Vec<(&str, usize, usize)> =
        best[0].words.iter().map(|word| (word.word.as_str(), word.first_frame, word.last_frame)).collect();
    assert_eq!(words, [("a", 0, 0), ("sho", 2, 4)]);
}

#[test]
fn pieces_with_either_mark_give_the_same() {
    let options = FusionOptions::default();
    let (model, _) = train(["a ship", "a hull"], &TrainOptions::new(2)).unwrap();
    let frames = rows(5, &[(1, 0), (0, 2), (2, 4), (3, 0)]);
    let text = |tokens: [&str; 5]| {
        let scorer = LanguageScorer::new(&tokens[..], &options).with_model(model.clone());
        let best = fused_beam(&frames, &scorer, &options).swap_remove(0);
        assert_eq!(best.words.len(), 2);
        (best.text, best.score)
    };
    let with_blocks = text(["", "▁a", "▁sh", "ip", "op"]);
    assert_eq!(with_blocks.0, "a ship");
    assert_eq!(with_blocks, text(["", " a", " sh", "ip", "op"]));
}

#[test]
fn impossible_input_gives_the_empty_text() {
    let options = FusionOptions::default();
    let scorer = LanguageScorer::new(&CHARACTERS[..], &options);
    let empty = fused_beam(&[], &scorer, &options);
    assert_eq!((empty[0].text.as_str(), empty[0].score), ("", 0.0));
    let nan = fused_beam(&[f32::NAN; 14], &scorer, &options);
    assert_eq!((nan[0].text.as_str(), nan[0].score), ("", f64::NEG_INFINITY));
    assert!(scorer.advance(&scorer.start(), 99).is_none());
}

#[test]
fn a_scorer_adds_what_the_search_adds() {
    let options = FusionOptions::default();
    let (model, _) = train(["a shi", "a his"], &TrainOptions::new(2)).unwrap();
    let scorer = LanguageScorer::new(&CHARACTERS[..], &options).with_model(model);
    let best = fused_beam(&rows(CHARACTERS.len(), &FRAMES), &scorer, &options).swap_remove(0);
    let state = best.tokens.iter().fold(scorer.start(), |state, &token| scorer.advance(&state, token).unwrap());
    let last = scorer.finish(&state).unwrap();
    assert!((best.acoustic + last.score() - best.score).abs() < 1e-9);
    assert!((last.log_prob() - best.language).abs() < 1e-9);
    assert_eq!(last.n_words(), 2);
}

/// With both models a text has the sum of their weighted scores, and an unknown word is scored by its characters.
#[test]
fn spelling_is_added_and_stands_for_unknown_words() {
    let texts = ["a ship sails", "a hull", "the sails of a ship"];
    let tokens: Vec<String> = ["".to_owned()].into_iter().chain(" aefhilopstu".chars().map(String::from)).collect();
    let (words, _) = train(texts, &TrainOptions::new(2)).unwrap();
    let (characters, _) = train(texts, &TrainOptions::new(4).with_unit(Unit::Characters)).unwrap();
    let options = |alpha: f64, beta: f64| {
        let mut options = FusionOptions::default().with_weights(alpha, beta);
        options.unknown_penalty = 0.0;
        options
    };
    let score = |scorer: &LanguageScorer, text: &str| {
        let ids = text.chars().map(|c| tokens.iter().position(|token| *token == c.to_string()).unwrap() as u32);
        let state = ids.fold(scorer.start(), |state, id| scorer.advance(&state, id).unwrap());
        scorer.finish(&state).unwrap().score()
    };
    let by_words = LanguageScorer::new(&tokens[..], &options(0.4, 0.7)).with_model(words.clone());
    let by_characters = LanguageScorer::new(&tokens[..], &options(0.3, 0.0)).with_model(characters.clone());
    // The penalty of an unknown word does not count beside its characters.
    let both = LanguageScorer::new(&tokens[..], &FusionOptions::default().with_weights(0.4, 0.7));
    let both = both.with_model(words).with_spelling(characters, 0.3);
    for text in ["a ship", "sails", "the hull of a ship", "hull ship", "a tuft", "", "shaft fleet"] {
        let (sum, joined) = (score(&by_words, text) + score(&by_characters, text), score(&both, text));
        assert!((sum - joined).abs() < 1e-9, "{text}: {joined} is not {sum}");
    }
    assert!(score(&both, "a shipil") > score(&both, "a fhfpfl"));
}
