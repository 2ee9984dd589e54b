//! State of a run as a live view shows it, built from the events of the run and the samples of its machine.
//!
//! [`RunFollower`] reads new records from the folder of a run, [`RunView`] holds what they mean, and [`LiveRun`] hands the
//! newest state to views on other threads. Views only read a state, so one state serves terminal, browser and lines.

mod event_line;
mod follower;
mod line;
mod series;
mod shared;
mod snapshot;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod verdict;
mod window;

pub use event_line::{EventLevel, EventLine};
pub use follower::RunFollower;
pub use line::line;
pub use series::{Series, SeriesPoint};
pub use shared::LiveRun;
pub use snapshot::{RunSnapshot, SNAPSHOT_VERSION};
pub use state::{EventCounts, RunView};
pub use verdict::Verdict;
pub use window::StepWindow;
