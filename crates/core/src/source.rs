//! Batches and where they come from, as a trainer sees them.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{BatchShape, SampleId};

/// A batch of samples in host memory.
///
/// The trainer cuts a batch into smaller ones that fit into memory, and the planner asks how large it is. Neither knows
/// what a sample is: an image, a row of a table or an utterance. Two methods are required. A batch whose samples have
/// lengths also provides [`shape`](Batch::shape), [`shape_of`](Batch::shape_of) and
/// [`valid_frames`](Batch::valid_frames); one whose samples have names provides [`name`](Batch::name).
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
    /// Ids of the samples, in order. All that is random in a step depends on them and not on their place.
    fn ids(&self) -> &[SampleId];

    /// The samples at `places`, in that order, as a batch of their own; an empty batch where there are none.
    fn select(&self, indices: &[usize]) -> Self;

    /// Number of samples.
    fn len(&self) -> usize {
        self.ids().len()
    }

    /// Whether there is no sample. Only the share of a replica may be empty.
    fn is_empty(&self) -> bool {
        self.ids().is_empty()
    }

    /// The padded shape.
    fn shape(&self) -> BatchShape {
        BatchShape::samples(self.len() as u32)
    }

    /// The padded shape of the samples at `places`, without making a batch of them.
    ///
    /// The default keeps the lengths of the whole batch, which is never too small.
    fn shape_of(&self, range: Range<usize>) -> BatchShape {
        self.shape().with_utterances(range.len() as u32)
    }

    /// Name of the sample at `place`, for messages.
    fn name(&self, index: usize) -> String {
        format!("sample {}", self.ids()[index].0)
    }

    /// Frames of all samples without padding. A sample without a length counts as one frame.
    fn valid_frames(&self) -> u64 {
        self.len() as u64
    }

    /// Share of frames that are padding.
    fn padding(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        1.0 - self.valid_frames() as f64 / self.shape().frame_cells().max(1) as f64
    }

    /// Names of the samples at `places`, for messages.
    fn names(&self, range: Range<usize>) -> Vec<String> {
        range.map(|index| self.name(index)).collect()
    }

    /// The samples at `places` as a batch of their own.
    ///
    /// # Panics
    /// Where `places` is empty or outside the batch.
    fn part(&self, range: Range<usize>) -> Self {
        assert!(!range.is_empty(), "a part has at least one sample");
        self.select(&range.collect::<Vec<_>>())
    }

    /// Parts of at most `samples`, in order.
    fn split(&self, samples: usize) -> Vec<Self> {
        let samples = samples.max(1);
        if samples >= self.len() {
            return vec![self.clone()];
        }
        let starts = (0..self.len()).step_by(samples);
        starts.map(|start| self.part(start..(start + samples).min(self.len()))).collect()
    }

    /// The share of replica `rank` of `ranks`: every `ranks`-th sample. The shares take about the same work where a batch
    /// is sorted by length.
    fn shard(&self, rank: usize, ranks: usize) -> Self {
        self.select(&(rank..self.len()).step_by(ranks.max(1)).collect::<Vec<_>>())
    }
}

/// Where a run stands in its data: what it takes to go on exactly there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Epochs completed.
    pub epoch: u64,
    /// Batches of this epoch completed.
    pub batch: u64,
    /// Where a source deals its batches by windows: windows of this epoch completed.
    #[serde(default)]
    pub window: u64,
    /// Batches of this window completed.
    #[serde(default)]
    pub within: u64,
}

impl Position {
    /// The start of an epoch.
    pub fn epoch_start(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }
}

/// A batch as a source delivers it.
#[derive(Clone, Debug)]
pub struct DeliveredBatch<B> {
    /// The batch.
    pub batch: B,
    /// Where the run stands once this batch is done.
    pub position: Position,
    /// Samples that should have been in it and could not be read.
    pub skipped: Vec<Skipped>,
    /// How long the caller waited for it.
    pub waited: Duration,
}

/// A sample that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name in the manifest.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// A source of batches: the loader, or a [`BatchList`].
///
/// The trainer asks through it, so it knows no files and no threads.
pub trait BatchSource {
    /// What a batch is.
    type Batch: Batch;

    /// The next batch in the run's order; `None` at the end of the last epoch, and from then on.
    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<Self::Batch>, SourceError>>;

    /// Batches in an epoch.
    fn batches_in_epoch(&self) -> u64;

    /// Takes back a batch that is done with, for a source that can use its memory again.
    fn recycle(&mut self, batch: Self::Batch) {
        drop(batch);
    }
}

/// Batches in memory, in the same order in every epoch, without end.
#[derive(Clone, Debug)]
pub struct BatchList<B> {
    batches: Vec<B>,
    position: Position,
}

impl<B> BatchList<B> {
    /// A source of `batches` that continues after `position`, where a new run has `Position::default()`.
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

/// Why a source cannot go on.
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
