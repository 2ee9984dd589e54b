//! Background noise: hiss, rumble, mains hum, machines and other speakers.

use crate::filter::Resonator;
use crate::lexicon::{Lexicon, sentence};
use crate::random::{WhiteNoise, uniform};
use crate::synthesizer::{SAMPLE_RATE, synthesize};
use crate::voice::Voice;
use plimsoll_core::Key;
use std::f32::consts::TAU;

/// Mixes `length` samples of background noise with a power of one; `key` determines the mix.
///
/// One kind of noise dominates; the other kinds are soft.
pub(super) fn background(length: usize, key: Key) -> Vec<f32> {
    let front = key.with("front").below(5);
    let weight = |kind: u64| {
        let behind = 0.3 * key.with("weight").at(kind).unit() as f32;
        if kind == front { 1.0 } else { behind }
    };
    let mut mix = vec![0.0; length];
    add(&mut mix, &white(length, key.with("white")), weight(0));
    add(&mut mix, &pink(length, key.with("pink")), weight(1));
    add(&mut mix, &hum(length, key.with("hum")), weight(2));
    add(&mut mix, &machine(length, key.with("machine")), weight(4));
    // Other speakers cost more time than all else together, so they are added only when they dominate.
    if front == 3 {
        add(&mut mix, &babble(length, key.with("babble")), weight(3));
    }
    modulate_level(&mut mix, key.with("swell"));
    let scale = 1.0 / power(&mix).sqrt().max(1e-9);
    mix.iter_mut().for_each(|sample| *sample *= scale);
    mix
}

/// Computes the mean square of `samples`.
pub(super) fn power(samples: &[f32]) -> f32 {
    let sum: f64 = samples.iter().map(|&sample| f64::from(sample).powi(2)).sum();
    (sum / samples.len().max(1) as f64) as f32
}

/// Adds `part`, normalized to a power of one and multiplied by `weight`, to `mix`.
fn add(mix: &mut [f32], part: &[f32], weight: f32) {
    let scale = weight / power(part).sqrt().max(1e-9);
    mix.iter_mut().zip(part).for_each(|(sample, part)| *sample += scale * part);
}

/// Varies the level of the noise by a few decibels, as when something passes by.
fn modulate_level(mix: &mut [f32], key: Key) {
    let depth = uniform(key.with("depth"), 0.1, 0.8);
    let waves = [0, 1].map(|wave| {
        let hertz = uniform(key.at(wave).with("hertz"), 0.2, 1.5);
        (TAU * hertz / SAMPLE_RATE as f32, TAU * key.at(wave).with("phase").unit() as f32)
    });
    for (n, sample) in mix.iter_mut().enumerate() {
        let height: f32 = waves.iter().map(|(step, phase)| (step * n as f32 + phase).sin()).sum();
        *sample *= (depth * 0.5 * height).exp();
    }
}

/// Generates colored noise like the noise of machines: two broad resonances at random frequencies.
fn machine(length: usize, key: Key) -> Vec<f32> {
    let mut white = WhiteNoise::new(key.with("white"));
    let mut resonances = [Resonator::default(); 2];
    for (resonance, key) in resonances.iter_mut().zip([key.at(0), key.at(1)]) {
        let hertz = 200.0 * 25.0_f32.powf(key.with("hertz").unit() as f32);
        resonance.tune(hertz, hertz * uniform(key.with("width"), 0.2, 0.6), SAMPLE_RATE as f32);
    }
    let mut draw = |input: f32| 0.1 * input + resonances.iter_mut().map(|r| r.peak(input)).sum::<f32>();
    (0..length).map(|_| draw(white.draw())).collect()
}

fn white(length: usize, key: Key) -> Vec<f32> {
    let mut white = WhiteNoise::new(key);
    (0..length).map(|_| white.draw()).collect()
}

/// Generates pink noise, 3 dB per octave: three poles after Paul Kellet's economy filter, which is made for sample
/// rates near 44.1 kHz.
///
/// At 16 kHz the spectrum falls a little faster at the top, which does not matter for background noise.
fn pink(length: usize, key: Key) -> Vec<f32> {
    let mut white = WhiteNoise::new(key);
    let mut poles = [0.0_f32; 3];
    let shape = [(0.99765, 0.0990460), (0.96300, 0.2965164), (0.57000, 1.0526913)];
    let mut draw = || {
        let input = white.draw();
        for (pole, (keep, take)) in poles.iter_mut().zip(shape) {
            *pole = keep * *pole + take * input;
        }
        poles.iter().sum::<f32>() + 0.1848 * input
    };
    (0..length).map(|_| draw()).collect()
}

/// Generates mains hum of 50 or 60 Hz with its first overtones.
fn hum(length: usize, key: Key) -> Vec<f32> {
    let mains = if key.with("mains").unit() < 0.5 { 50.0 } else { 60.0 };
    let tones: Vec<(f32, f32, f32)> = (1..=8)
        .map(|overtone| {
            let key = key.at(overtone);
            let loudness = key.with("loudness").unit() as f32 / overtone as f32;
            (TAU * mains * overtone as f32 / SAMPLE_RATE as f32, TAU * key.with("phase").unit() as f32, loudness)
        })
        .collect();
    // The hum repeats exactly every tenth of a second, so one period is computed and repeated.
    let period = SAMPLE_RATE as usize / 10;
    let at = |n: usize| tones.iter().map(|(step, phase, loudness)| loudness * (step * n as f32 + phase).sin()).sum();
    let once: Vec<f32> = (0..period.min(length)).map(at).collect();
    once.iter().copied().cycle().take(length).collect()
}

/// Generates babble noise: three speakers at once, played backward, so that none of their words can be mistaken for a
/// word of the utterance.
fn babble(length: usize, key: Key) -> Vec<f32> {
    let n_words = Lexicon::english().words().len();
    let mut mix = vec![0.0; length];
    for person in 0..3 {
        let key = key.at(person);
        let voice = Voice::new(key.with("voice").bits(), 0);
        let samples = synthesize(&sentence(n_words, key.with("sentence")), &voice, key.with("speech")).samples;
        let start = uniform(key.with("start"), 0.0, samples.len() as f32) as usize;
        let backwards: Vec<f32> = samples.iter().rev().copied().cycle().skip(start).take(length).collect();
        add(&mut mix, &backwards, 1.0);
    }
    mix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_a_power_of_one_to_its_end() {
        for index in 0..12 {
            let noise = background(16_000, Key::new(index));
            assert_eq!(noise.len(), 16_000);
            assert!((power(&noise) - 1.0).abs() < 1e-3);
            assert!(power(&noise[12_000..]) > 0.01, "key {index} falls silent");
        }
    }
}
