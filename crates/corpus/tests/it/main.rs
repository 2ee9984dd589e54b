//! The synthetic speech heard by `plimsoll-audio`: voices told apart, and sound made of its features again.
#![cfg(test)]

mod traits;
mod vocoder;

/// A sine of half the full scale.
fn tone(hertz: f64, seconds: f64, rate: u32) -> Vec<f32> {
    let samples = (seconds * f64::from(rate)).round() as usize;
    (0..samples).map(|n| 0.5 * (std::f64::consts::TAU * hertz * n as f64 / f64::from(rate)).sin() as f32).collect()
}
