//! Observation of a run: the seam to a progress bar, a record on disk or a test.

pub use plimsoll_core::{Event, StepEvent};

/// An observer of a run, such as a progress bar, a recorder or a test.
pub trait Observer {
    /// Called for every event, in the order in which they happen, on the thread that trains.
    fn observe(&mut self, event: &Event);
}

impl<F: FnMut(&Event)> Observer for F {
    fn observe(&mut self, event: &Event) {
        self(event);
    }
}
