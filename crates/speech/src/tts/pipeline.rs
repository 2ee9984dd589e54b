//! A trained synthesiser, ready to speak.

use std::collections::BTreeSet;
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_audio::{LogMel, Vocoder};
use plimsoll_core::{Grid, HostBatch, HostSample, Key, SampleId, Seconds};
use plimsoll_tape::{Noise, Pass, TensorBatch, apply};
use plimsoll_text::{Case, Tokenizer, normalise};

use super::{Alignment, Ending, GeneratedMels, Synthesizer, SynthesizerMetadata, split_text};
use crate::{ModelError, ModelFolder};

/// The shortest reference from which a voice can be told.
const REFERENCE_MIN: Seconds = Seconds(0.2);
/// What is quieter than this everywhere is silence: 60 dB below the loudest that a file can hold.
const SILENCE_PEAK: f32 = 1e-3;
/// Stretches of a long reference that are heard.
const EXCERPTS_MAX: usize = 8;
/// Parts of a text that are said at the same time.
const BATCH_SIZE: usize = 16;
/// Characters of a text that a message repeats.
const SHOWN_CHARACTERS: usize = 60;
/// Silence between two parts of a text.
const PAUSE: Seconds = Seconds(0.25);

/// A synthesiser with its features, its tokens and its vocoder.
pub struct SpeechPipeline {
    model: Synthesizer,
    log_mel: LogMel,
    vocoder: Vocoder,
    tokenizer: Tokenizer,
    device: Device,
}

/// A voice that a synthesiser can speak in.
#[derive(Clone, Debug)]
pub struct Voice(Tensor<3>);

/// How a text is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpeechOptions<'a> {
    /// The language of the text. Needed by a model that was trained on several, and `None` otherwise.
    pub language: Option<&'a str>,
    /// Seed of the prenet's dropout: the same seed gives the same samples.
    pub seed: u64,
}

/// What was said of a text.
#[derive(Clone, Debug)]
pub struct SynthesizedSpeech {
    /// The sound, in the narrator's sample rate.
    pub samples: Vec<f32>,
    /// The text in the parts that it was said in.
    pub segments: Vec<SpeechSegment>,
    /// Letters of the text that the model does not know, and that were left out.
    pub unknown_characters: BTreeSet<char>,
}

/// A part of a text, and how it was said.
#[derive(Clone, Debug)]
pub struct SpeechSegment {
    /// The text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// What was said of it.
    pub generated: GeneratedMels,
}

/// Why something cannot be said.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SynthesisError {
    /// There is nothing to say.
    #[error("the text is empty")]
    EmptyText,
    /// Nothing is left of the text.
    #[error("the model knows no letter of \"{text}\": it was trained on {known}")]
    UnknownCharacters {
        /// The text, or its beginning.
        text: String,
        /// The letters that it knows.
        known: String,
    },
    /// The language is none of the model's.
    #[error("the model does not know the language `{language}`: it knows {known}")]
    UnknownLanguage {
        /// The language.
        language: String,
        /// Those that it knows.
        known: String,
    },
    /// The reference is too short.
    #[error("the reference lasts {length}, and a voice needs {REFERENCE_MIN} at least")]
    ShortReference {
        /// How long it is.
        length: Seconds,
    },
    /// Nothing is to be heard in the reference.
    #[error("the reference is silent")]
    SilentReference,
}

impl SynthesizedSpeech {
    /// The parts that did not come to an end by themselves.
    pub fn cut_off_segments(&self) -> impl Iterator<Item = &SpeechSegment> {
        self.segments.iter().filter(|segment| segment.generated.ending == Ending::CutOff)
    }
}

impl SpeechPipeline {
    /// Loads the best checkpoint of the run in `folder`, or the model that was exported into it.
    pub fn load(folder: &Path, device: &Device) -> Result<Self, ModelError> {
        let metadata = SynthesizerMetadata::read(folder)?;
        let model = apply(metadata.model.init_unseeded(device), ModelFolder(folder).weights()?)?;
        Self::new(model, &metadata)
    }

    /// A narrator with `model`, which may be in training, and what belongs to it.
    pub fn new(model: Synthesizer, metadata: &SynthesizerMetadata) -> Result<Self, ModelError> {
        // Off the tape: nothing is kept for a backward pass.
        let model = if model.devices().iter().any(Device::is_autodiff) { model.valid() } else { model };
        let device = model.devices().into_iter().next().expect("a model has parameters");
        let (log_mel, vocoder) = (LogMel::new(&metadata.features)?, Vocoder::new(&metadata.features)?);
        Ok(Self { model, log_mel, vocoder, tokenizer: metadata.tokenizer.clone(), device })
    }

    /// Samples a second of what it says, and of what [`encode_voice`](Self::encode_voice) expects.
    pub fn sample_rate(&self) -> u32 {
        self.log_mel.config().sample_rate
    }

    /// The languages that it knows, if it was taught several.
    pub fn languages(&self) -> &[String] {
        self.tokenizer.languages()
    }

    /// What each of its tokens stands for.
    pub fn token_names(&self) -> Vec<String> {
        self.tokenizer.names()
    }

    /// Its features.
    pub fn log_mel(&self) -> &LogMel {
        &self.log_mel
    }

    /// The model.
    pub fn model(&self) -> &Synthesizer {
        &self.model
    }

    /// The voice of a recording. Of a long one several stretches are heard, and their voices averaged.
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
        let excerpt_len = self.model.config().voice.reference_frames.clamp(1, frames);
        let count = (frames / excerpt_len).clamp(1, EXCERPTS_MAX);
        // Evenly spread from the first frame to the last.
        let first = |index: usize| (frames - excerpt_len) * index / (count - 1).max(1);
        let excerpts = (0..count).flat_map(|i| features[first(i) * width..(first(i) + excerpt_len) * width].to_vec());
        let excerpts = TensorData::new(excerpts.collect::<Vec<f32>>(), [count, excerpt_len, width]);
        let references = Tensor::from_data(excerpts, &self.device);
        let voices = self.model.encode_voice(references, &vec![excerpt_len as u32; count], &Pass::plain());
        Ok(Voice(voices.mean_dim(0)))
    }

    /// Says `text` in `voice`; `told` hears how many of its parts are done, and of how many.
    ///
    /// Letters that the model does not know are said as their small letters where it knows these, and else left out. The
    /// same `seed` says the same in the same way.
    pub fn synthesize(
        &self,
        text: &str,
        voice: &Voice,
        options: &SpeechOptions<'_>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<SynthesizedSpeech, SynthesisError> {
        let &SpeechOptions { language, seed } = options;
        self.check_language(language)?;
        let whole = normalise(text, Case::Keep);
        if whole.is_empty() {
            return Err(SynthesisError::EmptyText);
        }
        // What is told of its length and its letters is told of what is said.
        let text = self.lowercase_unknown(&self.tokenizer.numbers().said(text));
        let unknown_characters = self.tokenizer.unknown_in(&normalise(&text, Case::Keep));
        let known: String = text.chars().filter(|character| !unknown_characters.contains(character)).collect();
        // Tokens are letters or more of them, and the last one says that the text ends.
        let texts = split_text(&known, self.model.config().length_bounds.tokens_max.saturating_sub(1));
        if texts.is_empty() {
            let text = whole.chars().take(SHOWN_CHARACTERS).collect();
            return Err(SynthesisError::UnknownCharacters { text, known: self.known_characters() });
        }
        let texts: Vec<String> = texts.iter().map(|text| normalise(text, Case::Keep)).collect();
        let tokens = |text: &String| self.tokenizer.spoken(self.tokenizer.encode_lossy(text).0, language);
        let tokens: Vec<Vec<u32>> = texts.iter().map(tokens).collect();
        let mut generated = Vec::with_capacity(texts.len());
        for (index, batch) in tokens.chunks(BATCH_SIZE).enumerate() {
            progress(generated.len(), texts.len());
            let ids: Vec<SampleId> = (0..batch.len()).map(|i| SampleId((index * BATCH_SIZE + i) as u64)).collect();
            let [_, _, v] = voice.0.dims();
            let voices = voice.0.clone().expand([batch.len(), 1, v]);
            generated.extend(self.model.generate(batch, &ids, voices, Key::new(seed).with("say")));
        }
        let results = texts.into_iter().zip(tokens).zip(generated);
        let segments: Vec<SpeechSegment> =
            results.map(|((text, tokens), generated)| SpeechSegment { text, tokens, generated }).collect();
        let samples = self.vocode(segments.iter().map(|segment| segment.generated.mels.as_slice()));
        progress(segments.len(), segments.len());
        Ok(SynthesizedSpeech { samples, segments, unknown_characters })
    }

    /// The sound of log-mels, one stretch after the other with a pause between them.
    pub fn vocode<'a>(&self, mels: impl Iterator<Item = &'a [f32]>) -> Vec<f32> {
        let pause = vec![0.0; (PAUSE.0 * f64::from(self.sample_rate())) as usize];
        self.vocoder.waves(&mels.collect::<Vec<_>>()).join(pause.as_slice())
    }

    /// Where it looked while it said the passage numbered `index` of a narration with `seed`.
    pub fn alignment(&self, segment: &SpeechSegment, index: usize, voice: &Voice, seed: u64) -> Alignment {
        let sample = HostSample {
            id: SampleId(index as u64),
            name: String::new(),
            features: segment.generated.before_postnet.clone(),
            tokens: segment.tokens.clone(),
            reference: Vec::new(),
        };
        let batch =
            HostBatch::collate(&[sample], self.log_mel.n_mels(), &Grid::default()).expect("whole frames were said");
        let batch = TensorBatch::send(&batch, &self.device);
        let prenet_noise = Noise::new(Key::new(seed).with("say"), &batch.ids);
        let weights = self.model.attention_weights_in(&batch, voice.0.clone(), &prenet_noise);
        Alignment::from_attention(&weights, self.model.config().reduction)
    }

    /// `text` with small letters for the capitals that it does not know.
    fn lowercase_unknown(&self, text: &str) -> String {
        let unknown = self.tokenizer.unknown_in(text);
        let replacement = |character: char| -> String {
            let small: String = character.to_lowercase().collect();
            let known = unknown.contains(&character) && self.tokenizer.unknown_in(&small).is_empty();
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

    /// The letters that it knows, in a line.
    fn known_characters(&self) -> String {
        let letters: BTreeSet<char> = self.tokenizer.names().iter().skip(4).flat_map(|name| name.chars()).collect();
        letters.into_iter().filter(|character| !character.is_whitespace()).collect()
    }
}
