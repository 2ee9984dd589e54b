//! Lets the memory planner trace both kinds of models without data and without a GPU.

use burn::tensor::Device;
use plimsoll_core::{BatchShape, Grid, HostBatch, HostSample, SampleId};
use plimsoll_memory::Traceable;
use plimsoll_tape::TensorBatch;

use crate::asr::{Recognizer, RecognizerConfig};
use crate::tts::{Synthesizer, SynthesizerConfig};

/// Makes a batch of silent utterances that all have the full length of `shape`, so that the batch needs the most
/// memory. Each utterance has a voice reference of `reference` frames.
///
/// Consecutive tokens differ where the vocabulary allows it: CTC needs an extra frame between equal tokens.
fn batch(shape: BatchShape, features: usize, vocabulary: usize, reference: usize) -> HostBatch {
    let frames = shape.frames.0 as usize;
    // The first four tokens are special: blank, unknown, start and end.
    let first = 4.min(vocabulary.saturating_sub(2));
    let token = |index: u32| (first + index as usize % (vocabulary - first).max(1)) as u32;
    let sample = |index: u32| HostSample {
        id: SampleId(u64::from(index)),
        name: format!("utterance {index}"),
        features: vec![0.0; frames * features],
        tokens: (0..shape.tokens).map(token).collect(),
        reference: vec![0.0; reference * features],
    };
    let samples: Vec<HostSample> = (0..shape.utterances).map(sample).collect();
    HostBatch::collate(&samples, features, &Grid::default())
        .expect("the shape has utterances, and each has whole frames")
}

impl Traceable for RecognizerConfig {
    type Task = Recognizer;

    fn init(&self, device: &Device) -> Recognizer {
        self.init_unseeded(device)
    }

    fn batch(&self, shape: BatchShape) -> HostBatch {
        batch(shape, self.features, self.vocabulary, 0)
    }

    /// Computes the logits and the loss, as the validation of a recognizer does.
    fn validate(&self, task: &Recognizer, batch: &TensorBatch) {
        let _ = task.encode_with_loss(batch);
    }
}

impl Traceable for SynthesizerConfig {
    type Task = Synthesizer;

    fn init(&self, device: &Device) -> Synthesizer {
        self.init_unseeded(device)
    }

    fn batch(&self, shape: BatchShape) -> HostBatch {
        batch(shape, self.features, self.vocabulary, self.voice.reference_frames)
    }
}
