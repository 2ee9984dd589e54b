//! Writes WAV files with 16 bits and one channel.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use hound::{SampleFormat, WavSpec, WavWriter};

use super::AudioError;

/// Writes `samples` as a 16-bit mono WAV file; values outside of `-1..1` are clipped.
///
/// The folder of `path` must exist. An existing file is replaced.
///
/// # Errors
/// When the file cannot be written.
pub fn write_wav(path: &Path, samples: &[f32], rate: u32) -> Result<(), AudioError> {
    let unwritable = |source| AudioError::Unwritable { file: path.into(), source };
    fs::write(path, wav_bytes(samples, rate)).map_err(unwritable)
}

/// Encodes `samples` as a 16-bit mono WAV file in memory, for pipes and archives; values outside of `-1..1` are
/// clipped.
pub fn wav_bytes(samples: &[f32], rate: u32) -> Vec<u8> {
    let spec = WavSpec { channels: 1, sample_rate: rate, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut bytes = Cursor::new(Vec::new());
    let mut write = || -> Result<(), hound::Error> {
        let mut writer = WavWriter::new(&mut bytes, spec)?;
        for sample in samples {
            writer.write_sample((sample.clamp(-1.0, 1.0) * f32::from(i16::MAX)).round() as i16)?;
        }
        writer.finalize()
    };
    write().expect("writing to memory cannot fail");
    bytes.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Audio, read_recording};
    use crate::testing::tone;
    use std::error::Error;

    #[test]
    fn written_samples_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wav");
        let samples = tone(440.0, 0.5, 22_050);
        write_wav(&path, &samples, 22_050).unwrap();
        let Audio { samples: found, rate } = read_recording(&path).unwrap();
        assert_eq!((found.len(), rate), (samples.len(), 22_050));
        // One step of 16 bits: for rounding, and because writing scales by 32767 and reading by 32768.
        let error = found.iter().zip(&samples).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error < 1.0 / 32_768.0, "{error}");
        assert_eq!(fs::read(&path).unwrap(), wav_bytes(&samples, 22_050));
    }

    #[test]
    fn loud_samples_are_clipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wav");
        write_wav(&path, &[0.0, 1.0, 7.0, -1.0, -7.0, f32::INFINITY, f32::NAN], 8_000).unwrap();
        let found: Vec<i32> = read_recording(&path).unwrap().samples.iter().map(|s| (s * 32_768.0) as i32).collect();
        assert_eq!(found, [0, 32_767, 32_767, -32_767, -32_767, 32_767, 0]);
    }

    #[test]
    fn the_error_names_a_path_that_cannot_be_written() {
        let path = Path::new("/dev/null/x.wav");
        let error = write_wav(path, &[0.0], 8_000).unwrap_err();
        assert_eq!(error.to_string(), "cannot write audio file /dev/null/x.wav");
        assert!(error.source().is_some());
    }
}
