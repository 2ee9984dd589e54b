//! A trained synthesiser, ready to speak.

use std::collections::BTreeSet;
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_audio::{LogMel, Vocoder};
use plimsoll_core::{Grid, HostBatch, HostSample, Key, SampleId, Seconds};
use plimsoll_tape::{Noise, Pass, TensorBatch, apply};
use plimsoll_text::{Case, Tokenizer, normalize};

use super::{Alignment, Bundle, Ending, Spoken, Synthesiser, parts};
use crate::{BundleError, ModelFolder};

/// The shortest reference from which a voice can be told.
const SHORTEST_REFERENCE: Seconds = Seconds(0.2);
/// What is quieter than this everywhere is silence: 60 dB below the loudest that a file can hold.
const SILENCE: f32 = 1e-3;
/// Stretches of a long reference that are heard.
const STRETCHES: usize = 8;
/// Parts of a text that are said at the same time.
const TOGETHER: usize = 16;
/// Characters of a text that a message repeats.
const SHOWN: usize = 60;
/// Silence between two parts of a text.
const PAUSE: Seconds = Seconds(0.25);

/// A synthesiser with its features, its tokens and its vocoder.
pub struct Narrator {
    model: Synthesiser,
    log_mel: LogMel,
    vocoder: Vocoder,
    tokenizer: Tokenizer,
    device: Device,
}

/// A voice that a synthesiser can speak in.
#[derive(Clone, Debug)]
pub struct Voice(Tensor<3>);

/// What was said of a text.
#[derive(Clone, Debug)]
pub struct Narration {
    /// The sound, in the narrator's sample rate.
    pub samples: Vec<f32>,
    /// The text in the parts that it was said in.
    pub parts: Vec<Passage>,
    /// Letters of the text that the model does not know, and that were left out.
    pub unknown: BTreeSet<char>,
}

/// A part of a text, and how it was said.
#[derive(Clone, Debug)]
pub struct Passage {
    /// The text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// What was said of it.
    pub spoken: Spoken,
}

/// Why something cannot be said.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SayError {
    /// There is nothing to say.
    #[error("the text is empty")]
    Empty,
    /// Nothing is left of the text.
    #[error("the model knows no letter of \"{text}\": it was trained on {known}")]
    Unknown {
        /// The text, or its beginning.
        text: String,
        /// The letters that it knows.
        known: String,
    },
    /// The language is none of the model's.
    #[error("the model does not know the language `{language}`: it knows {known}")]
    Language {
        /// The language.
        language: String,
        /// Those that it knows.
        known: String,
    },
    /// The reference is too short.
    #[error("the reference lasts {length}, and a voice needs {SHORTEST_REFERENCE} at least")]
    ShortReference {
        /// How long it is.
        length: Seconds,
    },
    /// Nothing is to be heard in the reference.
    #[error("the reference is silent")]
    SilentReference,
}

impl Narration {
    /// The parts that did not come to an end by themselves.
    pub fn cut_off(&self) -> impl Iterator<Item = &Passage> {
        self.parts.iter().filter(|part| part.spoken.ending == Ending::CutOff)
    }
}

impl Narrator {
    /// Loads the best checkpoint of the run in `folder`, or the model that was exported into it.
    pub fn load(folder: &Path, device: &Device) -> Result<Self, BundleError> {
        let bundle = Bundle::read(folder)?;
        let model = apply(bundle.model.bare(device), ModelFolder(folder).weights()?)?;
        Self::new(model, &bundle)
    }

    /// A narrator with `model`, which may be in training, and what belongs to it.
    pub fn new(model: Synthesiser, bundle: &Bundle) -> Result<Self, BundleError> {
        // Off the tape: nothing is kept for a backward pass.
        let model = if model.devices().iter().any(Device::is_autodiff) { model.valid() } else { model };
        let device = model.devices().into_iter().next().expect("a model has parameters");
        let (log_mel, vocoder) = (LogMel::new(&bundle.features)?, Vocoder::new(&bundle.features)?);
        Ok(Self { model, log_mel, vocoder, tokenizer: bundle.tokenizer.clone(), device })
    }

    /// Samples a second of what it says, and of what [`voice`](Self::voice) expects.
    pub fn sample_rate(&self) -> u32 {
        self.log_mel.config().sample_rate
    }

    /// The languages that it knows, if it was taught several.
    pub fn languages(&self) -> &[String] {
        self.tokenizer.languages()
    }

    /// What each of its tokens stands for.
    pub fn tokens(&self) -> Vec<String> {
        self.tokenizer.names()
    }

    /// Its features.
    pub fn log_mel(&self) -> &LogMel {
        &self.log_mel
    }

    /// The model.
    pub fn model(&self) -> &Synthesiser {
        &self.model
    }

    /// The voice of a recording. Of a long one several stretches are heard, and their voices averaged.
    pub fn voice(&self, samples: &[f32]) -> Result<Voice, SayError> {
        let length = plimsoll_core::Samples(samples.len() as u64).at(self.sample_rate());
        if length < SHORTEST_REFERENCE {
            return Err(SayError::ShortReference { length });
        }
        if samples.iter().all(|sample| sample.abs() < SILENCE) {
            return Err(SayError::SilentReference);
        }
        let (features, width) = (self.log_mel.extract(samples), self.log_mel.n_mels());
        let frames = features.len() / width;
        let longest = self.model.config().voice.reference_frames.clamp(1, frames);
        let count = (frames / longest).clamp(1, STRETCHES);
        // Evenly spread from the first frame to the last.
        let first = |index: usize| (frames - longest) * index / (count - 1).max(1);
        let stretches = (0..count).flat_map(|i| features[first(i) * width..(first(i) + longest) * width].to_vec());
        let stretches = TensorData::new(stretches.collect::<Vec<f32>>(), [count, longest, width]);
        let references = Tensor::from_data(stretches, &self.device);
        let voices = self.model.hear(references, &vec![longest as u32; count], &Pass::plain());
        Ok(Voice(voices.mean_dim(0)))
    }

    /// Says `text` in `voice`; `told` hears how many of its parts are done, and of how many.
    ///
    /// Letters that the model does not know are said as their small letters where it knows these, and else left out. The
    /// same `seed` says the same in the same way.
    pub fn say(
        &self,
        text: &str,
        language: Option<&str>,
        voice: &Voice,
        seed: u64,
        told: &mut dyn FnMut(usize, usize),
    ) -> Result<Narration, SayError> {
        self.check_language(language)?;
        let whole = normalize(text, Case::Keep);
        if whole.is_empty() {
            return Err(SayError::Empty);
        }
        // What is told of its length and its letters is told of what is said.
        let text = self.spelled(&self.tokenizer.numbers().apply(text));
        let unknown = self.tokenizer.unknown_characters(&normalize(&text, Case::Keep));
        let known: String = text.chars().filter(|letter| !unknown.contains(letter)).collect();
        // Tokens are letters or more of them, and the last one says that the text ends.
        let texts = parts(&known, self.model.config().pace.longest.saturating_sub(1));
        if texts.is_empty() {
            let text = whole.chars().take(SHOWN).collect();
            return Err(SayError::Unknown { text, known: self.letters() });
        }
        let texts: Vec<String> = texts.iter().map(|text| normalize(text, Case::Keep)).collect();
        let tokens =
            |text: &String| self.tokenizer.with_language_and_end(self.tokenizer.encode_lossy(text).0, language);
        let tokens: Vec<Vec<u32>> = texts.iter().map(tokens).collect();
        let mut spoken = Vec::with_capacity(texts.len());
        for (index, together) in tokens.chunks(TOGETHER).enumerate() {
            told(spoken.len(), texts.len());
            let ids: Vec<SampleId> = (0..together.len()).map(|i| SampleId((index * TOGETHER + i) as u64)).collect();
            let [_, _, v] = voice.0.dims();
            let voices = voice.0.clone().expand([together.len(), 1, v]);
            spoken.extend(self.model.speak(together, &ids, voices, Key::new(seed).with("say")));
        }
        let passages = texts.into_iter().zip(tokens).zip(spoken);
        let parts: Vec<Passage> = passages.map(|((text, tokens), spoken)| Passage { text, tokens, spoken }).collect();
        let samples = self.sound(parts.iter().map(|part| part.spoken.mels.as_slice()));
        told(parts.len(), parts.len());
        Ok(Narration { samples, parts, unknown })
    }

    /// The sound of log-mels, one stretch after the other with a pause between them.
    pub fn sound<'a>(&self, stretches: impl Iterator<Item = &'a [f32]>) -> Vec<f32> {
        let pause = vec![0.0; (PAUSE.0 * f64::from(self.sample_rate())) as usize];
        self.vocoder.waveforms(&stretches.collect::<Vec<_>>()).join(pause.as_slice())
    }

    /// Where it looked while it said the passage numbered `index` of a narration with `seed`.
    pub fn alignment(&self, passage: &Passage, index: usize, voice: &Voice, seed: u64) -> Alignment {
        let sample = HostSample {
            id: SampleId(index as u64),
            name: String::new(),
            features: passage.spoken.rough.clone(),
            tokens: passage.tokens.clone(),
            reference: Vec::new(),
        };
        let batch =
            HostBatch::collate(&[sample], self.log_mel.n_mels(), &Grid::default()).expect("whole frames were said");
        let batch = TensorBatch::send(&batch, &self.device);
        let forgetting = Noise::new(Key::new(seed).with("say"), &batch.ids);
        let watched = self.model.watch_in(&batch, voice.0.clone(), &forgetting);
        Alignment::of(&watched, self.model.config().reduction)
    }

    /// `text` with small letters for the capitals that it does not know.
    fn spelled(&self, text: &str) -> String {
        let unknown = self.tokenizer.unknown_characters(text);
        let spelled = |letter: char| -> String {
            let small: String = letter.to_lowercase().collect();
            let known = unknown.contains(&letter) && self.tokenizer.unknown_characters(&small).is_empty();
            if known { small } else { letter.into() }
        };
        text.chars().map(spelled).collect()
    }

    fn check_language(&self, language: Option<&str>) -> Result<(), SayError> {
        match language {
            Some(language) if !self.languages().iter().any(|known| known == language) => Err(SayError::Language {
                language: language.into(),
                known: if self.languages().is_empty() { "only one".into() } else { self.languages().join(", ") },
            }),
            _ => Ok(()),
        }
    }

    /// The letters that it knows, in a line.
    fn letters(&self) -> String {
        let letters: BTreeSet<char> = self.tokenizer.names().iter().skip(4).flat_map(|name| name.chars()).collect();
        letters.into_iter().filter(|letter| !letter.is_whitespace()).collect()
    }
}
