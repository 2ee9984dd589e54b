//! Reports about the runs in a folder: their setup, their history, and their differences.
//!
//! Reading is lenient. A run may have been killed in the middle of a line, may still be running, or may come from an
//! older program that recorded less. A missing fact is unknown, and a file that cannot be read becomes a line in
//! [`RunReport::notes`].

mod compare;
mod curve;
mod event_log;
mod history;
mod list;
mod report;
mod setup;
mod show;
mod table;
#[cfg(test)]
mod tests;
mod timestamp;

pub use compare::{Comparison, Difference, LossRow, ScoreRow};
pub use curve::{LossCurve, LossPoint};
pub use event_log::Validation;
pub use history::RunHistory;
pub use list::run_table;
pub use report::{RunReport, RunStatus, read_runs};
pub use setup::RunSetup;
pub use timestamp::Timestamp;
