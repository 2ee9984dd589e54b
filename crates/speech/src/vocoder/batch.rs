//! Batch of sound: crops of recordings in host memory.

use plimsoll_core::{Batch, BatchShape, SampleId};

/// Crops of recordings, all of the same number of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct SoundBatch {
    ids: Vec<SampleId>,
    samples: Vec<f32>,
    crop: usize,
}

impl SoundBatch {
    /// Makes a batch of `crops`, each with its id and `length` samples.
    ///
    /// # Panics
    /// If a crop has another number of samples.
    pub fn new(crops: Vec<(SampleId, Vec<f32>)>, length: usize) -> Self {
        assert!(crops.iter().all(|(_, samples)| samples.len() == length), "each crop has {length} samples");
        let ids = crops.iter().map(|(id, _)| *id).collect();
        Self { ids, samples: crops.into_iter().flat_map(|(_, samples)| samples).collect(), crop: length }
    }

    /// Returns the samples of all crops, one crop after the other.
    pub fn samples(&self) -> &[f32] {
        &self.samples
    }

    /// Returns the number of samples of each crop.
    pub fn crop(&self) -> usize {
        self.crop
    }
}

impl Batch for SoundBatch {
    fn ids(&self) -> &[SampleId] {
        &self.ids
    }

    fn select(&self, indices: &[usize]) -> Self {
        let samples = |&index: &usize| &self.samples[index * self.crop..(index + 1) * self.crop];
        Self {
            ids: indices.iter().map(|&index| self.ids[index]).collect(),
            samples: indices.iter().flat_map(samples).copied().collect(),
            crop: self.crop,
        }
    }

    fn shape(&self) -> BatchShape {
        BatchShape::samples(self.ids.len() as u32)
    }
}
