//! A batch on a device, as a model reads it.

use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{HostBatch, SampleId};

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
    /// Sends `batch` to `device`.
    pub fn send(batch: &HostBatch, device: &Device) -> Self {
        let features = |values: &[f32], frames: usize| -> Tensor<3> {
            let shape = [batch.len(), frames, batch.feature_width];
            Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
        };
        let references = || References {
            features: features(&batch.references, batch.reference_frames),
            lengths: batch.reference_lengths.clone(),
        };
        Self {
            features: features(&batch.features, batch.frames),
            frame_lengths: batch.frame_lengths.clone(),
            tokens: (0..batch.len()).map(|index| batch.tokens_of(index).to_vec()).collect(),
            ids: batch.ids.clone(),
            references: (batch.reference_frames > 0).then(references),
        }
    }
}
