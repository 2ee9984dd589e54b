//! The report of an evaluation: rates, counts and the worst utterances, as text and as JSON.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use plimsoll_core::{Seconds, Skipped, counted};
use plimsoll_recipes::training::{evaluation, worst_of};
use plimsoll_speech::asr::{Search, Transcription};
use plimsoll_speech::score::ErrorCounts;
use plimsoll_text::score::{self, ErrorReport, ReportOptions};
use serde_json::{Value, json};

use crate::number::milliseconds;

/// One transcribed utterance with its errors.
pub(super) struct ScoredUtterance {
    /// True text and recognized text of the utterance.
    pub(super) transcription: Transcription,
    /// Length of the utterance.
    pub(super) seconds: Seconds,
    /// Speaker of the utterance, if the corpus names one.
    pub(super) speaker: Option<String>,
    /// Errors of the transcription in words.
    pub(super) words: ErrorCounts,
    /// Errors of the transcription in characters.
    pub(super) characters: ErrorCounts,
}

/// The result of evaluating a recognizer.
pub(super) struct Report {
    run: PathBuf,
    name: String,
    search: Search,
    /// Transcribed utterances, in order.
    pub(super) scored: Vec<ScoredUtterance>,
    /// Utterances whose audio could not be read.
    pub(super) skipped: Vec<Skipped>,
    /// Reasons why the weights may not be the best of the run.
    pub(super) warnings: Vec<String>,
    /// Seconds that the computation took from samples to text: includes features, excludes reading files.
    pub(super) decode_seconds: f64,
}

impl ScoredUtterance {
    /// Counts the errors of `transcription`, which belongs to an utterance of length `seconds`.
    pub(super) fn new(transcription: Transcription, seconds: Seconds) -> Self {
        let words = ErrorCounts::words(&transcription.reference, &transcription.hypothesis);
        let characters = ErrorCounts::characters(&transcription.reference, &transcription.hypothesis);
        Self { transcription, seconds, speaker: None, words, characters }
    }

    /// Sets the speaker.
    pub(super) fn with_speaker(self, speaker: Option<String>) -> Self {
        Self { speaker, ..self }
    }
}

/// Adds up substitutions, deletions and insertions.
pub(super) fn errors(counts: &ErrorCounts) -> u64 {
    counts.substitutions + counts.deletions + counts.insertions
}

/// Returns the `count` utterances of `scored` with the highest character error rates, the worst first.
pub(super) fn worst(scored: &[ScoredUtterance], count: usize) -> Vec<&ScoredUtterance> {
    worst_of(scored, count, |scored| (scored.characters.rate(), &scored.transcription.name))
}

impl Report {
    /// Makes an empty report on the model in `run`. `name` is the name of `search`, with which texts are decoded.
    pub(super) fn new(run: &Path, name: &str, search: Search) -> Self {
        let (scored, skipped, warnings) = (Vec::new(), Vec::new(), Vec::new());
        Self { run: run.into(), name: name.into(), search, scored, skipped, warnings, decode_seconds: 0.0 }
    }

    fn characters(&self) -> ErrorCounts {
        self.scored.iter().map(|scored| scored.characters).sum()
    }

    fn words(&self) -> ErrorCounts {
        self.scored.iter().map(|scored| scored.words).sum()
    }

    /// Ranks the errors, with confidence intervals.
    pub(super) fn errors(&self) -> ErrorReport {
        ErrorReport::new(&self.texts(), ReportOptions::default())
    }

    /// Returns the true and the recognized text of each utterance.
    pub(super) fn texts(&self) -> Vec<score::ScoredUtterance> {
        let utterance = |scored: &ScoredUtterance| {
            let Transcription { name, reference, hypothesis } = scored.transcription.clone();
            score::ScoredUtterance {
                id: name,
                reference,
                hypothesis,
                speaker: scored.speaker.clone(),
                seconds: Some(scored.seconds.0),
            }
        };
        self.scored.iter().map(utterance).collect()
    }

    /// Counts the utterances with at least one wrong word.
    fn sentence_errors(&self) -> usize {
        self.scored.iter().filter(|scored| errors(&scored.words) > 0).count()
    }

    fn audio(&self) -> Seconds {
        self.scored.iter().map(|scored| scored.seconds).sum()
    }

    /// Computes the seconds of decoding per second of audio.
    fn real_time_factor(&self) -> f64 {
        self.decode_seconds / self.audio().0.max(f64::MIN_POSITIVE)
    }

    /// Returns the `count` utterances with the highest character error rates, the worst first.
    fn worst(&self, count: usize) -> Vec<&ScoredUtterance> {
        worst(&self.scored, count)
    }

    /// Formats the report as JSON, with the `worst` worst utterances.
    pub(super) fn json(&self, worst: usize) -> Value {
        let (characters, words) = (self.characters(), self.words());
        let mut page = evaluation(&self.texts(), &self.search, worst);
        let more = json!({
            "run": self.run.display().to_string(),
            "cer": characters.rate(),
            "wer": words.rate(),
            "counts": {"characters": characters, "words": words},
            "sentence_errors": self.sentence_errors(),
            "audio_seconds": milliseconds(self.audio().0),
            "decode_seconds": milliseconds(self.decode_seconds),
            "rtf": self.real_time_factor(),
            "skipped": self.skipped,
            "warnings": self.warnings,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            page[name] = value.clone();
        }
        page
    }

    /// Formats the report as text, with the `worst` worst utterances.
    pub(super) fn summary(&self, worst: usize) -> String {
        let Self { run, name, scored, skipped, .. } = self;
        let (count, audio) = (scored.len(), self.audio().of_speech());
        let mut text = format!("{} by {name} search on {}, {audio}\n", run.display(), counted(count, "utterance"));
        for (name, units, counts) in [("CER", "characters", self.characters()), ("WER", "words", self.words())] {
            let _ = writeln!(
                text,
                "  {name:<10} {:>6.2} % of {} {units}: {}",
                counts.rate() * 100.0,
                counts.reference_length(),
                count_text(counts)
            );
        }
        let wrong = self.sentence_errors();
        let share = wrong as f64 / count.max(1) as f64 * 100.0;
        let _ = writeln!(text, "  sentences  {share:>6.2} % of {count} have an error: {wrong}");
        let (factor, decoding) = (self.real_time_factor(), Seconds(self.decode_seconds));
        let _ = writeln!(text, "  speed      real-time factor {factor:.4}, features included: {decoding} of decoding");
        for ScoredUtterance { transcription, characters, .. } in self.worst(worst) {
            let Transcription { name, reference: truth, hypothesis: heard } = transcription;
            let _ = writeln!(text, "  {name}: CER {:.2} %", characters.rate() * 100.0);
            let _ = writeln!(text, "    truth    {truth}\n    heard    {heard}");
        }
        if !skipped.is_empty() {
            let _ = writeln!(text, "  {} more could not be read", skipped.len());
        }
        for Skipped { name, reason } in skipped {
            let _ = writeln!(text, "    {name}: {reason}");
        }
        text
    }
}

fn count_text(counts: ErrorCounts) -> String {
    let ErrorCounts { hits, substitutions, deletions, insertions } = counts;
    [(hits, "hit"), (substitutions, "substitution"), (deletions, "deletion"), (insertions, "insertion")]
        .map(|(count, noun)| counted(count, noun))
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new(Path::new("runs/a"), "greedy", Search::Greedy);
        for (name, truth, heard) in [("fine", "one two", "one two"), ("bad", "three", ""), ("fair", "abcd", "abce")] {
            let transcription = Transcription { name: name.into(), reference: truth.into(), hypothesis: heard.into() };
            report.scored.push(ScoredUtterance::new(transcription, Seconds(2.0)));
        }
        report.skipped.push(Skipped { name: "gone".into(), reason: "it is empty".into() });
        report.decode_seconds = 1.5;
        report
    }

    #[test]
    fn rates_are_pooled_and_the_worst_comes_first() {
        let report = report();
        let json = report.json(2);
        assert_eq!(json["cer"], 6.0 / 16.0);
        assert_eq!(json["wer"], 2.0 / 4.0);
        assert_eq!((&json["utterances"], &json["sentence_errors"], &json["rtf"]), (&json!(3), &json!(2), &json!(0.25)));
        let worst: Vec<&str> = json["worst"].as_array().unwrap().iter().map(|w| w["name"].as_str().unwrap()).collect();
        assert_eq!(worst, ["bad", "fair"]);
        assert_eq!(json["skipped"][0]["name"], "gone");
        assert_eq!(json["search"], json!({"kind": "greedy"}));
    }

    #[test]
    fn summary_shows_rates_worst_and_skipped() {
        let expected = "\
runs/a by greedy search on 3 utterances, 6s of speech
  CER         37.50 % of 16 characters: 10 hits, 1 substitution, 5 deletions, 0 insertions
  WER         50.00 % of 4 words: 2 hits, 1 substitution, 1 deletion, 0 insertions
  sentences   66.67 % of 3 have an error: 2
  speed      real-time factor 0.2500, features included: 1.5s of decoding
  bad: CER 100.00 %
    truth    three
    heard    \n  1 more could not be read
    gone: it is empty
";
        assert_eq!(report().summary(1), expected);
    }
}
