//! Tests that voice traits match voices of known pitch and formants, and that different voices are distinguished.

use plimsoll_audio::VoiceTraits;
use plimsoll_core::{Key, Seconds};
use plimsoll_corpus::{Voice, synthesize};

use crate::tone;

/// Synthesizes a vowel: clicks at `pitch` through a resonance at each of `formants`.
fn vowel(pitch: f64, formants: [f64; 3], rate: u32) -> Vec<f32> {
    let rate = f64::from(rate);
    let periods = |n: usize| (n as f64 * pitch / rate).floor();
    let clicks = |n: usize| periods(n + 1) - periods(n);
    let mut sound: Vec<f64> = (0..rate as usize).map(clicks).collect();
    for hertz in formants {
        let radius = (-std::f64::consts::PI * 80.0 / rate).exp();
        let (near, far) = (2.0 * radius * (std::f64::consts::TAU * hertz / rate).cos(), -radius * radius);
        let mut last = [0.0; 2];
        for sample in &mut sound {
            *sample += near * last[0] + far * last[1];
            last = [*sample, last[0]];
        }
    }
    let loudest = sound.iter().fold(0.0_f64, |most, sample| most.max(sample.abs()));
    sound.iter().map(|sample| (0.5 * sample / loudest) as f32).collect()
}

#[test]
fn vowels_have_the_expected_pitch_and_formants() {
    for rate in [16_000, 22_050, 44_100] {
        for (pitch, formants) in
            [(100.0, [730.0, 1_090.0, 2_440.0]), (140.0, [270.0, 2_290.0, 3_010.0]), (220.0, [590.0, 1_920.0, 2_890.0])]
        {
            let traits = VoiceTraits::from_samples(&vowel(pitch, formants, rate), rate).unwrap();
            assert!((traits.pitch_hz / pitch - 1.0).abs() < 0.01, "{pitch} at {rate}: {traits:?}");
            for (found, expected) in traits.formants_hz.iter().zip(formants) {
                // The nearest harmonic attracts a formant, and harmonics are one pitch apart.
                let most = 0.03 * expected + 0.25 * pitch;
                assert!((found - expected).abs() < most, "{formants:?} at {rate}: {traits:?}");
            }
            assert!((0.9..1.0).contains(&traits.voiced_seconds.0), "{traits:?}");
        }
    }
}

#[test]
fn audio_without_speech_has_no_traits() {
    let key = Key::new(4);
    let noise: Vec<f32> = (0..16_000).map(|n| key.at(n).unit() as f32 - 0.5).collect();
    for samples in [vec![], vec![0.1], vec![0.0; 16_000], noise] {
        assert_eq!(VoiceTraits::from_samples(&samples, 16_000), None);
    }
    // A tone is not a voice, but a perfectly predictable signal must not cause a panic.
    VoiceTraits::from_samples(&tone(200.0, 0.5, 16_000), 16_000);
}

#[test]
fn distances_are_logarithmic() {
    let one = VoiceTraits { pitch_hz: 100.0, formants_hz: [500.0, 1_500.0, 2_500.0], voiced_seconds: Seconds(1.0) };
    let octave = VoiceTraits { pitch_hz: 200.0, ..one };
    let longer = VoiceTraits { formants_hz: one.formants_hz.map(|hertz| hertz / 1.1), ..octave };
    assert_eq!(one.distance(&one), 0.0);
    assert!((one.distance(&octave) - 2f64.ln()).abs() < 1e-12);
    let expected = (2f64.ln().powi(2) + 3.0 * 1.1f64.ln().powi(2)).sqrt();
    assert!((one.distance(&longer) - expected).abs() < 1e-12);
    assert_eq!(one.distance(&longer), longer.distance(&one));
}

/// Measures the traits of ten sentences of a voice.
fn heard(seed: u64, speaker: usize) -> Vec<VoiceTraits> {
    let key = Key::new(seed).with("heard").at(speaker as u64);
    let sentence = |key: Key| (0..5).map(|word| key.at(word).below(60) as usize).collect::<Vec<_>>();
    let say = |key: Key| synthesize(&sentence(key), &Voice::new(seed, speaker), key).samples;
    (0..10).map(|n| VoiceTraits::from_samples(&say(key.at(n)), plimsoll_corpus::SAMPLE_RATE).unwrap()).collect()
}

fn mean(all: &[VoiceTraits]) -> VoiceTraits {
    let mean = |value: &dyn Fn(&VoiceTraits) -> f64| all.iter().map(value).sum::<f64>() / all.len() as f64;
    VoiceTraits {
        pitch_hz: mean(&|traits| traits.pitch_hz),
        formants_hz: [0, 1, 2].map(|n| mean(&|traits| traits.formants_hz[n])),
        voiced_seconds: Seconds(0.0),
    }
}

#[test]
fn sentences_are_closer_to_their_own_voice() {
    let voices: Vec<_> = (0..6).map(|speaker| heard(7, speaker)).collect();
    let means: Vec<_> = voices.iter().map(|sentences| mean(sentences)).collect();
    let (mut right, mut all) = (0, 0);
    for (own, sentences) in voices.iter().enumerate() {
        for other in means.iter().filter(|mean| **mean != means[own]) {
            right += sentences.iter().filter(|said| said.distance(&means[own]) < said.distance(other)).count();
            all += sentences.len();
        }
    }
    println!("{right} of {all} right");
    assert!(right * 10 >= all * 9, "{right} of {all}");
}
