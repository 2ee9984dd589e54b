//! The loader: threads that read samples ahead and hand out whole batches, always in the same order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use plimsoll_core::{
    BatchSource, Delivered, Grid, HostBatch, HostSample, Key, Position, SampleId, Skipped, SourceError,
};

use crate::dataset::{Dataset, LoadError};
use plimsoll_core::error_chain;

mod config;
mod pipeline;
mod plan;
mod rooms;
mod tuning;

pub use config::{LoaderConfig, Mode, Shard};

use pipeline::Pipeline;
use plan::{Job, Plan};
use rooms::Rooms;
use tuning::Tuning;

/// Batches, loaded ahead.
///
/// As an iterator it gives the batches of a run from a position on. Their order and content depend on the data set, the
/// configuration and the seed, never on the number of workers or their luck. Dropping it ends its threads.
pub struct Loader {
    pipeline: Pipeline<Result<Ready, LoadError>>,
    /// The epoch that the loader was started in, and its batches once somebody has asked.
    epoch: u64,
    len_epoch: OnceLock<u64>,
    plan: Arc<Plan>,
    skipped: u64,
    /// Skipped utterances not yet told to the caller.
    untold: Vec<Skipped>,
    /// When so many fail in a row, the data set itself is unreadable.
    patience: usize,
    /// The epoch that is being delivered, how many of its utterances failed, and how many may.
    failed: (u64, u64),
    failed_most: u64,
    tuning: Tuning,
    /// Memory of batches that were given back.
    rooms: Rooms,
    finished: bool,
}

impl Loader {
    /// Starts loading at `from`.
    ///
    /// The sample `id` of epoch `e` is augmented by `seed.with("augment").at(e).at(id)`.
    pub fn start(dataset: Arc<Dataset>, config: &LoaderConfig, seed: Key, from: Position) -> Self {
        let (metas, batching) = (dataset.metas(), config.batching.clone());
        let grid = config.grid.clone().unwrap_or_else(|| batching.grid(&metas));
        let shard = config.shard;
        let plan = Plan { metas, batching, grid: grid.clone(), mode: config.mode, seed, shard };
        let (plan, epoch) = (Arc::new(plan), from.epoch);
        let patience = dataset.len();
        let rooms = Rooms::new();
        let taken = rooms.clone();
        let work = move |job: &Job| {
            let first = job.samples.first().map_or("", |&index| &dataset.utterance(index).id);
            guarded(first, || load(&dataset, job, &grid, shard.ranks > 1, &taken))
        };
        let tuning = Tuning::new(config.workers, config.prefetch);
        let (workers, prefetch) = tuning.start();
        let pipeline = Pipeline::start(plan.clone().jobs(from), work, workers, prefetch);
        let failed_most = match (config.unreadable_share * patience as f64) as u64 {
            0 => u64::from(config.unreadable_share > 0.0),
            most => most,
        };
        Self {
            pipeline,
            epoch,
            len_epoch: OnceLock::new(),
            plan,
            skipped: 0,
            untold: Vec::new(),
            patience,
            failed: (epoch, 0),
            failed_most,
            tuning,
            rooms,
            finished: false,
        }
    }

    /// Batches in the epoch that the loader was started in.
    ///
    /// With batches of so many utterances every epoch has as many; with batches of so many seconds, a few more or less.
    pub fn len_epoch(&self) -> u64 {
        *self.len_epoch.get_or_init(|| self.plan.dealt(self.epoch).map(|batches| batches.len() as u64).sum())
    }

    /// Threads that load, and batches that may be ahead, as they are by now.
    pub fn size(&self) -> (usize, usize) {
        self.pipeline.size()
    }

    /// Utterances skipped since the start.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Counts what was skipped of the epoch that ends before or at `next`.
    fn note(&mut self, skipped: Vec<Skipped>, next: Position) {
        // The last batch of an epoch already points to the next one.
        let epoch = if next.batch == 0 { next.epoch.saturating_sub(1) } else { next.epoch };
        if self.failed.0 != epoch {
            self.failed = (epoch, 0);
        }
        self.failed.1 += skipped.len() as u64;
        for Skipped { name, reason } in &skipped {
            tracing::warn!(utterance = name, reason, "utterance skipped");
        }
        self.skipped += skipped.len() as u64;
        self.untold.extend(skipped);
    }

    fn tune(&mut self, waited: Duration) {
        let (workers, ahead) = self.pipeline.size();
        if let Some((workers, ahead)) = self.tuning.after(waited, Instant::now(), workers, ahead) {
            tracing::debug!(workers, ahead, "the loader grows, as it was waited for");
            self.pipeline.grow(workers, ahead);
        }
    }

    fn stop_short(&mut self) -> LoadError {
        self.finished = true;
        let (count, of, most) = (self.failed.1, self.patience, self.failed_most);
        let Skipped { name: last, reason } = self.untold.pop().expect("something failed just now");
        LoadError::TooManyUnreadable { count, of, most, last, reason }
    }

    fn give_up(&mut self) -> LoadError {
        self.finished = true;
        let count = self.untold.len();
        let Skipped { name: first, reason } = self.untold.swap_remove(0);
        LoadError::NothingReadable { count, first, reason }
    }
}

impl From<LoadError> for SourceError {
    fn from(error: LoadError) -> Self {
        Self(error_chain(&error))
    }
}

impl BatchSource for Loader {
    fn next_batch(&mut self) -> Option<Result<Delivered, SourceError>> {
        let next = self.next()?;
        Some(next.map_err(SourceError::from))
    }

    fn batches_in_epoch(&self) -> u64 {
        self.len_epoch()
    }

    fn give_back(&mut self, batch: HostBatch) {
        self.rooms.give_back(batch.features);
    }
}

impl Iterator for Loader {
    type Item = Result<Delivered, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = Instant::now();
        while !self.finished {
            let Ready { batch, position, skipped } = match self.pipeline.next()?.unwrap_or(Err(LoadError::Gone)) {
                Ok(ready) => ready,
                Err(error) => return Some(Err(error)),
            };
            self.note(skipped, position);
            if self.untold.len() >= self.patience {
                return Some(Err(self.give_up()));
            }
            if self.failed.1 > self.failed_most {
                return Some(Err(self.stop_short()));
            }
            if let Some(batch) = batch {
                let (skipped, waited) = (std::mem::take(&mut self.untold), start.elapsed());
                self.tune(waited);
                return Some(Ok(Delivered { batch, position, skipped, waited }));
            }
        }
        None
    }
}

/// What a job becomes.
struct Ready {
    /// Nothing when every utterance was skipped.
    batch: Option<HostBatch>,
    position: Position,
    skipped: Vec<Skipped>,
}

fn load(dataset: &Dataset, job: &Job, grid: &Grid, is_shared: bool, rooms: &Rooms) -> Result<Ready, LoadError> {
    let (mut samples, mut skipped) = (Vec::with_capacity(job.samples.len()), Vec::new());
    for &index in &job.samples {
        let utterance = dataset.utterance(index);
        let key = job.augment.map(|key| key.at(SampleId::of(&utterance.id).0));
        match dataset.load(index, key) {
            Ok(sample) => samples.push(sample),
            Err(LoadError::Audio { name, source }) => skipped.push(Skipped { name, reason: error_chain(&source) }),
            Err(error) => return Err(error),
        }
    }
    let collate = || HostBatch::collate_in(&samples, dataset.log_mel().n_mels(), grid, |count| rooms.room(count));
    let batch = match (samples.is_empty(), is_shared) {
        (false, _) => Some(collate()?),
        (true, false) => None,
        (true, true) => Some(HostBatch::nothing(dataset.log_mel().n_mels(), grid)),
    };
    for HostSample { features, reference, .. } in samples {
        plimsoll_audio::buffers::give_back(features);
        plimsoll_audio::buffers::give_back(reference);
    }
    Ok(Ready { batch, position: job.next, skipped })
}

/// Makes a panic an error that names the batch, so that the thread lives on.
fn guarded<T>(first: &str, work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(LoadError::Panic { first: first.into(), message: text.unwrap_or_else(|| "without a message".into()) })
    })
}

#[cfg(test)]
mod tests;
