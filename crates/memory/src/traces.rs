//! Traces and other results that are made once and kept.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::{BatchShape, Bytes, Choice, Precision};

use crate::backend::BackendRules;
use crate::scalable_trace::{ScalableTrace, trace_of_any_number};
use crate::trace::TraceError;
use crate::traceable::Traceable;

/// Traces of one model on one backend, from which several memory models are made without tracing again.
///
/// Clones share their traces.
#[derive(Clone, Default)]
pub struct Traces(pub(crate) Arc<KnownTraces>);

#[derive(Default)]
pub(crate) struct KnownTraces {
    pub(crate) steps: Cache<(BatchShape, Choice), Known>,
    pub(crate) validations: Cache<BatchShape, Known>,
    pub(crate) batches: Cache<BatchShape, Bytes>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.0.steps.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Traces").field("steps", &steps).finish_non_exhaustive()
    }
}

/// Values that were computed before, by their arguments.
pub(crate) type Cache<K, V> = Mutex<HashMap<K, V>>;

/// The trace that stands for all sizes of a bucket; `None` if each size needs a trace of its own.
pub(crate) type Known = Option<Arc<ScalableTrace>>;

/// Returns the value of `key` in `cache`, or computes it with `make` and keeps it.
pub(crate) fn cached<K: Eq + Hash, V: Clone, E>(
    cache: &Cache<K, V>,
    key: K,
    make: impl FnOnce() -> Result<V, E>,
) -> Result<V, E> {
    if let Some(found) = cache.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(found.clone());
    }
    let made = make()?;
    cache.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made.clone());
    Ok(made)
}

impl Traces {
    /// Returns the trace that stands for all sizes of a bucket, and makes it if it is not known. A trace depends on neither
    /// the size of the batch nor on which of the two number formats of 16 bits it is.
    pub(crate) fn step<S: Traceable>(
        &self,
        traceable: &S,
        bucket: BatchShape,
        choice: Choice,
        rules: BackendRules,
    ) -> Result<Known, TraceError> {
        if matches!(rules, BackendRules::Flex { .. }) {
            return Ok(None);
        }
        let precision = match choice.precision {
            Precision::Fp16 => Precision::Bf16,
            other => other,
        };
        let (bucket, choice) = (bucket.with_utterances(1), Choice { precision, ..choice });
        cached(&self.0.steps, (bucket, choice), || {
            Ok(trace_of_any_number(traceable, bucket, choice, rules)?.map(Arc::new))
        })
    }
}

/// Runs `work` on each of `jobs` on all cores, and returns the results in the order of the jobs.
pub(crate) fn in_parallel<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let mut found: Vec<(usize, R)> = std::thread::scope(|scope| {
        let (work, next) = (&work, &next);
        let start = |_| {
            scope.spawn(move || {
                let mut mine = Vec::new();
                loop {
                    let place = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(job) = jobs.get(place) else { return mine };
                    mine.push((place, work(job)));
                }
            })
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a trace returns its failures and does not panic"))
            .collect()
    });
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, result)| result).collect()
}
