//! The report on a corpus, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use plimsoll_core::{Seconds, counted};
use plimsoll_data::{Bin, Checked, CorpusStats, Format, Spread};
use serde::Serialize;

/// Number of unusable utterances of each kind that are listed without --all.
const LISTED: usize = 3;
/// Fewest utterances of which a histogram is drawn.
const HISTOGRAM_MIN: usize = 20;
/// Most rows of a histogram.
const ROWS: usize = 12;
/// Number of characters of the longest bar of a histogram.
const BAR: f64 = 40.0;
/// Maximum number of characters of the texts that are listed, the most frequent first.
const MAX_CHARACTERS: usize = 60;

/// The result of checking a corpus. Its field names are the names in the JSON output.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) path: PathBuf,
    pub(super) format: &'static str,
    pub(super) listed: usize,
    pub(super) usable: usize,
    pub(super) total_seconds: f64,
    /// Number of unusable utterances by reason; those of a damaged shard are an estimate.
    pub(super) unusable: BTreeMap<&'static str, usize>,
    pub(super) flaws: Vec<Finding>,
    /// Number of files by format, sample rate and channels.
    pub(super) sounds: BTreeMap<String, usize>,
    pub(super) stats: CorpusStats,
    /// Rule by which utterances are usable, in words.
    rule: String,
    /// What to do about findings that have one cause.
    advice: Vec<String>,
    /// Share of the utterances that a run does not use.
    #[serde(skip)]
    lost_share: f64,
}

/// One unusable utterance and the reason.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) kind: &'static str,
    pub(super) id: Option<String>,
    /// Reason why the utterance is unusable, in words. The JSON output keeps an older name for it.
    #[serde(rename = "told")]
    pub(super) text: String,
}

impl Report {
    /// Makes the report on the corpus at `path` from the results of its check, `checked`, and its statistics.
    pub(super) fn new(format: Format, path: &Path, checked: &Checked, stats: CorpusStats) -> Self {
        let findings = checked.issues.iter().map(|flaw| Finding {
            kind: flaw.kind.name(),
            id: flaw.id.clone(),
            text: flaw.to_string(),
        });
        Self {
            path: path.into(),
            format: format.name(),
            listed: checked.listed(),
            usable: checked.utterances.len(),
            total_seconds: stats.total.0,
            unusable: checked.counts(),
            flaws: findings.collect(),
            sounds: checked.audio_formats.clone(),
            stats,
            rule: String::new(),
            advice: Vec::new(),
            lost_share: checked.dropped().share(),
        }
    }

    /// Adds the rule by which utterances are usable, and the advice, to the report.
    pub(super) fn with_rule(self, rule: &str, advice: &[String]) -> Self {
        Self { rule: rule.into(), advice: advice.to_vec(), ..self }
    }

    /// Returns the share of the utterances that a run does not use.
    pub(super) fn lost_share(&self) -> f64 {
        self.lost_share
    }

    /// Prints the report; `all` lists every unusable utterance.
    pub(super) fn print(&self, is_json: bool, all: bool) {
        if is_json {
            println!("{}", serde_json::to_string(self).expect("a report is plain data"));
        } else {
            print!("{}", self.summary(all));
        }
    }

    fn summary(&self, all: bool) -> String {
        let Self { path, format, listed, usable, .. } = self;
        let mut text = format!("{} ({format})\n", path.display());
        let total = Seconds(self.total_seconds).of_speech();
        let _ = writeln!(text, "{} listed, {usable} usable: {total}", counted(listed, "utterance"));
        let _ = writeln!(text, "  usable: {}", self.rule);
        for (sound, count) in &self.sounds {
            let _ = writeln!(text, "  {}: {sound}", counted(count, "file"));
        }
        for (kind, count) in &self.unusable {
            let _ = writeln!(text, "{count} not usable: {kind}");
            // A damaged shard is one finding for many utterances.
            let findings: Vec<&Finding> = self.flaws.iter().filter(|flaw| flaw.kind == *kind).collect();
            let shown = if all { findings.len() } else { LISTED.min(findings.len()) };
            for flaw in &findings[..shown] {
                let _ = writeln!(text, "    {}", flaw.text);
            }
            if findings.len() > shown {
                let _ = writeln!(text, "    and {} more (--all lists them)", findings.len() - shown);
            }
        }
        for advice in &self.advice {
            let _ = writeln!(text, "note: {advice}");
        }
        text + &self.spreads()
    }

    /// Formats the distributions of lengths and speaking rates, voices, languages and characters.
    pub(super) fn spreads(&self) -> String {
        let stats = &self.stats;
        if stats.utterances == 0 {
            return String::new();
        }
        let mut text = format!(
            "{}, {}, {}\n",
            counted(stats.utterances, "utterance"),
            stats.total,
            counted(stats.speakers, "named voice")
        );
        for (language, count) in &stats.languages {
            let _ = writeln!(text, "  {count} in `{language}`");
        }
        text += &spread("seconds per utterance", &stats.seconds, true);
        text += &spread("characters per text", &stats.characters, true);
        text += &spread("characters per second", &stats.pace, false);
        text + &characters(stats)
    }
}

/// Formats one distribution as a line, with its histogram below the line if `with_bins` is set.
fn spread(name: &str, spread: &Spread, with_bins: bool) -> String {
    let Spread { min: least, p10: tenth, median, p90: ninetieth, max: most, mean, bins } = spread;
    let mut text = format!(
        "{name}: {least:.1} to {most:.1}, mean {mean:.1}, median {median:.1}, 10th to 90th percentile {tenth:.1} to {ninetieth:.1}\n"
    );
    // Of a few values, each would be a row of its own.
    let is_drawn = with_bins && bins.iter().map(|bin| bin.count).sum::<usize>() >= HISTOGRAM_MIN;
    let bins = joined(bins, ROWS);
    let largest = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    for (index, bin) in bins.iter().enumerate().filter(|_| is_drawn) {
        let open = index + 1 == bins.len() && *most >= bin.to;
        let to = if open { "more".into() } else { number(bin.to) };
        let length = (bin.count as f64 / largest as f64 * BAR).ceil() as usize;
        let _ = writeln!(text, "  {:>6} to {to:<6} {:<40} {}", number(bin.from), "█".repeat(length), bin.count);
    }
    text
}

/// Joins neighbors of `bins`, so that there are at most `most`.
fn joined(bins: &[Bin], most: usize) -> Vec<Bin> {
    let join = |bins: &[Bin]| {
        let count = bins.iter().map(|bin| bin.count).sum();
        Bin { from: bins[0].from, to: bins[bins.len() - 1].to, count }
    };
    bins.chunks(bins.len().div_ceil(most).max(1)).map(join).collect()
}

/// Formats `value` with at most three digits after the point.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Lists the characters of the texts, the most frequent first.
fn characters(stats: &CorpusStats) -> String {
    let mut characters: Vec<(char, usize)> =
        stats.character_counts.iter().map(|(character, count)| (*character, *count)).collect();
    characters.sort_by_key(|(character, count)| (std::cmp::Reverse(*count), *character));
    let shown: Vec<String> = characters
        .iter()
        .take(MAX_CHARACTERS)
        .map(
            |(character, count)| {
                if *character == ' ' { format!("space {count}") } else { format!("{character} {count}") }
            },
        )
        .collect();
    let more = characters.len().saturating_sub(MAX_CHARACTERS);
    let more = if more > 0 { format!(", and {more} rarer") } else { String::new() };
    format!("{}: {}{more}\n", counted(characters.len(), "different character"), shown.join(", "))
}
