//! Clock of the layers of a model: the time that each of them takes, forward and backward.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn::module::ParamId;
use plimsoll_tape::observe::{Direction, Visit, layer_names};
use plimsoll_tape::{PassObserver, Task};
use serde::{Deserialize, Serialize};

/// Time that a layer took in the micro-batches that were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerTime {
    /// Name of the layer: the path of fields that leads to it, such as `blocks.0.attention.output`; `loss` for what
    /// follows the last layer.
    pub name: String,
    /// Seconds of the forward passes, with the operations between the layer before and this one.
    pub forward: f64,
    /// Seconds of the backward passes, with the operations between this layer and the one before.
    pub backward: f64,
    /// Seconds in which the backward pass computed the layer again.
    pub recomputed: f64,
    /// Number of forward passes.
    pub count: u64,
}

impl LayerTime {
    /// Returns all seconds of the layer.
    pub fn seconds(&self) -> f64 {
        self.forward + self.backward + self.recomputed
    }
}

/// Measures the time of each layer. Give it to [`Trainer::with_observer`](crate::Trainer::with_observer).
///
/// The time from one layer to the next belongs to the layer that ends it in the forward pass, and to the layer that
/// began it in the backward pass. On a GPU the clock waits after each layer, so that the times are those of the device;
/// the sum is then larger than the time of a step that is not measured.
#[derive(Debug, Default)]
pub struct LayerClock {
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    names: HashMap<ParamId, String>,
    /// Layers in the order of their first visit.
    order: Vec<Option<ParamId>>,
    layers: HashMap<Option<ParamId>, LayerTime>,
}

/// State of the micro-batch that a thread computes.
#[derive(Clone, Copy)]
struct Current {
    last: Instant,
    /// Layer whose backward pass runs; `None` in the forward pass.
    backward: Option<Option<ParamId>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

impl LayerClock {
    /// Sets the names of the layers of `task`.
    pub fn name_layers<T: Task>(&self, task: &T) {
        self.lock().names = layer_names(task);
    }

    /// Returns the times so far, in the order in which the layers are computed.
    pub fn times(&self) -> Vec<LayerTime> {
        let times = self.lock();
        times.order.iter().filter_map(|layer| times.layers.get(layer).cloned()).collect()
    }

    /// Forgets the times so far.
    pub fn reset(&self) {
        let mut times = self.lock();
        times.order.clear();
        times.layers.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, layer: Option<ParamId>, change: impl FnOnce(&mut LayerTime)) {
        let mut times = self.lock();
        let Times { names, order, layers } = &mut *times;
        let entry = layers.entry(layer).or_insert_with(|| {
            order.push(layer);
            let name = layer.map_or("loss", |id| names.get(&id).map_or("without a name", String::as_str));
            LayerTime { name: name.to_string(), ..LayerTime::default() }
        });
        change(entry);
    }
}

/// Begins a new interval, and returns the time of the last one with the layer whose backward pass it belongs to.
fn lap(next: impl FnOnce(Current) -> Option<Current>) -> Option<(Duration, Option<Option<ParamId>>)> {
    CURRENT.with_borrow_mut(|current| {
        let before = (*current)?;
        let elapsed = before.last.elapsed();
        *current = next(Current { last: Instant::now(), ..before });
        Some((elapsed, before.backward))
    })
}

impl PassObserver for LayerClock {
    fn begin(&self) {
        CURRENT.with_borrow_mut(|current| *current = Some(Current { last: Instant::now(), backward: None }));
    }

    fn visit(&self, visit: &Visit<'_>) {
        visit.wait();
        let next = |current| match visit.direction {
            Direction::Forward => Some(current),
            Direction::Backward => Some(Current { backward: Some(visit.layer), ..current }),
        };
        let Some((elapsed, running)) = lap(next) else { return };
        let seconds = elapsed.as_secs_f64();
        match (visit.direction, running) {
            (Direction::Forward, None) => self.add(visit.layer, |time| {
                time.forward += seconds;
                time.count += 1;
            }),
            (Direction::Forward, Some(_)) => self.add(visit.layer, |time| time.recomputed += seconds),
            // The backward pass begins with the loss, which is the last visit of the forward pass.
            (Direction::Backward, running) => self.add(running.flatten(), |time| time.backward += seconds),
        }
    }

    fn end(&self) {
        if let Some((elapsed, running)) = lap(|_| None) {
            self.add(running.flatten(), |time| time.backward += elapsed.as_secs_f64());
        }
    }
}
