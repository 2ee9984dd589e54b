//! Tests of reading WAV files, whole, broken and cut.

use std::fs;

use hound::{WavSpec, WavWriter};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::testing::{tone, write_wav};

/// Ten moments of two channels, left and right.
const LEFT: f32 = 0.5;
const RIGHT: f32 = -0.25;

fn stereo(path: &Path, bits: u16, format: SampleFormat) {
    let spec = WavSpec { channels: 2, sample_rate: 16_000, bits_per_sample: bits, sample_format: format };
    let mut writer = WavWriter::create(path, spec).unwrap();
    for _ in 0..10 {
        for value in [LEFT, RIGHT] {
            let whole = (f64::from(value) * 2f64.powi(i32::from(bits) - 1)) as i32;
            let float = format == SampleFormat::Float;
            if float { writer.write_sample(value) } else { writer.write_sample(whole) }.unwrap();
        }
    }
    writer.finalize().unwrap();
}

#[test]
fn every_encoding_becomes_the_same_mono() {
    let folder = TempDir::new().unwrap();
    for (bits, format) in [8, 16, 24, 32].map(|b| (b, SampleFormat::Int)).into_iter().chain([(32, SampleFormat::Float)])
    {
        let path = folder.path().join("x.wav");
        stereo(&path, bits, format);
        let audio = read_wav(&path).unwrap();
        assert_eq!(audio, Audio { samples: vec![(LEFT + RIGHT) / 2.0; 10], rate: 16_000 }, "{bits} bits {format:?}");
    }
}

#[test]
fn a_stretch_is_the_same_part_of_the_whole() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.wav");
    write_wav(&path, &tone(300.0, 1.0, 8_000), 8_000);
    let whole = read_wav(&path).unwrap();
    assert_eq!(whole.duration(), Seconds(1.0));
    let stretch = |offset, duration: Option<f64>| {
        let stretch = Stretch { offset: Seconds(offset), duration: duration.map(Seconds) };
        read_audio_stretch(&path, stretch, 8_000)
    };
    assert_eq!(stretch(0.25, Some(0.5)).unwrap().samples, whole.samples[2_000..6_000]);
    assert_eq!(stretch(0.25, None).unwrap().samples, whole.samples[2_000..]);
    assert_eq!(stretch(0.5, Some(0.52)).unwrap().samples, whole.samples[4_000..]);
    for (offset, duration) in [(1.0, None), (0.5, Some(0.7)), (f64::NAN, None), (0.0, Some(0.0)), (-1.0, None)] {
        assert!(matches!(stretch(offset, duration), Err(AudioError::Outside { .. })), "{offset} {duration:?}");
    }
    assert_eq!(read_audio(&path, 16_000).unwrap().samples.len(), 16_000);
    assert_eq!(wav_duration(&path).unwrap(), Seconds(1.0));
}

/// A valid file of eight samples, for breaking.
fn valid() -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.wav");
    write_wav(&path, &[0.25; 8], 16_000);
    fs::read(path).unwrap()
}

fn read_bytes(bytes: &[u8]) -> Result<Audio, AudioError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("broken.wav");
    fs::write(&path, bytes).unwrap();
    read_audio(&path, 16_000)
}

/// The message without the folder, which differs from run to run.
fn problem(bytes: &[u8]) -> String {
    let message = read_bytes(bytes).unwrap_err().to_string();
    let folder = message.find("/").unwrap()..message.find("broken.wav").unwrap();
    message.replace(&message[folder], "")
}

#[test]
fn errors_name_the_file_and_what_is_wrong() {
    let good = valid();
    let patched = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        problem(&bytes)
    };
    insta::assert_snapshot!(
        [
            problem(&[]),
            problem(b"ID3 not at all"),
            problem(&good[..20]),
            problem(&good[..good.len() - 3]),
            patched(40, &[0; 4]),
            patched(20, &[85, 0]),
            patched(24, &[1, 0, 0, 0, 2, 0, 0, 0]),
            patched(22, &[0, 0]),
            patched(20, &[3, 0]),
        ].join("\n"), @r#"
    audio file broken.wav is empty
    broken.wav is not a WAV file: no RIFF tag found
    broken.wav is not a WAV file: it ends before its sound begins
    audio file broken.wav is truncated: its header promises 16 bytes of sound, 13 are there
    audio file broken.wav is empty
    broken.wav is a WAV file of a kind that cannot be read: neither plain integers nor plain floats
    broken.wav is a WAV file of a kind that cannot be read: 1 samples a second
    broken.wav is not a WAV file: file contains zero channels
    broken.wav is a WAV file of a kind that cannot be read: bits per sample is not 32
    "#);
    assert_eq!(read_wav("no/such.wav").unwrap_err().to_string(), "audio file no/such.wav does not exist");
}

proptest! {
    #[test]
    fn no_broken_header_panics(changes in prop::collection::vec((0usize..60, any::<u8>()), 1..6), keep in 0usize..61) {
        let mut bytes = valid();
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(keep);
        let _ = read_bytes(&bytes);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = read_bytes(&bytes);
    }
}
