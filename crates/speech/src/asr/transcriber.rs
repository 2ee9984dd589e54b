//! Turns recordings into text with a trained recognizer.

use std::path::Path;

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_audio::LogMel;
use plimsoll_core::{Grid, HostBatch, HostSample, SampleId, Seconds};
use plimsoll_layers::LengthPolicy;
use plimsoll_tape::TensorBatch;
use plimsoll_text::Tokenizer;

use super::{Recognizer, RecognizerConfig, RecognizerMetadata, Search};
use crate::metadata::with_weights;
use crate::{ModelError, ModelFolder};

/// A trained recognizer with its features and its tokenizer.
///
/// ```no_run
/// use burn::tensor::Device;
/// use plimsoll_speech::asr::{Search, Transcriber};
///
/// let transcriber = Transcriber::load("runs/asr-1".as_ref(), &Device::flex())?;
/// let silence = vec![0.0; transcriber.sample_rate() as usize];
/// println!("{}", transcriber.transcribe(&silence, &Search::Greedy));
/// # Ok::<(), plimsoll_speech::ModelError>(())
/// ```
pub struct Transcriber {
    model: Recognizer,
    log_mel: LogMel,
    tokenizer: Tokenizer,
    device: Device,
}

impl Transcriber {
    /// Makes a transcriber with a model that is already in memory, such as a model in training.
    ///
    /// # Errors
    /// [`ModelError::Features`] when the configuration of the features is invalid.
    pub fn new(model: Recognizer, metadata: &RecognizerMetadata) -> Result<Self, ModelError> {
        // Without autodiff: nothing is kept for a backward pass.
        let model = if model.devices().iter().any(Device::is_autodiff) { model.valid() } else { model };
        let device = model.devices().into_iter().next().expect("a model has parameters");
        let log_mel = LogMel::new(&metadata.features)?;
        Ok(Self { model, log_mel, tokenizer: metadata.tokenizer.clone(), device })
    }

    /// Loads the best checkpoint of the run in `folder`, or the exported model in `folder`.
    ///
    /// # Errors
    /// When `folder` holds no recognizer, or its files are damaged; see [`ModelError`].
    pub fn load(folder: &Path, device: &Device) -> Result<Self, ModelError> {
        let metadata = RecognizerMetadata::read(folder)?;
        let model = with_weights(|device| metadata.model.init_unseeded(device), ModelFolder(folder), device)?;
        Self::new(model, &metadata)
    }

    /// Returns the sample rate in Hz that [`transcribe`](Self::transcribe) expects.
    pub fn sample_rate(&self) -> u32 {
        self.log_mel.config().sample_rate
    }

    /// Returns whether the model can run `search`. Some searches need an attention decoder.
    pub fn supports(&self, search: &Search) -> bool {
        !search.needs_decoder() || self.model.decoder().is_some()
    }

    /// Returns whether the model's length policy ignores the end of a recording of `length`.
    pub fn truncates(&self, length: Seconds) -> bool {
        let config = self.model.config();
        let whole = RecognizerConfig { length: LengthPolicy::Exact, ..*config };
        let frames = self.log_mel.frames_in(length).0;
        config.frames_after(frames) < whole.frames_after(frames)
    }

    /// Transcribes one recording: mono samples from -1 to 1 at [`sample_rate`](Self::sample_rate).
    ///
    /// # Panics
    /// When the model does not [support](Self::supports) `search`.
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
