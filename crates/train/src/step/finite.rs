//! Search for the first value of a step that is infinite or NaN.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use burn::module::ParamId;
use plimsoll_core::{TimeOwner, timing};
use plimsoll_tape::observe::{Direction, Visit, layer_names};
use plimsoll_tape::{PassObserver, Task};

/// Reads the output of each layer and its gradient, and keeps the place of the first one with a value that is infinite
/// or NaN.
pub(super) struct FiniteSearch {
    names: HashMap<ParamId, String>,
    found: Mutex<Option<String>>,
}

impl FiniteSearch {
    pub(super) fn new<T: Task>(task: &T) -> Self {
        Self { names: layer_names(task), found: Mutex::default() }
    }

    /// Returns the place that was found since the last call; `None` if all values were finite.
    pub(super) fn take(&self) -> Option<String> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn place(&self, visit: &Visit<'_>) -> String {
        let name = visit.layer.map(|id| self.names.get(&id).map_or("a layer without a name", String::as_str));
        match (name, visit.direction) {
            (Some(name), Direction::Forward) => format!("the output of `{name}`"),
            (Some(name), Direction::Backward) => format!("the gradient of the output of `{name}`"),
            (None, Direction::Forward) => "the loss".into(),
            (None, Direction::Backward) => "the factor on the loss".into(),
        }
    }
}

impl PassObserver for FiniteSearch {
    fn visit(&self, visit: &Visit<'_>) {
        let is_found = || self.found.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !is_found() && !timing::measure(TimeOwner::Read, || visit.is_finite()) {
            let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            found.get_or_insert_with(|| self.place(visit));
        }
    }
}

/// Passes each call on to two observers.
pub(super) struct Both<A, B>(pub(super) A, pub(super) B);

impl<A, B> PassObserver for Both<A, B>
where
    A: std::ops::Deref<Target: PassObserver> + Send + Sync,
    B: std::ops::Deref<Target: PassObserver> + Send + Sync,
{
    fn begin(&self) {
        self.0.begin();
        self.1.begin();
    }

    fn visit(&self, visit: &Visit<'_>) {
        self.0.visit(visit);
        self.1.visit(visit);
    }

    fn end(&self) {
        self.0.end();
        self.1.end();
    }
}
