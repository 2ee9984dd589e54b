//! Tests of data sets: samples, caches and augmentation.

use tempfile::TempDir;

use super::*;
use crate::Noise;
use crate::store::{StoreConfig, StorePrecision};
use crate::testing::corpus;

fn dataset(folder: &TempDir, augment: Option<Augment>, cache: Bytes) -> Dataset {
    corpus(folder.path(), 6).dataset(augment, cache)
}

#[test]
fn a_sample_has_the_lengths_of_its_meta() {
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
fn the_memory_cache_changes_no_sample_and_keeps_its_limit() {
    let folder = TempDir::new().unwrap();
    let plain = dataset(&folder, None, Bytes(0));
    let samples: Vec<_> = (0..6).map(|index| plain.load(index, None).unwrap()).collect();
    let limit = Bytes::for_values::<f32>(samples[..3].iter().map(|s| s.features.len() as u64).sum::<u64>() + 1);
    let cached = dataset(&folder, None, limit);
    for _ in 0..2 {
        let again: Vec<_> = (0..6).map(|index| cached.load(index, None).unwrap()).collect();
        assert_eq!(again, samples);
    }
    assert_eq!(cached.cached_bytes(), Bytes(limit.0 - 4));
    assert_eq!(plain.cached_bytes(), Bytes(0));
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert!(cached.load(0, None).is_ok() && cached.load(5, None).is_err());
}

#[test]
fn stored_features_are_read_by_the_next_run() {
    for precision in [StorePrecision::F32, StorePrecision::F16] {
        let (folder, kept) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let config = StoreConfig { limit: Bytes::mib(8), precision };
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
        assert_eq!((second.counts().misses, second.counts().written), (0, 0), "{precision:?}");
    }
}

#[test]
fn augmentation_depends_on_the_key_and_not_on_the_cache() {
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
fn features_are_kept_at_each_speed() {
    let folder = TempDir::new().unwrap();
    let augment = Augment { speeds: vec![0.9, 1.0, 1.1], ..Augment::default() };
    let (kept, not) =
        (dataset(&folder, Some(augment.clone()), Bytes::mib(8)), dataset(&folder, Some(augment), Bytes(0)));
    let all = |dataset: &Dataset| -> Vec<HostSample> {
        let one = |index: usize, n: u64| dataset.load(index, Some(Key::new(n))).unwrap();
        (0..6).flat_map(|index| (0..20).map(move |n| one(index, n))).collect()
    };
    let (first, other) = (all(&kept), all(&not));
    assert!(first == other);
    let (cached, whole) = (kept.cached_bytes().0 as f64, kept.whole_size().0 as f64);
    assert!((cached / whole - 1.0).abs() < 0.02, "{cached} {whole}");
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert!(all(&kept) == first && not.load(0, Some(Key::new(1))).is_err());
}

#[test]
fn noise_does_not_depend_on_the_cache() {
    let folder = TempDir::new().unwrap();
    let noise = Noise { share: 0.5, snr_min_db: 0.0, snr_max_db: 10.0 };
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

/// A damaged recording costs itself alone, and not those whose voice it would have been the reference of.
#[test]
fn an_utterance_is_its_own_reference_where_the_other_cannot_be_read() {
    let folder = TempDir::new().unwrap();
    let mut corpus = corpus(folder.path(), 3);
    for utterance in &mut corpus.0 {
        utterance.speaker = Some("a".into());
    }
    let damaged = corpus.0[1].audio.clone();
    let dataset = corpus.dataset(None, Bytes(0)).for_synthesis(Frames(9));
    std::fs::write(damaged, b"no sound").unwrap();
    for seed in 0..5 {
        for index in [0, 2] {
            let sample = dataset.load(index, Some(Key::new(seed))).unwrap();
            assert!(!sample.reference.is_empty());
        }
        assert!(dataset.load(1, Some(Key::new(seed))).is_err());
    }
}

#[test]
fn errors_name_the_utterance() {
    let folder = TempDir::new().unwrap();
    let dataset = dataset(&folder, None, Bytes(0));
    std::fs::write(folder.path().join("3.wav"), "not a sound").unwrap();
    assert_eq!(dataset.load(3, None).unwrap_err().to_string(), "cannot load utterance `3`");
    let other = Dataset::new(dataset.utterances.part([0]), dataset.log_mel, Tokenizer::characters(["x"]));
    assert!(other.unknown_characters() > 0);
}

#[test]
fn a_vocoder_gets_crops_of_recordings() {
    let folder = TempDir::new().unwrap();
    let crop = Frames(4_000);
    let sound = |cache| dataset(&folder, None, cache).for_vocoding(crop);
    let (cached, uncached) = (sound(Bytes::mib(8)), sound(Bytes(0)));
    let mut starts = std::collections::BTreeSet::new();
    for index in 0..cached.len() {
        let whole = cached.load(index, None).unwrap();
        let meta = cached.meta(index);
        assert_eq!((meta.frames, meta.tokens, whole.tokens.len()), (crop, 1, 1));
        assert_eq!(whole.features.len(), cached.frames(index).0 as usize);
        for key in (0..8).map(Key::new) {
            let sample = cached.load(index, Some(key)).unwrap();
            assert_eq!(sample, uncached.load(index, Some(key)).unwrap());
            assert_eq!(sample.features.len(), 4_000);
            let last = whole.features.len().saturating_sub(4_000);
            let start = (0..=last).find(|&at| {
                let part = &whole.features[at..whole.features.len().min(at + 4_000)];
                sample.features[..part.len()] == *part && sample.features[part.len()..].iter().all(|&s| s == 0.0)
            });
            starts.insert(start.expect("a crop is a part of its recording"));
        }
    }
    assert!(starts.len() > 10, "{starts:?}");
    assert_eq!((cached.frame_width(), cached.whole_size()), (1, cached.cached_bytes()));
}

#[test]
fn a_recording_that_is_shorter_than_a_crop_is_followed_by_silence() {
    let folder = TempDir::new().unwrap();
    let dataset = dataset(&folder, None, Bytes(0)).for_vocoding(Frames(1 << 20));
    let (whole, crop) = (dataset.load(0, None).unwrap(), dataset.load(0, Some(Key::new(1))).unwrap());
    assert_eq!(crop.features.len(), 1 << 20);
    assert_eq!(crop.features[..whole.features.len()], whole.features);
    assert!(crop.features[whole.features.len()..].iter().all(|&sample| sample == 0.0));
}
