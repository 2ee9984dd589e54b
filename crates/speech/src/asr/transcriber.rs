//! Turns recordings into text with a trained recognizer.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_audio::LogMel;
use plimsoll_core::{Grid, HostBatch, HostSample, SampleId, Seconds};
use plimsoll_layers::LengthPolicy;
use plimsoll_tape::TensorBatch;
use plimsoll_text::Tokenizer;
use plimsoll_text::alignment::{AlignmentError, LogProbs, TokenSpan, align, words};
use plimsoll_text::transcript::Word;

use super::decode::CtcScores;
use super::{LanguageSearch, Recognizer, RecognizerConfig, RecognizerMetadata, Search};
use crate::metadata::with_weights;
use crate::{ModelError, ModelFolder};

/// The text of a recording with the times of its words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimedTranscription {
    /// Text of the recording.
    pub text: String,
    /// Words with their times in seconds; empty when CTC has no path for the text.
    pub words: Vec<Word>,
}

/// A trained recognizer with its features and its tokenizer.
///
/// ```no_run
/// use burn::tensor::{Device, Tensor, TensorData};
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

    /// Returns the tokenizer of the model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns the time between two frames of the encoder, to which times are rounded.
    pub fn frame_length(&self) -> Seconds {
        let features = self.log_mel.config();
        let hop = features.hop_length * self.model.config().subsampling.max(1);
        Seconds(hop as f64 / f64::from(features.sample_rate))
    }

    /// Transcribes one recording as [`transcribe`](Self::transcribe) does, and finds the times of its words. With
    /// `language`, that search is used in place of `search`.
    ///
    /// The times are those of the most probable path of CTC, counted from the first sample. They are empty when CTC has no
    /// path for the text, which can be with a search that does not follow CTC.
    ///
    /// # Panics
    /// When the model does not [support](Self::supports) `search`.
    pub fn transcribe_timed(
        &self,
        samples: &[f32],
        search: &Search,
        language: Option<&LanguageSearch>,
    ) -> TimedTranscription {
        let (tokens, scores) = self.model.recognize_one(self.features(samples), search, language);
        let spans = self.align_scores(&scores, &tokens).unwrap_or_default();
        TimedTranscription { text: self.tokenizer.decode(&tokens), words: self.words(&spans) }
    }

    /// Finds the times of the words of a known text in a recording, counted from the first sample.
    ///
    /// An unknown capital letter counts as its lower-case letter, and other unknown characters count as silent; the words are
    /// returned as they were given. A word without any known character is left out.
    ///
    /// # Errors
    /// When the text has more tokens than the recording has frames.
    pub fn align(&self, samples: &[f32], text: &str) -> Result<Vec<Word>, AlignmentError> {
        let (_, scores) = self.model.recognize_one(self.features(samples), &Search::Greedy, None);
        let given: Vec<(&str, String)> = text
            .split_whitespace()
            .map(|word| (word, self.known(word)))
            .filter(|(_, known)| !known.is_empty())
            .collect();
        let known: Vec<&str> = given.iter().map(|(_, known)| known.as_str()).collect();
        let (tokens, _) = self.tokenizer.encode_lossy(&known.join(" "));
        let mut words = self.words(&self.align_scores(&scores, &tokens)?);
        // Numbers that the tokenizer spells out are several words.
        if words.len() == given.len() {
            words.iter_mut().zip(given).for_each(|(word, (given, _))| word.text = given.into());
        }
        Ok(words)
    }

    /// Returns `word` in characters that the model knows: capitals as lower-case letters if need be, without unknown
    /// characters.
    fn known(&self, word: &str) -> String {
        let is_unknown = |text: &str| !self.tokenizer.unknown_characters(text).is_empty();
        let known = |character: char| match is_unknown(&character.to_string()) {
            true => character.to_lowercase().filter(|small| !is_unknown(&small.to_string())).collect::<String>(),
            false => character.to_string(),
        };
        word.chars().map(known).collect()
    }

    fn align_scores(&self, scores: &CtcScores, tokens: &[u32]) -> Result<Vec<TokenSpan>, AlignmentError> {
        align(&LogProbs::new(scores.log_probs(), scores.vocabulary())?, tokens)
    }

    fn words(&self, spans: &[TokenSpan]) -> Vec<Word> {
        let texts: Vec<String> = self.tokenizer.token_texts().iter().map(|text| text.replace('▁', " ")).collect();
        words(spans, |token| &texts[token as usize], self.frame_length().0)
    }

    fn features(&self, samples: &[f32]) -> Tensor<3> {
        let width = self.log_mel.n_mels();
        let features = self.log_mel.extract(samples);
        let frames = features.len() / width;
        Tensor::from_data(TensorData::new(features, [1, frames, width]), &self.device)
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
