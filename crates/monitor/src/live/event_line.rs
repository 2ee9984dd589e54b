//! An event of a run as one line for people.

use std::fmt;

use plimsoll_core::{EndKind, Event, Seconds, counted};
use serde::Serialize;

/// Event of a run as one line for people. Training steps have no line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventLine {
    /// Time of the event in seconds since 1970; `None` if the record has none.
    pub time: Option<f64>,
    /// Step that the event names; `None` for an event without a step.
    pub step: Option<u64>,
    /// Importance of the event.
    pub level: EventLevel,
    /// Text without line breaks and control characters.
    pub text: String,
}

/// Importance of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventLevel {
    /// The run works as planned.
    Info,
    /// The run continues, and something was lost or repeated.
    Warning,
    /// The run failed.
    Error,
}

impl EventLine {
    /// Describes an event that happened at `time`; `None` for steps and for events of a newer schema.
    pub(super) fn new(time: f64, event: &Event) -> Option<Self> {
        let (level, text) = describe(event)?;
        Some(Self {
            time: Some(time).filter(|time| time.is_finite()),
            step: event.step(),
            level,
            text: printable(&text),
        })
    }
}

impl fmt::Display for EventLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

fn describe(event: &Event) -> Option<(EventLevel, String)> {
    use EventLevel::{Info, Warning};
    Some(match event {
        Event::Skipped { reason, .. } => (Warning, format!("step not taken: {reason}")),
        Event::LeftOut { samples } => (Warning, format!("{} left out", counted(samples.len(), "sample"))),
        Event::OutOfMemory { failure, limit, .. } => {
            let limit = counted(limit, "utterance");
            (Warning, format!("out of memory in {}; micro-batches now have at most {limit}", stage(failure.stage)))
        }
        Event::Unfit { names, .. } => {
            (Warning, format!("{} left out, too large for the memory", counted(names.len(), "utterance")))
        }
        Event::Drift { planned_bytes, peak_bytes, .. } => {
            (Warning, format!("memory above plan: {peak_bytes} used, {planned_bytes} planned"))
        }
        Event::Pools { memory, .. } => (Info, format!("memory pools of the GPU: {memory}")),
        Event::Paced { steps, .. } => (Info, format!("the time is enough for {}", counted(steps, "step"))),
        Event::RateLowered { factor, .. } => (Info, format!("learning rate lowered to {factor} of the schedule")),
        Event::Validated { scores, seconds, best, .. } => {
            let scores: Vec<String> = scores.iter().map(ToString::to_string).collect();
            let best = if *best { ", the best so far" } else { "" };
            (Info, format!("validated in {}: {}{best}", Seconds(*seconds), scores.join(", ")))
        }
        Event::Saved { path, .. } => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            (Info, format!("checkpoint written: {name}"))
        }
        Event::NotSaved { reason, .. } => (Warning, format!("checkpoint not written: {reason}")),
        Event::Ended { end, reason, .. } => ended(*end, reason),
        Event::Lowered { limit, .. } => {
            (Warning, format!("micro-batches now have at most {}", counted(limit, "utterance")))
        }
        _ => return None,
    })
}

fn ended(end: EndKind, reason: &str) -> (EventLevel, String) {
    match end {
        EndKind::Complete => (EventLevel::Info, "the run is complete".into()),
        EndKind::Stale => (EventLevel::Info, "the run ended: validations no longer improved".into()),
        EndKind::Stopped => (EventLevel::Info, "the run was stopped".into()),
        EndKind::Failed => (EventLevel::Error, format!("the run failed: {reason}")),
        _ => (EventLevel::Info, "the run ended".into()),
    }
}

fn stage(stage: plimsoll_core::Stage) -> String {
    let name = serde_json::to_value(stage).ok();
    name.as_ref().and_then(|name| name.as_str()).map_or_else(|| "a step".into(), |name| name.replace('_', " "))
}

/// Replaces control characters, which a terminal would execute, and bounds the length of messages of drivers.
pub(super) fn printable(text: &str) -> String {
    const CHARACTERS_MAX: usize = 400;
    text.chars().take(CHARACTERS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
