//! What was found in a corpus, for a terminal and for scripts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;
use plimsoll_data::{Checked, CorpusStats, Format, Spread};
use serde::Serialize;

/// Flaws of each kind that are shown where not all are asked for.
const SHOWN: usize = 3;
/// Characters of the longest bar.
const BAR: f64 = 40.0;
/// Letters that are listed, the most frequent first.
const LETTERS: usize = 60;

/// A corpus, as it was found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) path: PathBuf,
    pub(super) format: &'static str,
    pub(super) listed: usize,
    pub(super) usable: usize,
    pub(super) total_seconds: f64,
    /// How many cannot be used, by reason.
    pub(super) unusable: BTreeMap<&'static str, usize>,
    pub(super) flaws: Vec<Told>,
    /// Files by kind, rate and channels.
    pub(super) sounds: BTreeMap<String, usize>,
    pub(super) stats: CorpusStats,
    /// Those that are flawed in themselves, and not just beyond the limits or the vocabulary of a run.
    #[serde(skip)]
    broken: usize,
}

/// A flaw, as it is told.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    pub(super) kind: &'static str,
    pub(super) id: Option<String>,
    pub(super) told: String,
}

impl Report {
    pub(super) fn new(format: Format, path: &Path, checked: &Checked, stats: CorpusStats) -> Self {
        let told = checked.issues.iter().map(|flaw| Told {
            kind: flaw.kind.name(),
            id: flaw.id.clone(),
            told: flaw.to_string(),
        });
        Self {
            path: path.into(),
            format: format.name(),
            listed: checked.listed(),
            usable: checked.utterances.len(),
            total_seconds: stats.total.0,
            unusable: checked.counts(),
            flaws: told.collect(),
            sounds: checked.audio_formats.clone(),
            stats,
            broken: checked.broken(),
        }
    }

    /// The share of utterances that no run can read.
    pub(super) fn flawed_share(&self) -> f64 {
        self.broken as f64 / self.listed.max(1) as f64
    }

    pub(super) fn print(&self, is_json: bool, is_whole: bool) {
        if is_json {
            println!("{}", serde_json::to_string(self).expect("a report is plain data"));
        } else {
            print!("{}", self.told(is_whole));
        }
    }

    fn told(&self, is_whole: bool) -> String {
        let Self { path, format, listed, usable, .. } = self;
        let mut text = format!("{} ({format})\n", path.display());
        let total = Seconds(self.total_seconds);
        let _ = writeln!(text, "{listed} utterances listed, {usable} usable: {total} of speech");
        for (sound, count) in &self.sounds {
            let _ = writeln!(text, "  {count} files: {sound}");
        }
        for (kind, count) in &self.unusable {
            let _ = writeln!(text, "{count} not usable: {kind}");
            let shown = if is_whole { *count } else { SHOWN };
            for flaw in self.flaws.iter().filter(|flaw| flaw.kind == *kind).take(shown) {
                let _ = writeln!(text, "    {}", flaw.told);
            }
            if *count > shown {
                let _ = writeln!(text, "    and {} more (--all lists them)", count - shown);
            }
        }
        text + &self.spreads()
    }

    /// Both lengths, the pace, voices, languages and letters.
    pub(super) fn spreads(&self) -> String {
        let stats = &self.stats;
        if stats.utterances == 0 {
            return String::new();
        }
        let mut text = format!("{} utterances, {}, {} named voices\n", stats.utterances, stats.total, stats.speakers);
        for (language, count) in &stats.languages {
            let _ = writeln!(text, "  {count} in `{language}`");
        }
        text += &spread("seconds of an utterance", &stats.seconds, true);
        text += &spread("characters of a text", &stats.characters, true);
        text += &spread("characters in a second", &stats.pace, false);
        text + &letters(stats)
    }
}

fn spread(name: &str, spread: &Spread, is_drawn: bool) -> String {
    let Spread { min: least, p10: tenth, median, p90: ninetieth, max: most, mean, bins } = spread;
    let mut text = format!(
        "{name}: {least:.1} to {most:.1}, mean {mean:.1}, median {median:.1}, eight in ten from {tenth:.1} to {ninetieth:.1}\n"
    );
    let largest = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    for (place, bin) in bins.iter().enumerate().filter(|_| is_drawn) {
        let open = place + 1 == bins.len() && *most >= bin.to;
        let to = if open { "more".into() } else { number(bin.to) };
        let length = (bin.count as f64 / largest as f64 * BAR).ceil() as usize;
        let _ = writeln!(text, "  {:>6} to {to:<6} {:<40} {}", number(bin.from), "█".repeat(length), bin.count);
    }
    text
}

pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

fn letters(stats: &CorpusStats) -> String {
    let mut letters: Vec<(char, usize)> =
        stats.character_counts.iter().map(|(letter, count)| (*letter, *count)).collect();
    letters.sort_by_key(|(letter, count)| (std::cmp::Reverse(*count), *letter));
    let shown: Vec<String> = letters
        .iter()
        .take(LETTERS)
        .map(|(letter, count)| if *letter == ' ' { format!("space {count}") } else { format!("{letter} {count}") })
        .collect();
    let more = letters.len().saturating_sub(LETTERS);
    let more = if more > 0 { format!(", and {more} rarer") } else { String::new() };
    format!("{} different characters: {}{more}\n", letters.len(), shown.join(", "))
}
