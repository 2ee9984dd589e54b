//! Tests of log-mel features against a slow transform written from the definition.

use proptest::prelude::*;

use super::*;
use crate::testing::tone;

fn preset(name: &str) -> LogMelConfig {
    LogMelConfig::preset(name).unwrap()
}

fn extractor(name: &str) -> LogMel {
    LogMel::new(&preset(name)).unwrap()
}

/// Returns noise between -0.5 and 0.5 that is equal on every machine.
fn noise(samples: usize, seed: u64) -> Vec<f32> {
    let key = plimsoll_core::Key::new(seed);
    (0..samples).map(|n| key.at(n as u64).unit() as f32 - 0.5).collect()
}

/// Computes the log-mel spectrogram in double precision, directly from the formulas, without normalization.
fn reference(config: &LogMelConfig, samples: &[f32], frames: usize) -> Vec<f64> {
    let mut x: Vec<f64> = samples.iter().map(|&v| f64::from(v)).collect();
    if let Some(factor) = config.preemphasis {
        x = (0..x.len()).map(|n| x[n] - if n == 0 { 0.0 } else { f64::from(factor) * x[n - 1] }).collect();
    }
    let before = if config.padding == Padding::None { 0 } else { config.n_fft / 2 };
    let silence = if config.padding == Padding::Silence { config.n_fft } else { 0 };
    let mut padded = vec![0.0; x.len() + 2 * before + silence];
    for (n, value) in padded.iter_mut().enumerate() {
        let place = n as isize - before as isize;
        let is_mirrored = match config.padding {
            Padding::Reflect => true,
            Padding::Silence => place < 0,
            Padding::Constant | Padding::None => false,
        };
        let mirrored = if place < 0 { -place } else { place.min(2 * (x.len() as isize - 1) - place) };
        let inside = place >= 0 && place < x.len() as isize;
        *value = if inside || is_mirrored { x[mirrored as usize] } else { 0.0 };
    }
    let window = window(config);
    let filters = MelFilters::new(config);
    let mut features = Vec::new();
    for t in 0..frames {
        let frame: Vec<f64> =
            (0..config.n_fft).map(|n| padded[t * config.hop_length + n] * f64::from(window[n])).collect();
        let spectrum: Vec<f32> = (0..=config.n_fft / 2).map(|k| power(&frame, k, config.spectrum)).collect();
        let mut mels = vec![0.0; config.n_mels];
        filters.apply(&spectrum, &mut mels);
        features.extend(mels.iter().map(|&mel| {
            let mel = f64::from(mel);
            let floored = match config.floor {
                Floor::Add(floor) => mel + f64::from(floor),
                Floor::Max(floor) => mel.max(f64::from(floor)),
            };
            if config.log == Log::Ln { floored.ln() } else { floored.log10() }
        }));
    }
    if let Some(range) = config.dynamic_range {
        let loudest = features.iter().copied().fold(f64::MIN, f64::max);
        features.iter_mut().for_each(|v| *v = (v.max(loudest - f64::from(range)) + 4.0) / 4.0);
    }
    features
}

fn power(frame: &[f64], k: usize, kind: Spectrum) -> f32 {
    let angle = |n: usize| TAU * ((k * n) % frame.len()) as f64 / frame.len() as f64;
    let re: f64 = frame.iter().enumerate().map(|(n, v)| v * angle(n).cos()).sum();
    let im: f64 = frame.iter().enumerate().map(|(n, v)| v * angle(n).sin()).sum();
    let power = re * re + im * im;
    (if kind == Spectrum::Power { power } else { power.sqrt() }) as f32
}

#[test]
fn windows_match_their_definitions() {
    let weights = |kind, win_length, window_norm| {
        window(&LogMelConfig { n_fft: 8, win_length, window: kind, window_norm, ..LogMelConfig::default() })
    };
    let check = |found: Vec<f32>, expected: [f32; 8]| {
        let error = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(found.len() == 8 && error < 1e-6, "{found:?}");
    };
    check(weights(Window::HannPeriodic, 4, false), [0.0, 0.0, 0.0, 0.5, 1.0, 0.5, 0.0, 0.0]);
    check(weights(Window::HannSymmetric, 5, false), [0.0, 0.0, 0.5, 1.0, 0.5, 0.0, 0.0, 0.0]);
    let edge = 0.5f32.powf(0.85);
    check(weights(Window::Povey, 5, false), [0.0, 0.0, edge, 1.0, edge, 0.0, 0.0, 0.0]);
    // Its L2 norm is the root of 0.25 + 1 + 0.25.
    let norm = 1.5f32.sqrt();
    check(weights(Window::HannPeriodic, 4, true), [0.0, 0.0, 0.0, 0.5 / norm, 1.0 / norm, 0.5 / norm, 0.0, 0.0]);
}

#[test]
fn every_preset_equals_the_reference_transform() {
    for name in LogMelConfig::PRESETS {
        let config = LogMelConfig { normalize: Normalize::None, ..preset(name) };
        let samples = noise(3_000, 5);
        let found = LogMel::new(&config).unwrap().extract(&samples);
        let expected = reference(&config, &samples, found.len() / config.n_mels);
        let error = found.iter().zip(&expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        // Single precision over transforms of at most 1024 points.
        assert!(error < 2e-3, "{name}: {error}");
    }
}

#[test]
fn frame_counts_match_the_known_systems() {
    // 30 s at the sample rate of each system; KonkaniVani's 3001 and Whisper's 3000 are documented numbers.
    for (name, frames) in [
        ("plimsoll", 3001),
        ("konkani", 3001),
        ("espnet", 3751),
        ("nemo", 3000),
        ("whisper", 3000),
        ("whisper-padded", 3002),
        ("xtts", 2584),
        ("myxtts", 2584),
    ] {
        let extractor = extractor(name);
        let samples = 30 * extractor.config().sample_rate as usize;
        assert_eq!(extractor.frames(samples), frames, "{name}");
        assert_eq!(extractor.frames_in(Seconds(30.0)), Frames(frames as u32), "{name}");
        assert_eq!(extractor.extract(&vec![0.0; samples]).len(), frames * extractor.n_mels(), "{name}");
    }
    let unpadded = LogMelConfig { padding: Padding::None, ..preset("plimsoll") };
    let counts = [0, 511, 512, 671, 672].map(|n| LogMel::new(&unpadded).unwrap().frames(n));
    assert_eq!(counts, [1, 1, 1, 1, 2]);
}

#[test]
fn a_tone_is_loudest_in_its_channel() {
    for (hertz, name) in [(300.0, "plimsoll"), (1_000.0, "konkani"), (3_000.0, "whisper"), (5_000.0, "myxtts")] {
        let config = LogMelConfig { normalize: Normalize::None, ..preset(name) };
        let features = LogMel::new(&config).unwrap().extract(&tone(hertz, 0.5, config.sample_rate));
        let middle = features.chunks_exact(config.n_mels).nth(15).unwrap();
        let loudest = (0..config.n_mels).max_by(|&a, &b| middle[a].total_cmp(&middle[b])).unwrap();
        // A spectrum of one bin at the tone is largest in the channel whose triangle is highest there.
        let mut spectrum = vec![0.0; config.n_fft / 2 + 1];
        spectrum[(hertz * config.n_fft as f64 / f64::from(config.sample_rate)).round() as usize] = 1.0;
        let mut weights = vec![0.0; config.n_mels];
        MelFilters::new(&config).apply(&spectrum, &mut weights);
        assert!(weights[loudest.saturating_sub(1)..=loudest + 1].iter().any(|&w| w > 0.0), "{name}: {loudest}");
        assert!(middle[loudest] > middle[config.n_mels - 1] + 1.0, "{name}");
    }
}

#[test]
fn channels_are_normalized() {
    let features = extractor("plimsoll").extract(&noise(16_000, 2));
    for mel in 0..80 {
        let channel: Vec<f32> = features.iter().skip(mel).step_by(80).copied().collect();
        let mean = channel.iter().sum::<f32>() / channel.len() as f32;
        let variance = channel.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / (channel.len() - 1) as f32;
        assert!(mean.abs() < 1e-4 && (variance - 1.0).abs() < 1e-3, "{mel}: {mean} {variance}");
    }
}

#[test]
fn pauses_change_little_in_features_that_are_normalized_over_speech() {
    // As loud as syllables: 13 dB up and down.
    let swing = |n: usize| 1.5f32 * (n as f32 * std::f32::consts::TAU / 3_200.0).cos();
    let words: Vec<f32> =
        noise(16_000, 2).iter().enumerate().map(|(n, sample)| sample * swing(n).exp() / 5.0).collect();
    for (name, changes) in [("spoken", false), ("plimsoll", true)] {
        let alone = extractor(name).extract(&words);
        for (pause, level) in [(1_600, 1e-3), (16_000, 1e-3), (48_000, 0.0), (8_000, 0.01)] {
            let silence: Vec<f32> = noise(pause, 3).iter().map(|sample| sample * level).collect();
            let after = extractor(name).extract(&[&silence[..], &words[..], &silence[..]].concat());
            // Frames at the edges hear both.
            let (first, edge) = (pause / 160, 3);
            let cells =
                |features: &[f32], first: usize| features[(first + edge) * 80..(first + 100 - edge) * 80].to_vec();
            let far = cells(&alone, 0).iter().zip(cells(&after, first)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert_eq!(far > 0.2, changes, "{name}, {pause} samples at {level}: {far}");
            assert!(name != "spoken" || after.iter().all(|value| *value >= -4.0));
        }
    }
}

#[test]
fn the_shortest_audio_gives_a_frame() {
    for name in LogMelConfig::PRESETS {
        for samples in [0, 1, 2, 100, 255, 256, 257] {
            let features = extractor(name).extract(&noise(samples, 1));
            assert!(!features.is_empty() && features.iter().all(|v| v.is_finite()), "{name}: {samples}");
        }
    }
}

#[test]
fn invalid_configurations_are_refused() {
    let message = |config: LogMelConfig| LogMel::new(&config).err().unwrap().to_string();
    let base = LogMelConfig::default;
    insta::assert_snapshot!(
        [
            message(LogMelConfig { hop_length: 0, ..base() }),
            message(LogMelConfig { win_length: 600, ..base() }),
            message(LogMelConfig { f_max: Some(9_000.0), ..base() }),
            message(LogMelConfig { floor: Floor::Max(0.0), ..base() }),
            message(LogMelConfig { preemphasis: Some(f32::NAN), ..base() }),
        ].join("\n"), @r#"
    `hop_length` of the features is zero
    the features' `win_length` of 600 is more than their `n_fft` of 512
    the features' band from 0 to 9000 hertz is not inside 0 to 8000 hertz
    the features' `floor` of 0 is not above zero
    `preemphasis` of the features is NaN
    "#);
}

#[test]
fn configurations_are_read_strictly() {
    for name in LogMelConfig::PRESETS {
        let json = serde_json::to_string(&preset(name)).unwrap();
        assert_eq!(serde_json::from_str::<LogMelConfig>(&json).unwrap(), preset(name), "{name}");
    }
    let read = serde_json::from_str::<LogMelConfig>(r#"{"n_mels": 40, "floor": {"add": 1e-6}}"#).unwrap();
    assert_eq!(read, LogMelConfig { n_mels: 40, floor: Floor::Add(1e-6), ..LogMelConfig::default() });
    assert!(serde_json::from_str::<LogMelConfig>(r#"{"n_mel": 40}"#).is_err());
    assert_eq!(LogMelConfig::preset("kaldi"), None);
}

#[test]
fn cache_keys_stay_those_of_the_first_version() {
    let key = "LogMelConfig { sample_rate: 16000, n_fft: 512, win_length: 400, hop_length: 160, n_mels: 80, f_min: 0.0, \
               f_max: None, mel_scale: Htk, area_norm: false, window: HannPeriodic, window_norm: false, \
               padding: Reflect, spectrum: Power, preemphasis: None, log: Ln, floor: Max(1e-10), dynamic_range: None, \
               drop_last_frame: false, normalise: UtteranceMeanVariance }";
    assert_eq!(LogMelConfig::default().cache_key(), key);
}

#[test]
fn both_spellings_of_normalize_are_read() {
    for name in ["normalise", "normalize"] {
        let read: LogMelConfig = serde_json::from_str(&format!(r#"{{"{name}": "none"}}"#)).unwrap();
        assert_eq!(read.normalize, Normalize::None);
    }
    assert!(serde_json::to_string(&LogMelConfig::default()).unwrap().contains(r#""normalise":"#));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_shift_by_one_hop_shifts_the_features_by_one_frame(seed in any::<u64>(), hops in 1usize..6) {
        let config = LogMelConfig { normalize: Normalize::None, ..preset("konkani") };
        let extractor = LogMel::new(&config).unwrap();
        let samples = noise(4_000 + hops * config.hop_length, seed);
        let early = extractor.extract(&samples);
        let late = extractor.extract(&samples[hops * config.hop_length..]);
        // The first two and last two frames contain padding.
        let (width, frames) = (config.n_mels, late.len() / config.n_mels);
        for t in 2..frames - 2 {
            let (a, b) = (&early[(t + hops) * width..][..width], &late[t * width..][..width]);
            prop_assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4));
        }
    }
}
