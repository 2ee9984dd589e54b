//! Details of the errors of a recognizer: intervals, speakers, lengths, and the words that it confuses.

use std::fmt::Write;

use plimsoll_core::counted;
use plimsoll_text::score::{Confusion, ErrorReport, Group, Interval, Ranked, ResampleUnit};

/// Largest number of rows of each list.
const ROWS: usize = 10;

/// Formats the details as text.
pub(super) fn summary(report: &ErrorReport) -> String {
    let drawn = match report.resampled {
        ResampleUnit::Speakers => "speakers",
        ResampleUnit::Utterances => "utterances",
    };
    let percent = |interval: &Interval| format!("{:.2} to {:.2} %", interval.low * 100.0, interval.high * 100.0);
    let mut text = format!(
        "95 % intervals, drawn over {drawn}: CER {}, WER {}\n",
        percent(&report.characters),
        percent(&report.words)
    );
    groups(&mut text, "by speaker", &report.speakers);
    groups(&mut text, "by length", &report.lengths);
    confusions(&mut text, "confused words", &report.confused_words);
    confusions(&mut text, "confused characters", &report.confused_characters);
    ranked(&mut text, "left out", &report.deleted_words);
    ranked(&mut text, "added", &report.inserted_words);
    text
}

fn groups(text: &mut String, title: &str, groups: &[Group]) {
    if groups.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}");
    for group in groups.iter().take(ROWS) {
        let (cer, wer) = (group.characters.rate() * 100.0, group.words.rate() * 100.0);
        let count = counted(group.utterances, "utterance");
        let _ = writeln!(text, "  {:<20} CER {cer:>6.2} %  WER {wer:>6.2} %  {count}", group.name);
    }
}

fn confusions(text: &mut String, title: &str, confusions: &[Confusion]) {
    if confusions.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}");
    for Confusion { reference, hypothesis, count } in confusions.iter().take(ROWS) {
        let _ = writeln!(text, "  {count:>5} x  {reference} -> {hypothesis}");
    }
}

fn ranked(text: &mut String, title: &str, words: &[Ranked]) {
    if words.is_empty() {
        return;
    }
    let list: Vec<String> = words.iter().take(ROWS).map(|word| format!("{} ({})", word.text, word.count)).collect();
    let _ = writeln!(text, "{title}: {}", list.join(", "));
}
