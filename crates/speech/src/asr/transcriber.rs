//! A trained recogniser, ready to read.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_audio::LogMel;
use plimsoll_core::{Grid, HostBatch, HostSample, SampleId, Seconds};
use plimsoll_layers::LengthPolicy;
use plimsoll_tape::{TensorBatch, apply};
use plimsoll_text::Tokenizer;

use super::{Recognizer, RecognizerConfig, RecognizerMetadata, Search};
use crate::{ModelError, ModelFolder};

/// A recogniser with its features and its letters.
pub struct Transcriber {
    model: Recognizer,
    log_mel: LogMel,
    tokenizer: Tokenizer,
    device: Device,
}

impl Transcriber {
    /// Loads the best checkpoint of the run in `folder`, or the model that was exported into it.
    pub fn load(folder: &Path, device: &Device) -> Result<Self, ModelError> {
        let metadata = RecognizerMetadata::read(folder)?;
        let model = apply(metadata.model.init_unseeded(device), ModelFolder(folder).weights()?)?;
        let log_mel = LogMel::new(&metadata.features)?;
        Ok(Self { model, log_mel, tokenizer: metadata.tokenizer, device: device.clone() })
    }

    /// Samples a second that [`transcribe`](Self::transcribe) expects.
    pub fn sample_rate(&self) -> u32 {
        self.log_mel.config().sample_rate
    }

    /// Whether `search` can be done: some need an attention decoder.
    pub fn supports(&self, search: &Search) -> bool {
        !search.needs_decoder() || self.model.decoder().is_some()
    }

    /// Whether the model's length policy cuts a recording of `length` short, so that its end is not heard.
    pub fn truncates(&self, length: Seconds) -> bool {
        let config = self.model.config();
        let whole = RecognizerConfig { length: LengthPolicy::Exact, ..*config };
        let frames = self.log_mel.frames_in(length).0;
        config.frames_after(frames) < whole.frames_after(frames)
    }

    /// The text of one recording, as `search` finds it.
    ///
    /// # Panics
    /// Where the model [cannot](Self::supports).
    pub fn transcribe(&self, samples: &[f32], search: &Search) -> String {
        let features = self.log_mel.extract(samples);
        let name = String::new();
        let sample = HostSample { id: SampleId(0), name, features, tokens: Vec::new(), reference: Vec::new() };
        let batch =
            HostBatch::collate(&[sample], self.log_mel.config().n_mels, &Grid::default()).expect("whole frames");
        let tensors = TensorBatch::send(&batch, &self.device);
        let tokens = self.model.recognize(tensors.features, &tensors.frame_lengths, search);
        self.tokenizer.decode(&tokens[0])
    }
}
