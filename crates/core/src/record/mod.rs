//! The schema of a run's record: the events of `metrics.jsonl` and the header of `plan.toml`, for writers and readers.
//!
//! A trainer builds [`Event`]s, a recorder writes each as one [`Record`], and a reader parses the same types. There is
//! no second list of field names.
//!
//! Rules for a change of the schema:
//! - New events and new fields do not change [`SCHEMA_VERSION`]: readers skip unknown events and fields, and a field
//!   that is missing in an old line has a default.
//! - A field that gets another meaning, or an event that is removed, raises [`SCHEMA_VERSION`].
//! - A name that was written once stays readable, as a variant or as a serde `alias`.

mod event;
mod lenient;
mod plan;
#[cfg(test)]
mod tests;
mod time;

pub use event::{EndKind, Event, MicroBatch, StepEvent};
pub use plan::PlanHeader;
pub use time::{TimeOwner, TimeShares};

use serde::{Deserialize, Serialize};

/// Version of the schema that this crate writes. Version 0 stands for lines written before the field `schema_version`
/// existed.
pub const SCHEMA_VERSION: u32 = 1;

/// One line of a run's record: an event with its time and the version of its schema.
///
/// In JSON all fields are at one level, so a script can filter lines by `event` and read any line by itself.
///
/// ```
/// use plimsoll_core::{Event, Record, StepEvent};
///
/// let event = Event::Step(StepEvent { step: 3, loss: 2.5, ..StepEvent::default() });
/// let line = serde_json::to_string(&Record::new(1_700_000_000.0, event))?;
/// assert!(line.starts_with(r#"{"schema_version":1,"time":1700000000.0,"event":"step","step":3,"#));
/// let record: Record = serde_json::from_str(&line)?;
/// assert_eq!(record.event.step(), Some(3));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record<E = Event> {
    /// Version of the schema; 0 in lines without a version.
    #[serde(default)]
    pub schema_version: u32,
    /// Time of the event in seconds since 1970; NaN in lines without a time.
    #[serde(default = "lenient::nan", deserialize_with = "lenient::number")]
    pub time: f64,
    /// Event that happened at this time.
    #[serde(flatten)]
    pub event: E,
}

impl<E> Record<E> {
    /// Creates a line of the current schema for an event that happened at `time`, in seconds since 1970.
    pub fn new(time: f64, event: E) -> Self {
        Self { schema_version: SCHEMA_VERSION, time, event }
    }
}
