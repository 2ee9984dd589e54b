//! Advice for a run: rules that read facts about it and return findings, each with its evidence, an exact change of the
//! configuration and an expected gain.
//!
//! The rules are pure: they read no files and no processes. A rule without the facts that it needs abstains with the
//! reason. No rule changes what a run learns: batch size and precision are at most hints.
//!
//! ```
//! use plimsoll_core::{StepEvent, TimeOwner, TimeShares};
//! use plimsoll_monitor::advice::{HostFacts, RunFacts, advise};
//!
//! let mut times = TimeShares::default();
//! times.add(TimeOwner::Data, 0.6);
//! times.add(TimeOwner::Compute, 0.4);
//! let facts = RunFacts {
//!     steps: (1..=40).map(|step| StepEvent { step, times, ..StepEvent::default() }).collect(),
//!     config: [("data.num_workers".to_string(), "1".to_string())].into(),
//!     host: HostFacts { processors: Some(8), ..HostFacts::default() },
//!     ..RunFacts::default()
//! };
//! let change = advise(&facts).findings[0].change.clone().expect("threads help");
//! assert_eq!(change.to_string(), "data.num_workers = 1 -> 8");
//! ```

mod change;
mod facts;
mod finding;
mod measured;
mod outcome;
mod page;
mod read;
mod report;
mod rules;
mod sample_facts;
#[cfg(test)]
mod tests;

pub use change::Change;
pub use facts::{Alternative, BucketFacts, HostFacts, LoadingFacts, PlanFacts, RunFacts};
pub use finding::{Finding, Gain, Severity};
pub use report::{Abstention, Advice, advise};
pub use sample_facts::SampleFacts;
