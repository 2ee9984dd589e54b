//! Tests of `plimsoll-audio` on synthetic speech: voice traits and the vocoder.
#![cfg(test)]

mod vocoder;
mod voice_traits;

/// Generates a sine at half of full scale.
fn tone(hertz: f64, seconds: f64, rate: u32) -> Vec<f32> {
    let samples = (seconds * f64::from(rate)).round() as usize;
    (0..samples).map(|n| 0.5 * (std::f64::consts::TAU * hertz * n as f64 / f64::from(rate)).sin() as f32).collect()
}
