//! What a run would lose if its process ended now.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plimsoll_core::{EndKind, Event, TimeShares, writes};
use plimsoll_monitor::Recorder;

/// Steps of a run that no checkpoint has, for a thread that may end the process.
///
/// A run looks at its stop flag before each micro-batch. A micro-batch for which a GPU compiles kernels can take a minute;
/// if nothing would be lost, another thread ends the process instead.
#[derive(Debug, Default)]
pub struct UnsavedSteps {
    step: AtomicU64,
    saved: AtomicU64,
    has_begun: AtomicBool,
    has_ended: AtomicBool,
    /// Record of the run.
    record: PathBuf,
}

/// Answer of a run whose process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAnswer {
    /// All writes have ended, and the record says that the run was stopped after this step; `None` before it went on at all,
    /// when nothing is recorded. The process must end now.
    Recorded(Option<u64>),
    /// So many steps would be lost, or a file is being written (0): ask again later.
    NotNow(u64),
    /// The run ends by itself.
    Ended,
}

impl UnsavedSteps {
    /// Makes the steps of a run with the record `record`.
    pub(super) fn new(record: &Path) -> Self {
        Self { record: record.into(), ..Self::default() }
    }

    /// Begins after `step`, of which there is a checkpoint unless it is 0.
    pub(super) fn begin(&self, step: u64) {
        self.step.store(step, Ordering::SeqCst);
        self.saved.store(step, Ordering::SeqCst);
        self.has_begun.store(true, Ordering::SeqCst);
    }

    /// Counts what `event` changes.
    pub(super) fn observe(&self, event: &Event) {
        match event {
            Event::Step(step) => self.step.store(step.step, Ordering::SeqCst),
            Event::Saved { step, .. } => self.saved.store(*step, Ordering::SeqCst),
            // After its last step a run is evaluated, which can be done again.
            Event::Ended { end, .. } => self.has_ended.store(*end != EndKind::Complete, Ordering::SeqCst),
            _ => {}
        }
    }

    /// Says that nothing is left to save, because the run is complete and evaluated: the process may go on with something else.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Records that the run was stopped, if nothing is lost when the process ends now. All writes are stopped then, and the
    /// caller must end the process.
    pub fn record_end(&self) -> EndAnswer {
        if self.has_ended.load(Ordering::SeqCst) {
            return EndAnswer::Ended;
        }
        let Some(stopped) = writes::stop() else { return EndAnswer::NotNow(0) };
        // Read after the writes were stopped: a step is counted before it is recorded.
        let (step, saved) = (self.step.load(Ordering::SeqCst), self.saved.load(Ordering::SeqCst));
        if step > saved {
            return EndAnswer::NotNow(step - saved);
        }
        let step = Some(step).filter(|_| self.has_begun.load(Ordering::SeqCst));
        if let Some(step) = step {
            let (reason, times) = (String::new(), TimeShares::default());
            let event = Event::Ended { step, end: EndKind::Stopped, reason, times };
            // A record that cannot be written does not keep the process.
            let _ = Recorder::append(&self.record).and_then(|mut record| record.record(&event));
        }
        std::mem::forget(stopped);
        EndAnswer::Recorded(step)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::StepEvent;
    use plimsoll_monitor::read_records;

    use super::*;

    #[test]
    fn a_process_ends_only_where_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("metrics.jsonl");
        Recorder::append(&record).unwrap();
        let unsaved = UnsavedSteps::new(&record);
        unsaved.begin(4);
        unsaved.observe(&Event::Step(StepEvent { step: 6, ..StepEvent::default() }));
        // Other tests of this process write files.
        let answer = std::iter::repeat_with(|| unsaved.record_end()).find(|answer| *answer != EndAnswer::NotNow(0));
        assert_eq!(answer, Some(EndAnswer::NotNow(2)));
        // Writes go on.
        drop(writes::begin());
        unsaved.observe(&Event::Saved { step: 6, path: "x".into() });
        let write = writes::begin();
        assert_eq!(unsaved.record_end(), EndAnswer::NotNow(0));
        drop(write);
        assert_eq!(read_records(&record).unwrap().len(), 0);
        let ended = |end| Event::Ended { step: 6, end, reason: String::new(), times: TimeShares::default() };
        unsaved.observe(&ended(EndKind::Complete));
        unsaved.observe(&ended(EndKind::Stopped));
        assert_eq!(unsaved.record_end(), EndAnswer::Ended);
    }
}
