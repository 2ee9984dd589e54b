//! Details of the errors of a recognizer: intervals, speakers, lengths, and the words that it confuses.

use std::fmt::Write;

use plimsoll_core::counted;
use plimsoll_text::score::{Confusion, ErrorReport, Group, Interval, Ranked, ResampleUnit};

/// Fewest speakers or utterances over which an interval is drawn. All sets that are drawn over one are equal.
pub(super) const DRAWN_MIN: usize = 5;
/// Largest number of rows of each list.
const ROWS: usize = 10;

/// Formats the details as text.
pub(super) fn summary(report: &ErrorReport) -> String {
    let percent = |interval: &Interval| format!("{:.2} to {:.2} %", interval.low * 100.0, interval.high * 100.0);
    let drawn = drawn(report.drawn, report.resampled);
    let mut text = match report.drawn < DRAWN_MIN {
        true => format!("no interval over so few: {drawn}\n"),
        false => format!(
            "95 % intervals, drawn over {drawn}: CER {}, WER {}\n",
            percent(&report.characters),
            percent(&report.words)
        ),
    };
    groups(&mut text, "by speaker", &report.speakers);
    groups(&mut text, "by length", &report.lengths);
    confusions(&mut text, "confused words", &report.confused_words);
    confusions(&mut text, "confused characters", &report.confused_characters);
    ranked(&mut text, "left out", &report.deleted_words);
    ranked(&mut text, "added", &report.inserted_words);
    text
}

/// Names what sets are drawn from, with its number.
pub(super) fn drawn(count: usize, unit: ResampleUnit) -> String {
    counted(
        count,
        match unit {
            ResampleUnit::Speakers => "speaker",
            ResampleUnit::Utterances => "utterance",
        },
    )
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
