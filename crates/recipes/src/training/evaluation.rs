//! The errors of a recognizer on its held-out utterances, as a file for the report.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use plimsoll_core::replace_file;
use plimsoll_data::Dataset;
use plimsoll_monitor::RecordError;
use plimsoll_speech::asr::{Search, Transcription};
use plimsoll_speech::score::ErrorCounts;
use plimsoll_text::score::{ErrorReport, ReportOptions, ScoredUtterance};
use serde_json::{Value, json};

/// Name of the file in the folder of a run. `eval --json` prints the same fields and more.
const FILE: &str = "evaluation.json";
/// Number of the worst utterances in the file.
const WORST: usize = 5;

/// Writes the errors of `transcriptions`, which are of utterances of `held_out` and found by greedy search, into `folder`.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(folder: &Path, transcriptions: &[Transcription], held_out: &Dataset) -> Result<(), RecordError> {
    let path = folder.join(FILE);
    let text = evaluation(&scored(transcriptions, held_out), &Search::Greedy, WORST).to_string();
    replace_file(&path, |file| file.write_all(text.as_bytes())).map_err(|source| RecordError::Io { path, source })
}

/// Adds the speakers and lengths of the utterances.
fn scored(transcriptions: &[Transcription], held_out: &Dataset) -> Vec<ScoredUtterance> {
    let utterances: HashMap<&str, _> =
        (0..held_out.len()).map(|index| held_out.utterance(index)).map(|utterance| (utterance.id, utterance)).collect();
    let add = |transcription: &Transcription| {
        let utterance = utterances.get(transcription.name.as_str());
        ScoredUtterance {
            id: transcription.name.clone(),
            reference: transcription.reference.clone(),
            hypothesis: transcription.hypothesis.clone(),
            speaker: utterance.and_then(|utterance| utterance.speaker).map(str::to_owned),
            seconds: utterance.map(|utterance| utterance.duration.0),
        }
    };
    transcriptions.iter().map(add).collect()
}

/// Makes the part of an evaluation that the report of a run reads, with the `worst` utterances of the highest character error
/// rates: `eval --json` prints it too.
pub fn evaluation(utterances: &[ScoredUtterance], search: &Search, worst: usize) -> Value {
    let rate = |one: &ScoredUtterance| ErrorCounts::characters(&one.reference, &one.hypothesis).rate();
    let rated: Vec<(f64, &ScoredUtterance)> = utterances.iter().map(|one| (rate(one), one)).collect();
    let worst = worst_of(&rated, worst, |(rate, one)| (*rate, &one.id)).into_iter();
    let worst = worst.map(|(cer, ScoredUtterance { id, reference, hypothesis, .. })| {
        json!({"name": id, "truth": reference, "heard": hypothesis, "cer": cer})
    });
    json!({
        "utterances": utterances.len(),
        "search": search,
        "details": ErrorReport::new(utterances, ReportOptions::default()),
        "worst": worst.collect::<Vec<Value>>(),
    })
}

/// Returns the `count` utterances with the highest error rates, the worst first, and of equal ones in the order of their names.
/// `measure` gives the rate and the name of an utterance.
pub fn worst_of<T>(utterances: &[T], count: usize, measure: impl Fn(&T) -> (f64, &str)) -> Vec<&T> {
    let mut sorted: Vec<&T> = utterances.iter().collect();
    sorted.sort_by(|a, b| {
        let ((rate, name), (other_rate, other_name)) = (measure(a), measure(b));
        other_rate.total_cmp(&rate).then_with(|| name.cmp(other_name))
    });
    sorted.truncate(count);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_utterance_comes_first_and_rates_are_pooled() {
        let result = |id: &str, reference: &str, hypothesis: &str| ScoredUtterance {
            id: id.into(),
            reference: reference.into(),
            hypothesis: hypothesis.into(),
            ..ScoredUtterance::default()
        };
        let results =
            [result("fine", "one two", "one two"), result("bad", "three", ""), result("fair", "abcd", "abce")];
        let found = evaluation(&results, &Search::Greedy, 2);
        assert_eq!((&found["worst"][0]["name"], &found["worst"][1]["name"]), (&json!("bad"), &json!("fair")));
        assert_eq!(found["worst"].as_array().unwrap().len(), 2);
        assert_eq!(found["details"]["words"]["rate"], 0.5);
        assert_eq!((&found["utterances"], &found["search"]), (&json!(3), &json!({"kind": "greedy"})));
    }
}
