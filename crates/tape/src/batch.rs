//! A batch on a device, as a model reads it.

use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{HostBatch, SampleId};

/// A batch of utterances on a device, with what a host must know about it.
///
/// Shapes: b utterances, t frames, f features.
#[derive(Clone, Debug)]
pub struct TensorBatch {
    /// Features `[b, t, f]`, zero where padded.
    pub features: Tensor<3>,
    /// Frames of each utterance.
    pub frame_lengths: Vec<u32>,
    /// Token ids of each utterance.
    pub tokens: Vec<Vec<u32>>,
    /// Ids of the utterances.
    pub ids: Vec<SampleId>,
}

impl TensorBatch {
    /// Sends `batch` to `device`.
    pub fn send(batch: &HostBatch, device: &Device) -> Self {
        let shape = [batch.len(), batch.frames, batch.feature_width];
        let data = TensorData::new(batch.features.clone(), shape);
        Self {
            features: Tensor::from_data(data, device),
            frame_lengths: batch.frame_lengths.clone(),
            tokens: (0..batch.len()).map(|index| batch.tokens_of(index).to_vec()).collect(),
            ids: batch.ids.clone(),
        }
    }
}
