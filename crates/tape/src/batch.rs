//! Batch of utterances on a device, the input of a speech model.

use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{Batch, HostBatch, SampleId};

use crate::capture::{from_host, is_capturing};
use crate::transfer::uploaded;

/// A batch of utterances on a device. Lengths, tokens and ids stay on the host, where models need them.
///
/// Shapes: b utterances, t frames, f features of a frame, r frames of a voice reference.
#[derive(Clone, Debug)]
pub struct TensorBatch {
    /// Features `[b, t, f]` of the utterances, padded with zeros.
    pub features: Tensor<3>,
    /// Number of frames in each utterance, without padding.
    pub frame_lengths: Vec<u32>,
    /// Token ids of each utterance, without padding.
    pub tokens: Vec<Vec<u32>>,
    /// Ids of the utterances in the batch.
    pub ids: Vec<SampleId>,
    /// Voice references; `None` if the batch has none.
    pub references: Option<References>,
}

/// Voice references: audio segments of the same speakers, from which a model derives their voices.
#[derive(Clone, Debug)]
pub struct References {
    /// Features `[b, r, f]` of the voice references, padded with zeros.
    pub features: Tensor<3>,
    /// Number of frames in each voice reference, without padding.
    pub lengths: Vec<u32>,
}

impl TensorBatch {
    /// Copies `batch` to `device`. Where the backend supports it, the copy uses page-locked memory, which a GPU reads
    /// without help of the CPU.
    pub fn send(batch: &HostBatch, device: &Device) -> Self {
        let tensors = |features: Tensor<3>, references: Option<Tensor<3>>| Self {
            features,
            frame_lengths: batch.frame_lengths.clone(),
            tokens: (0..batch.len()).map(|index| batch.tokens_of(index).to_vec()).collect(),
            ids: batch.ids.clone(),
            references: references.map(|features| References { features, lengths: batch.reference_lengths.clone() }),
        };
        let has_references = batch.reference_frames > 0;
        if is_capturing() {
            let upload = |values: &[f32], frames: usize| {
                from_host([batch.len(), frames, batch.feature_width], device, || values.to_vec())
            };
            let references = has_references.then(|| upload(&batch.references, batch.reference_frames));
            return tensors(upload(&batch.features, batch.frames), references);
        }
        let data = |values: &[f32], frames: usize| {
            TensorData::new(values.to_vec(), [batch.len(), frames, batch.feature_width])
        };
        let mut features = data(&batch.features, batch.frames);
        let mut references = has_references.then(|| data(&batch.references, batch.reference_frames));
        device.staging([&mut features].into_iter().chain(references.as_mut()));
        let [features, references] =
            [Some(features), references].map(|data| data.map(|data| Tensor::from_data(uploaded(data), device)));
        tensors(features.expect("a batch has features"), references)
    }
}
