//! A batch on a device, as a model reads it.

use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{Batch, HostBatch, SampleId};

/// A batch of utterances on a device, with what a host must know about it.
///
/// Shapes: b utterances, t frames, f features, r frames of a reference.
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
    /// The references of the voices, where the batch has them.
    pub references: Option<References>,
}

/// Other stretches of the voices of a batch.
#[derive(Clone, Debug)]
pub struct References {
    /// Features `[b, r, f]`, zero where padded.
    pub features: Tensor<3>,
    /// Frames of each.
    pub lengths: Vec<u32>,
}

impl TensorBatch {
    /// Sends `batch` to `device`, through memory that the device can fetch by itself where the backend has such.
    pub fn send(batch: &HostBatch, device: &Device) -> Self {
        let data = |values: &[f32], frames: usize| {
            TensorData::new(values.to_vec(), [batch.len(), frames, batch.feature_width])
        };
        let mut features = data(&batch.features, batch.frames);
        let mut references = (batch.reference_frames > 0).then(|| data(&batch.references, batch.reference_frames));
        device.staging([&mut features].into_iter().chain(references.as_mut()));
        let references = references.map(|features| References {
            features: Tensor::from_data(features, device),
            lengths: batch.reference_lengths.clone(),
        });
        Self {
            features: Tensor::from_data(features, device),
            frame_lengths: batch.frame_lengths.clone(),
            tokens: (0..batch.len()).map(|index| batch.tokens_of(index).to_vec()).collect(),
            ids: batch.ids.clone(),
            references,
        }
    }
}
