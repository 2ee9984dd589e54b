//! The loader: threads that read samples ahead and hand out whole batches, always in the same order.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use plimsoll_core::{
    BatchSource, DeliveredBatch, Grid, HostBatch, HostSample, Key, Position, SampleId, Skipped, SourceError,
};

use crate::batching::{BatchingConfig, Epoch, SampleMeta, ordered_batches};
use crate::dataset::{Dataset, LoadError};
use crate::told::told;
use rooms::Rooms;

mod pipeline;
mod rooms;
mod tuning;

use pipeline::Pipeline;
use tuning::Tuning;

/// What the batches are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Shuffled anew each epoch, and augmented.
    Train {
        /// How many epochs; for ever when left out.
        epochs: Option<u64>,
    },
    /// Once, in the order of the data set, as recorded.
    Evaluate,
}

/// How batches are made and loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderConfig {
    /// How utterances are put into batches.
    pub batching: BatchingConfig,
    /// What batches are padded to; found from the lengths of the data set without it. Training and validation share one.
    pub grid: Option<Grid>,
    /// Threads that load; each works at a batch of its own, so more than `prefetch` of them have nothing to do. Without it
    /// there is one, and another whenever the caller had to wait.
    pub workers: Option<NonZeroUsize>,
    /// Largest share of the data set that may fail to load in an epoch before loading ends with an error. Of a small one,
    /// where this is less than an utterance, one may all the same, unless the share is zero.
    pub unreadable_share: f64,
    /// Batches loaded ahead; with the one that the caller waits for, they are all that is ever in memory. Without it, two
    /// for each thread, and more when all cores load and the caller still had to wait, 16 at most.
    pub prefetch: Option<NonZeroUsize>,
    /// What the batches are for.
    pub mode: Mode,
    /// The part of every batch that is loaded, where several replicas share the work.
    pub shard: Shard,
}

/// A replica's part of every batch: each has a batch wherever the others have one, though it may be of nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The number of the replica, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { rank: 0, ranks: 1 }
    }
}

impl Shard {
    fn of(self, samples: Vec<usize>) -> Vec<usize> {
        match self.ranks {
            0 | 1 => samples,
            ranks => samples.into_iter().skip(self.rank).step_by(ranks).collect(),
        }
    }
}

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
        Self(told(&error))
    }
}

impl BatchSource for Loader {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        let next = self.next()?;
        Some(next.map_err(SourceError::from))
    }

    fn batches_in_epoch(&self) -> u64 {
        self.len_epoch()
    }

    fn recycle(&mut self, batch: HostBatch) {
        self.rooms.give_back(batch.features);
    }
}

impl Iterator for Loader {
    type Item = Result<DeliveredBatch<HostBatch>, LoadError>;

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
                return Some(Ok(DeliveredBatch { batch, position, skipped, waited }));
            }
        }
        None
    }
}

/// Which batches come, in which order.
struct Plan {
    metas: Vec<SampleMeta>,
    batching: BatchingConfig,
    grid: Grid,
    mode: Mode,
    seed: Key,
    shard: Shard,
}

/// One batch to load.
struct Job {
    samples: Vec<usize>,
    /// Where the batch after it is.
    next: Position,
    /// The epoch's branch of randomness, when samples are augmented.
    augment: Option<Key>,
}

impl Plan {
    /// The batches of an epoch, window by window.
    fn dealt(&self, epoch: u64) -> impl Iterator<Item = Vec<Vec<usize>>> + use<'_> {
        let dealt = match self.mode {
            Mode::Train { .. } => Some(Epoch::shuffle(&self.metas, &self.batching, &self.grid, self.seed, epoch)),
            Mode::Evaluate => None,
        };
        let windows = dealt.as_ref().map_or(1, Epoch::windows);
        (0..windows).map(move |window| self.window(dealt.as_ref(), window))
    }

    fn window(&self, dealt: Option<&Epoch>, window: usize) -> Vec<Vec<usize>> {
        let in_order = || ordered_batches(&self.metas, &(0..self.metas.len()).collect::<Vec<_>>(), self.batching.size);
        dealt.map_or_else(in_order, |dealt| dealt.batches(&self.metas, window))
    }

    /// All batches from a position on; none of an empty data set, which would be searched for ever.
    fn jobs(self: Arc<Self>, from: Position) -> impl Iterator<Item = Job> + Send + 'static {
        let epochs = match self.mode {
            Mode::Evaluate => 1,
            Mode::Train { epochs } => epochs.unwrap_or(u64::MAX),
        };
        let epochs = if self.metas.is_empty() { 0 } else { epochs };
        (from.epoch..epochs).flat_map(move |epoch| {
            let from = if epoch == from.epoch { from } else { Position::epoch_start(epoch) };
            self.clone().jobs_of(from)
        })
    }

    /// The batches of an epoch from a position on. Windows before it are not dealt.
    fn jobs_of(self: Arc<Self>, from: Position) -> impl Iterator<Item = Job> + Send + 'static {
        let is_training = matches!(self.mode, Mode::Train { .. });
        let dealt = is_training.then(|| Epoch::shuffle(&self.metas, &self.batching, &self.grid, self.seed, from.epoch));
        let augment = is_training.then(|| self.seed.with("augment").at(from.epoch));
        let windows = dealt.as_ref().map_or(1, Epoch::windows) as u64;
        // A position that only counts batches is looked for from the start.
        let shard = self.shard;
        let counted = from.window == 0 && from.within == 0;
        let mut before = from.batch - from.within.min(from.batch);
        if counted {
            before = 0;
        }
        let jobs = (from.window..windows).flat_map(move |window| {
            let batches = self.window(dealt.as_ref(), window as usize);
            let (first, last) = (before, batches.len() as u64);
            before += last;
            let job = move |(samples, within): (Vec<usize>, u64)| {
                let here = Position { epoch: from.epoch, batch: first + within, window, within };
                let next = match (within == last, window + 1 == windows) {
                    (false, _) => here,
                    (true, false) => Position { window: window + 1, within: 0, ..here },
                    (true, true) => Position::epoch_start(from.epoch + 1),
                };
                Job { samples: shard.of(samples), next, augment }
            };
            batches.into_iter().zip(1..).map(job)
        });
        let done = if counted { from.batch } else { from.within };
        jobs.skip(done.try_into().unwrap_or(usize::MAX))
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
        let key = job.augment.map(|key| key.at(SampleId::from_name(&utterance.id).0));
        match dataset.load(index, key) {
            Ok(sample) => samples.push(sample),
            Err(LoadError::Audio { name, source }) => skipped.push(Skipped { name, reason: told(&source) }),
            Err(error) => return Err(error),
        }
    }
    let collate = || HostBatch::collate_with(&samples, dataset.log_mel().n_mels(), grid, |count| rooms.room(count));
    let batch = match (samples.is_empty(), is_shared) {
        (false, _) => Some(collate()?),
        (true, false) => None,
        (true, true) => Some(HostBatch::empty(dataset.log_mel().n_mels(), grid)),
    };
    for HostSample { features, reference, .. } in samples {
        plimsoll_audio::buffers::recycle(features);
        plimsoll_audio::buffers::recycle(reference);
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
