//! A data set: utterances that become samples when asked for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use plimsoll_core::{BatchError, Bytes, Frames, HostSample, Key, SampleId};

use crate::audio::{Audio, AudioError, Stretch, read_audio_stretch};
use crate::augment::{Augment, AugmentError};
use crate::batching::SampleMeta;
use crate::features::LogMel;
use crate::manifest::Utterance;
use crate::resample::resample;
use crate::store::{Store, StoreKey};
use crate::text::Tokenizer;

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
        Ok(features[first * width..(first + wanted.min(frames)) * width].to_vec())
    }

    /// Un-augmented features, from memory where they are there.
    fn features(&self, index: usize) -> Result<Vec<f32>, AudioError> {
        if let Some(features) = self.cache.get(index) {
            return Ok(features.to_vec());
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

/// Who speaks which utterances.
struct Voices {
    /// The utterances of each speaker.
    speakers: Vec<Vec<usize>>,
    /// The speaker of each utterance.
    by: Vec<usize>,
    /// The longest that a reference may be.
    frames: Frames,
}

impl Voices {
    fn new(utterances: &[Utterance], frames: Frames) -> Self {
        let mut named: HashMap<&str, usize> = HashMap::new();
        let mut speakers: Vec<Vec<usize>> = Vec::new();
        let mut by = Vec::with_capacity(utterances.len());
        for (index, utterance) in utterances.iter().enumerate() {
            let next = speakers.len();
            let speaker = utterance.speaker.as_deref().map_or(next, |name| *named.entry(name).or_insert(next));
            if speaker == next {
                speakers.push(Vec::new());
            }
            speakers[speaker].push(index);
            by.push(speaker);
        }
        Self { speakers, by, frames }
    }

    /// An utterance of the same speaker, another one where there is any.
    fn other(&self, index: usize, key: Key) -> usize {
        let all = &self.speakers[self.by[index]];
        let place = all.binary_search(&index).expect("utterances are listed in order, each with its speaker");
        match all.len() {
            1 => index,
            // One of the others: whoever would be the utterance itself is the last instead.
            n => {
                let drawn = (key.unit() * (n - 1) as f64) as usize;
                all[if drawn == place { n - 1 } else { drawn }]
            }
        }
    }
}

/// Features kept in memory, each in its own slot, until the limit is reached.
///
/// Nothing is ever thrown out: an epoch asks for every sample once, in random order, so no sample is worth more.
struct Cache {
    slots: Vec<OnceLock<Box<[f32]>>>,
    used: AtomicU64,
    limit: u64,
}

impl Cache {
    fn new(slots: usize, limit: Bytes) -> Self {
        Self { slots: (0..slots).map(|_| OnceLock::new()).collect(), used: AtomicU64::new(0), limit: limit.0 }
    }

    fn get(&self, index: usize) -> Option<&[f32]> {
        self.slots[index].get().map(|features| &**features)
    }

    /// Keeps a copy where there is room. Room is taken first, so that threads cannot together go over the limit.
    fn keep(&self, index: usize, features: &[f32]) {
        let size = Bytes::of::<f32>(features.len() as u64).0;
        let more = |used: u64| used.checked_add(size).filter(|&used| used <= self.limit);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return;
        }
        // Another thread may have been faster.
        if self.slots[index].set(features.into()).is_err() {
            self.used.fetch_sub(size, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::Noise;
    use crate::store::{StoreConfig, StoreNumbers};
    use crate::testing::corpus;

    fn dataset(folder: &TempDir, augment: Option<Augment>, cache: Bytes) -> Dataset {
        corpus(folder.path(), 6).dataset(augment, cache)
    }

    #[test]
    fn a_sample_is_what_its_meta_promised() {
        let folder = TempDir::new().unwrap();
        let dataset = dataset(&folder, None, Bytes(0));
        for index in 0..dataset.len() {
            let (sample, meta) = (dataset.load(index, None).unwrap(), dataset.meta(index));
            assert_eq!(sample.id, meta.id);
            assert_eq!(sample.features.len(), meta.frames.0 as usize * dataset.log_mel().n_mels());
            assert_eq!(sample.tokens.len(), meta.tokens as usize);
            assert_eq!(dataset.tokenizer().decode(&sample.tokens), dataset.utterance(index).text);
        }
    }

    #[test]
    fn the_cache_changes_nothing_and_stays_within_its_limit() {
        let folder = TempDir::new().unwrap();
        let plain = dataset(&folder, None, Bytes(0));
        let samples: Vec<_> = (0..6).map(|index| plain.load(index, None).unwrap()).collect();
        let limit = Bytes::of::<f32>(samples[..3].iter().map(|s| s.features.len() as u64).sum::<u64>() + 1);
        let cached = dataset(&folder, None, limit);
        for _ in 0..2 {
            let again: Vec<_> = (0..6).map(|index| cached.load(index, None).unwrap()).collect();
            assert_eq!(again, samples);
        }
        assert_eq!(cached.cached(), Bytes(limit.0 - 4));
        assert_eq!(plain.cached(), Bytes(0));
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(cached.load(0, None).is_ok() && cached.load(5, None).is_err());
    }

    #[test]
    fn what_one_run_computed_the_next_one_reads() {
        for numbers in [StoreNumbers::F32, StoreNumbers::F16] {
            let (folder, kept) = (TempDir::new().unwrap(), TempDir::new().unwrap());
            let config = StoreConfig { limit: Bytes::mib(8), numbers };
            let open = || Arc::new(Store::open(kept.path(), &config).unwrap());
            let augment = Augment { speeds: vec![0.9, 1.1], ..Augment::default() };
            let load = |store: Arc<Store>| -> Vec<HostSample> {
                let dataset = dataset(&folder, Some(augment.clone()), Bytes(0)).with_store(store);
                let keys = [None, Some(Key::new(1)), Some(Key::new(2))];
                keys.into_iter()
                    .flat_map(|key| (0..6).map(move |n| (n, key)))
                    .map(|(n, key)| dataset.load(n, key).unwrap())
                    .collect()
            };
            let first = open();
            let computed = load(first.clone());
            assert!(first.counts().written >= 6 && first.counts().hits < 12, "{:?}", first.counts());
            drop(first);
            let second = open();
            assert_eq!(load(second.clone()), computed);
            assert_eq!((second.counts().misses, second.counts().written), (0, 0), "{numbers:?}");
        }
    }

    #[test]
    fn augmentation_follows_the_key_and_spares_the_cache() {
        let folder = TempDir::new().unwrap();
        let augment = Augment { speeds: vec![0.9, 1.0, 1.1], ..Augment::default() };
        let dataset = dataset(&folder, Some(augment), Bytes::mib(1));
        let plain = dataset.load(2, None).unwrap();
        let lengths: std::collections::BTreeSet<usize> =
            (0..20).map(|n| dataset.load(2, Some(Key::new(n))).unwrap().features.len()).collect();
        assert_eq!(lengths.len(), 3);
        let once = dataset.load(2, Some(Key::new(1))).unwrap();
        assert_eq!(once, dataset.load(2, Some(Key::new(1))).unwrap());
        assert_ne!(once, plain);
        assert_eq!(dataset.load(2, None).unwrap(), plain);
    }

    #[test]
    fn noise_is_the_same_wherever_features_are_kept() {
        let folder = TempDir::new().unwrap();
        let noise = Noise { share: 0.5, least: 0.0, most: 10.0 };
        let augment = Augment { noise, speeds: vec![0.9, 1.0], ..Augment::default() };
        let (kept, not) =
            (dataset(&folder, Some(augment.clone()), Bytes::mib(1)), dataset(&folder, Some(augment), Bytes(0)));
        let plain = not.load(2, None).unwrap();
        let all = |dataset: &Dataset| -> Vec<HostSample> {
            (0..20).map(|n| dataset.load(2, Some(Key::new(n))).unwrap()).collect()
        };
        let (first, again, other) = (all(&kept), all(&kept), all(&not));
        assert!(first == again && again == other && first.iter().all(|sample| *sample != plain));
        assert_eq!(kept.load(2, None).unwrap(), plain);
    }

    #[test]
    fn a_faster_speed_is_a_higher_tone() {
        let folder = TempDir::new().unwrap();
        let slow = Augment { speeds: vec![0.5], ..Augment::default() };
        let slow = dataset(&folder, Some(slow), Bytes(0));
        let plain = dataset(&folder, None, Bytes(0));
        let loudest = |features: &[f32]| {
            let frame = &features[features.len() / 80 / 2 * 80..][..80];
            (0..80).max_by(|&a, &b| frame[a].total_cmp(&frame[b])).unwrap()
        };
        let raw = |dataset: &Dataset, speed| dataset.features_at(4, speed).unwrap();
        assert!(loudest(&raw(&slow, 0.5)) + 5 < loudest(&raw(&plain, 1.0)));
        assert_eq!(raw(&slow, 0.5).len() / 80 / 2, raw(&plain, 1.0).len() / 80 - 1);
    }

    #[test]
    fn a_reference_is_another_utterance_of_the_same_speaker() {
        let folder = TempDir::new().unwrap();
        let mut corpus = corpus(folder.path(), 6);
        for (index, utterance) in corpus.0.iter_mut().enumerate() {
            utterance.speaker = [Some("a"), Some("b"), None][index % 3].map(Into::into);
        }
        let dataset = corpus.dataset(None, Bytes(0)).for_synthesis(Frames(9));
        let own: Vec<Vec<f32>> = (0..6).map(|index| dataset.load(index, None).unwrap().features).collect();
        let from = |reference: &[f32]| -> Vec<usize> {
            assert!(reference.len() <= 9 * 80);
            (0..6).filter(|&i| own[i].windows(reference.len()).step_by(80).any(|part| part == reference)).collect()
        };
        for seed in 0..5 {
            for (index, expected) in [(0, 3), (1, 4), (2, 2), (3, 0), (4, 1), (5, 5)] {
                let reference = dataset.load(index, Some(Key::new(seed))).unwrap().reference;
                assert_eq!(from(&reference), [expected], "{index}");
                assert_eq!(reference, dataset.load(index, Some(Key::new(seed))).unwrap().reference);
            }
        }
        assert_eq!(dataset.load(0, None).unwrap(), dataset.load(0, None).unwrap());
        let sample = dataset.load(0, None).unwrap();
        assert_eq!(sample.tokens.last(), Some(&Tokenizer::END));
        assert_eq!(dataset.meta(0).tokens as usize, sample.tokens.len());
    }

    #[test]
    fn what_fails_is_named() {
        let folder = TempDir::new().unwrap();
        let dataset = dataset(&folder, None, Bytes(0));
        std::fs::write(folder.path().join("3.wav"), "not a sound").unwrap();
        assert_eq!(dataset.load(3, None).unwrap_err().to_string(), "cannot load utterance `3`");
        let other = Dataset::new(
            vec![dataset.utterance(0).clone()],
            dataset.log_mel,
            Tokenizer::characters(["x"]),
            None,
            Bytes(0),
        );
        assert!(other.unwrap().unknown_letters() > 0);
    }
}
