//! Tests of files whose channels cancel each other, and of all others.

use std::fs;

use flacenc::bitsink::ByteSink;
use flacenc::component::BitRepr;
use flacenc::error::Verify;
use hound::{SampleFormat, WavSpec, WavWriter};
use plimsoll_core::{Key, Seconds};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::testing::tone;
use crate::{
    Audio, AudioSegment, AudioStream, RawAudio, RawEncoding, read_audio_segment, read_recording, taken_channel,
};

const RATE: u32 = 8_000;

fn integers(channels: &[Vec<f32>]) -> Vec<i16> {
    let frames = channels[0].len();
    (0..frames).flat_map(|n| channels.iter().map(move |channel| (channel[n] * 32_767.0).round() as i16)).collect()
}

/// Writes channels as a WAV file and as a FLAC file.
fn write(folder: &Path, channels: &[Vec<f32>]) -> [PathBuf; 2] {
    let [wav, flac] = ["x.wav", "x.flac"].map(|name| folder.join(name));
    let (count, values) = (channels.len(), integers(channels));
    let spec =
        WavSpec { channels: count as u16, sample_rate: RATE, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut writer = WavWriter::create(&wav, spec).unwrap();
    values.iter().for_each(|&value| writer.write_sample(value).unwrap());
    writer.finalize().unwrap();
    let config = flacenc::config::Encoder::default().into_verified().unwrap();
    let values: Vec<i32> = values.iter().copied().map(i32::from).collect();
    let source = flacenc::source::MemSource::from_samples(&values, count, 16, RATE as usize);
    let mut bytes = ByteSink::new();
    flacenc::encode_with_fixed_block_size(&config, source, config.block_size).unwrap().write(&mut bytes).unwrap();
    let mut bytes = bytes.as_slice().to_vec();
    // As `flac_bytes` does it: the last, shorter block is not the smallest.
    bytes.copy_within(10..12, 8);
    fs::write(&flac, bytes).unwrap();
    [wav, flac]
}

fn streamed(mut stream: AudioStream) -> (Vec<f32>, Option<u16>) {
    let mut samples = Vec::new();
    while stream.read(&mut samples).unwrap() {}
    (samples, stream.taken_channel())
}

/// Reads channels in every way, and returns the samples and the channel that was taken.
fn read(channels: &[Vec<f32>]) -> (Vec<f32>, Option<u16>) {
    let folder = TempDir::new().unwrap();
    let mut all = Vec::new();
    for path in write(folder.path(), channels) {
        let name = path.extension().unwrap().to_owned();
        let taken = taken_channel(&path).unwrap();
        let Audio { samples, .. } = read_recording(&path).unwrap();
        assert_eq!(streamed(AudioStream::open(&path, RATE).unwrap()), (samples.clone(), taken), "{name:?}");
        for (from, to) in [(0.0, 0.2), (0.1, 0.15), (0.3, 1.0), (0.62, 1.0)] {
            let seconds = samples.len() as f64 / f64::from(RATE);
            let place = |share: f64| (share * samples.len() as f64).round() as usize;
            let segment =
                AudioSegment { offset: Seconds(seconds * from), duration: Some(Seconds(seconds * (to - from))) };
            let part = read_audio_segment(&path, segment, RATE).unwrap().samples;
            assert_eq!(part, samples[place(from)..place(to)], "{name:?} {from} {to}");
        }
        all.push((samples, taken));
    }
    let raw = integers(channels).into_iter().flat_map(i16::to_le_bytes).collect::<Vec<u8>>();
    let form = RawAudio { rate: RATE, channels: channels.len() as u16, encoding: RawEncoding::S16 };
    all.push(streamed(AudioStream::from_raw(std::io::Cursor::new(raw), form, RATE).unwrap()));
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "WAV, FLAC and samples differ");
    all.pop().unwrap()
}

fn scaled(samples: &[f32], factor: f32) -> Vec<f32> {
    samples.iter().map(|sample| sample * factor).collect()
}

fn quantized(samples: &[f32]) -> Vec<f32> {
    samples.iter().map(|sample| (sample * 32_767.0).round() / 32_768.0).collect()
}

fn noise(name: &str, count: usize, level: f32) -> Vec<f32> {
    let key = Key::new(3).with(name);
    (0..count as u64).map(|n| level * (key.at(n).below(2_001) as f32 / 1_000.0 - 1.0)).collect()
}

fn sum(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

#[test]
fn channels_that_cancel_each_other_are_heard() {
    for seconds in [0.03, 0.4, 3.0] {
        let sound = tone(300.0, seconds, RATE);
        assert_eq!(read(&[sound.clone(), scaled(&sound, -1.0)]), (quantized(&sound), Some(1)), "{seconds}");
        // A silent channel before it, and one that is a little louder.
        let zeros = vec![0.0; sound.len()];
        let found = read(&[zeros, sound.clone(), scaled(&sound, -1.05)]);
        assert_eq!(found, (quantized(&sound), Some(2)), "{seconds}");
    }
}

#[test]
fn the_noise_before_the_sound_does_not_decide() {
    let count = 4 * RATE as usize;
    for (silence, quiet) in [(0, 0), (5, 0), (0, 5), (12, 3)] {
        let before = |name: &str| {
            [vec![0.0; silence * RATE as usize], noise(name, quiet * RATE as usize + count, 2e-4)].concat()
        };
        let sound = [vec![0.0; (silence + quiet) * RATE as usize], tone(300.0, 4.0, RATE)].concat();
        let left = sum(&sound, &before("left"));
        let (found, taken) = read(&[left.clone(), sum(&scaled(&sound, -1.0), &before("right"))]);
        assert_eq!(taken, Some(1), "{silence} {quiet}");
        let start = silence * RATE as usize;
        assert_eq!(found[start..], quantized(&left)[start..], "{silence} {quiet}");
    }
}

#[test]
fn other_channels_are_averaged() {
    let (low, high) = (tone(300.0, 3.0, RATE), tone(710.0, 3.0, RATE));
    let zeros = vec![0.0; low.len()];
    let inverted = scaled(&low, -1.0);
    for channels in [
        vec![low.clone(), low.clone()],
        vec![low.clone(), high.clone()],
        vec![low.clone(), zeros.clone()],
        vec![zeros.clone(), zeros.clone()],
        vec![low.clone(), scaled(&low, -0.7)],
        vec![low.clone(), inverted.clone(), high.clone()],
        vec![vec![0.25; low.len()], vec![-0.25; low.len()]],
    ] {
        let (found, taken) = read(&channels);
        let values = integers(&channels);
        let scale = 1.0 / channels.len() as f32;
        let mean = |frame: &[i16]| frame.iter().map(|value| f32::from(*value) / 32_768.0).sum::<f32>() * scale;
        let expected: Vec<f32> = values.chunks(channels.len()).map(mean).collect();
        assert_eq!((found, taken), (expected, None));
    }
}

#[test]
fn a_changed_file_is_judged_anew() {
    let folder = TempDir::new().unwrap();
    let sound = tone(300.0, 2.0, RATE);
    let part = AudioSegment { offset: Seconds(0.5), duration: Some(Seconds(0.5)) };
    let mut is_silent = Vec::new();
    for second in [scaled(&sound, -1.0), sound[1..].iter().copied().chain([0.0]).collect(), scaled(&sound, -1.0)] {
        let length = sound.len() - is_silent.len();
        let [wav, _] = write(folder.path(), &[sound[..length].to_vec(), second[..length].to_vec()]);
        is_silent.push(read_audio_segment(&wav, part, RATE).unwrap().is_silent());
    }
    assert_eq!(is_silent, [false; 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn blocks_of_any_size_are_mixed_like_the_whole(
        levels in prop::collection::vec(prop::sample::select(vec![0.0f32, 1e-5, 1e-3, 0.1, 0.5]), 1..40),
        second in -1.2..1.2f32, leak in prop::sample::select(vec![0.0f32, 1e-4, 1e-2]), size in 1usize..5_000, channels in 1usize..4,
    ) {
        let count = levels.len() * 700;
        let key = Key::new(1);
        let value = |n: usize, channel: usize| {
            let shared = levels[n / 700] * (0.21 * n as f32).sin();
            let own = leak * (key.at((n * 4 + channel) as u64).below(2_001) as f32 / 1_000.0 - 1.0);
            if channel == 0 { shared + own } else { second * shared + own }
        };
        let interleaved: Vec<f32> = (0..count).flat_map(|n| (0..channels).map(move |c| (n, c))).map(|(n, c)| value(n, c)).collect();
        let mut judge = MixJudge::new(channels, RATE);
        let mix = judge.push(&interleaved).unwrap_or_else(|| judge.finish());
        let mut whole = Vec::new();
        mix.apply(&interleaved, channels, 0, &mut whole);
        let (mut mixer, mut blocks) = (Mixer::new(channels, RATE), Vec::new());
        for piece in interleaved.chunks(size * channels) {
            mixer.push(piece, &mut blocks);
        }
        mixer.finish(&mut blocks);
        prop_assert!(blocks == whole, "{} {}", blocks.len(), whole.len());
        prop_assert_eq!(mixer.mix(), Some(mix));
        let at = count / 3;
        let mut rest = Vec::new();
        Mixer::decided(mix, channels, at as u64).push(&interleaved[at * channels..], &mut rest);
        prop_assert!(rest == whole[at..]);
    }
}

#[test]
fn a_named_channel_is_read_alone() {
    let channels = [tone(300.0, 1.7, RATE), scaled(&tone(440.0, 1.7, RATE), 0.5), tone(510.0, 1.7, RATE)];
    let folder = TempDir::new().unwrap();
    let container = folder.path().join("shard.tar");
    for path in write(folder.path(), &channels) {
        let bytes = fs::read(&path).unwrap();
        fs::write(&container, [b"before", &*bytes, b"behind"].concat()).unwrap();
        let part = AudioSource::from_bytes_of(&container, 6, bytes.len() as u64).to_path();
        for (number, expected) in channels.iter().enumerate() {
            let expected: Vec<f32> =
                expected.iter().map(|sample| (sample * 32_767.0).round() as i16 as f32 / 32_768.0).collect();
            for whole in [&path, &part] {
                let named = AudioSource::path_of_channel(whole, number as u16);
                assert_eq!(taken_channel(&named).unwrap(), None);
                assert_eq!(read_recording(&named).unwrap().samples, expected, "{named:?}");
                assert_eq!(streamed(AudioStream::open(&named, RATE).unwrap()), (expected.clone(), None));
                let segment = AudioSegment { offset: Seconds(1.25), duration: Some(Seconds(0.25)) };
                let part = read_audio_segment(&named, segment, RATE).unwrap().samples;
                assert_eq!(part, expected[10_000..12_000], "{named:?}");
            }
        }
        let missing = AudioSource::path_of_channel(&path, 3);
        let error = read_recording(&missing).unwrap_err().to_string();
        assert!(error.ends_with(":ch3 has 3 channels, counted from 0, so it has no channel 3"), "{error}");
        assert_eq!(crate::audio_info(&missing).unwrap_err().to_string(), error);
    }
}

#[test]
fn the_channels_of_every_format_have_the_average_of_the_file() {
    for (path, _) in super::super::tests::readable() {
        let whole = read_recording(&path).unwrap().samples;
        let [left, right] = [0, 1].map(|n| read_recording(AudioSource::path_of_channel(&path, n)).unwrap().samples);
        assert_eq!((left.len(), right.len()), (whole.len(), whole.len()), "{path:?}");
        let average = left.iter().zip(&right).map(|(left, right)| (left + right) * 0.5);
        assert!(average.zip(&whole).all(|(average, whole)| (average - whole).abs() < 1e-6), "{path:?}");
        assert!(read_recording(AudioSource::path_of_channel(&path, 2)).is_err(), "{path:?}");
    }
}
