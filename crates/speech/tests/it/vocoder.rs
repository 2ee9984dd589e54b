//! Properties that hold for a vocoder with any weights.

use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::Key;
use plimsoll_layers::Lengths;
use plimsoll_speech::audio::{Floor, Log, LogMel, LogMelConfig, Normalize, Padding, Spectrum};
use plimsoll_speech::vocoder::{LogMelTransform, NeuralVocoder, RefinedVocoder, VocoderConfig, VocoderStream};
use plimsoll_tape::{Pass, collect};

use crate::vocoder_pytorch::config;

/// Largest difference of samples between two ways to compute them; the largest sample is about 1.
const ROUNDING: f32 = 2e-5;

fn vocoder() -> NeuralVocoder {
    config().vocoder.init(&Device::flex(), Key::new(3))
}

fn mels(frames: usize, seed: u64) -> Vec<f32> {
    (0..frames * 12).map(|i| (Key::new(seed).at(i as u64).unit() * 6.0 - 7.0) as f32).collect()
}

fn tensor(mels: &[f32]) -> Tensor<3> {
    Tensor::from_data(TensorData::new(mels.to_vec(), [1, mels.len() / 12, 12]), &Device::flex())
}

fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_into_vec().unwrap()
}

fn whole(vocoder: &NeuralVocoder, mels: &[f32]) -> Vec<f32> {
    values(vocoder.generate(tensor(mels)))
}

fn farthest(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Returns a tone that fades, with noise and silence: levels over six decades.
fn sound(samples: usize) -> Vec<f32> {
    let sample = |n: usize| {
        let loudness = 10f64.powf(-4.0 * (n % 3_000) as f64 / 3_000.0);
        let noise = Key::new(5).at(n as u64).unit() - 0.5;
        let tone = (n as f64 * 0.13).sin() + 0.3 * (n as f64 * 0.41).sin();
        if n % 5_000 > 4_500 { 0.0 } else { (loudness * (0.6 * tone + 0.1 * noise)) as f32 }
    };
    (0..samples).map(sample).collect()
}

#[test]
fn log_mels_on_a_device_equal_those_of_the_extractor() {
    let synthesis = LogMelConfig::preset("myxtts").unwrap();
    let main = LogMelConfig { sample_rate: 16_000, win_length: 800, hop_length: 200, ..synthesis.clone() };
    let xtts = LogMelConfig::preset("xtts").unwrap();
    let odd = LogMelConfig {
        normalize: Normalize::None,
        padding: Padding::Reflect,
        spectrum: Spectrum::Power,
        floor: Floor::Add(1e-9),
        log: Log::Log10,
        drop_last_frame: true,
        window_norm: true,
        ..LogMelConfig::default()
    };
    for config in [main, synthesis, xtts, odd] {
        let samples = sound(9_876);
        let expected = LogMel::new(&config).unwrap().extract(&samples);
        let waveform = Tensor::from_data(TensorData::new(samples, [1, 9_876]), &Device::flex());
        let found = values(LogMelTransform::new(&config).unwrap().forward(waveform));
        let apart = farthest(&found, &expected);
        assert!(apart < 1e-3, "{config:?}: {apart}");
    }
}

#[test]
fn padding_changes_no_sample() {
    let vocoder = vocoder();
    let (long, short) = (mels(40, 1), mels(27, 2));
    let padding = Tensor::<3>::full([1, 13, 12], 9.0, &Device::flex());
    let padded = Tensor::cat(vec![tensor(&short), padding], 1);
    let both = Tensor::cat(vec![tensor(&long), padded], 0);
    let found = values(vocoder.forward(both, &Lengths::new(vec![40, 27], 40), &Pass::plain()));
    assert!(farthest(&found[..640], &whole(&vocoder, &long)) < ROUNDING);
    assert!(farthest(&found[640..640 + 27 * 16], &whole(&vocoder, &short)) < ROUNDING);
    assert!(found[640 + 27 * 16..].iter().all(|&sample| sample == 0.0));
}

/// Pushes `mels` in parts of `arriving` frames, and returns the samples that come before the end. At most `delay` frames
/// wait.
fn pushed(mels: &[f32], arriving: usize, delay: usize, mut push: impl FnMut(&[f32]) -> Vec<f32>) -> Vec<f32> {
    let (mut samples, mut sent) = (Vec::new(), 0);
    for part in mels.chunks(arriving * 12) {
        samples.extend(push(part));
        sent += part.len() / 12;
        let waiting = sent - samples.len() / 16;
        assert!(waiting <= delay, "{waiting} of {delay}");
    }
    samples
}

#[test]
fn a_stream_gives_the_samples_of_the_whole() {
    let vocoder = vocoder();
    for (frames, chunk, arriving) in [(90, 16, 7), (90, 1, 90), (5, 16, 2), (33, 40, 1), (60, 12, 13)] {
        let mels = mels(frames, frames as u64);
        let mut stream = VocoderStream::new(&vocoder, chunk);
        let delay = stream.delay_frames();
        let mut samples = pushed(&mels, arriving, delay, |part| stream.push(part));
        samples.extend(stream.finish());
        let apart = farthest(&samples, &whole(&vocoder, &mels));
        assert!(apart < ROUNDING, "{frames} frames in chunks of {chunk}: {apart}");
    }
    assert!(VocoderStream::new(&vocoder, 4).finish().is_empty());
}

#[test]
fn a_refined_stream_gives_the_samples_of_the_whole_nearer_to_the_log_mels() {
    let vocoder = RefinedVocoder::new(vocoder()).unwrap().with_rounds(3);
    let log_mel = LogMel::new(&config().vocoder.features).unwrap();
    let distance = |sound: &[f32], mels: &[f32]| {
        let found = log_mel.extract(sound);
        found.iter().zip(mels).map(|(a, b)| (a - b).abs()).sum::<f32>() / mels.len() as f32
    };
    for (frames, chunk, arriving) in [(90, 16, 7), (90, 1, 90), (5, 16, 2), (33, 40, 1), (60, 12, 13)] {
        let mels = log_mel.extract(&sound(frames * 16 - 1));
        assert_eq!(mels.len(), frames * 12);
        let mut whole = vocoder.stream(1_000);
        let mut expected = whole.push(&mels);
        expected.extend(whole.finish());
        let mut stream = vocoder.stream(chunk);
        let delay = stream.delay_frames();
        let mut samples = pushed(&mels, arriving, delay, |part| stream.push(part));
        samples.extend(stream.finish());
        // The rounds enlarge the rounding of the network.
        let apart = farthest(&samples, &expected);
        assert!(apart < 50.0 * ROUNDING, "{frames} frames in chunks of {chunk}: {apart}");
        let refined = vocoder.waveform(&mels, chunk);
        assert!(refined.iter().all(|sample| sample.abs() <= 1.0));
        let (before, after) = (distance(&vocoder.network().waveform(&mels, chunk), &mels), distance(&refined, &mels));
        assert!(after < 0.5 * before, "{before} nats before, {after} after");
    }
}

#[test]
fn samples_depend_on_no_frame_beyond_the_context() {
    let (vocoder, mels) = (vocoder(), mels(60, 4));
    let context = vocoder.config().context_frames();
    // Three convolutions of seven frames and half a window of two hops.
    assert_eq!(context, 3 * 3 + 2);
    let before = whole(&vocoder, &mels);
    let mut changed = mels;
    changed[30 * 12..31 * 12].fill(1.0);
    let after = whole(&vocoder, &changed);
    let differs = |frame: usize| farthest(&before[frame * 16..][..16], &after[frame * 16..][..16]);
    for frame in (0..60).filter(|&frame: &usize| frame.abs_diff(30) > context) {
        assert!(differs(frame) < ROUNDING, "frame {frame}");
    }
    assert!(differs(30) > 100.0 * ROUNDING && differs(30 - context / 2) > 0.0);
}

#[test]
fn initial_values_follow_from_the_seed() {
    let initial = |seed| collect(&config().vocoder.init(&Device::flex(), Key::new(seed)));
    assert_eq!(initial(1), initial(1));
    assert_ne!(initial(1), initial(2));
}

#[test]
fn impossible_configurations_are_refused() {
    let refused = |change: fn(&mut VocoderConfig)| {
        let mut vocoder = config().vocoder;
        change(&mut vocoder);
        vocoder.check().unwrap_err().field
    };
    assert_eq!(refused(|c| c.dim = 0), "dim");
    assert_eq!(refused(|c| c.layers = 0), "layers");
    assert_eq!(refused(|c| c.kernel = 6), "kernel");
    assert_eq!(refused(|c| c.mel_std = 0.0), "mel_std");
    assert_eq!(refused(|c| c.mel_mean = f64::NAN), "mel_mean");
    assert_eq!(refused(|c| c.features.hop_length = 25), "features.hop_length");
    assert_eq!(refused(|c| c.features.win_length = 47), "features.win_length");
    assert_eq!(refused(|c| c.features.padding = Padding::None), "features.padding");
    assert_eq!(refused(|c| c.features.normalize = Normalize::UtteranceMean), "features");
    assert_eq!(refused(|c| c.features.n_fft = 0), "features.n_fft");
}
