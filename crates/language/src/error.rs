//! Errors of language models and their files.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a language model cannot be read, written or trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LanguageError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// File that cannot be read.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// File that cannot be written.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Text cannot be read or written, and no file is known.
    #[error("cannot read or write the model")]
    Stream(#[source] io::Error),
    /// A line of an ARPA file is wrong.
    #[error("line {line} of the ARPA file: {problem}")]
    Arpa {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// N-grams do not make a model.
    #[error("the n-grams make no model: {0}")]
    Model(String),
    /// A binary file is damaged, truncated or changed.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// A binary file has a form or a version that this crate does not read.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// A model cannot be trained on the given texts with the given options.
    #[error("cannot train: {0}")]
    Training(String),
}

impl LanguageError {
    /// Makes a closure that adds the path of a file to a failed read.
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Read { path, source }
    }

    /// Makes a closure that adds the path of a file to a failed write.
    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Write { path, source }
    }

    pub(crate) fn damaged(problem: impl Into<String>) -> Self {
        Self::Damaged(problem.into())
    }
}
