//! Why a model in training could not be judged.

use plimsoll_core::SourceError;
use plimsoll_train::CarefulError;

/// Why a model in training could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// The utterances cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The device could not compute it.
    #[error(transparent)]
    Device(#[from] CarefulError),
}
