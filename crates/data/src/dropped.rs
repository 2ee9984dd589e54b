//! What is left out of a corpus: all reasons with their counts, and the share, by one rule.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_core::counted;

use crate::issue::Issue;

/// Reasons that a text names. The rest is added up.
const SHOWN: usize = 6;

/// Utterances that are not used, by reason: those of an import, of a check, and of the limits of a run.
///
/// `Display` gives one line: `4 of 100 utterances (4 %) are not used: 3 too long (the first: ...), 1 no text (...)`.
///
/// ```
/// use plimsoll_data::dropped::Dropped;
/// use plimsoll_data::{Issue, IssueKind};
///
/// let issue = |id: &str| Issue { location: None, id: Some(id.into()), kind: IssueKind::NoText };
/// let dropped = Dropped::new(97, &[issue("a"), issue("b"), issue("c")], 0);
/// assert_eq!(dropped.to_string(), "3 of 100 utterances (3 %) are not used: 3 no text (the first: `a`: it has no text)");
/// assert!(dropped.share() <= 0.05);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dropped {
    /// Number of utterances that are used.
    pub kept: usize,
    /// Reasons, the most frequent first.
    pub reasons: Vec<DropReason>,
}

/// Reason why utterances are not used.
#[derive(Clone, Debug, PartialEq)]
pub struct DropReason {
    /// [Name](crate::IssueKind::name) of the kind of issue.
    pub name: &'static str,
    /// Number of utterances, which is an estimate for damaged shards.
    pub count: usize,
    /// Message of the first issue.
    pub first: String,
    /// Whether the utterances are used under another id, so that nothing is lost.
    pub is_repetition: bool,
}

/// Name of the reason of issues that were only counted, because a million of them is kept.
const NOT_KEPT: &str = "more issues";

impl Dropped {
    /// Counts `issues` by their kinds, beside `kept` utterances that are used. `more` issues are only known by their number.
    pub fn new<'i>(kept: usize, issues: impl IntoIterator<Item = &'i Issue>, more: usize) -> Self {
        let mut reasons: BTreeMap<&str, DropReason> = BTreeMap::new();
        for issue in issues {
            let name = issue.kind.name();
            let reason = reasons.entry(name).or_insert_with(|| DropReason {
                name,
                count: 0,
                first: issue.to_string(),
                is_repetition: issue.kind.is_repetition(),
            });
            reason.count += issue.kind.utterances();
        }
        let mut reasons: Vec<DropReason> = reasons.into_values().collect();
        if more > 0 {
            let first = "the first million issues are listed".into();
            reasons.push(DropReason { name: NOT_KEPT, count: more, first, is_repetition: false });
        }
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        Self { kept, reasons }
    }

    /// Adds the reasons of another count. The number of utterances that are used stays.
    pub fn add(&mut self, other: &Self) {
        for reason in &other.reasons {
            match self.reasons.iter_mut().find(|known| known.name == reason.name) {
                Some(known) => known.count += reason.count,
                None => self.reasons.push(reason.clone()),
            }
        }
        self.reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
    }

    /// Returns the number of utterances that are lost. Those that are listed twice do not count.
    pub fn lost(&self) -> usize {
        self.reasons.iter().filter(|reason| !reason.is_repetition).map(|reason| reason.count).sum()
    }

    /// Returns the share of the utterances that are lost, from 0 to 1: what `data.unusable_share` limits.
    pub fn share(&self) -> f64 {
        self.lost() as f64 / (self.lost() + self.kept).max(1) as f64
    }

    /// Returns whether every utterance is used.
    pub fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.reasons.iter().map(|reason| reason.count).sum();
        let percent = (self.share() * 1000.0).round() / 10.0;
        let verb = if count == 1 { "is" } else { "are" };
        write!(f, "{count} of {} ({percent} %) {verb} not used", counted(count + self.kept, "utterance"))?;
        for (n, DropReason { name, count, first, .. }) in self.reasons.iter().take(SHOWN).enumerate() {
            write!(f, "{} {count} {name} (the first: {first})", if n == 0 { ":" } else { "," })?;
        }
        match self.reasons.get(SHOWN..).unwrap_or_default() {
            [] => Ok(()),
            rest => write!(f, ", {} for {} more reasons", rest.iter().map(|r| r.count).sum::<usize>(), rest.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Seconds;

    use super::*;
    use crate::issue::{IssueKind, SourceLocation};
    use crate::{Limits, Selection, Utterance};

    fn issue(kind: IssueKind) -> Issue {
        Issue::for_utterance("a", kind)
    }

    #[test]
    fn every_reason_is_counted_once_by_one_rule() {
        let twice = IssueKind::RepeatsEarlier(SourceLocation { file: "x.jsonl".into(), line: Some(3) });
        let rows = IssueKind::DamagedRows { at: 0, first: 1, last: 5, problem: "x".into() };
        let issues = [issue(IssueKind::NoText), issue(twice), issue(rows), issue(IssueKind::NoText)];
        let dropped = Dropped::new(90, &issues, 3);
        let counts: Vec<(&str, usize)> = dropped.reasons.iter().map(|reason| (reason.name, reason.count)).collect();
        assert_eq!(counts, [("damaged shard", 5), ("more issues", 3), ("no text", 2), ("listed twice", 1)]);
        // What is listed twice is not lost.
        assert_eq!((dropped.lost(), dropped.share()), (10, 0.1));
        let text = dropped.to_string();
        assert!(
            text.starts_with("11 of 101 utterances (10 %) are not used: 5 damaged shard (the first: `a`: "),
            "{text}"
        );
        assert!(Dropped::new(3, &[], 0).is_empty());
    }

    #[test]
    fn limits_say_what_they_drop() {
        let utterance = |n: usize, seconds: f64| Utterance {
            id: n.to_string(),
            audio: "a.wav".into(),
            offset: Seconds(0.0),
            duration: Seconds(seconds),
            text: "one".into(),
            speaker: None,
            language: None,
        };
        let utterances: Vec<Utterance> =
            [1.0, 30.0, 0.1, 40.0].iter().zip(0..).map(|(s, n)| utterance(n, *s)).collect();
        let limits = Limits { shortest: Seconds(0.5), longest: Seconds(20.0), ..Limits::default() };
        let dropped = Selection::new(utterances, &limits).dropped();
        insta::assert_snapshot!(dropped, @"3 of 4 utterances (75 %) are not used: 2 too long (the first: `1`: too long: it lasts 30s), 1 too short (the first: `2`: too short: it lasts 100ms)");
    }
}
