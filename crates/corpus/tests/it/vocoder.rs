//! Tests of the vocoder, which converts audio to features and back to similar audio.

use plimsoll_audio::{Floor, Log, LogMel, LogMelConfig, Padding, Vocoder};
use plimsoll_core::Key;
use plimsoll_corpus::{SAMPLE_RATE, Voice, synthesize};
use realfft::RealFftPlanner;

use crate::tone;

/// Returns the main configuration: MyXTTS's features at the sample rate of the corpus.
fn main_config() -> LogMelConfig {
    let preset = LogMelConfig::preset("myxtts").unwrap();
    LogMelConfig { sample_rate: 16_000, win_length: 800, hop_length: 200, ..preset }
}

fn speech(seed: u64) -> Vec<f32> {
    synthesize(&[3, 17, 40, 61], &Voice::new(seed, 0), Key::new(seed)).samples
}

/// Generates a chirp from 200 to 3000 Hz in two seconds.
fn chirp(rate: u32) -> Vec<f32> {
    let turns = |time: f64| 200.0 * time + 700.0 * time * time;
    let sample = |n: u32| (std::f64::consts::TAU * turns(f64::from(n) / f64::from(rate))).sin() as f32;
    (0..2 * rate).map(|n| 0.5 * sample(n)).collect()
}

/// Computes the mean distance, in nats, between `features` and the features of the audio made from them.
///
/// Values at the floor, or so near it that they are inaudible, are left out: audio need not reproduce these values
/// exactly.
fn distance(config: &LogMelConfig, sound: &[f32]) -> f32 {
    let log_mel = LogMel::new(config).unwrap();
    let features = log_mel.extract(sound);
    let rebuilt = log_mel.extract(&Vocoder::new(config).unwrap().waveform(&features));
    let nats = if config.log == Log::Log10 { std::f32::consts::LN_10 } else { 1.0 };
    let (Floor::Add(floor) | Floor::Max(floor)) = config.floor;
    let heard = floor.ln() / nats + 0.5;
    let pairs: Vec<_> = features.iter().zip(&rebuilt).filter(|(wanted, _)| **wanted > heard).collect();
    nats * pairs.iter().map(|(wanted, found)| (*wanted - *found).abs()).sum::<f32>() / pairs.len() as f32
}

#[test]
fn the_waveform_reproduces_the_features() {
    let config = main_config();
    for (name, sound, most) in [
        ("a tone", tone(440.0, 1.0, 16_000), 0.35),
        ("a chirp", chirp(16_000), 0.30),
        ("speech", speech(1), 0.20),
        ("more speech", speech(2), 0.25),
    ] {
        let found = distance(&config, &sound);
        println!("{name}: {found} nats");
        assert!(found < most, "{name}: {found} nats");
    }
}

#[test]
fn every_invertible_preset_is_inverted() {
    for name in ["konkani", "espnet", "xtts", "myxtts"] {
        let config = LogMelConfig::preset(name).unwrap();
        let sound = plimsoll_audio::resample(speech(1), SAMPLE_RATE, config.sample_rate);
        let found = distance(&config, &sound);
        println!("{name}: {found} nats");
        assert!(found < 0.3, "{name}: {found} nats");
    }
}

/// Finds the frequency of the loudest bin of a long Fourier transform, in hertz.
fn pitch(sound: &[f32], rate: u32) -> f64 {
    let transform = RealFftPlanner::new().plan_fft_forward(sound.len());
    let mut bins = transform.make_output_vec();
    transform.process(&mut sound.to_vec(), &mut bins).unwrap();
    let loudest = (0..bins.len()).max_by(|&a, &b| bins[a].norm_sqr().total_cmp(&bins[b].norm_sqr())).unwrap();
    loudest as f64 * f64::from(rate) / sound.len() as f64
}

#[test]
fn a_tone_keeps_its_pitch() {
    let config = main_config();
    for hertz in [150.0, 440.0, 1_000.0, 3_000.0] {
        let features = LogMel::new(&config).unwrap().extract(&tone(hertz, 1.0, 16_000));
        let found = pitch(&Vocoder::new(&config).unwrap().waveform(&features)[1_000..15_000], 16_000);
        // Only the mel channel is known, so the error is up to a quarter of its width.
        println!("{hertz} Hz: {found} Hz");
        assert!((found - hertz).abs() < 10.0 + 0.02 * hertz, "{hertz} Hz came back as {found} Hz");
    }
}

#[test]
fn the_waveform_has_the_frames_of_its_features_and_is_reproducible() {
    let key = Key::new(6);
    for padding in [Padding::Constant, Padding::Reflect, Padding::None] {
        for (n_fft, drop_last_frame) in [(1024, false), (1024, true), (1023, false)] {
            let config = LogMelConfig { padding, n_fft, drop_last_frame, ..main_config() };
            let vocoder = Vocoder::new(&config).unwrap().with_iterations(3);
            assert_eq!(vocoder.waveform(&[]), [0.0; 0]);
            for frames in [1, 2, 7] {
                let features: Vec<f32> = (0..frames * 80).map(|n| -8.0 * key.at(n as u64).unit() as f32).collect();
                let sound = vocoder.waveform(&features);
                assert!(sound.iter().all(|sample| sample.abs() <= 1.0), "{padding:?} {n_fft} {frames}");
                assert_eq!(
                    LogMel::new(&config).unwrap().frames(sound.len()),
                    frames,
                    "{padding:?} {n_fft} {}",
                    sound.len()
                );
                assert_eq!(vocoder.waveform(&features), sound);
            }
        }
    }
}

#[test]
fn loud_features_are_scaled_down_without_clipping() {
    let config = main_config();
    let mut features = LogMel::new(&config).unwrap().extract(&tone(440.0, 0.5, 16_000));
    features.iter_mut().for_each(|value| *value += 3.0);
    let sound = Vocoder::new(&config).unwrap().waveform(&features);
    let at_the_edge = sound.iter().filter(|sample| sample.abs() > 0.999).count();
    assert!(sound.iter().all(|sample| sample.abs() <= 1.0) && (1..100).contains(&at_the_edge), "{at_the_edge}");
    // A model with broken weights returns NaN; the vocoder must still return finite samples.
    let broken = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].repeat(160);
    assert!(Vocoder::new(&config).unwrap().waveform(&broken).iter().all(|sample| sample.abs() <= 1.0));
}

#[test]
fn silence_stays_silent() {
    let config = main_config();
    let features = LogMel::new(&config).unwrap().extract(&[0.0; 8_000]);
    let loudest = Vocoder::new(&config).unwrap().waveform(&features).iter().fold(0.0_f32, |most, s| most.max(s.abs()));
    // Less than half a step of 16 bits.
    assert!(loudest < 1.5e-5, "{loudest}");
}

#[test]
fn features_that_cannot_be_inverted_are_refused() {
    let message = |config: LogMelConfig| Vocoder::new(&config).err().unwrap().to_string();
    let base = main_config;
    let preset = |name: &str| LogMelConfig::preset(name).unwrap();
    insta::assert_snapshot!(
        [
            message(preset("plimsoll")),
            message(preset("whisper")),
            message(preset("nemo")),
            message(LogMelConfig { preemphasis: Some(0.97), ..base() }),
            message(LogMelConfig { hop_length: 900, ..base() }),
            message(LogMelConfig { win_length: 2_000, ..base() }),
        ].join("\n"), @r#"
    features normalized over each utterance cannot be converted back to audio
    features with a `dynamic_range` cannot be converted back to audio
    features normalized over each utterance cannot be converted back to audio
    features with `preemphasis` cannot be converted back to audio
    features whose `hop_length` of 900 is more than their `win_length` of 800 have gaps
    the features' `win_length` of 2000 is more than their `n_fft` of 1024
    "#);
}
