//! The runs in a folder: what each was meant to do, how it went, and what tells one from another.
//!
//! All is read leniently. A run may be cut off in the middle of a line, may still go on, or may come from an older
//! program that told less; what is missing is unknown, and what cannot be read is said in [`RunCard::notes`].

mod card;
mod compare;
mod course;
mod curve;
mod list;
mod moment;
mod outline;
mod show;
mod story;
mod table;
#[cfg(test)]
mod tests;

pub use card::{RunCard, Standing, read_runs};
pub use compare::{Comparison, Difference, LossRow, ScoreRow, compared};
pub use course::{Course, Validation};
pub use curve::{LossCurve, LossPoint};
pub use list::listed;
pub use moment::Moment;
pub use outline::Outline;
pub use show::shown;
