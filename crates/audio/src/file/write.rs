//! Writes WAV and FLAC files with 16 bits and one channel.

use std::io::{self, Cursor, Write};
use std::path::Path;

use flacenc::bitsink::ByteSink;
use flacenc::component::BitRepr;
use flacenc::error::Verify;
use flacenc::source::MemSource;
use hound::{SampleFormat, WavSpec, WavWriter};
use plimsoll_core::replace_file;

use super::AudioError;

/// Writes `samples` as a 16-bit mono WAV file; values outside of `-1..1` are clipped.
///
/// The folder of `path` must exist. An existing file is replaced.
///
/// # Errors
/// When the file cannot be written.
pub fn write_wav(path: &Path, samples: &[f32], rate: u32) -> Result<(), AudioError> {
    let unwritable = |source| AudioError::Unwritable { file: path.into(), source };
    replace_file(path, |file| file.write_all(&wav_bytes(samples, rate))).map_err(unwritable)
}

/// Encodes `samples` as a 16-bit mono WAV file in memory, for pipes and archives; values outside of `-1..1` are
/// clipped.
pub fn wav_bytes(samples: &[f32], rate: u32) -> Vec<u8> {
    let spec = WavSpec { channels: 1, sample_rate: rate, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut bytes = Cursor::new(Vec::new());
    let mut write = || -> Result<(), hound::Error> {
        let mut writer = WavWriter::new(&mut bytes, spec)?;
        for sample in samples {
            writer.write_sample(in_16_bits(*sample))?;
        }
        writer.finalize()
    };
    write().expect("writing to memory cannot fail");
    bytes.into_inner()
}

/// Places of the size of the smallest and of the largest block in the header of a FLAC file.
const SMALLEST_BLOCK: usize = 8;
const LARGEST_BLOCK: std::ops::Range<usize> = 10..12;

/// Encodes `samples` as a 16-bit mono FLAC file in memory; values outside of `-1..1` are clipped. The samples are those of
/// [`wav_bytes`]; the file is about half as long.
///
/// # Errors
/// When FLAC has no such sample rate.
pub fn flac_bytes(samples: &[f32], rate: u32) -> Result<Vec<u8>, AudioError> {
    let unwritable = |reason: String| AudioError::Encoding { reason };
    let config =
        flacenc::config::Encoder::default().into_verified().map_err(|(_, error)| unwritable(error.to_string()))?;
    let samples: Vec<i32> = samples.iter().map(|sample| i32::from(in_16_bits(*sample))).collect();
    let source = MemSource::from_samples(&samples, 1, 16, rate as usize);
    let stream = flacenc::encode_with_fixed_block_size(&config, source, config.block_size);
    let stream = stream.map_err(|error| unwritable(error.to_string()))?;
    let mut bytes = ByteSink::new();
    stream.write(&mut bytes).map_err(|error| unwritable(error.to_string()))?;
    let mut bytes = bytes.as_slice().to_vec();
    // The encoder counts the last, shorter block as the smallest. RFC 9639 (8.2) does not, and some decoders take blocks of
    // two sizes for a stream of another kind.
    bytes.copy_within(LARGEST_BLOCK, SMALLEST_BLOCK);
    Ok(bytes)
}

/// Returns `sample` as an integer of 16 bits; values outside of `-1..1` are clipped.
fn in_16_bits(sample: f32) -> i16 {
    (sample.clamp(-1.0, 1.0) * f32::from(i16::MAX)).round() as i16
}

/// A 16-bit mono WAV file of unknown length, written while its sound is made, as into a pipe.
///
/// The header says the largest possible length, which readers of pipes take for unknown.
pub struct WavStream<W> {
    to: W,
}

impl<W: Write> WavStream<W> {
    /// Writes the header of a file with this sample rate to `to`.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn new(mut to: W, rate: u32) -> io::Result<Self> {
        let mut header = wav_bytes(&[], rate);
        for size in [4..8, 40..44] {
            header[size].copy_from_slice(&u32::MAX.to_le_bytes());
        }
        to.write_all(&header)?;
        to.flush()?;
        Ok(Self { to })
    }

    /// Writes `samples`; values outside of `-1..1` are clipped.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, samples: &[f32]) -> io::Result<()> {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| in_16_bits(*sample).to_le_bytes()).collect();
        self.to.write_all(&bytes)?;
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Audio, read_recording};
    use crate::testing::tone;
    use std::error::Error;

    #[test]
    fn flac_and_streams_hold_the_samples_of_wav() {
        let folder = tempfile::tempdir().unwrap();
        for (rate, length) in [(8_000, 1.5), (16_000, 0.013), (22_050, 0.7), (44_100, 0.2)] {
            let samples = tone(300.0, length, rate);
            let read = |name: &str, bytes: Vec<u8>| {
                let path = folder.path().join(name);
                std::fs::write(&path, bytes).unwrap();
                read_recording(&path).map(|audio| (audio.samples, audio.rate)).map_err(|error| error.to_string())
            };
            let mut stream = Vec::new();
            let mut writer = WavStream::new(&mut stream, rate).unwrap();
            samples.chunks(1000).for_each(|part| writer.write(part).unwrap());
            let wav = read("x.wav", wav_bytes(&samples, rate));
            assert!(read("stream.wav", stream) == wav, "{rate} Hz");
            let flac = read("x.flac", flac_bytes(&samples, rate).unwrap());
            assert!(flac == wav, "{rate} Hz: {:?}", flac.err());
        }
    }

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
        assert_eq!(std::fs::read(&path).unwrap(), wav_bytes(&samples, 22_050));
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
