//! Batches and batch sources, the interface between a data loader and a trainer.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{BatchShape, SampleId};

/// A batch of samples in host memory.
///
/// The trainer splits a batch into micro-batches that fit into memory, and the planner needs the shape of the batch.
/// Both accept any kind of sample: an image, a row of a table, an utterance. Two methods are required. If samples have
/// lengths, implement [`shape`](Batch::shape), [`shape_of`](Batch::shape_of) and [`valid_frames`](Batch::valid_frames)
/// too; if samples have names, implement [`name`](Batch::name).
///
/// ```
/// use plimsoll_core::{Batch, BatchShape, SampleId};
///
/// /// Rows of a table, two columns each.
/// #[derive(Clone)]
/// struct Rows {
///     ids: Vec<SampleId>,
///     values: Vec<[f32; 2]>,
/// }
///
/// impl Batch for Rows {
///     fn ids(&self) -> &[SampleId] {
///         &self.ids
///     }
///     fn select(&self, indices: &[usize]) -> Self {
///         Self {
///             ids: indices.iter().map(|&index| self.ids[index]).collect(),
///             values: indices.iter().map(|&index| self.values[index]).collect(),
///         }
///     }
/// }
///
/// let rows = Rows { ids: (0..5).map(SampleId).collect(), values: vec![[0.0, 1.0]; 5] };
/// assert_eq!(rows.part(1..3).ids, [SampleId(1), SampleId(2)]);
/// assert_eq!(rows.shard(1, 2).ids, [SampleId(1), SampleId(3)]);
/// assert_eq!(rows.shape(), BatchShape::samples(5));
/// ```
pub trait Batch: Clone + Send + Sync + 'static {
    /// Returns the ids of the samples in the batch, in order. Randomness of a step depends on the ids, not on the
    /// order.
    fn ids(&self) -> &[SampleId];

    /// Returns the samples at `indices`, in that order, as a batch; an empty batch if there are no indices.
    fn select(&self, indices: &[usize]) -> Self;

    /// Returns the number of samples in the batch.
    fn len(&self) -> usize {
        self.ids().len()
    }

    /// Returns whether the batch is empty. Only the share of a replica may be empty.
    fn is_empty(&self) -> bool {
        self.ids().is_empty()
    }

    /// Returns the shape of the batch, with padding.
    fn shape(&self) -> BatchShape {
        BatchShape::samples(self.len() as u32)
    }

    /// Returns the shape, with padding, of the samples in `range`, without making a batch of them.
    ///
    /// The default uses the lengths of the whole batch, which are an upper bound.
    fn shape_of(&self, range: Range<usize>) -> BatchShape {
        self.shape().with_utterances(range.len() as u32)
    }

    /// Returns the name of the sample at `index`, for messages.
    fn name(&self, index: usize) -> String {
        format!("sample {}", self.ids()[index].0)
    }

    /// Returns the number of frames of all samples, without padding. A sample without a length counts as one frame.
    fn valid_frames(&self) -> u64 {
        self.len() as u64
    }

    /// Returns the share of padding in the frames of the batch, from 0 to 1.
    fn padding(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        1.0 - self.valid_frames() as f64 / self.shape().frame_cells().max(1) as f64
    }

    /// Returns the names of the samples in `range`, for messages.
    fn names(&self, range: Range<usize>) -> Vec<String> {
        range.map(|index| self.name(index)).collect()
    }

    /// Returns the samples in `range` as a batch.
    ///
    /// # Panics
    /// If `range` is empty or outside the batch.
    fn part(&self, range: Range<usize>) -> Self {
        assert!(!range.is_empty(), "a part has at least one sample");
        self.select(&range.collect::<Vec<_>>())
    }

    /// Splits the batch into parts of at most `samples` samples, in order.
    fn split(&self, samples: usize) -> Vec<Self> {
        let samples = samples.max(1);
        if samples >= self.len() {
            return vec![self.clone()];
        }
        let starts = (0..self.len()).step_by(samples);
        starts.map(|start| self.part(start..(start + samples).min(self.len()))).collect()
    }

    /// Returns the share of replica `rank` out of `ranks`: each `ranks`-th sample. If a batch is sorted by length, all
    /// shares take about equal work.
    fn shard(&self, rank: usize, ranks: usize) -> Self {
        self.select(&(rank..self.len()).step_by(ranks.max(1)).collect::<Vec<_>>())
    }
}

/// Position of a run in its data, from which the run can continue exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Number of completed epochs.
    pub epoch: u64,
    /// Number of completed batches in the current epoch.
    pub batch: u64,
    /// Number of completed windows in the current epoch. A window is a group of consecutive batches that a source makes
    /// together; 0 for a source without windows.
    #[serde(default)]
    pub window: u64,
    /// Number of completed batches in the current window of the epoch.
    #[serde(default)]
    pub within: u64,
}

impl Position {
    /// Returns the position at the start of epoch `epoch`; the first epoch is 0.
    pub fn epoch_start(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }
}

/// Batch with its position in the data, as delivered by a source.
#[derive(Clone, Debug)]
pub struct DeliveredBatch<B> {
    /// Batch that the source delivers.
    pub batch: B,
    /// Position of the run after the batch.
    pub position: Position,
    /// Samples of the batch that could not be read.
    pub skipped: Vec<Skipped>,
    /// Time that the caller waited for the batch.
    pub waited: Duration,
}

/// Sample that was left out of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Name of the sample in the manifest.
    pub name: String,
    /// Reason why the sample was left out.
    pub reason: String,
}

/// Source of batches: a data loader, or a [`BatchList`].
///
/// With this trait the trainer depends on neither files nor threads.
pub trait BatchSource {
    /// Type of the batches that the source delivers.
    type Batch: Batch;

    /// Returns the next batch in the order of the run; `None` after the end of the last epoch, also on later calls.
    ///
    /// # Errors
    /// [`SourceError`] if the source cannot continue.
    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<Self::Batch>, SourceError>>;

    /// Returns the number of batches in an epoch.
    fn batches_in_epoch(&self) -> u64;

    /// Takes back a used batch, so that the source can reuse its memory. The default drops the batch.
    fn recycle(&mut self, batch: Self::Batch) {
        drop(batch);
    }
}

/// Batches in memory, in the same order in each epoch, without end.
#[derive(Clone, Debug)]
pub struct BatchList<B> {
    batches: Vec<B>,
    position: Position,
}

impl<B> BatchList<B> {
    /// Creates a source of `batches` that continues after `position`; a new run starts at `Position::default()`.
    pub fn new(batches: Vec<B>, position: Position) -> Self {
        Self { batches, position }
    }
}

impl<B: Batch> BatchSource for BatchList<B> {
    type Batch = B;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<B>, SourceError>> {
        let Position { epoch, batch: index, .. } = self.position;
        let batch = self.batches.get(index as usize)?.clone();
        let is_last = index + 1 == self.batches.len() as u64;
        self.position = match is_last {
            true => Position::epoch_start(epoch + 1),
            false => Position { batch: index + 1, ..self.position },
        };
        Some(Ok(DeliveredBatch { batch, position: self.position, skipped: Vec::new(), waited: Duration::ZERO }))
    }

    fn batches_in_epoch(&self) -> u64 {
        self.batches.len() as u64
    }
}

/// Error of a source that cannot continue. The text contains the reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot load the next batch: {0}")]
pub struct SourceError(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Numbers(Vec<SampleId>);

    impl Batch for Numbers {
        fn ids(&self) -> &[SampleId] {
            &self.0
        }

        fn select(&self, indices: &[usize]) -> Self {
            Self(indices.iter().map(|&index| self.0[index]).collect())
        }
    }

    fn numbers(numbers: Range<u64>) -> Numbers {
        Numbers(numbers.map(SampleId).collect())
    }

    #[test]
    fn a_batch_without_lengths_has_no_padding_and_can_be_cut() {
        let batch = numbers(0..5);
        assert_eq!(batch.shape_of(1..4), BatchShape::samples(3));
        assert_eq!((batch.valid_frames(), batch.padding()), (5, 0.0));
        assert_eq!(batch.split(2), [numbers(0..2), numbers(2..4), numbers(4..5)]);
        assert_eq!(batch.names(3..5), ["sample 3", "sample 4"]);
        assert!(batch.shard(6, 7).is_empty());
    }

    #[test]
    fn a_list_continues_from_every_position() {
        let batches = [numbers(0..2), numbers(2..4), numbers(4..5)];
        let mut whole = BatchList::new(batches.to_vec(), Position::default());
        for step in 0..7 {
            let delivered = whole.next_batch().unwrap().unwrap();
            assert_eq!(delivered.batch, batches[step % 3]);
            assert_eq!(delivered.position.epoch, (step as u64 + 1) / 3);
            let mut resumed = BatchList::new(batches.to_vec(), delivered.position);
            assert_eq!(resumed.next_batch().unwrap().unwrap().batch, batches[(step + 1) % 3]);
        }
        assert!(BatchList::<Numbers>::new(Vec::new(), Position::default()).next_batch().is_none());
    }
}
