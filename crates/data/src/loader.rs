//! Loader: threads that load batches ahead and deliver them in a fixed order.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use plimsoll_core::{
    BatchSource, DeliveredBatch, Grid, HostBatch, HostSample, Key, Position, SampleId, Skipped, SourceError,
    error_chain,
};

use crate::dataset::{Dataset, LoadError};
use plimsoll_audio::{AudioError, AudioSource};

mod buffers;
mod config;
mod pipeline;
mod schedule;
mod tuning;

pub use config::{LoaderConfig, Mode, Shard};

use buffers::BatchBuffers;
use pipeline::Pipeline;
use schedule::{Job, Schedule};
use tuning::Tuning;

/// Loader of the batches of a run, which threads load ahead.
///
/// As an iterator, a loader returns the batches from a position on. The order and content of batches depend on the data
/// set, the configuration and the seed, never on the number or the timing of threads. Dropping the loader ends its
/// threads.
pub struct Loader {
    pipeline: Pipeline<Result<Loaded, LoadError>>,
    schedule: Arc<Schedule>,
    /// Number of the epoch that the loader started in.
    first_epoch: u64,
    /// Number of batches of the epoch that the loader started in; empty until it is first needed.
    batches_in_epoch: OnceLock<u64>,
    /// Number of utterances of the data set. This many failures without a batch in between mean that nothing is
    /// readable.
    n_utterances: usize,
    /// Number of utterances skipped since the start.
    skipped: u64,
    /// Skipped utterances that are reported to the caller together with the next delivered batch.
    unreported: Vec<Skipped>,
    failures: Failures,
    max_failures: u64,
    tuning: Tuning,
    buffers: BatchBuffers,
    is_finished: bool,
}

impl Loader {
    /// Starts loading at position `from`.
    ///
    /// The sample `id` in epoch `e` is augmented by the key `seed.with("augment").at(e).at(id)`.
    ///
    /// # Panics
    /// With a data set of more than four billion utterances, or when the system cannot start a thread.
    pub fn start(dataset: Arc<Dataset>, config: &LoaderConfig, seed: Key, from: Position) -> Self {
        let (metas, batching) = (dataset.metas(), config.batching.clone());
        let grid = config.grid.clone().unwrap_or_else(|| batching.grid(&metas));
        let shard = config.shard;
        let schedule = Arc::new(Schedule { metas, batching, grid: grid.clone(), mode: config.mode, seed, shard });
        let n_utterances = dataset.len();
        let buffers = BatchBuffers::new();
        let taken = buffers.clone();
        let work = move |job: &Job| {
            let first = job.samples.first().map_or("", |&index| dataset.utterance(index).id);
            catch_panic(first, || load(&dataset, job, &grid, shard.ranks > 1, &taken))
        };
        let tuning = Tuning::new(config.workers, config.prefetch);
        let (workers, prefetch) = tuning.start();
        let max_failures = match (config.unreadable_share * n_utterances as f64) as u64 {
            0 => u64::from(config.unreadable_share > 0.0),
            most => most,
        };
        Self {
            pipeline: Pipeline::start(schedule.clone().jobs(from), work, workers, prefetch),
            schedule,
            first_epoch: from.epoch,
            batches_in_epoch: OnceLock::new(),
            n_utterances,
            skipped: 0,
            unreported: Vec::new(),
            failures: Failures { epoch: from.epoch, ..Failures::default() },
            max_failures,
            tuning,
            buffers,
            is_finished: false,
        }
    }

    /// Returns the current number of threads, and of batches that are loaded ahead. A number that the
    /// configuration leaves open can grow.
    pub fn workers_and_prefetch(&self) -> (usize, usize) {
        self.pipeline.size()
    }

    /// Returns the number of utterances skipped since the start.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Counts and logs skipped utterances, each with the container that is lost. `next` is the position after their
    /// batch.
    fn count_skipped(&mut self, skipped: Vec<(Skipped, Option<PathBuf>)>, next: Position) {
        // After the last batch of an epoch, the position is that of the next epoch.
        let epoch = if next.batch == 0 { next.epoch.saturating_sub(1) } else { next.epoch };
        if self.failures.epoch != epoch {
            self.failures = Failures { epoch, ..Failures::default() };
        }
        self.skipped += skipped.len() as u64;
        for (Skipped { name, reason }, lost) in skipped {
            tracing::warn!(utterance = name, reason, "utterance skipped");
            self.failures.count += u64::from(lost.is_none_or(|file| self.failures.lost.insert(file)));
            self.unreported.push(Skipped { name, reason });
        }
    }

    /// Adds threads or prefetched batches where the caller had to wait.
    fn tune(&mut self, waited: Duration) {
        let (workers, ahead) = self.pipeline.size();
        if let Some((workers, ahead)) = self.tuning.after(waited, Instant::now(), workers, ahead) {
            tracing::debug!(workers, ahead, "the caller waited, so the loader grows");
            self.pipeline.grow(workers, ahead);
        }
    }

    fn too_many_unreadable(&mut self) -> LoadError {
        self.is_finished = true;
        let (count, of, most) = (self.failures.count, self.n_utterances, self.max_failures);
        let Skipped { name: last, reason } = self.unreported.pop().expect("an utterance of this batch failed");
        LoadError::TooManyUnreadable { count, of, most, last, reason }
    }

    fn nothing_readable(&mut self) -> LoadError {
        self.is_finished = true;
        let count = self.unreported.len();
        let Skipped { name: first, reason } = self.unreported.swap_remove(0);
        LoadError::NothingReadable { count, first, reason }
    }
}

impl From<LoadError> for SourceError {
    fn from(error: LoadError) -> Self {
        Self(error_chain(&error))
    }
}

impl BatchSource for Loader {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        let next = self.next()?;
        Some(next.map_err(SourceError::from))
    }

    /// Counts the batches in the epoch that the loader started in.
    ///
    /// Batches of a number of utterances give every epoch an equal number of batches; with batches of a number of
    /// seconds, other epochs have a few more or less.
    fn batches_in_epoch(&self) -> u64 {
        *self.batches_in_epoch.get_or_init(|| self.schedule.batches_in_epoch(self.first_epoch))
    }

    fn recycle(&mut self, batch: HostBatch) {
        self.buffers.give_back(batch.features);
    }
}

impl Iterator for Loader {
    type Item = Result<DeliveredBatch<HostBatch>, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = Instant::now();
        while !self.is_finished {
            let loaded = self.pipeline.next()?.unwrap_or(Err(LoadError::WorkerLost));
            let Loaded { batch, position, skipped } = match loaded {
                Ok(loaded) => loaded,
                Err(error) => return Some(Err(error)),
            };
            self.count_skipped(skipped, position);
            if self.unreported.len() >= self.n_utterances {
                return Some(Err(self.nothing_readable()));
            }
            if self.failures.count > self.max_failures {
                return Some(Err(self.too_many_unreadable()));
            }
            if let Some(batch) = batch {
                let (skipped, waited) = (std::mem::take(&mut self.unreported), start.elapsed());
                self.tune(waited);
                return Some(Ok(DeliveredBatch { batch, position, skipped, waited }));
            }
        }
        None
    }
}

/// Failures of one epoch.
#[derive(Default)]
struct Failures {
    /// Number of the epoch that is being delivered.
    epoch: u64,
    /// Number of failures so far. A lost container counts once, however many utterances it held: a disk or a folder that
    /// disappears for a while must not end a run.
    count: u64,
    /// Containers that could not be opened.
    lost: HashSet<PathBuf>,
}

/// Result of loading one batch in a thread: the batch, the position in the run after the batch, and the skipped
/// utterances, each with the container that is lost.
struct Loaded {
    /// Loaded batch; `None` when every utterance was skipped.
    batch: Option<HostBatch>,
    position: Position,
    skipped: Vec<(Skipped, Option<PathBuf>)>,
}

/// Loads one batch. With several replicas (`is_shared`), a batch without utterances is an empty batch and not `None`,
/// because all replicas must get an equal number of batches.
fn load(
    dataset: &Dataset,
    job: &Job,
    grid: &Grid,
    is_shared: bool,
    buffers: &BatchBuffers,
) -> Result<Loaded, LoadError> {
    let (mut samples, mut skipped) = (Vec::with_capacity(job.samples.len()), Vec::new());
    for &index in &job.samples {
        let utterance = dataset.utterance(index);
        let key = job.augment.map(|key| key.at(SampleId::from_name(utterance.id).0));
        match dataset.load(index, key) {
            Ok(sample) => samples.push(sample),
            Err(LoadError::Audio { name, source }) => {
                skipped.push((Skipped { name, reason: error_chain(&source) }, lost_container(&source)));
            }
            Err(error) => return Err(error),
        }
    }
    let collate = || HostBatch::collate_with(&samples, dataset.frame_width(), grid, |count| buffers.take(count));
    let batch = match (samples.is_empty(), is_shared) {
        (false, _) => Some(collate()?),
        (true, false) => None,
        (true, true) => Some(HostBatch::empty(dataset.frame_width(), grid)),
    };
    for HostSample { features, reference, .. } in samples {
        plimsoll_audio::buffers::recycle(features);
        plimsoll_audio::buffers::recycle(reference);
    }
    Ok(Loaded { batch, position: job.next, skipped })
}

/// Returns the container that does not exist any more; `None` for any other failure.
fn lost_container(error: &AudioError) -> Option<PathBuf> {
    let AudioError::NotFound(path) = error else { return None };
    let AudioSource { file, part, .. } = AudioSource::from_path(path);
    part.map(|_| file)
}

/// Turns a panic into an error that names the first utterance of the batch, so that the thread survives.
fn catch_panic<T>(first: &str, work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(LoadError::Panic { first: first.into(), message: text.unwrap_or_else(|| "without a message".into()) })
    })
}

#[cfg(test)]
mod tests;
