//! Speech recognition: a Conformer with CTC, what belongs to it on disk, and how it is judged.

mod bundle;
mod evaluate;
mod recogniser;
mod transcriber;

pub use bundle::{Bundle, BundleError};
pub use evaluate::{Evaluation, Heard, evaluate};
pub use recogniser::{Recogniser, RecogniserConfig};
pub use transcriber::Transcriber;
