//! Tests of batching: little padding, few shapes, and every sample exactly once.

use proptest::prelude::*;

use super::*;

/// Returns samples with the numbers of frames `frames`, and about one token for seven frames.
fn samples(frames: &[u32]) -> Vec<SampleMeta> {
    let sample = |(n, &frames): (usize, &u32)| SampleMeta {
        id: SampleId::from_name(&n.to_string()),
        frames: Frames(frames),
        tokens: frames / 7 * (90 + n as u32 * 37 % 20) / 100,
        seconds: Seconds(f64::from(frames) / 100.0),
    };
    frames.iter().enumerate().map(sample).collect()
}

fn utterances(n: u32) -> BatchingConfig {
    BatchingConfig::new(BatchSize::Utterances(NonZeroU32::new(n).unwrap()))
}

/// Counts the frames of `batches` with padding and without padding.
fn cells(samples: &[SampleMeta], batches: &[Vec<usize>]) -> (u64, u64) {
    let frames = |&index: &usize| u64::from(samples[index].frames.0);
    let padded = batches.iter().map(|b| b.len() as u64 * b.iter().map(frames).max().unwrap_or(0)).sum();
    (padded, batches.iter().flatten().map(frames).sum())
}

#[test]
fn sorting_inside_windows_removes_most_padding() {
    // Lengths from 1 to 17 s, uniform in their squares: most are long, as in LibriSpeech.
    let key = Key::new(9);
    let frames: Vec<u32> = (0..5_000).map(|n| (1_700.0 * key.at(n).unit().sqrt()) as u32 + 100).collect();
    let samples = samples(&frames);
    let order: Vec<usize> = (0..samples.len()).collect();
    let share = |batches: &[Vec<usize>]| {
        let (padded, real) = cells(&samples, batches);
        1.0 - real as f64 / padded as f64
    };
    let sorted = share(&epoch_batches(&samples, &utterances(16), Key::new(1), 0));
    let unsorted = share(&ordered_batches(&samples, &order, utterances(16).size));
    assert!(sorted < 0.04 && unsorted > 0.2, "{sorted} {unsorted}");
}

#[test]
fn lengths_of_real_corpora_leave_little_padding_on_either_side() {
    let row = |line: &str| {
        let mut fields = line.split('\t').skip(1);
        let (seconds, tokens): (f64, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let frames = Frames((seconds * 100.0).round() as u32);
        Some(SampleMeta { id: SampleId::from_name(line), frames, tokens, seconds: Seconds(seconds) })
    };
    let lengths = include_str!("../../../../fixtures/data/lengths.tsv");
    let samples: Vec<SampleMeta> = lengths.lines().filter_map(row).collect();
    assert_eq!(samples.len(), 30_000);
    let config = BatchingConfig::new(BatchSize::Seconds(Seconds(200.0)));
    let plain = outcome(&samples, &config);
    assert!(plain.audio < 0.03 && plain.tokens < 0.05, "{plain:?}");
    assert!(plain.full > 170.0, "{plain:?}: batches of 200 s");
    let few = outcome(&samples, &BatchingConfig { shapes: NonZeroU32::new(72), ..config });
    assert!(few.audio < 0.06 && few.tokens < 0.10 && few.shapes <= 256, "{few:?}");
    assert!(few.full > 165.0, "{few:?}: batches of 200 s");
}

/// Padding of frames and tokens, number of shapes (utterances, frames, tokens), and mean seconds of audio in a batch.
#[derive(Debug)]
struct Outcome {
    audio: f64,
    tokens: f64,
    shapes: usize,
    full: f64,
}

fn outcome(samples: &[SampleMeta], config: &BatchingConfig) -> Outcome {
    let grid = config.grid(samples);
    let batches = epoch_batches(samples, config, Key::new(1), 0);
    let (mut padded, mut shapes) = ((0.0, 0.0), std::collections::BTreeSet::new());
    for batch in &batches {
        let longest = |length: fn(&SampleMeta) -> u32| batch.iter().map(|&i| length(&samples[i])).max().unwrap();
        let frames = grid.frames(longest(|sample| sample.frames.0));
        let tokens = grid.tokens(frames, longest(|sample| sample.tokens));
        shapes.insert((batch.len(), frames, tokens));
        padded.0 += batch.len() as f64 * f64::from(frames);
        padded.1 += batch.len() as f64 * f64::from(tokens);
    }
    let real = |length: fn(&SampleMeta) -> f64| samples.iter().map(length).sum::<f64>();
    Outcome {
        audio: 1.0 - real(|sample| f64::from(sample.frames.0)) / padded.0,
        tokens: 1.0 - real(|sample| f64::from(sample.tokens)) / padded.1,
        shapes: shapes.len(),
        full: real(|sample| sample.seconds.0) / batches.len() as f64,
    }
}

#[test]
fn equal_lengths_are_sorted_by_tokens() {
    let mut samples = samples(&[160; 64]);
    samples.iter_mut().enumerate().for_each(|(n, sample)| {
        sample.tokens = n as u32;
        sample.frames.0 += n as u32 % 40;
    });
    let config = BatchingConfig { frame_grid: NonZeroU32::new(200).unwrap(), ..utterances(8) };
    for batch in epoch_batches(&samples, &config, Key::new(1), 0) {
        assert_eq!(batch.iter().max().unwrap() - batch.iter().min().unwrap(), 7, "{batch:?}");
    }
}

#[test]
fn each_epoch_has_its_own_order() {
    let samples = samples(&(0..500).map(|n| n % 97 + 50).collect::<Vec<_>>());
    let batches = |seed, epoch| epoch_batches(&samples, &utterances(8), Key::new(seed), epoch);
    assert_eq!(batches(1, 3), batches(1, 3));
    assert_ne!(batches(1, 3), batches(1, 4));
    assert_ne!(batches(1, 3), batches(2, 3));
    assert!(epoch_batches(&[], &utterances(8), Key::new(1), 0).is_empty());
}

#[test]
fn configurations_are_read_strictly() {
    let read = |json: &str| serde_json::from_str::<BatchingConfig>(json);
    assert_eq!(read(r#"{"size": {"utterances": 8}}"#).unwrap(), utterances(8));
    let seconds = read(r#"{"size": {"seconds": "2min"}, "window": 4, "frame_grid": 16}"#).unwrap();
    assert_eq!((seconds.size, seconds.window.unwrap().get()), (BatchSize::Seconds(Seconds(120.0)), 4));
    assert!(read(r#"{"size": {"utterances": 0}}"#).is_err() && read(r#"{"window": 4}"#).is_err());
}

fn sizes() -> impl Strategy<Value = BatchSize> {
    prop_oneof![
        (1u32..20).prop_map(|n| BatchSize::Utterances(NonZeroU32::new(n).unwrap())),
        (1.0..60.0).prop_map(|s| BatchSize::Seconds(Seconds(s))),
    ]
}

proptest! {
    #[test]
    fn an_epoch_loses_and_repeats_no_utterance(
        frames in prop::collection::vec(1u32..3_000, 0..300), size in sizes(), window in 1u32..40, seed in any::<u64>(),
    ) {
        let samples = samples(&frames);
        let config = BatchingConfig { window: NonZeroU32::new(window), ..BatchingConfig::new(size) };
        let batches = epoch_batches(&samples, &config, Key::new(seed), seed % 5);
        for batch in &batches {
            let fill = batch.iter().fold(Fill::default(), |fill, &index| fill.with(samples[index].seconds.0));
            prop_assert!(!batch.is_empty() && (batch.len() == 1 || !fill.exceeds(size)));
        }
        let mut seen = batches.concat();
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..samples.len()).collect::<Vec<_>>());
    }

    #[test]
    fn padding_is_never_more_than_without_sorting(
        frames in prop::collection::vec(1u32..3_000, 8..=8 * 20), seed in any::<u64>(),
    ) {
        // Only full batches: a short last batch could by chance hold the longest utterance.
        let samples = samples(&frames[..frames.len() / 8 * 8]);
        let order: Vec<usize> = (0..samples.len()).collect();
        let sorted = cells(&samples, &epoch_batches(&samples, &utterances(8), Key::new(seed), 0)).0;
        prop_assert!(sorted <= cells(&samples, &ordered_batches(&samples, &order, utterances(8).size)).0);
    }
}

/// Returns lists of lengths of unusual shape: log-normal, two modes at 2 s and 30 s,
/// uniform, a tail to two minutes, all equal, and log-normal with texts that say little about the audio.
fn unusual_lists() -> Vec<Vec<SampleMeta>> {
    let normal = |key: Key| (0..12).map(|n| key.at(n).unit()).sum::<f64>() - 6.0;
    let shapes: [&dyn Fn(Key) -> f64; 5] = [
        &|key| (1.6 + 0.7 * normal(key)).exp().clamp(0.5, 60.0),
        &|key| if key.unit() < 0.7 { 2.0 + 0.4 * normal(key) } else { 30.0 + 2.0 * normal(key) }.max(0.5),
        &|key| 1.0 + 19.0 * key.unit(),
        &|key| {
            if key.unit() < 0.02 { 20.0 + 100.0 * key.at(1).unit() } else { (-5.0 * key.at(2).unit().ln()).min(30.0) }
        },
        &|_| 8.0,
    ];
    let list = |(shape, noise): (&dyn Fn(Key) -> f64, f64)| {
        let sample = |n| {
            let (key, text) = (Key::new(5).at(n), Key::new(6).at(n));
            let seconds = shape(key).max(0.5);
            let tokens = (seconds * 14.6 * (1.0 + noise * normal(text)).max(0.1)) as u32;
            let frames = Frames((seconds * 100.0) as u32);
            SampleMeta { id: SampleId(n), frames, tokens: tokens.max(1), seconds: Seconds(seconds) }
        };
        (0..8_000).map(sample).collect()
    };
    let plain = shapes.map(|shape| (shape, 0.12));
    plain.into_iter().chain([(shapes[0], 0.35)]).map(list).collect()
}

/// Makes batches of random samples of thirty buckets of equal audio, as samplers of other toolkits do.
fn bucketed(samples: &[SampleMeta], size: BatchSize) -> Vec<Vec<usize>> {
    let mut sorted: Vec<usize> = (0..samples.len()).collect();
    sorted.sort_by_key(|&index| samples[index].frames);
    let total: f64 = samples.iter().map(|sample| sample.seconds.0).sum();
    let (mut before, mut buckets) = (0.0, vec![Vec::new(); 30]);
    for index in sorted {
        buckets[((30.0 * before / total) as usize).min(29)].push(index);
        before += samples[index].seconds.0;
    }
    let shuffled = |mut bucket: Vec<usize>| {
        Key::new(8).shuffle(&mut bucket);
        ordered_batches(samples, &bucket, size)
    };
    buckets.into_iter().flat_map(shuffled).collect()
}

#[test]
fn unusual_lists_are_padded_less_than_by_buckets() {
    for (n, samples) in unusual_lists().into_iter().enumerate() {
        let size = |seconds| BatchSize::Seconds(Seconds(seconds));
        let padding = |batches: &[Vec<usize>], length: fn(&SampleMeta) -> u32| {
            let of = |&index: &usize| f64::from(length(&samples[index]));
            let padded: f64 = batches.iter().map(|b| b.len() as f64 * b.iter().map(of).fold(0.0, f64::max)).sum();
            1.0 - batches.iter().flatten().map(of).sum::<f64>() / padded
        };
        let theirs = bucketed(&samples, size(100.0));
        // At most as many batches: equal real audio in each.
        let (mut seconds, mut ours) =
            (200.0, epoch_batches(&samples, &BatchingConfig::new(size(100.0)), Key::new(1), 0));
        while ours.len() > theirs.len() {
            seconds *= 1.01;
            ours = epoch_batches(&samples, &BatchingConfig::new(size(seconds)), Key::new(1), 0);
        }
        let audio = [&ours, &theirs].map(|batches| padding(batches, |sample| sample.frames.0));
        let tokens = [&ours, &theirs].map(|batches| padding(batches, |sample| sample.tokens));
        // Short lists have small windows; on 20,000 utterances it is less than half (docs/data.md).
        assert!(audio[0] <= audio[1] && tokens[0] <= 0.65 * tokens[1], "{n}, {seconds} s: {audio:?} {tokens:?}");
    }
}
