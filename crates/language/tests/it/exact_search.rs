//! The search against sums over all paths, and against the search without fusion.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;

use plimsoll_language::{
    CtcHypothesis, FusionOptions, Hotwords, LanguageScorer, Lexicon, TrainOptions, Unit, fused_beam, train,
};
use proptest::prelude::*;

const TOKENS: [&str; 4] = ["", " ", "a", "b"];

fn width(width: usize) -> NonZeroUsize {
    NonZeroUsize::new(width).unwrap()
}

fn exact(n_kept: usize) -> FusionOptions {
    FusionOptions::default()
        .with_weights(0.0, 0.0)
        .without_pruning()
        .with_width(width(n_kept))
        .with_n_best(width(n_kept))
}

fn log_add(a: f64, b: f64) -> f64 {
    let high = a.max(b);
    if high == f64::NEG_INFINITY { high } else { high + ((a - high).exp() + (b - high).exp()).ln() }
}

/// Sums the probability of every path by the tokens that it reads as.
fn all_paths(log_probs: &[f32], n_tokens: usize) -> BTreeMap<Vec<u32>, f64> {
    // Tokens, last symbol of the path, log-probability.
    let mut paths = vec![(Vec::new(), 0u32, 0.0f64)];
    for row in log_probs.chunks(n_tokens) {
        let mut longer = Vec::new();
        for (tokens, last, score) in &paths {
            for (symbol, log_prob) in (0u32..).zip(row) {
                let mut tokens: Vec<u32> = tokens.clone();
                if symbol != 0 && symbol != *last {
                    tokens.push(symbol);
                }
                longer.push((tokens, symbol, score + f64::from(*log_prob)));
            }
        }
        paths = longer;
    }
    let mut sums = BTreeMap::new();
    for (tokens, _, score) in paths {
        let sum = sums.entry(tokens).or_insert(f64::NEG_INFINITY);
        *sum = log_add(*sum, score);
    }
    sums
}

/// Words of a text of [`TOKENS`].
fn text(tokens: &[u32]) -> String {
    let whole: String = tokens.iter().map(|&token| TOKENS[token as usize]).collect();
    whole.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Scores every text by its paths and by `score`, which is nothing for a forbidden text.
fn all_texts(log_probs: &[f32], score: impl Fn(&str) -> Option<f64>) -> Vec<(String, f64)> {
    let mut texts = BTreeMap::new();
    for (tokens, sum) in all_paths(log_probs, TOKENS.len()) {
        let total = texts.entry(text(&tokens)).or_insert(f64::NEG_INFINITY);
        *total = log_add(*total, sum);
    }
    let scored = texts.into_iter().filter_map(|(text, sum)| Some((text.clone(), sum + score(&text)?)));
    let mut scored: Vec<(String, f64)> = scored.collect();
    scored.sort_by(|a, b| b.1.total_cmp(&a.1));
    scored
}

fn check(found: &[CtcHypothesis], expected: &[(String, f64)]) {
    assert_eq!(found.len(), expected.len());
    for hypothesis in found {
        let (_, score) = expected.iter().find(|(text, _)| *text == hypothesis.text).unwrap();
        assert!((hypothesis.score - score).abs() < 1e-4, "{hypothesis:?} and not {score}");
    }
    assert!((found[0].score - expected[0].1).abs() < 1e-4, "{} is not the best", found[0].text);
}

/// The search of the recognizer without fusion, as short as it can be written: the tokens of the beam with their scores.
fn plain_beam(log_probs: &[f32], n_tokens: usize, width: usize) -> Vec<(Vec<u32>, f64)> {
    let mut beam = vec![(Vec::<u32>::new(), 0.0f64, f64::NEG_INFINITY)];
    for row in log_probs.chunks(n_tokens) {
        let prob = |token: u32| f64::from(row[token as usize]);
        let before: HashMap<Vec<u32>, (f64, f64)> =
            beam.iter().map(|(tokens, blank, token)| (tokens.clone(), (*blank, *token))).collect();
        let extendable = |tokens: &[u32], token: u32| {
            let (blank, in_token) = before[tokens];
            if tokens.last() == Some(&token) { blank } else { log_add(blank, in_token) }
        };
        let mut next = Vec::new();
        for (tokens, blank, token) in &beam {
            let mut repeated = *token;
            if let Some((&last, parent)) = tokens.split_last() {
                if before.contains_key(parent) {
                    repeated = log_add(repeated, extendable(parent, last));
                }
                repeated += prob(last);
            }
            next.push((tokens.clone(), log_add(*blank, *token) + prob(0), repeated));
        }
        for (tokens, _, _) in &beam {
            for token in 1..n_tokens as u32 {
                let longer: Vec<u32> = tokens.iter().copied().chain([token]).collect();
                if !before.contains_key(&longer) {
                    next.push((longer, f64::NEG_INFINITY, extendable(tokens, token) + prob(token)));
                }
            }
        }
        next.retain(|(_, blank, token)| log_add(*blank, *token) > f64::NEG_INFINITY);
        next.sort_by(|a, b| log_add(b.1, b.2).total_cmp(&log_add(a.1, a.2)));
        next.truncate(width);
        beam = next;
    }
    beam.into_iter().map(|(tokens, blank, token)| (tokens, log_add(blank, token))).collect()
}

prop_compose! {
    /// Normalized log-probabilities.
    fn rows(n_tokens: usize, n_frames_max: usize)(
        logits in prop::collection::vec(prop::collection::vec(-3.0f32..3.0, n_tokens), 1..=n_frames_max)
    ) -> Vec<f32> {
        let normalized = |row: Vec<f32>| {
            let sum = row.iter().map(|logit| logit.exp()).sum::<f32>().ln();
            row.into_iter().map(move |logit| logit - sum)
        };
        logits.into_iter().flat_map(normalized).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_wide_beam_sums_all_paths(log_probs in rows(TOKENS.len(), 5)) {
        let options = exact(10_000);
        let found = fused_beam(&log_probs, &LanguageScorer::new(&TOKENS[..], &options), &options);
        check(&found, &all_texts(&log_probs, |_| Some(0.0)));
    }

    #[test]
    fn a_narrow_beam_equals_the_search_without_fusion(log_probs in rows(4, 12), n_kept in 1usize..12) {
        // Without a token that separates words, each text has its own tokens.
        let tokens = ["", "a", "b", "c"];
        let options = exact(n_kept);
        let found = fused_beam(&log_probs, &LanguageScorer::new(&tokens[..], &options), &options);
        let expected = plain_beam(&log_probs, tokens.len(), n_kept);
        prop_assert_eq!(found.len(), expected.len());
        for (hypothesis, (tokens, score)) in found.iter().zip(&expected) {
            prop_assert_eq!(&hypothesis.tokens, tokens);
            prop_assert!((hypothesis.score - score).abs() < 1e-9);
        }
    }

    #[test]
    fn fusion_with_words_is_exact(log_probs in rows(TOKENS.len(), 5)) {
        let (model, _) = train(["a ab b", "b ab", "a a"], &TrainOptions::new(2)).unwrap();
        let options = exact(10_000).with_weights(0.7, 0.4);
        let scorer = LanguageScorer::new(&TOKENS[..], &options)
            .with_model(model.clone())
            .with_hotwords(Hotwords::new(["bb ab"], 2.0));
        let found = fused_beam(&log_probs, &scorer, &options);
        let known = |word: &str| ["a", "ab", "b"].contains(&word);
        let score = |text: &str| {
            let unknown = text.split_whitespace().filter(|word| !known(word)).count() as f64;
            let hot = text.split_whitespace().filter(|word| ["bb", "ab"].contains(word)).count() as f64;
            let n_words = text.split_whitespace().count() as f64;
            let log_prob = model.score_sentence(text) - 10.0 * unknown;
            Some(0.7 * log_prob * std::f64::consts::LN_10 + 0.4 * n_words + 2.0 * hot)
        };
        check(&found, &all_texts(&log_probs, score));
    }

    #[test]
    fn fusion_with_characters_is_exact(log_probs in rows(TOKENS.len(), 5)) {
        let options = TrainOptions::new(3).with_unit(Unit::Characters);
        let (model, _) = train(["a ab b", "b ab", "a a"], &options).unwrap();
        let options = exact(10_000).with_weights(0.7, 0.4);
        let scorer = LanguageScorer::new(&TOKENS[..], &options).with_model(model.clone());
        let score = |text: &str| {
            let n_words = text.split_whitespace().count() as f64;
            Some(0.7 * model.score_sentence(text) * std::f64::consts::LN_10 + 0.4 * n_words)
        };
        check(&fused_beam(&log_probs, &scorer, &options), &all_texts(&log_probs, score));
    }

    #[test]
    fn a_lexicon_allows_its_words_only(log_probs in rows(TOKENS.len(), 5)) {
        let options = exact(10_000);
        let scorer = LanguageScorer::new(&TOKENS[..], &options).with_lexicon(Lexicon::new(["ab", "bb a"]));
        let allowed = |text: &str| {
            text.split_whitespace().all(|word| ["ab", "bb", "a"].contains(&word)).then_some(0.0)
        };
        check(&fused_beam(&log_probs, &scorer, &options), &all_texts(&log_probs, allowed));
    }
}
