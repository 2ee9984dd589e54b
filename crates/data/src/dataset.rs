//! A data set: utterances that become samples when asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_core::{BatchError, Bytes, Frames, HostSample, Key, SampleId};

use crate::augment::{Augment, AugmentError};
use crate::batching::SampleMeta;
use crate::store::{Store, StoreKey};
use crate::utterance::Utterance;
use plimsoll_audio::LogMel;
use plimsoll_audio::buffers;
use plimsoll_audio::resample;
use plimsoll_audio::{Audio, AudioError, Stretch, read_audio_stretch};
use plimsoll_text::Tokenizer;

mod cache;
mod voices;

use cache::Cache;
use voices::Voices;

/// Why a sample or a batch cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The audio of an utterance cannot be read.
    #[error("cannot load utterance `{name}`")]
    Audio {
        /// The utterance.
        name: String,
        /// What is wrong with its audio.
        source: AudioError,
    },
    /// The samples do not make a batch.
    #[error("cannot make a batch")]
    Batch(#[from] BatchError),
    /// A worker thread panicked over a batch.
    #[error("a loader thread panicked over the batch of `{first}`: {message}")]
    Panic {
        /// The first utterance of the batch.
        first: String,
        /// What the panic said.
        message: String,
    },
    /// A worker thread is gone, and its batch with it.
    #[error("a loader thread ended before its batch was ready")]
    Gone,
    /// More utterances failed than may.
    #[error(
        "{count} of {of} utterances could not be loaded in one epoch, and {most} may fail; the last was `{last}`: {reason}"
    )]
    TooManyUnreadable {
        /// How many failed in this epoch.
        count: u64,
        /// How many there are.
        of: usize,
        /// How many may fail.
        most: u64,
        /// The last of them.
        last: String,
        /// Why it failed.
        reason: String,
    },
    /// As many utterances as the data set holds failed in a row.
    #[error("none of {count} utterances could be loaded; the first was `{first}`: {reason}")]
    NothingReadable {
        /// How many failed.
        count: usize,
        /// The first of them.
        first: String,
        /// Why it failed.
        reason: String,
    },
}

/// Utterances with all that is needed to make samples of them; it is shared by the loader's threads.
pub struct Dataset {
    utterances: Vec<Utterance>,
    tokens: Vec<Vec<u32>>,
    log_mel: LogMel,
    tokenizer: Tokenizer,
    augment: Option<Augment>,
    voices: Option<Voices>,
    unknown_letters: usize,
    cache: Cache,
    store: Option<Stored>,
}

/// Features kept on disk.
struct Stored {
    store: Arc<Store>,
    /// All that features depend on beside the sound.
    parameters: String,
}

impl Dataset {
    /// Makes a data set of `utterances`; up to `cache_limit` of un-augmented features stay in memory.
    ///
    /// Letters that the tokenizer does not know become its unknown id; they are counted and a warning names the first.
    pub fn new(
        utterances: Vec<Utterance>,
        log_mel: LogMel,
        tokenizer: Tokenizer,
        augment: Option<Augment>,
        cache_limit: Bytes,
    ) -> Result<Self, AugmentError> {
        augment.as_ref().map_or(Ok(()), Augment::check)?;
        let (tokens, unknown): (Vec<_>, Vec<usize>) =
            utterances.iter().map(|utterance| tokenizer.encode_lossy(&utterance.text)).unzip();
        let unknown_letters = unknown.iter().sum();
        let first = utterances.iter().find_map(|utterance| tokenizer.encode(&utterance.text).err());
        if let Some(first) = first {
            tracing::warn!(unknown_letters, %first, "some letters are not in the vocabulary");
        }
        let cache = Cache::new(utterances.len(), cache_limit);
        Ok(Self { utterances, tokens, log_mel, tokenizer, augment, voices: None, unknown_letters, cache, store: None })
    }

    /// The same for synthesis: texts say their language, if the tokenizer knows any, and where they end; and each sample
    /// brings a reference of its voice, so many frames of another utterance of its speaker.
    ///
    /// An utterance whose speaker says nothing else, or has no name, is its own reference.
    #[must_use]
    pub fn for_synthesis(mut self, reference: Frames) -> Self {
        for (tokens, utterance) in self.tokens.iter_mut().zip(&self.utterances) {
            *tokens = self.tokenizer.spoken(std::mem::take(tokens), utterance.language.as_deref());
        }
        self.voices = Some(Voices::new(&self.utterances, reference));
        self
    }

    /// The same with features that are kept on disk: what another run or epoch has computed is read instead.
    ///
    /// They are found by what is in the audio file and by the parameters of the features, so that they are never out of
    /// date. A store of 16 bits rounds all features, those just computed as well, so that it makes no difference whether
    /// they were there.
    #[must_use]
    pub fn with_store(mut self, store: Arc<Store>) -> Self {
        let parameters = format!("log-mel 1 {:?}", self.log_mel.config());
        self.store = Some(Stored { store, parameters });
        self
    }

    /// Utterances in it.
    pub fn len(&self) -> usize {
        self.utterances.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.utterances.is_empty()
    }

    /// Utterance `index`, as the manifest has it.
    pub fn utterance(&self, index: usize) -> &Utterance {
        &self.utterances[index]
    }

    /// The features that samples have.
    pub fn log_mel(&self) -> &LogMel {
        &self.log_mel
    }

    /// The tokens that samples have.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What is done to training samples.
    pub fn augment(&self) -> Option<&Augment> {
        self.augment.as_ref()
    }

    /// Letters of all texts that the tokenizer does not know.
    pub fn unknown_letters(&self) -> usize {
        self.unknown_letters
    }

    /// Memory that cached features take now.
    pub fn cached(&self) -> Bytes {
        Bytes(self.cache.used.load(Ordering::Relaxed))
    }

    /// What is known of sample `index` without reading its audio.
    pub fn meta(&self, index: usize) -> SampleMeta {
        let utterance = &self.utterances[index];
        SampleMeta {
            id: SampleId::of(&utterance.id),
            frames: self.log_mel.frames_in(utterance.duration),
            tokens: self.tokens[index].len() as u32,
            seconds: utterance.duration,
        }
    }

    /// What is known of all samples.
    pub fn metas(&self) -> Vec<SampleMeta> {
        (0..self.len()).map(|index| self.meta(index)).collect()
    }

    /// Loads sample `index`; with a key it is augmented, and the same key augments it in the same way.
    pub fn load(&self, index: usize, key: Option<Key>) -> Result<HostSample, LoadError> {
        let utterance = &self.utterances[index];
        let augment = self.augment.as_ref().zip(key);
        let speed = augment.map_or(1.0, |(augment, key)| augment.speed(key));
        let features = match augment {
            // What is different each time is not worth keeping.
            Some((augment, key)) if augment.changes_sound(key) => self.played(index, speed).map(|mut samples| {
                augment.sound(&mut samples, key);
                self.log_mel.extract(&samples)
            }),
            _ if speed == 1.0 => self.features(index),
            _ => self.features_at(index, speed),
        };
        let mut features = features.map_err(|source| LoadError::Audio { name: utterance.id.clone(), source })?;
        if let Some((augment, key)) = augment {
            augment.spec.apply(&mut features, self.log_mel.n_mels(), key.with("masks"));
        }
        let (id, name) = (SampleId::of(&utterance.id), utterance.id.clone());
        let reference = match &self.voices {
            Some(voices) => self.reference(voices, index, key.unwrap_or(Key::new(id.0)))?,
            None => Vec::new(),
        };
        Ok(HostSample { id, name, features, tokens: self.tokens[index].clone(), reference })
    }

    /// A stretch of another utterance in the voice of utterance `index`; which one, and where in it, follows from `key`.
    fn reference(&self, voices: &Voices, index: usize, key: Key) -> Result<Vec<f32>, LoadError> {
        let key = key.with("reference");
        let other = voices.other(index, key);
        let name = || self.utterances[other].id.clone();
        let features = self.features(other).map_err(|source| LoadError::Audio { name: name(), source })?;
        let width = self.log_mel.n_mels();
        let (frames, wanted) = (features.len() / width, voices.frames.0 as usize);
        let spare = frames.saturating_sub(wanted);
        let first = (key.with("place").unit() * (spare + 1) as f64) as usize;
        let reference = buffers::copy(&features[first * width..(first + wanted.min(frames)) * width]);
        buffers::give_back(features);
        Ok(reference)
    }

    /// Un-augmented features, from memory where they are there.
    fn features(&self, index: usize) -> Result<Vec<f32>, AudioError> {
        if let Some(features) = self.cache.get(index) {
            return Ok(buffers::copy(features));
        }
        let features = self.stored(index, 1.0, || Ok(self.log_mel.extract(&self.audio(index)?.samples)))?;
        self.cache.keep(index, &features);
        Ok(features)
    }

    /// Features from disk where they are there; otherwise they are made and kept.
    fn stored(
        &self,
        index: usize,
        speed: f32,
        make: impl FnOnce() -> Result<Vec<f32>, AudioError>,
    ) -> Result<Vec<f32>, AudioError> {
        let Some(Stored { store, parameters }) = &self.store else { return make() };
        let Utterance { audio, offset, duration, .. } = &self.utterances[index];
        // A file that cannot be read will be told of by whoever makes the features.
        let Ok(content) = store.content_of(audio) else { return make() };
        let times = [offset.0.to_bits(), duration.0.to_bits(), u64::from(speed.to_bits())].map(u64::to_le_bytes);
        let key = StoreKey::of(&[&content.to_le_bytes(), &times.concat(), parameters.as_bytes()]);
        if let Some(features) = store.get(key) {
            return Ok(features);
        }
        let features = store.rounded(make()?);
        store.put(key, &features);
        Ok(features)
    }

    /// Features of the utterance played `speed` times as fast, and as much higher, as sox's `speed` does.
    fn features_at(&self, index: usize, speed: f32) -> Result<Vec<f32>, AudioError> {
        self.stored(index, speed, || Ok(self.log_mel.extract(&self.played(index, speed)?)))
    }

    /// The sound of the utterance, so many times as fast.
    fn played(&self, index: usize, speed: f32) -> Result<Vec<f32>, AudioError> {
        let audio = self.audio(index)?;
        if speed == 1.0 {
            return Ok(audio.samples);
        }
        // A multiple of 100 Hz keeps the resampler's blocks small; speeds are thereby exact to 0.3 % at 16 kHz.
        let played = (f64::from(audio.rate) * f64::from(speed) / 100.0).round() as u32 * 100;
        Ok(resample(audio.samples, played, audio.rate))
    }

    fn audio(&self, index: usize) -> Result<Audio, AudioError> {
        let Utterance { audio, offset, duration, .. } = &self.utterances[index];
        let stretch = Stretch { offset: *offset, duration: Some(*duration) };
        read_audio_stretch(audio, stretch, self.log_mel.config().sample_rate)
    }
}

#[cfg(test)]
mod tests;
