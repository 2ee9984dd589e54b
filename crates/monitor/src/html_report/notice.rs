//! Notable events of a run, as lines of a table.

use plimsoll_core::{Bytes, EndKind, Event};

/// Number of events of a kind whose text is kept. The others are only counted.
const KEPT: usize = 500;

/// Kind of a notable event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NoticeKind {
    OutOfMemory,
    Skipped,
    Unfit,
    LeftOut,
    Drift,
    RateLowered,
    NotSaved,
    Saved,
    Ended,
}

impl NoticeKind {
    /// All kinds, in the order of the page.
    pub(super) const ALL: [Self; 9] = [
        Self::OutOfMemory,
        Self::Skipped,
        Self::Unfit,
        Self::LeftOut,
        Self::Drift,
        Self::RateLowered,
        Self::NotSaved,
        Self::Saved,
        Self::Ended,
    ];

    /// Returns the name of the kind in the numbers of the page.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out_of_memory",
            Self::Skipped => "skipped",
            Self::Unfit => "unfit",
            Self::LeftOut => "left_out",
            Self::Drift => "drift",
            Self::RateLowered => "rate_lowered",
            Self::NotSaved => "not_saved",
            Self::Saved => "saved",
            Self::Ended => "ended",
        }
    }

    /// Returns the title of the kind on the page.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::OutOfMemory => "Out of memory",
            Self::Skipped => "Steps not taken",
            Self::Unfit => "Utterances too large for the memory",
            Self::LeftOut => "Samples left out",
            Self::Drift => "Steps above the planned memory",
            Self::RateLowered => "Learning rate lowered",
            Self::NotSaved => "Checkpoints not written",
            Self::Saved => "Checkpoints",
            Self::Ended => "Ends",
        }
    }

    /// Returns whether the kind is a problem.
    pub(super) fn is_problem(self) -> bool {
        !matches!(self, Self::RateLowered | Self::Saved | Self::Ended)
    }
}

/// Notable events of a run by kind: how many, and the texts of the first of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    counts: [u64; NoticeKind::ALL.len()],
    kept: [Vec<(Option<u64>, String)>; NoticeKind::ALL.len()],
}

impl Notices {
    /// Returns the number of events of a kind.
    pub(super) fn count(&self, kind: NoticeKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Returns the first events of a kind: the step, if it is known, and a text.
    pub(super) fn of(&self, kind: NoticeKind) -> &[(Option<u64>, String)] {
        &self.kept[kind as usize]
    }

    /// Adds an event, if it is notable. `last_step` is the last step before it.
    pub(super) fn add(&mut self, event: &Event, last_step: Option<u64>) {
        use NoticeKind as Kind;
        match event {
            Event::OutOfMemory { step, failure, limit } => {
                let text = format!("{:?}: limit is now {limit} utterances. {}", failure.stage, failure.reason);
                self.push(Kind::OutOfMemory, Some(*step), text);
            }
            Event::Lowered { step, limit, peak_bytes } => {
                let text = format!("limit is now {limit} utterances, after a peak of {peak_bytes}");
                self.push(Kind::OutOfMemory, Some(*step), text);
            }
            Event::Skipped { step, reason } => self.push(Kind::Skipped, Some(*step), reason.clone()),
            Event::Unfit { step, names } => {
                names.iter().for_each(|name| self.push(Kind::Unfit, Some(*step), name.clone()));
            }
            Event::LeftOut { samples } => {
                // The record holds the event before the step to which it belongs.
                let step = last_step.map_or(1, |step| step.saturating_add(1));
                let text = |name: &str, reason: &str| format!("{name}: {reason}");
                samples.iter().for_each(|s| self.push(Kind::LeftOut, Some(step), text(&s.name, &s.reason)));
            }
            Event::Drift { step, phase, planned_bytes, peak_bytes } => {
                let above = Bytes(peak_bytes.0.saturating_sub(planned_bytes.0));
                let text = format!("{phase:?}: {peak_bytes} of {planned_bytes} planned, {above} above");
                self.push(Kind::Drift, Some(*step), text);
            }
            Event::RateLowered { step, factor } => {
                self.push(Kind::RateLowered, Some(*step), format!("factor {factor}"));
            }
            Event::NotSaved { step, reason } => self.push(Kind::NotSaved, Some(*step), reason.clone()),
            Event::Saved { step, path } => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                self.push(Kind::Saved, Some(*step), name.to_string_lossy().into_owned());
            }
            Event::Ended { step, end, reason, .. } => self.push(Kind::Ended, Some(*step), end_text(*end, reason)),
            _ => {}
        }
    }

    fn push(&mut self, kind: NoticeKind, step: Option<u64>, text: String) {
        self.counts[kind as usize] += 1;
        let kept = &mut self.kept[kind as usize];
        if kept.len() < KEPT {
            kept.push((step, text));
        }
    }
}

fn end_text(end: EndKind, reason: &str) -> String {
    let text = match end {
        EndKind::Complete => "complete",
        EndKind::Stale => "validations no longer improved",
        EndKind::Stopped => "stopped by a signal",
        EndKind::Failed => "failed",
        _ => "ended",
    };
    if reason.is_empty() { text.into() } else { format!("{text}: {reason}") }
}
