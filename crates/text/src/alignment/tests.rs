//! Alignments compared with all possible paths, with torchaudio and with ctc-segmentation.

use proptest::prelude::*;
use serde::Deserialize;

use super::chain::Chain;
use super::viterbi::best_path;
use super::*;

#[derive(Deserialize)]
struct Judged {
    cases: Vec<Case>,
    long: Long,
}

#[derive(Deserialize)]
struct Case {
    tokens: usize,
    log_probs: Vec<f32>,
    text: Vec<u32>,
    /// Token, first frame, frame after the last, and score.
    spans: Vec<(u32, usize, usize, f32)>,
}

#[derive(Deserialize)]
struct Long {
    tokens: usize,
    log_probs: Vec<f32>,
    utterances: Vec<Vec<u32>>,
    places: Vec<(usize, usize)>,
    segments: Vec<(f64, f64, f32)>,
}

fn judged() -> Judged {
    serde_json::from_str(include_str!("../../../../fixtures/data/alignment.json")).unwrap()
}

#[test]
fn spans_are_those_of_torchaudio() {
    for case in judged().cases {
        let log_probs = LogProbs::new(&case.log_probs, case.tokens).unwrap();
        let spans = align(&log_probs, &case.text).unwrap();
        let found: Vec<_> = spans.iter().map(|s| (s.token, s.first_frame, s.last_frame + 1)).collect();
        let expected: Vec<_> = case.spans.iter().map(|s| (s.0, s.1, s.2)).collect();
        assert_eq!(found, expected);
        for (span, expected) in spans.iter().zip(&case.spans) {
            assert!((span.score - expected.3).abs() < 2e-5, "{span:?} {expected:?}");
        }
    }
}

#[test]
fn utterances_are_those_of_ctc_segmentation() {
    let long = judged().long;
    let log_probs = LogProbs::new(&long.log_probs, long.tokens).unwrap();
    let found = segment(&log_probs, &long.utterances, SegmentationOptions::default()).unwrap();
    for ((found, place), theirs) in found.iter().zip(&long.places).zip(&long.segments) {
        let found = found.as_ref().unwrap();
        // The place includes up to three frames of silence after the last token.
        assert!(
            found.first_frame == place.0 && (place.1 - 4..place.1).contains(&found.last_frame),
            "{found:?} {place:?}"
        );
        // Theirs begins half a frame earlier, and ends in the middle of the silence that follows.
        assert!((found.first_frame as f64 - theirs.0).abs() < 2.0 && theirs.1 > found.last_frame as f64 - 3.0);
        assert!((found.score - theirs.2).abs() < 0.05, "{} {}", found.score, theirs.2);
    }
}

/// Makes posteriors that say these tokens, one a frame.
fn sharp(said: &[u32], tokens: usize) -> Vec<f32> {
    let row = |&token: &u32| {
        (0..tokens as u32).map(move |other| if other == token { -0.05 } else { -6.0 - other as f32 / 10.0 })
    };
    said.iter().flat_map(row).collect()
}

#[test]
fn what_a_recording_does_not_say_has_a_low_score() {
    let utterances: Vec<Vec<u32>> = vec![vec![1, 2, 3, 4], vec![5, 6, 7, 5], vec![2, 4, 1, 3]];
    // Other sounds (8, 9) at both ends and between; the second utterance is missing.
    let said = [8, 9, 9, 1, 0, 2, 3, 3, 4, 0, 8, 9, 8, 8, 9, 9, 8, 0, 2, 4, 0, 0, 1, 3, 9, 8];
    let values = sharp(&said, 10);
    let log_probs = LogProbs::new(&values, 10).unwrap();
    let found = segment(&log_probs, &utterances, SegmentationOptions::default()).unwrap();
    let found: Vec<_> = found.iter().map(|found| found.as_ref().unwrap()).collect();
    assert_eq!((found[0].first_frame, found[0].last_frame), (3, 8));
    assert_eq!((found[2].first_frame, found[2].last_frame), (18, 23));
    assert!(found[0].score > -0.1 && found[2].score > -0.1 && found[1].score < -3.0, "{found:?}");
}

#[test]
fn words_between_the_words_of_an_utterance_are_passed_over() {
    let said = [1, 2, 0, 8, 9, 8, 9, 7, 3, 4];
    let values = sharp(&said, 10);
    let log_probs = LogProbs::new(&values, 10).unwrap();
    let options = SegmentationOptions { separator: Some(7), ..Default::default() };
    let found = segment(&log_probs, &[[1, 2, 7, 3, 4]], options).unwrap();
    let frames: Vec<_> = found[0].as_ref().unwrap().tokens.iter().map(|token| token.first_frame).collect();
    assert_eq!(frames, [0, 1, 7, 8, 9]);
    // The other words lower the score all the same.
    assert!(found[0].as_ref().unwrap().score < -1.0);
}

#[test]
fn impossible_alignments_are_refused() {
    let values = [0.0f32; 6];
    let log_probs = LogProbs::new(&values, 2).unwrap();
    assert_eq!(align(&log_probs, &[1, 1, 1]), Err(AlignmentError::TooFewFrames { needed: 5, frames: 3 }));
    assert_eq!(align(&log_probs, &[0]), Err(AlignmentError::UnknownToken { token: 0, place: 0, last: 1 }));
    assert_eq!(align(&log_probs, &[1, 2]), Err(AlignmentError::UnknownToken { token: 2, place: 1, last: 1 }));
    assert_eq!(align(&log_probs, &[]), Ok(Vec::new()));
    assert_eq!(LogProbs::new(&values, 4).unwrap_err(), AlignmentError::Shape { values: 6, tokens: 4 });
    assert!(LogProbs::new(&[], 0).is_err());
    assert_eq!(LogProbs::new(&[0.0, f32::NAN], 1).unwrap_err(), AlignmentError::NotANumber { frame: 1, token: 0 });
    let silent = [f32::NEG_INFINITY; 9];
    let spans = align(&LogProbs::new(&silent, 3).unwrap(), &[1, 2]).unwrap();
    assert_eq!(spans.iter().map(|span| span.token).collect::<Vec<_>>(), [1, 2]);
    let empty = LogProbs::new(&[], 3).unwrap();
    assert_eq!(segment(&empty, &[[0u32; 0]; 2], SegmentationOptions::default()), Ok(vec![None, None]));
}

/// Best score of all label sequences that read as `text`.
fn brute_force(log_probs: &[f32], tokens: usize, text: &[u32]) -> f64 {
    let frames = log_probs.len() / tokens;
    let mut best = f64::NEG_INFINITY;
    for code in 0..tokens.pow(frames as u32) {
        let labels: Vec<u32> = (0..frames).map(|frame| (code / tokens.pow(frame as u32) % tokens) as u32).collect();
        let mut read = labels.clone();
        read.dedup();
        read.retain(|&label| label != 0);
        if read == text {
            best =
                best.max(labels.iter().enumerate().map(|(f, &l)| f64::from(log_probs[f * tokens + l as usize])).sum());
        }
    }
    best
}

proptest! {
    #[test]
    fn no_path_is_better(tokens in 2..4usize, values in prop::collection::vec(-9.0..0.0f32, 21), frames in 1..7usize, text in prop::collection::vec(1..4u32, 1..5)) {
        let text: Vec<u32> = text.into_iter().map(|token| token.min(tokens as u32 - 1)).collect();
        let values = &values[..frames * tokens];
        let log_probs = LogProbs::new(values, tokens).unwrap();
        let best = brute_force(values, tokens, &text);
        let Ok(spans) = align(&log_probs, &text) else {
            prop_assert_eq!(best, f64::NEG_INFINITY);
            return Ok(());
        };
        let in_span = |frame: usize| spans.iter().find(|s| (s.first_frame..=s.last_frame).contains(&frame));
        let label = |frame| in_span(frame).map_or(0, |span| span.token as usize);
        let score: f64 = (0..frames).map(|frame| f64::from(values[frame * tokens + label(frame)])).sum();
        prop_assert!((score - best).abs() < 1e-6, "{score} {best}");
    }

    #[test]
    fn less_memory_gives_the_same_path(values in prop::collection::vec(-9.0..0.0f32, 600), text in prop::collection::vec(1..3u32, 1..90), gap in any::<bool>()) {
        let log_probs = LogProbs::new(&values, 3).unwrap();
        prop_assume!(log_probs.check(&text).is_ok());
        let mut chain = Chain::new(log_probs, &text);
        if gap {
            chain = chain.with_gaps(vec![true; text.len() + 1], 1.0);
        }
        prop_assert_eq!(best_path(&chain, usize::MAX), best_path(&chain, 0));
    }
}
