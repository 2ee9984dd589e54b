//! Lets the memory planner trace all kinds of models without data and without a GPU.

use burn::tensor::{Device, Tensor};
use plimsoll_core::{BatchShape, Grid, HostBatch, SampleId};
use plimsoll_memory::Traceable;
use plimsoll_tape::transfer::from_host;
use plimsoll_tape::{Pass, Task, TensorBatch};

use crate::asr::{Recognizer, RecognizerConfig};
use crate::tts::{ParallelConfig, ParallelSynthesizer, Synthesizer, SynthesizerConfig};
use crate::vocoder::{VocoderTask, VocoderTaskConfig};
use crate::whisper::{Whisper, WhisperConfig};

/// Makes a batch of silent utterances that all have the full length of `shape`, so that the batch needs the most
/// memory. Each utterance has a voice reference of `reference` frames.
///
/// Consecutive tokens differ where the vocabulary allows it: CTC needs an extra frame between equal tokens.
fn batch(shape: BatchShape, features: usize, vocabulary: usize, reference: usize) -> HostBatch {
    let (b, frames, u) = (shape.utterances as usize, shape.frames.0 as usize, shape.tokens as usize);
    // The first four tokens are special: blank, unknown, start and end.
    let first = 4.min(vocabulary.saturating_sub(2));
    let token = |index: usize| (first + index % (vocabulary - first).max(1)) as u32;
    let width = u.max(1);
    let row = |_| (0..width).map(|index| if index < u { token(index) } else { 0 });
    // A trace reads no values, so the system never gives memory to these zeros.
    HostBatch {
        ids: (0..b).map(|index| SampleId(index as u64)).collect(),
        names: (0..b).map(|index| format!("utterance {index}")).collect(),
        features: vec![0.0; b * frames * features],
        feature_width: features,
        frames,
        frame_lengths: vec![shape.frames.0; b],
        tokens: (0..b).flat_map(row).collect(),
        token_width: width,
        token_lengths: vec![shape.tokens; b],
        references: vec![0.0; b * reference * features],
        reference_frames: reference,
        reference_lengths: vec![reference as u32; b],
        grid: Grid::default(),
    }
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

impl Traceable for WhisperConfig {
    type Task = Whisper;

    fn init(&self, device: &Device) -> Whisper {
        self.init_unseeded(device)
    }

    fn batch(&self, shape: BatchShape) -> HostBatch {
        batch(shape, self.features, self.vocabulary, 0)
    }

    /// Computes the loss, and reads a text as long as the longest, as the validation of a Whisper model does.
    fn validate(&self, task: &Whisper, batch: &TensorBatch) {
        task.trace_generation(batch);
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

    /// Computes the loss, and speaks the texts, as the validation of a synthesizer does.
    fn validate(&self, task: &Synthesizer, batch: &TensorBatch) {
        let _ = task.loss(batch, &Pass::inference());
        task.trace_generation(batch);
    }
}

impl Traceable for ParallelConfig {
    type Task = ParallelSynthesizer;

    fn init(&self, device: &Device) -> ParallelSynthesizer {
        self.init_unseeded(device)
    }

    fn batch(&self, shape: BatchShape) -> HostBatch {
        batch(shape, self.features, self.vocabulary, self.voice.reference_frames)
    }

    /// Computes the loss, and speaks the texts, as the validation of a synthesizer does.
    fn validate(&self, task: &ParallelSynthesizer, batch: &TensorBatch) {
        let _ = task.loss(batch, &Pass::inference());
        task.trace_generation(batch);
    }
}

impl Traceable for VocoderTaskConfig {
    type Task = VocoderTask;

    fn init(&self, device: &Device) -> VocoderTask {
        self.init_unseeded(device)
    }

    fn batch(&self, shape: BatchShape) -> HostBatch {
        batch(shape, 1, 1, 0)
    }

    /// Generates one chunk of sound per recording, as the validation of a vocoder does.
    fn validate(&self, task: &VocoderTask, samples: &Tensor<2>) {
        let shape =
            [samples.dims()[0], self.chunk_frames() + 2 * self.vocoder.context_frames(), self.vocoder.features.n_mels];
        let mels: Tensor<3> = from_host(shape, &samples.device(), || vec![0.0; shape.iter().product()]);
        let _ = task.vocoder().generate(mels);
    }
}
