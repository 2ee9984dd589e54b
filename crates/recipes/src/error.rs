//! The error of this crate: a message for a person, and its kind for a script.

use std::error::Error;
use std::fmt;
use std::path::Path;

use miette::{Diagnostic, IntoDiagnostic, Report};
use plimsoll_config::invocation::command;
use plimsoll_config::{ConfigError, nearest_word, runs_folder};
use plimsoll_core::error_chain;
use plimsoll_speech::ModelError;

/// An error with a message and a hint for a person, and its kind for a script, such as an exit code.
#[derive(Debug)]
pub struct Failure {
    report: Report,
    kind: FailureKind,
}

/// Kind of a [`Failure`]: whether the caller has to change the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The request is wrong: the arguments, the configuration or the input must change.
    Invalid,
    /// The request is right, but something failed: a full disk, a device error.
    Failed,
}

#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
struct Message {
    message: String,
    #[help]
    help: Option<String>,
}

impl Failure {
    /// Makes a failure of the kind [`FailureKind::Invalid`]. `message` states the mistake, `help` states how to correct
    /// it.
    pub fn invalid(message: impl Into<String>, help: impl Into<String>) -> Self {
        let message = Message { message: message.into(), help: Some(help.into()) };
        Self { report: Report::new(message), kind: FailureKind::Invalid }
    }

    /// Makes a failure of the kind [`FailureKind::Invalid`] from `error` and its causes, or of the kind [`FailureKind::Failed`]
    /// if a disk is full. `help` states how to correct a mistake.
    pub(crate) fn caused_by(error: &(dyn Error + 'static), help: impl Into<String>) -> Self {
        match is_full_disk(error) {
            true => Self::stopped(error_chain(error)),
            false => Self::invalid(error_chain(error), help),
        }
    }

    /// Makes the failure of a command that was given `named` and found no run, neither there nor of that name in the folder `runs`.
    /// It names the run whose name is nearest.
    pub fn no_run(named: &Path, runs: &Path) -> Self {
        let message = format!("there is no run in {}, and none of that name in {}", named.display(), runs.display());
        let folders = std::fs::read_dir(runs).into_iter().flatten().flatten();
        let is_run = |folder: &Path| ["config.toml", "model.json"].iter().any(|file| folder.join(file).is_file());
        let name_of = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let names: Vec<String> = folders.filter(|entry| is_run(&entry.path())).map(name_of).collect();
        let wanted = named.file_name().unwrap_or_default().to_string_lossy();
        let near = nearest_word(&wanted, names.iter().map(String::as_str));
        let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
        Self::invalid(message, format!("{near}`{}` lists the runs", command("runs list")))
    }

    /// Makes a failure of the kind [`FailureKind::Failed`]. `help` states where to look.
    pub fn failed(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { kind: FailureKind::Failed, ..Self::invalid(message, help) }
    }

    /// Makes a failure of the kind [`FailureKind::Failed`], which needs no other request to be mended.
    pub(crate) fn stopped(message: impl Into<String>) -> Self {
        let message = Message { message: message.into(), help: None };
        Self { report: Report::new(message), kind: FailureKind::Failed }
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Returns the message with its causes and its hint, as `miette` prints it.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.report.source()
    }
}

/// Conversion of the error of a result to a [`Failure`].
pub trait FailureExt<T> {
    /// Turns an error that means a wrong request into a [`Failure`]. A full disk is never the fault of a request.
    ///
    /// # Errors
    /// The error of `self`, as a [`Failure`] of the kind [`FailureKind::Invalid`], or [`FailureKind::Failed`] if a disk is full.
    fn invalid(self) -> Result<T, Failure>;
    /// Turns an error that can happen to a right request into a [`Failure`].
    ///
    /// # Errors
    /// The error of `self`, as a [`Failure`] of the kind [`FailureKind::Failed`].
    fn failed(self) -> Result<T, Failure>;
}

impl<T, E: Error + Send + Sync + 'static> FailureExt<T> for Result<T, E> {
    fn invalid(self) -> Result<T, Failure> {
        if let Err(error) = &self
            && let Some(ModelError::NoModel { folder }) = (error as &dyn Error).downcast_ref()
            && !folder.is_dir()
        {
            return Err(Failure::no_run(folder, &runs_folder()));
        }
        let kind = |error: &E| if is_full_disk(error) { FailureKind::Failed } else { FailureKind::Invalid };
        let kind = self.as_ref().err().map_or(FailureKind::Invalid, kind);
        self.into_diagnostic().map_err(|report| Failure { report, kind })
    }

    fn failed(self) -> Result<T, Failure> {
        self.into_diagnostic().map_err(|report| Failure { report, kind: FailureKind::Failed })
    }
}

/// Returns whether a cause of `error` is a disk that is full, or a limit of the system on what may be written.
fn is_full_disk(error: &(dyn Error + 'static)) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull, WriteZero};

    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut errors = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    errors.any(|error| match error.kind() {
        // Without a number of the system it is a bound of our own on what is read.
        FileTooLarge => error.raw_os_error().is_some(),
        kind => matches!(kind, StorageFull | QuotaExceeded | WriteZero),
    })
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self { report: error.into(), kind: FailureKind::Invalid }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_full_disk_is_no_wrong_request_and_a_file_beyond_our_bounds_is_one() {
        let kind = |error: io::Error| Err::<(), _>(error).invalid().unwrap_err().kind();
        for full in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::WriteZero] {
            assert_eq!(kind(full.into()), FailureKind::Failed, "{full}");
        }
        if cfg!(target_os = "linux") {
            // EFBIG, ENOSPC.
            for number in [27, 28] {
                assert_eq!(kind(io::Error::from_raw_os_error(number)), FailureKind::Failed, "{number}");
            }
        }
        for ours in [io::ErrorKind::FileTooLarge, io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied] {
            assert_eq!(kind(ours.into()), FailureKind::Invalid, "{ours}");
        }
    }
}
