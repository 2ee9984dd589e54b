//! Records and reports of a run: what it did, line by line, and what came of it. Watches, never steers.
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
mod record;
mod summary;

pub use host::host_memory;
pub use picture::{Axis, Heatmap, Picture, Ticks};
pub use record::{RecordError, Recorder, read_records};
pub use summary::{Example, Summary};
