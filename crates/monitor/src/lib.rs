//! Records and reports of a run: what it did, line by line ([`Recorder`], and [`EventFile`] for TensorBoard), and what
//! came of it, alone ([`Summary`]) and beside others ([`read_runs`]); and of the machine it runs on, with its cards and
//! who holds them ([`Machine`]). Watches, never steers.
//!
//! ```
//! use plimsoll_monitor::{Recorder, read_records};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("metrics.jsonl");
//! let mut recorder = Recorder::append(&path)?;
//! recorder.record(&serde_json::json!({"event": "step", "step": 1, "loss": 2.5}))?;
//! assert_eq!(read_records(&path)?[0]["loss"], 2.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod host;
mod picture;
mod probe;
mod record;
mod runs;
mod summary;
mod tensorboard;

pub use host::{Host, host_memory};
pub use picture::{Axis, Heatmap, Picture, Ticks};
pub use probe::{
    Card, CardHandle, CardMemory, CardProcess, CardReport, CardSource, CudaEnvironment, FakeCards, Holder,
    InstanceReport, Machine, NoCards, NvmlCards, Place, Roster, Unaccounted, Unseen, Version, Visible, WorkKind,
};
pub use record::{RecordError, Recorder, read_records};
pub use runs::{
    Comparison, Course, Difference, LossCurve, LossPoint, LossRow, Moment, Outline, RunCard, ScoreRow, Standing,
    Validation, compared, listed, read_runs, shown,
};
pub use summary::{Example, Summary};
pub use tensorboard::EventFile;
