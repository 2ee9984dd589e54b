//! Observation of a run: the interface to a progress bar, a record on disk or a test.

pub use plimsoll_core::{Event, StepEvent};

/// An observer of a run, such as a progress bar, a recorder or a test.
pub trait Observer {
    /// Receives every event, in the order in which the events happen, on the thread that trains.
    fn observe(&mut self, event: &Event);
}

impl<F: FnMut(&Event)> Observer for F {
    fn observe(&mut self, event: &Event) {
        self(event);
    }
}
