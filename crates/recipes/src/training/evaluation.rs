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
    let text = evaluation(transcriptions, &scored(transcriptions, held_out)).to_string();
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

fn evaluation(transcriptions: &[Transcription], scored: &[ScoredUtterance]) -> Value {
    let rate = |result: &Transcription| ErrorCounts::characters(&result.reference, &result.hypothesis).rate();
    let mut worst: Vec<(f64, &Transcription)> = transcriptions.iter().map(|result| (rate(result), result)).collect();
    worst.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
    let worst = worst.into_iter().take(WORST).map(|(cer, Transcription { name, reference, hypothesis })| {
        json!({"name": name, "truth": reference, "heard": hypothesis, "cer": cer})
    });
    json!({
        "utterances": scored.len(),
        "search": Search::Greedy,
        "details": ErrorReport::new(scored, ReportOptions::default()),
        "worst": worst.collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_utterance_comes_first_and_rates_are_pooled() {
        let result = |name: &str, reference: &str, hypothesis: &str| Transcription {
            name: name.into(),
            reference: reference.into(),
            hypothesis: hypothesis.into(),
        };
        let results =
            [result("fine", "one two", "one two"), result("bad", "three", ""), result("fair", "abcd", "abce")];
        let scored = results.iter().map(|result| ScoredUtterance {
            id: result.name.clone(),
            reference: result.reference.clone(),
            hypothesis: result.hypothesis.clone(),
            ..ScoredUtterance::default()
        });
        let found = evaluation(&results, &scored.collect::<Vec<_>>());
        assert_eq!((&found["worst"][0]["name"], &found["worst"][1]["name"]), (&json!("bad"), &json!("fair")));
        assert_eq!(found["details"]["words"]["rate"], 0.5);
        assert_eq!((&found["utterances"], &found["search"]), (&json!(3), &json!({"kind": "greedy"})));
    }
}
