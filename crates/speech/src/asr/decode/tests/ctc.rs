//! Tests of the searches that use CTC alone.

use super::*;

fn check_exhaustive(scores: &CtcScores) {
    let expected = every_text(scores);
    let found = ctc_prefix_beam(scores, unlimited());
    assert!(sorted(&found) && found.len() == expected.len(), "{} and {} texts", found.len(), expected.len());
    for hypothesis in &found {
        let exact = expected[&hypothesis.tokens];
        assert!(close(hypothesis.score, exact), "{hypothesis:?} should have {exact}");
    }
    for narrow in 1..6 {
        let found = ctc_prefix_beam(scores, width(narrow));
        assert!(sorted(&found) && found.len() <= narrow);
        for hypothesis in found {
            assert!(
                hypothesis.score <= expected[&hypothesis.tokens] + TOLERANCE,
                "{hypothesis:?} in a beam of {narrow}"
            );
        }
    }
}

#[test]
fn unlimited_prefix_beam_is_exact_and_a_narrow_one_never_scores_higher() {
    for seed in 0..20 {
        for (frames, vocabulary) in [(0, 3), (1, 2), (1, 3), (2, 3), (3, 2), (4, 3), (5, 2), (5, 3), (4, 4)] {
            check_exhaustive(&random_scores(seed, frames, vocabulary));
        }
        check_exhaustive(&text_scores(seed, 4));
    }
}

/// Runs prefix beam search as in a textbook: whole texts as keys, and every token tried on every prefix.
fn plain_prefix_beam(scores: &CtcScores, width: usize) -> Vec<Hypothesis> {
    const NONE: f64 = f64::NEG_INFINITY;
    let mut beam = vec![(Vec::new(), (0.0, NONE))];
    for t in 0..scores.frames() {
        let mut next: BTreeMap<Vec<u32>, (f64, f64)> = BTreeMap::new();
        for (text, (blank, token)) in &beam {
            let (total, last) = (log_add(*blank, *token), text.last().copied());
            let stay = next.entry(text.clone()).or_insert((NONE, NONE));
            stay.0 = log_add(stay.0, total + scores.at(t, BLANK));
            if let Some(last) = last {
                stay.1 = log_add(stay.1, token + scores.at(t, last));
            }
            for new in 1..scores.vocabulary() as u32 {
                let from = if last == Some(new) { *blank } else { total };
                let longer = next.entry([text.as_slice(), &[new]].concat()).or_insert((NONE, NONE));
                longer.1 = log_add(longer.1, from + scores.at(t, new));
            }
        }
        beam = next.into_iter().collect();
        beam.sort_by(|(_, a), (_, b)| log_add(b.0, b.1).total_cmp(&log_add(a.0, a.1)));
        beam.truncate(width);
    }
    beam.into_iter().map(|(tokens, (blank, token))| Hypothesis { tokens, score: log_add(blank, token) }).collect()
}

#[test]
fn pruning_tokens_does_not_change_the_beam() {
    for seed in 0..40 {
        let scores = random_scores(seed, 25, 30);
        for narrow in 1..8 {
            let (found, expected) = (ctc_prefix_beam(&scores, width(narrow)), plain_prefix_beam(&scores, narrow));
            assert_eq!(found.len(), expected.len());
            for (a, b) in found.iter().zip(&expected) {
                assert!(a.tokens == b.tokens && close(a.score, b.score), "seed {seed}, width {narrow}: {a:?} {b:?}");
            }
        }
    }
}

#[test]
fn prefix_beam_sums_the_paths_of_a_text() {
    // Two blanks have 0.36; token 1 has 0.24 + 0.24 + 0.16.
    let scores = CtcScores::new([0.6f32, 0.4, 0.6, 0.4].map(f32::ln).to_vec(), 2);
    assert_eq!(ctc_best_path(&scores), Vec::<u32>::new());
    let found = ctc_prefix_beam(&scores, width(10));
    assert_eq!(found.iter().map(|h| h.tokens.clone()).collect::<Vec<_>>(), [vec![1], vec![]]);
    assert!((found[0].score.exp() - 0.64).abs() < 1e-6 && (found[1].score.exp() - 0.36).abs() < 1e-6);
}

#[test]
fn best_path_collapses_repeats_and_drops_blanks() {
    for seed in 0..50 {
        let scores = random_scores(seed, 12, 4);
        let best = |t| (0..4u32).max_by(|&a, &b| scores.at(t, a).total_cmp(&scores.at(t, b))).unwrap();
        let mut expected: Vec<u32> = (0..12).map(best).collect();
        expected.dedup();
        expected.retain(|&token| token != BLANK);
        assert_eq!(ctc_best_path(&scores), expected);
    }
}

#[test]
fn logits_become_log_probabilities() {
    let scores = CtcScores::from_logits(vec![1e4, 0.0, -1e4, 0.0, 0.0, f32::NEG_INFINITY], 3);
    assert_eq!((scores.frames(), scores.vocabulary()), (2, 3));
    assert_eq!(scores.row(0), [0.0, -1e4, -2e4]);
    assert_eq!(scores.row(1), [-(2f32.ln()), -(2f32.ln()), f32::NEG_INFINITY]);
}
