//! Turns recordings into text with a trained recognizer.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_audio::{LogMel, Padding};
use plimsoll_core::{Grid, HostBatch, HostSample, SampleId, Seconds};
use plimsoll_layers::LengthPolicy;
use plimsoll_tape::TensorBatch;
use plimsoll_text::Tokenizer;
use plimsoll_text::alignment::{AlignmentError, LogProbs, TokenSpan, align, words};
use plimsoll_text::transcript::Word;

use super::decode::CtcScores;
use super::{EncodedAudio, LanguageSearch, Recognizer, RecognizerConfig, RecognizerMetadata, Search};
use crate::metadata::with_weights;
use crate::{ModelError, ModelFolder};

/// How late a token begins after its sound: a model gives a token when enough of it is heard. It is the median of 242 words that
/// a recognizer of digits was trained on, with frames of 40 ms (docs/log/transcription.md, "Where words begin").
const LATE: Seconds = Seconds(0.045);

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
    /// Text of each token, in which a space begins a word.
    texts: Vec<String>,
    device: Device,
    warnings: Vec<String>,
    longest: Option<Seconds>,
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
        let tokenizer = metadata.tokenizer.clone();
        let model = model.with_outputs(tokenizer.size());
        let texts = tokenizer.token_texts().iter().map(|text| text.replace('▁', " ")).collect();
        let longest = metadata.longest;
        Ok(Self { model, log_mel, tokenizer, texts, device, warnings: Vec::new(), longest })
    }

    /// Loads the best checkpoint of the run in `folder`, or the exported model in `folder`.
    ///
    /// # Errors
    /// When `folder` holds no recognizer, or its files are damaged; see [`ModelError`].
    pub fn load(folder: &Path, device: &Device) -> Result<Self, ModelError> {
        let metadata = RecognizerMetadata::read(folder)?;
        let (model, warnings) =
            with_weights(|device| metadata.model.init_unseeded(device), ModelFolder(folder), device)?;
        Ok(Self { warnings, ..Self::new(model, &metadata)? })
    }

    /// Returns the reasons why the loaded weights may not be the best of the run; empty if they are.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
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

    /// Returns the length that nearly all utterances have which the model learned from; `None` if it is not known.
    pub fn longest_learned(&self) -> Option<Seconds> {
        self.longest
    }

    /// Returns the number of tokens that each frame scores, including the blank.
    pub(super) fn vocabulary(&self) -> usize {
        self.model.outputs()
    }

    /// Returns the tokenizer of the model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns the time between two frames of the encoder, to which times are rounded.
    pub fn frame_length(&self) -> Seconds {
        Seconds(self.frame_samples() as f64 / f64::from(self.sample_rate()))
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
        let (encoded, scores) = self.score(samples);
        let tokens = self.search(&scores, Some(&encoded), search, language);
        TimedTranscription { text: self.tokenizer.decode(&tokens), words: self.timed(&scores, &tokens) }
    }

    /// Computes the output of the encoder and the CTC scores of `samples`.
    pub(super) fn score(&self, samples: &[f32]) -> (EncodedAudio, CtcScores) {
        self.model.score_one(self.features(samples))
    }

    /// Searches the best tokens by scores of [`score`](Self::score).
    pub(super) fn search(
        &self,
        scores: &CtcScores,
        encoded: Option<&EncodedAudio>,
        search: &Search,
        language: Option<&LanguageSearch>,
    ) -> Vec<u32> {
        self.model.search_one(scores, encoded, search, language)
    }

    /// Finds the words of `tokens` with their times from the first frame of `scores`; none when CTC has no path.
    pub(super) fn timed(&self, scores: &CtcScores, tokens: &[u32]) -> Vec<Word> {
        self.words(&self.spans(scores, tokens).unwrap_or_default())
    }

    /// Returns the number of samples from one frame of the encoder to the next.
    pub fn frame_samples(&self) -> usize {
        self.log_mel.config().hop_length * self.model.config().subsampling.max(1)
    }

    /// Returns the longest part of a recording that is computed at once: `most`, or less when the model truncates longer ones.
    pub(super) fn samples_at_once(&self, most: Seconds) -> usize {
        let most = (most.0 * f64::from(self.sample_rate())) as usize;
        match self.model.config().length {
            LengthPolicy::Truncate(frames) => most.min(frames.get() as usize * self.frame_samples()),
            LengthPolicy::Exact | LengthPolicy::Chunked(_) => most,
        }
    }

    /// Computes the natural log-probabilities of CTC for all tokens, frame by frame.
    pub fn log_probs(&self, samples: &[f32]) -> CtcScores {
        self.score(samples).1
    }

    /// Finds the times of the words of a known text in a recording, counted from the first sample.
    ///
    /// An unknown capital letter counts as its lower-case letter, and other unknown characters count as silent; the words are
    /// returned as they were given. A word without any known character is left out.
    ///
    /// # Errors
    /// When the text has more tokens than the recording has frames.
    pub fn align(&self, samples: &[f32], text: &str) -> Result<Vec<Word>, AlignmentError> {
        let (_, scores) = self.score(samples);
        let (tokens, given) = self.known_tokens(text);
        Ok(self.words_as_given(&self.spans(&scores, &tokens)?, &given))
    }

    /// Encodes the characters of a text that the model knows. Returns the words that are left, as they were given.
    pub(super) fn known_tokens<'b>(&self, text: &'b str) -> (Vec<u32>, Vec<&'b str>) {
        let words = text.split_whitespace().map(|word| (word, self.known(word)));
        let (given, known): (Vec<&str>, Vec<String>) = words.filter(|(_, known)| !known.is_empty()).unzip();
        (self.tokenizer.encode_lossy(&known.join(" ")).0, given)
    }

    /// Makes words of the frames of tokens, with the texts `given`.
    pub(super) fn words_as_given(&self, spans: &[TokenSpan], given: &[&str]) -> Vec<Word> {
        let mut words = self.words(spans);
        // Numbers that the tokenizer spells out are several words.
        if words.len() == given.len() {
            words.iter_mut().zip(given).for_each(|(word, given)| word.text = (*given).into());
        }
        words
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

    /// Finds the frames of `tokens` on the most probable path of CTC.
    pub(super) fn spans(&self, scores: &CtcScores, tokens: &[u32]) -> Result<Vec<TokenSpan>, AlignmentError> {
        align(&LogProbs::new(scores.log_probs(), scores.vocabulary())?, tokens)
    }

    /// Makes words of the frames of tokens, with times from the first frame.
    pub(super) fn words(&self, spans: &[TokenSpan]) -> Vec<Word> {
        let mut words = words(spans, |token| &self.texts[token as usize], self.frame_length().0);
        words.iter_mut().for_each(|word| shift(word, self.frame_offset()));
        let mut last = 0.0f64;
        for word in &mut words {
            word.start = (word.start - LATE.0).max(last.min(word.start)).max(0.0);
            if let Some(first) = word.characters.first_mut() {
                first.start = word.start;
            }
            last = word.end;
        }
        words
    }

    /// Returns the text of each token; a space begins a word.
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns the time of the middle of the first frame of the encoder less half a frame: its features see later samples
    /// than those of the first frame length.
    fn frame_offset(&self) -> f64 {
        let (features, factor) = (self.log_mel.config(), self.model.config().subsampling.max(1));
        // Each halving sees three frames, the first of which is the first: the middle of the first output frame is frame
        // `factor - 1` of the features.
        let hops = (factor - 1) as f64 - factor as f64 / 2.0;
        let window = if features.padding == Padding::None { features.n_fft as f64 / 2.0 } else { 0.0 };
        (hops * features.hop_length as f64 + window) / f64::from(features.sample_rate)
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

/// Moves the times of `word` by `seconds`; none becomes negative.
pub(super) fn shift(word: &mut Word, seconds: f64) {
    each_time(word, |time| *time = (*time + seconds).max(0.0));
}

/// Changes the start and the end of a word and of its characters.
pub(super) fn each_time(word: &mut Word, change: impl Fn(&mut f64)) {
    [&mut word.start, &mut word.end].into_iter().for_each(&change);
    word.characters.iter_mut().flat_map(|character| [&mut character.start, &mut character.end]).for_each(change);
}

/// Moves the times of `words` that come before `said`, the end of the words before them. The times of words are moved a little
/// from those of their frames, beyond the edge of what is computed at once too.
pub(super) fn begin_after(words: &mut [Word], said: f64) {
    words.iter_mut().for_each(|word| each_time(word, |time| *time = time.max(said)));
}
