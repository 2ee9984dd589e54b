//! Batches of crops at random places of recordings, in an order that a run can resume.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::{BatchSource, DeliveredBatch, Key, Position, SampleId, SourceError};

use super::SoundBatch;

/// Endless source of crops from recordings in memory.
///
/// In an epoch each recording gives as many crops as fit into it, at least one, each at a random place. Order and places
/// depend on the key and the epoch alone, so a run can continue at any [`Position`].
#[derive(Clone, Debug)]
pub struct CropSource {
    recordings: Arc<Vec<Vec<f32>>>,
    crop: usize,
    batch: usize,
    key: Key,
    position: Position,
    /// Recording of each crop of the current epoch, in order.
    order: Vec<usize>,
}

impl CropSource {
    /// Creates a source of batches of `batch` crops of `crop` samples. A recording that is shorter than a crop is followed by
    /// silence.
    ///
    /// # Panics
    /// If there is no recording, or `batch` or `crop` is 0.
    pub fn new(recordings: Arc<Vec<Vec<f32>>>, crop: usize, batch: usize, key: Key, position: Position) -> Self {
        assert!(!recordings.is_empty() && crop > 0 && batch > 0, "crops need recordings, a length and a batch");
        let mut source = Self { recordings, crop, batch, key, position, order: Vec::new() };
        source.shuffle();
        source
    }

    fn shuffle(&mut self) {
        let crops = |(index, recording): (usize, &Vec<f32>)| vec![index; (recording.len() / self.crop).max(1)];
        self.order = self.recordings.iter().enumerate().flat_map(crops).collect();
        self.key.with("order").at(self.position.epoch).shuffle(&mut self.order);
    }

    /// Cuts crop `index` of the current epoch.
    fn cut(&self, index: usize) -> (SampleId, Vec<f32>) {
        let key = self.key.with("crop").at(self.position.epoch).at(index as u64);
        let recording = &self.recordings[self.order[index]];
        let from = key.below(recording.len().saturating_sub(self.crop) as u64 + 1) as usize;
        let mut samples = recording[from..recording.len().min(from + self.crop)].to_vec();
        samples.resize(self.crop, 0.0);
        (SampleId(key.bits()), samples)
    }
}

impl BatchSource for CropSource {
    type Batch = SoundBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<SoundBatch>, SourceError>> {
        let first = self.position.batch as usize * self.batch;
        let last = (first + self.batch).min(self.order.len());
        let batch = SoundBatch::new((first..last).map(|index| self.cut(index)).collect(), self.crop);
        match self.position.batch + 1 == self.batches_in_epoch() {
            true => {
                self.position = Position::epoch_start(self.position.epoch + 1);
                self.shuffle();
            }
            false => self.position.batch += 1,
        }
        Some(Ok(DeliveredBatch { batch, position: self.position, skipped: Vec::new(), waited: Duration::ZERO }))
    }

    fn batches_in_epoch(&self) -> u64 {
        self.order.len().div_ceil(self.batch) as u64
    }
}
