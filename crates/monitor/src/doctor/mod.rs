//! Health checks of a machine and of the program that trains on it.
//!
//! Each check runs on its own thread with a time limit: a driver that hangs, a dead network disk and a panic become
//! findings, and never stop the program. Checks run one after another, because a check that measures a disk must not
//! share it with another.

mod bundle;
mod check;
mod checks;
mod execute;
mod facts;
mod page;
mod redact;
mod report;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::SystemTime;

pub use bundle::BundleError;
pub use check::{Check, CheckContext, CheckStatus, Outcome};
pub use checks::{DeviceKind, DoctorOptions, LoaderFacts};
pub use facts::{
    CpuFacts, CudaHome, DeviceNode, FoundLibrary, GpuPower, KernelCache, MachineFacts, OpenFiles, SwapFacts, user_cache,
};
pub use redact::Redactor;
pub use report::{CheckReport, DoctorGpu, DoctorReport, MachineSummary};

/// List of checks to run.
///
/// ```
/// use plimsoll_monitor::doctor::{Check, Doctor, Outcome};
///
/// let report = Doctor::new()
///     .with(Check::new("arithmetic", "sums", |_| Outcome::pass("2 + 2 is 4")))
///     .with(Check::new("moon", "moon", |_| Outcome::warn("it is new").with_fix("wait for two weeks")))
///     .run(|progress| eprintln!("{progress:?}"));
/// assert_eq!(report.exit_code(), 1);
/// assert!(report.to_string().contains("WARN  moon        it is new"));
/// ```
#[derive(Debug, Default)]
pub struct Doctor {
    machine: Option<MachineSummary>,
    checks: Vec<Check>,
}

/// Progress of a run of checks.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum DoctorProgress<'a> {
    /// A check begins.
    Started {
        /// Position of the check, from 0.
        index: usize,
        /// Number of all checks.
        count: usize,
        /// Stable name of the check.
        id: &'static str,
        /// Subject of the check, for people.
        title: &'static str,
    },
    /// A check is done.
    Finished {
        /// Position of the check, from 0.
        index: usize,
        /// Number of all checks.
        count: usize,
        /// Report of the check.
        check: &'a CheckReport,
    },
}

impl Doctor {
    /// Creates an empty list of checks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the list of all checks of the machine, with its description for the report.
    pub fn for_machine(facts: &Arc<MachineFacts>, options: &DoctorOptions) -> Self {
        let machine = Some(MachineSummary::from(&facts.machine));
        Self::machine_checks(facts, options).into_iter().fold(Self { machine, ..Self::default() }, Self::with)
    }

    /// Returns all checks of the machine. Reading the facts is the caller's, so that a test can give facts of its own.
    pub fn machine_checks(facts: &Arc<MachineFacts>, options: &DoctorOptions) -> Vec<Check> {
        checks::machine_checks(facts, options)
    }

    /// Adds a check.
    ///
    /// # Panics
    /// If there is a check with the same name.
    #[must_use]
    pub fn with(mut self, check: Check) -> Self {
        let id = check.id;
        assert!(self.checks.iter().all(|other| other.id != id), "there are two checks with the name `{id}`");
        self.checks.push(check);
        self
    }

    /// Runs all checks, one after another, and calls `progress` before and after each.
    pub fn run(self, mut progress: impl FnMut(DoctorProgress<'_>)) -> DoctorReport {
        let count = self.checks.len();
        let mut reports = Vec::with_capacity(count);
        for (index, check) in self.checks.into_iter().enumerate() {
            progress(DoctorProgress::Started { index, count, id: check.id, title: check.title });
            let report = execute::execute(check);
            progress(DoctorProgress::Finished { index, count, check: &report });
            reports.push(report);
        }
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        DoctorReport::new(time.as_secs_f64(), self.machine, reports)
    }
}
