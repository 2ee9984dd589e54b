//! Test signals for `plimsoll-audio`.

use std::f64::consts::TAU;
use std::path::Path;

use hound::{SampleFormat, WavSpec, WavWriter};

/// Generates a sine wave at half of full scale.
pub(crate) fn tone(hertz: f64, seconds: f64, rate: u32) -> Vec<f32> {
    let samples = (seconds * f64::from(rate)).round() as usize;
    (0..samples).map(|n| 0.5 * (TAU * hertz * n as f64 / f64::from(rate)).sin() as f32).collect()
}

/// Writes `samples` as a 16-bit mono WAV file.
pub(crate) fn write_wav(path: &Path, samples: &[f32], rate: u32) {
    let spec = WavSpec { channels: 1, sample_rate: rate, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut writer = WavWriter::create(path, spec).unwrap();
    for sample in samples {
        writer.write_sample((sample * 32_767.0) as i16).unwrap();
    }
    writer.finalize().unwrap();
}
