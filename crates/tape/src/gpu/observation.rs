//! The one observer of kernels that a process can have: it counts them, or times them too.

#[cfg(feature = "cube")]
pub(super) use cube::*;

/// Counts kernels until [`remove_counter`].
#[cfg(not(feature = "cube"))]
pub(super) fn add_counter() {}

#[cfg(not(feature = "cube"))]
pub(super) fn remove_counter() {}

#[cfg(feature = "cube")]
mod cube {
    use std::sync::{Arc, Mutex, PoisonError};

    use cubecl_server::logging::{
        Duration, LaunchObservation, LaunchObserver, ProfileDuration, TimingMethod, TimingRequest,
    };

    use crate::gpu::counts::count_launch;
    use crate::gpu::timings::Timings;

    static STATE: Mutex<State> = Mutex::new(State { counters: 0, timings: None, observation: None });

    struct State {
        counters: usize,
        /// Where measurements go, while kernels are timed.
        timings: Option<Arc<Timings>>,
        observation: Option<LaunchObservation>,
    }

    impl State {
        /// Installs the observer that is needed now. CubeCL asks that an observer never changes what it measures.
        fn install(&mut self) {
            // First the old one: it puts back what was there before it.
            self.observation = None;
            self.observation = match &self.timings {
                Some(timings) => Some(LaunchObservation::new(Arc::new(Timer(timings.clone())))),
                None if self.counters > 0 => Some(LaunchObservation::new(Arc::new(Counter))),
                None => None,
            };
        }
    }

    fn change(change: impl FnOnce(&mut State)) {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
    }

    /// Counts kernels until [`remove_counter`].
    pub(in crate::gpu) fn add_counter() {
        change(|state| {
            state.counters += 1;
            if state.counters == 1 {
                state.install();
            }
        });
    }

    pub(in crate::gpu) fn remove_counter() {
        change(|state| {
            state.counters -= 1;
            if state.counters == 0 {
                state.install();
            }
        });
    }

    /// Times kernels into `timings`, in place of others.
    pub(in crate::gpu) fn start_timing(timings: &Arc<Timings>) {
        change(|state| {
            state.timings = Some(timings.clone());
            state.install();
        });
    }

    /// Ends timing into `timings`, unless another has begun.
    pub(in crate::gpu) fn end_timing(timings: &Arc<Timings>) {
        change(|state| {
            if state.timings.as_ref().is_some_and(|current| Arc::ptr_eq(current, timings)) {
                state.timings = None;
                state.install();
            }
        });
    }

    struct Counter;

    impl LaunchObserver for Counter {
        fn launched(&self, _: &'static str) {
            count_launch();
        }
    }

    struct Timer(Arc<Timings>);

    impl LaunchObserver for Timer {
        fn launched(&self, _: &'static str) {
            count_launch();
        }

        fn timing(&self) -> TimingRequest {
            TimingRequest::Deferred
        }

        fn profiled(&self, kernel: &'static str, profile: ProfileDuration) {
            self.0.keep(kernel, profile);
        }

        fn timed(&self, kernel: &'static str, duration: Duration, method: TimingMethod) {
            self.0.add(kernel, duration, method);
        }
    }
}
