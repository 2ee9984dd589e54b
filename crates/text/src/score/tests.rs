//! Reports and comparisons, compared with jiwer and NumPy.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Judged {
    utterances: Vec<JudgedUtterance>,
    wer: f64,
    interval: [f64; 2],
    difference: [f64; 2],
    a_better: f64,
}

#[derive(Deserialize)]
struct JudgedUtterance {
    /// What was said, and what two systems recognized.
    texts: [String; 3],
    errors: [u64; 2],
    wer: f64,
    cer: f64,
}

fn judged() -> Judged {
    serde_json::from_str(include_str!("../../../../fixtures/data/error_rates.json")).unwrap()
}

fn set(judged: &Judged, system: usize) -> Vec<ScoredUtterance> {
    let utterance = |(place, utterance): (usize, &JudgedUtterance)| ScoredUtterance {
        id: place.to_string(),
        reference: utterance.texts[0].clone(),
        hypothesis: utterance.texts[system].clone(),
        ..Default::default()
    };
    judged.utterances.iter().enumerate().map(utterance).collect()
}

#[test]
fn errors_are_those_of_jiwer() {
    for utterance in judged().utterances {
        let [reference, a, b] = &utterance.texts;
        let words = ErrorCounts::words(reference, a);
        assert_eq!([words.errors(), ErrorCounts::words(reference, b).errors()], utterance.errors);
        assert!((words.rate() - utterance.wer).abs() < 1e-12);
        assert!((ErrorCounts::characters(reference, a).rate() - utterance.cer).abs() < 1e-12);
    }
}

#[test]
fn intervals_are_those_of_numpy() {
    let judged = judged();
    let options = ReportOptions { resamples: 5000, ..Default::default() };
    let report = ErrorReport::new(&set(&judged, 1), options);
    assert!((report.words.rate - judged.wer).abs() < 1e-12);
    assert!((report.words.low - judged.interval[0]).abs() < 2e-3, "{:?}", report.words);
    assert!((report.words.high - judged.interval[1]).abs() < 2e-3, "{:?}", report.words);
    let found = compare(&set(&judged, 1), &set(&judged, 2), options).unwrap().words;
    assert!((found.low - judged.difference[0]).abs() < 2e-3 && (found.high - judged.difference[1]).abs() < 2e-3);
    assert!((found.a_better - judged.a_better).abs() < 0.02, "{found:?}");
    assert_eq!(ErrorReport::new(&set(&judged, 1), options), report);
}

fn utterance(id: &str, reference: &str, hypothesis: &str, speaker: &str, seconds: f64) -> ScoredUtterance {
    ScoredUtterance {
        id: id.into(),
        reference: reference.into(),
        hypothesis: hypothesis.into(),
        speaker: (!speaker.is_empty()).then(|| speaker.into()),
        seconds: Some(seconds),
    }
}

#[test]
fn a_report_shows_speakers_lengths_and_rankings() {
    let set = [
        utterance("a", "the cat sat", "the bat sat", "ann", 1.0),
        utterance("b", "the cat", "bat", "ann", 3.0),
        utterance("c", "dogs bark", "dogs bark loud", "bo", 30.0),
        utterance("d", "yes", "yes", "bo", 1.5),
    ];
    let report = ErrorReport::new(&set, ReportOptions::default());
    assert_eq!((report.utterances, report.correct_utterances, report.resampled), (4, 1, ResampleUnit::Speakers));
    let groups =
        |groups: &[Group]| groups.iter().map(|g| (g.name.clone(), g.utterances, g.words.errors())).collect::<Vec<_>>();
    assert_eq!(groups(&report.speakers), [("ann".into(), 2, 3), ("bo".into(), 2, 1)]);
    let expected = [("below 2 s".into(), 2, 1), ("2 to 5 s".into(), 1, 1 + 1), ("20 s and more".into(), 1, 1)];
    assert_eq!(groups(&report.lengths), expected);
    assert_eq!(report.confused_words[0], Confusion { reference: "cat".into(), hypothesis: "bat".into(), count: 2 });
    assert_eq!(report.deleted_words[0], Ranked { text: "the".into(), count: 1, occurrences: 2 });
    assert_eq!(report.inserted_words[0], Ranked { text: "loud".into(), count: 1, occurrences: 0 });
    assert_eq!(report.confused_characters[0].reference, "c");
    assert_eq!(report.worst[0].0, "b");
    // With two speakers every drawn rate is one of three.
    assert_eq!((report.words.low, report.words.high), (1.0 / 3.0, 0.6));
    assert!(serde_json::to_string(&report).unwrap().contains("\"resampled\":\"speakers\""));
    let empty = ErrorReport::new(&[], ReportOptions::default());
    assert_eq!((empty.words.rate, empty.words.low, empty.words.high), (0.0, 0.0, 0.0));
}

#[test]
fn alignments_are_shown_in_blocks() {
    let alignment = Alignment::words("one two three four", "one three four five");
    assert_eq!(
        alignment.in_blocks(20),
        "\
REF: one two three
HYP: one *** three
         D
REF: four ****
HYP: four five
          I
"
    );
    assert_eq!(Alignment::characters("", "").to_string(), "REF:\nHYP:\n\n");
}

#[test]
fn different_sets_are_not_compared() {
    let a = [utterance("a", "x", "x", "", 1.0), utterance("b", "y", "y", "", 1.0)];
    let compared = |b: &[ScoredUtterance]| compare(&a, b, ReportOptions::default());
    assert_eq!(compared(&a[..1]).unwrap_err(), CompareError::NotPaired { id: "b".into() });
    assert_eq!(compare(&a[..1], &a, ReportOptions::default()).unwrap_err(), CompareError::NotPaired { id: "b".into() });
    assert_eq!(compared(&[a[0].clone(), a[0].clone()]).unwrap_err(), CompareError::NotPaired { id: "a".into() });
    let other = [a[0].clone(), utterance("b", "z", "y", "", 1.0)];
    assert!(matches!(compared(&other), Err(CompareError::References { .. })));
    let worse = [a[1].clone(), utterance("a", "x", "w v", "", 1.0)];
    let found = compared(&worse).unwrap();
    assert_eq!((found.changes.len(), found.changes[0].a_errors, found.changes[0].b_errors), (1, 0, 2));
    assert!(found.words.a_better > 0.8 && found.words.difference < 0.0);
    assert_eq!(compared(&a).unwrap().words.a_better, 0.5);
}

/// Levenshtein distance by its definition.
fn distance(a: &[char], b: &[char]) -> u64 {
    match (a, b) {
        ([], rest) | (rest, []) => rest.len() as u64,
        ([x, a_rest @ ..], [y, b_rest @ ..]) if x == y => distance(a_rest, b_rest),
        ([_, a_rest @ ..], [_, b_rest @ ..]) => {
            1 + distance(a_rest, b_rest).min(distance(a_rest, b)).min(distance(a, b_rest))
        }
    }
}

proptest! {
    #[test]
    fn alignments_are_minimal_and_complete(a in "[abc]{0,6}", b in "[abc]{0,6}") {
        let letters = |text: &str| text.chars().collect::<Vec<_>>();
        let alignment = Alignment::characters(&a, &b);
        prop_assert_eq!(alignment.counts().errors(), distance(&letters(&a), &letters(&b)));
        prop_assert_eq!(alignment.counts(), ErrorCounts::characters(&a, &b));
        let side = |of: fn(&Pair) -> &Option<String>| alignment.pairs.iter().filter_map(|pair| of(pair).clone()).collect::<String>();
        prop_assert_eq!(side(|pair| &pair.reference), a);
        prop_assert_eq!(side(|pair| &pair.hypothesis), b);
    }

    #[test]
    fn intervals_hold_the_rate(texts in prop::collection::vec(("[ab ]{0,8}", "[ab ]{0,8}"), 0..12), seed in any::<u64>()) {
        let set: Vec<ScoredUtterance> = texts.iter().enumerate().map(|(n, (a, b))| utterance(&n.to_string(), a, b, "", 1.0)).collect();
        let options = ReportOptions { resamples: 50, level: 1.0, seed, ..Default::default() };
        let report = ErrorReport::new(&set, options);
        prop_assert!(report.words.low <= report.words.high && report.words.low >= 0.0);
        prop_assert!(compare(&set, &set, options).unwrap().words.a_better == 0.5);
    }
}
