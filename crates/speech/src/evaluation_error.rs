//! Why a model in training could not be judged.

use plimsoll_core::{CollectiveError, SourceError};
use plimsoll_train::CarefulError;

/// Why a model in training could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum EvaluationError {
    /// The utterances cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Another replica, which had a part of it, is gone.
    #[error(transparent)]
    Replica(#[from] CollectiveError),
    /// The device could not compute it.
    #[error(transparent)]
    Device(#[from] CarefulError),
}
