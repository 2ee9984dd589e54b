//! The error of evaluating a recognizer or a synthesizer.

use plimsoll_core::{CollectiveError, SourceError};
use plimsoll_train::InferenceError;

/// Error of evaluating a recognizer or a synthesizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// The source of the utterances failed as a whole.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Another replica that evaluates a share of the utterances has stopped.
    #[error(transparent)]
    Replica(#[from] CollectiveError),
    /// The device failed, for example because a single utterance needs more memory than the device has.
    #[error(transparent)]
    Device(#[from] InferenceError),
}
