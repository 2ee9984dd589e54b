//! Records and reports of a training run, and reports of the machine that it runs on. This crate only observes: it
//! controls neither run nor machine.
//!
//! - [`Recorder`] writes the events of a run, one JSON object per line; [`TensorBoardFile`] writes its curves.
//! - [`Summary`] holds the result of a run, and [`RunReport`] reads a run's folder again: alone, in a
//!   [table](run_table), or in a [`Comparison`].
//! - [`RunLock`] keeps a second process out of a run's folder.
//! - [`Picture`] draws heat maps as SVG.
//! - [`Machine`] reports GPUs, their memory and their processes; [`Host`] the memory and processors.
//! - [`step_trace`] writes the steps of a run for trace viewers.
//! - [`ReportPage`] is one HTML file about one or several runs.
//! - [`sample`] reads GPUs and host at intervals, with alerts and recordings; [`live`] is what a view of a run shows;
//!   `terminal` draws it in a terminal and `serve` as a web page.
//! - [`advice`] reads a run's facts and proposes changes of its configuration.
//! - [`RunSamples`] records the machine beside a run on a GPU, and finds the time that throttling takes.
//! - [`Contention`] measures the time that other processes take from this one.
//! - [`doctor`] checks machine and program before a run, each check with a time limit.
//!
//! The events themselves are typed in [`plimsoll_core`], so any training loop can write them.
//!
//! ```
//! use plimsoll_core::{Event, StepEvent};
//! use plimsoll_monitor::{Recorder, RunReport};
//!
//! let folder = tempfile::tempdir()?;
//! let mut recorder = Recorder::append(&folder.path().join("metrics.jsonl"))?;
//! for (step, loss) in [(1, 4.0), (2, 2.5)] {
//!     recorder.record(&Event::Step(StepEvent { step, loss, ..StepEvent::default() }))?;
//! }
//! let report = RunReport::read(folder.path(), std::time::UNIX_EPOCH).expect("the folder has a record");
//! assert_eq!((report.history.steps, report.history.losses.last()), (2, Some(2.5)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod advice;
mod contention;
pub mod doctor;
mod host;
mod html_report;
pub mod live;
mod lock;
mod overfit;
mod owner_colors;
mod picture;
mod probe;
mod record;
mod run_samples;
mod runs;
pub mod sample;
#[cfg(feature = "serve")]
pub mod serve;
mod step_trace;
mod summary;
mod tensorboard;
#[cfg(feature = "terminal")]
pub mod terminal;

pub use contention::Contention;
pub use host::{Host, host_memory};
pub use html_report::{ReportPage, RunData};
pub use lock::{LockError, LockHolder, RunLock};
pub use picture::{Axis, Heatmap, Picture, Ticks};
pub use probe::{
    CudaEnvironment, FakeGpus, Gpu, GpuHandle, GpuInventory, GpuMemory, GpuProcess, GpuReport, GpuSource,
    InstanceReport, Machine, NoGpu, NvmlGpus, ProcessEnv, ProcessReport, Unaccounted, Unavailable, Version,
    VisibleGpus, WorkKind,
};
pub use record::{RecordError, Recorder, read_records};
pub use run_samples::RunSamples;
pub use runs::{
    Comparison, Difference, LossCurve, LossPoint, LossRow, RunHistory, RunReport, RunSetup, RunStatus, ScoreRow,
    Timestamp, Validation, read_runs, run_table,
};
pub use step_trace::step_trace;
pub use summary::{Example, Summary};
pub use tensorboard::TensorBoardFile;
