//! From a text to sound with a trained synthesizer.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_audio::LogMel;
use plimsoll_core::{Key, SampleId, Seconds};
use plimsoll_text::{Case, Tokenizer, normalize};

use super::sound::{Sound, fade_ends};
use super::{
    Alignment, Ending, GeneratedMels, GenerationOptions, ParallelConfig, SpeechConfig, SpeechModel, SpeechText,
    SynthesizerConfig, split_text,
};
use crate::metadata::with_weights;
use crate::vocoder::NeuralVocoder;
use crate::{ModelError, ModelFolder, ModelKind, ModelMetadata};

/// Length of the shortest reference recording from which a voice is encoded.
const REFERENCE_MIN: Seconds = Seconds(0.2);
/// Peak below which a recording counts as silent: 60 dB below full scale.
const SILENCE_PEAK: f32 = 1e-3;
/// Maximum number of excerpts of a long reference that are encoded.
const EXCERPTS_MAX: usize = 8;
/// Number of parts of a text that are generated in one batch.
const BATCH_SIZE: usize = 16;
/// Maximum number of characters of a text in an error message.
const SHOWN_CHARACTERS: usize = 60;
/// Speeds of speech that can be asked for.
pub(super) const RATES: RangeInclusive<f64> = 0.25..=4.0;
/// Changes of pitch that can be asked for, in semitones. A voice sounds like itself in the middle half.
pub(super) const PITCHES: RangeInclusive<f64> = -12.0..=12.0;
/// Changes of energy that can be asked for, in decibels.
const ENERGIES: RangeInclusive<f64> = -12.0..=12.0;

/// A trained synthesizer with its features, its tokenizer and its vocoder: a trained one if the folder of the model has one,
/// otherwise Griffin-Lim.
///
/// ```no_run
/// use burn::tensor::Device;
/// use plimsoll_speech::tts::{SpeechOptions, SpeechPipeline};
///
/// let pipeline = SpeechPipeline::load("runs/tts-1".as_ref(), &Device::flex())?;
/// let recording = plimsoll_audio::read_audio("voice.wav", pipeline.sample_rate())?;
/// let voice = pipeline.encode_voice(&recording.samples)?;
/// let speech = pipeline.synthesize("Good day.", &voice, &SpeechOptions::default(), &mut |_, _| {})?;
/// plimsoll_audio::write_wav("said.wav".as_ref(), &speech.samples, pipeline.sample_rate())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SpeechPipeline {
    model: Box<dyn SpeechModel>,
    log_mel: LogMel,
    sound: Sound,
    tokenizer: Tokenizer,
    device: Device,
    /// Why the weights of the model and of the vocoder may not be the best.
    warnings: [Vec<String>; 2],
}

/// An encoded voice, which a synthesizer imitates; made by [`SpeechPipeline::encode_voice`].
#[derive(Clone, Debug)]
pub struct Voice(Tensor<3>);

/// Options of [`SpeechPipeline::synthesize`].
#[derive(Clone, Copy, Debug)]
pub struct SpeechOptions<'a> {
    /// Language of the text, one of [`SpeechPipeline::languages`]. With `None` (the default), a model with several
    /// languages gets the token for an unknown language.
    pub language: Option<&'a str>,
    /// Seed of the prenet's dropout of an autoregressive model; equal seeds give equal samples. Default 0.
    pub seed: u64,
    /// Speed of speech, from 0.25 to 4: at 2 the text lasts half as long. Only the parallel family can change it. Default
    /// 1.
    pub rate: f64,
    /// Change of pitch in semitones, from -12 to 12. Only models that were trained with `pitch` can change it. Default 0.
    pub pitch: f64,
    /// Change of energy in decibels, from -12 to 12: the voice speaks up, or softly. Only models that were trained with `pitch` can change
    /// it. Default 0.
    pub energy: f64,
}

impl Default for SpeechOptions<'_> {
    fn default() -> Self {
        Self { language: None, seed: 0, rate: 1.0, pitch: 0.0, energy: 0.0 }
    }
}

/// The synthesized sound of a text, with the generated log-mels of each part of the text.
#[derive(Clone, Debug)]
pub struct SynthesizedSpeech {
    /// Mono samples of the speech at [`SpeechPipeline::sample_rate`].
    pub samples: Vec<f32>,
    /// Parts that the text was split into, in order.
    pub segments: Vec<SpeechSegment>,
    /// Characters of the text that the model does not know; they were left out.
    pub unknown_characters: BTreeSet<char>,
    /// What was asked for and the model cannot do, such as another pitch.
    pub warnings: Vec<String>,
}

/// A part of a text with its generated log-mels.
#[derive(Clone, Debug)]
pub struct SpeechSegment {
    /// Text of the part.
    pub text: String,
    /// Tokens of the part.
    pub tokens: Vec<u32>,
    /// Generated log-mels of the part.
    pub generated: GeneratedMels,
}

/// Error of synthesizing a text or encoding a voice.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SynthesisError {
    /// The text is empty or has white space only.
    #[error("the text is empty")]
    EmptyText,
    /// The text has no letter or digit that the model knows.
    #[error("the model knows no character of \"{text}\": it was trained on {known}")]
    UnknownCharacters {
        /// Text that was to be synthesized, or its beginning.
        text: String,
        /// Characters that the model knows.
        known: String,
    },
    /// The model was not trained with the language.
    #[error("the model does not know the language `{language}`: it knows {known}")]
    UnknownLanguage {
        /// Language that was asked for.
        language: String,
        /// Languages that the model knows.
        known: String,
    },
    /// The model reads phonemes, and they cannot be made here.
    #[error(transparent)]
    Phonemes(plimsoll_text::PhonemeError),
    /// The speed of speech is impossible.
    #[error("the rate is {rate}, not from {} to {}", RATES.start(), RATES.end())]
    Rate {
        /// Rate that was asked for.
        rate: f64,
    },
    /// The change of pitch or energy is impossible.
    #[error("the {name} is {value}, not from {} to {}", range.start(), range.end())]
    Steering {
        /// What was to be changed.
        name: &'static str,
        /// Change that was asked for.
        value: f64,
        /// Possible changes.
        range: RangeInclusive<f64>,
    },
    /// The model cannot change its pitch and energy.
    #[error("this model cannot change its pitch and energy: it was not trained with `model.pitch`")]
    FixedPitch,
    /// The model cannot change the speed of speech.
    #[error("this model speaks at one rate: it is autoregressive")]
    FixedRate,
    /// The reference recording is too short.
    #[error("the reference lasts {length}; a voice needs at least {REFERENCE_MIN}")]
    ShortReference {
        /// Length of the reference recording.
        length: Seconds,
    },
    /// The reference recording is silent.
    #[error("the reference is silent")]
    SilentReference,
}

impl SynthesizedSpeech {
    /// Returns the parts of the text that were cut off because the model predicted no stop.
    pub fn cut_off_segments(&self) -> impl Iterator<Item = &SpeechSegment> {
        self.segments.iter().filter(|segment| segment.generated.ending == Ending::CutOff)
    }
}

impl SpeechPipeline {
    /// Length of the silence between two parts of a text.
    pub const PAUSE: Seconds = Seconds(0.25);

    /// Loads the best checkpoint of the run in `folder`, or the exported model in `folder`: a synthesizer of either family.
    ///
    /// # Errors
    /// When `folder` holds no synthesizer, or its files are damaged; see [`ModelError`].
    pub fn load(folder: &Path, device: &Device) -> Result<Self, ModelError> {
        match ModelFolder(folder).kind()?.as_str() {
            ParallelConfig::KIND => Self::load_family::<ParallelConfig>(folder, device),
            SynthesizerConfig::KIND => Self::load_family::<SynthesizerConfig>(folder, device),
            found => Err(ModelError::Kind { folder: folder.into(), found: found.into(), wanted: "a synthesizer" }),
        }
    }

    fn load_family<C: SpeechConfig>(folder: &Path, device: &Device) -> Result<Self, ModelError> {
        let metadata = ModelMetadata::<C>::read(folder)?;
        let (model, warnings) =
            with_weights(|device| metadata.model.init_model_unseeded(device), ModelFolder(folder), device)?;
        let (sound, of_vocoder) = Sound::of_model(folder, &metadata.features, device)?;
        Ok(Self { sound, warnings: [warnings, of_vocoder], ..Self::new(model, &metadata)? })
    }

    /// Makes a pipeline with a model that is already in memory, such as a model in training.
    ///
    /// # Errors
    /// [`ModelError::Features`] or [`ModelError::Vocoder`] when the features are invalid or cannot be turned into
    /// sound.
    pub fn new<C: SpeechConfig>(model: C::Model, metadata: &ModelMetadata<C>) -> Result<Self, ModelError> {
        // Without autodiff: nothing is kept for a backward pass.
        let model = if model.devices().iter().any(Device::is_autodiff) { model.valid() } else { model };
        let (log_mel, sound) = (LogMel::new(&metadata.features)?, Sound::griffin_lim(&metadata.features)?);
        let tokenizer = metadata.tokenizer.clone();
        let warnings = [Vec::new(), Vec::new()];
        Ok(Self { device: model.device(), model: Box::new(model), log_mel, sound, tokenizer, warnings })
    }

    /// Makes sound of log-mels by a trained vocoder, in place of Griffin-Lim.
    ///
    /// # Errors
    /// [`ModelError::OtherFeatures`] when the vocoder was trained with other features than the synthesizer.
    pub fn with_vocoder(self, vocoder: NeuralVocoder) -> Result<Self, ModelError> {
        let sound = Sound::neural(vocoder, self.log_mel.config())?;
        let [of_model, _] = self.warnings;
        Ok(Self { sound, warnings: [of_model, Vec::new()], ..self })
    }

    /// Makes sound of log-mels by the trained vocoder in `folder`, in place of Griffin-Lim.
    ///
    /// # Errors
    /// As [`NeuralVocoder::load`] and [`with_vocoder`](Self::with_vocoder).
    pub fn with_vocoder_in(self, folder: &Path) -> Result<Self, ModelError> {
        let (vocoder, of_vocoder) = NeuralVocoder::load(folder, &self.device)?;
        let Self { warnings: [of_model, _], .. } = &self;
        let warnings = [of_model.clone(), of_vocoder];
        Ok(Self { warnings, ..self.with_vocoder(vocoder)? })
    }

    /// Returns the reasons why the loaded weights may not be the best of their runs; empty if they are.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.warnings.iter().flatten().map(String::as_str)
    }

    /// Returns whether a trained vocoder makes the sound; otherwise Griffin-Lim does.
    pub fn has_vocoder(&self) -> bool {
        matches!(self.sound, Sound::Neural(_))
    }

    /// Returns the sample rate in Hz of the output, and of recordings for [`encode_voice`](Self::encode_voice).
    pub fn sample_rate(&self) -> u32 {
        self.log_mel.config().sample_rate
    }

    /// Returns the languages that the model knows; empty for a model with one language.
    pub fn languages(&self) -> &[String] {
        self.tokenizer.languages()
    }

    /// Returns the tokenizer of the model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns the text of each token, by token number.
    pub fn token_names(&self) -> Vec<String> {
        self.tokenizer.names()
    }

    /// Returns the extractor of the model's log-mel features.
    pub fn log_mel(&self) -> &LogMel {
        &self.log_mel
    }

    /// Returns the synthesizer.
    pub fn model(&self) -> &dyn SpeechModel {
        &*self.model
    }

    /// Encodes the voice of a recording: mono samples from -1 to 1 at [`sample_rate`](Self::sample_rate), at least 0.2
    /// s.
    ///
    /// Of a long recording, up to eight excerpts are encoded and averaged.
    ///
    /// # Errors
    /// [`SynthesisError::ShortReference`] or [`SynthesisError::SilentReference`].
    pub fn encode_voice(&self, samples: &[f32]) -> Result<Voice, SynthesisError> {
        let length = plimsoll_core::Samples(samples.len() as u64).at(self.sample_rate());
        if length < REFERENCE_MIN {
            return Err(SynthesisError::ShortReference { length });
        }
        if samples.iter().all(|sample| sample.abs() < SILENCE_PEAK) {
            return Err(SynthesisError::SilentReference);
        }
        let (features, width) = (self.log_mel.extract(samples), self.log_mel.n_mels());
        let frames = features.len() / width;
        let excerpt_len = self.model.reference_frames().clamp(1, frames);
        let count = (frames / excerpt_len).clamp(1, EXCERPTS_MAX);
        // The excerpts are spread evenly from the first frame to the last.
        let first = |index: usize| (frames - excerpt_len) * index / (count - 1).max(1);
        let excerpts = (0..count).flat_map(|i| features[first(i) * width..(first(i) + excerpt_len) * width].to_vec());
        let excerpts = TensorData::new(excerpts.collect::<Vec<f32>>(), [count, excerpt_len, width]);
        let references = Tensor::from_data(excerpts, &self.device);
        let voices = self.model.encode_voice(references, &vec![excerpt_len as u32; count]);
        Ok(Voice(voices.mean_dim(0)))
    }

    /// Synthesizes `text` in `voice`. `progress` is called with the number of finished parts and the number of all
    /// parts.
    ///
    /// An unknown capital letter is replaced by its lower-case letter if the model knows the lower-case letter; other
    /// unknown characters are left out and listed in the result.
    ///
    /// # Errors
    /// [`SynthesisError::EmptyText`], [`SynthesisError::UnknownCharacters`] or [`SynthesisError::UnknownLanguage`].
    pub fn synthesize(
        &self,
        text: &str,
        voice: &Voice,
        options: &SpeechOptions<'_>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<SynthesizedSpeech, SynthesisError> {
        let language = options.language;
        self.check_language(language)?;
        self.check_steering(options)?;
        let whole = normalize(text, Case::Keep);
        if whole.is_empty() {
            return Err(SynthesisError::EmptyText);
        }
        // Numbers are spelled out first, so that lengths and unknown characters refer to the spoken text.
        let text = self.lowercase_unknown(&self.tokenizer.normalized(text));
        if let Some(phonemes) = self.tokenizer.phonemes() {
            phonemes.apply(&text).map_err(SynthesisError::Phonemes)?;
        }
        let unknown_characters = self.tokenizer.unknown_characters(&normalize(&text, Case::Keep));
        let is_known =
            |character: &char| self.tokenizer.phonemes().is_some() || !unknown_characters.contains(character);
        let known: String = text.chars().filter(is_known).collect();
        let texts = split_text(&known, self.longest_part(&known));
        if texts.is_empty() {
            let text = whole.chars().take(SHOWN_CHARACTERS).collect();
            return Err(SynthesisError::UnknownCharacters { text, known: self.known_characters() });
        }
        let texts: Vec<String> = texts.iter().map(|text| normalize(text, Case::Keep)).collect();
        let tokens = |text: &String| {
            let mut tokens = self.tokenizer.encode_lossy(text).0;
            // A phoneme that no training text has.
            tokens.retain(|&token| token != Tokenizer::UNKNOWN);
            self.tokenizer.with_language_and_end(tokens, language)
        };
        let tokens: Vec<Vec<u32>> = texts.iter().map(tokens).collect();
        let mut generated = Vec::with_capacity(texts.len());
        for (index, batch) in tokens.chunks(BATCH_SIZE).enumerate() {
            progress(generated.len(), texts.len());
            let text = |(i, tokens): (usize, &Vec<u32>)| segment_text(index * BATCH_SIZE + i, tokens);
            let batch: Vec<SpeechText> = batch.iter().enumerate().map(text).collect();
            let [_, _, v] = voice.0.dims();
            let voices = voice.0.clone().expand([batch.len(), 1, v]);
            generated.extend(self.model.generate(&batch, voices, generation_options(options)));
        }
        let results = texts.into_iter().zip(tokens).zip(generated);
        let segments: Vec<SpeechSegment> =
            results.map(|((text, tokens), generated)| SpeechSegment { text, tokens, generated }).collect();
        let samples = self.vocode(segments.iter().map(|segment| segment.generated.mels.as_slice()));
        progress(segments.len(), segments.len());
        Ok(SynthesizedSpeech { samples, segments, unknown_characters, warnings: Vec::new() })
    }

    /// Computes the samples of log-mels, one sequence after the other, with a pause of 0.25 s in between. The ends of several
    /// sequences rise and fall within 5 ms, so that they do not click.
    pub fn vocode<'a>(&self, mels: impl Iterator<Item = &'a [f32]>) -> Vec<f32> {
        let pause = vec![0.0; (Self::PAUSE.0 * f64::from(self.sample_rate())) as usize];
        let mut sounds = self.sound.waveforms(&mels.collect::<Vec<_>>());
        if sounds.len() > 1 {
            sounds.iter_mut().for_each(|sound| fade_ends(sound, self.sample_rate()));
        }
        sounds.join(pause.as_slice())
    }

    /// Computes which token each frame of `segment` came from. `index` is the position of the segment in
    /// [`SynthesizedSpeech::segments`]; `voice` and `options` are the arguments of the synthesis.
    pub fn alignment(
        &self,
        segment: &SpeechSegment,
        index: usize,
        voice: &Voice,
        options: &SpeechOptions<'_>,
    ) -> Alignment {
        let text = segment_text(index, &segment.tokens);
        let options = generation_options(options);
        self.model.alignment(&text, &segment.generated, voice.0.clone(), options)
    }

    /// Returns the most characters of a part of `text` that is generated at once.
    fn longest_part(&self, text: &str) -> usize {
        // One token is needed for the end of the text.
        let tokens = self.model.length_bounds().tokens_max.saturating_sub(1);
        if self.tokenizer.phonemes().is_none() {
            // A token has at least one character.
            return tokens;
        }
        let (count, characters) = (self.tokenizer.count_lossy(text).0, text.chars().count());
        // Some parts have more phonemes for each character than the whole.
        tokens * characters.min(count) * 4 / (5 * count.max(1))
    }

    /// Returns `text` with lower-case letters in place of the capitals that the model does not know.
    fn lowercase_unknown(&self, text: &str) -> String {
        if self.tokenizer.phonemes().is_some() {
            return text.into();
        }
        let unknown = self.tokenizer.unknown_characters(text);
        let replacement = |character: char| -> String {
            let small: String = character.to_lowercase().collect();
            let known = unknown.contains(&character) && self.tokenizer.unknown_characters(&small).is_empty();
            if known { small } else { character.into() }
        };
        text.chars().map(replacement).collect()
    }

    fn check_language(&self, language: Option<&str>) -> Result<(), SynthesisError> {
        match language {
            Some(language) if !self.languages().iter().any(|known| known == language) => {
                Err(SynthesisError::UnknownLanguage {
                    language: language.into(),
                    known: if self.languages().is_empty() { "only one".into() } else { self.languages().join(", ") },
                })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the model can speak as `options` say.
    fn check_steering(&self, options: &SpeechOptions<'_>) -> Result<(), SynthesisError> {
        let &SpeechOptions { rate, pitch, energy, .. } = options;
        if !RATES.contains(&rate) {
            return Err(SynthesisError::Rate { rate });
        }
        if rate != 1.0 && !self.model.has_rate() {
            return Err(SynthesisError::FixedRate);
        }
        for (name, value, range) in [("pitch", pitch, PITCHES), ("energy", energy, ENERGIES)] {
            if !range.contains(&value) {
                return Err(SynthesisError::Steering { name, value, range });
            }
            if value != 0.0 && !self.model.has_pitch() {
                return Err(SynthesisError::FixedPitch);
            }
        }
        Ok(())
    }

    /// Returns the characters that the model knows, in one line.
    fn known_characters(&self) -> String {
        if let Some(phonemes) = self.tokenizer.phonemes() {
            return format!("what espeak-ng reads aloud in the voice `{}`", phonemes.voice());
        }
        let characters: BTreeSet<char> = self.tokenizer.names().iter().skip(4).flat_map(|name| name.chars()).collect();
        characters.into_iter().filter(|character| !character.is_whitespace()).collect()
    }
}

/// Returns the text of the segment with number `index`, with the id that its random numbers follow from.
fn segment_text(index: usize, tokens: &[u32]) -> SpeechText {
    SpeechText { tokens: tokens.to_vec(), id: SampleId(index as u64) }
}

fn generation_options(options: &SpeechOptions<'_>) -> GenerationOptions {
    let &SpeechOptions { language: _, seed, rate, pitch, energy } = options;
    GenerationOptions { key: Key::new(seed).with("say"), rate, pitch, energy }
}
