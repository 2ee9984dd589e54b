//! Tests of audio that is read in blocks.

use std::io::{self, Cursor};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::file::tests::readable;
use crate::testing::tone;
use crate::{flac_bytes, read_audio, resample, wav_bytes};

/// A reader that gives at most `most` bytes at once, as a pipe does.
struct Slow {
    bytes: Cursor<Vec<u8>>,
    most: usize,
}

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.most);
        self.bytes.read(&mut buffer[..most])
    }
}

fn all(mut stream: AudioStream) -> Result<Vec<f32>, AudioError> {
    let mut samples = Vec::new();
    while stream.read(&mut samples)? {}
    assert!(!stream.read(&mut samples)?, "an end is an end");
    Ok(samples)
}

#[test]
fn blocks_of_every_format_are_the_samples_of_the_whole_file() {
    for (path, kind) in readable() {
        for rate in [8_000, 16_000, 22_050, 44_100] {
            let whole = read_audio(&path, rate).unwrap();
            let stream = AudioStream::open(&path, rate).unwrap();
            let length = stream.length().unwrap();
            let found = all(stream).unwrap();
            assert!(found == whole.samples, "{} at {rate} Hz: {} {}", kind.name(), found.len(), whole.samples.len());
            assert!((length.0 - whole.duration().0).abs() < 0.001, "{}", kind.name());
        }
    }
}

#[test]
fn damage_is_reported_where_it_is_met() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.flac");
    let bytes = flac_bytes(&tone(300.0, 3.0, 16_000), 16_000).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let error = all(AudioStream::open(&path, 16_000).unwrap()).unwrap_err();
    assert!(matches!(error, AudioError::CutShort { .. } | AudioError::Damaged { .. }), "{error}");
    for bytes in [&b""[..], b"fLaC", b"RIFFxxxxWAVE", b"RI"] {
        assert!(AudioStream::from_wav(Cursor::new(bytes), 16_000).is_err(), "{bytes:?}");
    }
    let form = RawAudio { rate: 0, channels: 1, encoding: RawEncoding::S16 };
    assert!(AudioStream::from_raw(io::empty(), form, 16_000).is_err());
    assert!(AudioStream::from_raw(io::empty(), RawAudio { rate: 8_000, channels: 0, ..form }, 16_000).is_err());
}

#[test]
fn an_unknown_size_or_a_missing_end_ends_with_the_stream() {
    let samples = tone(300.0, 0.5, 16_000);
    let whole = wav_bytes(&samples, 16_000);
    let mut endless = Vec::new();
    crate::WavStream::new(&mut endless, 16_000).unwrap().write(&samples).unwrap();
    let expected = all(AudioStream::from_wav(Cursor::new(whole.clone()), 16_000).unwrap()).unwrap();
    assert_eq!(expected.len(), samples.len());
    assert!(all(AudioStream::from_wav(Cursor::new(endless), 16_000).unwrap()).unwrap() == expected);
    let cut = whole[..whole.len() - 1001].to_vec();
    let found = all(AudioStream::from_wav(Cursor::new(cut), 16_000).unwrap()).unwrap();
    assert!(found == expected[..expected.len() - 501]);
    let more = [&whole[..], b"LIST and what follows the sound"].concat();
    assert!(all(AudioStream::from_wav(Cursor::new(more), 16_000).unwrap()).unwrap() == expected);
}

#[test]
fn another_format_is_named() {
    let flac = flac_bytes(&tone(300.0, 0.3, 8_000), 8_000).unwrap();
    for (bytes, name) in [
        (&flac[..], "FLAC"),
        (b"OggS\0\x02", "Ogg"),
        (b"ID3\x04\0\0", "MP3 or FLAC with a tag"),
        (b"FORM\0\0\0\x10AIFF", "AIFF"),
        (b".snd\0\0", "Sun audio (AU)"),
        (b"caff\0\x01", "Core Audio (CAF)"),
        (b"\xff\xfb\x90\x64", "MP3"),
    ] {
        let error = AudioStream::from_wav(Cursor::new(bytes.to_vec()), 8_000).err().unwrap().to_string();
        assert_eq!(error, format!("- is not a WAV file: it begins as {name}, which is read from files only"));
    }
    for bytes in [b"text", b"\xff\xff\xff\xff"] {
        let error = AudioStream::from_wav(Cursor::new(bytes.to_vec()), 8_000).err().unwrap().to_string();
        assert_eq!(error, "- is not a WAV file: it does not begin with RIFF");
    }
}

#[test]
fn raw_samples_are_those_of_wav() {
    let samples = tone(300.0, 0.3, 8_000);
    let whole = all(AudioStream::from_wav(Cursor::new(wav_bytes(&samples, 8_000)), 8_000).unwrap()).unwrap();
    let raw = |encoding, bytes: Vec<u8>| {
        all(AudioStream::from_raw(Cursor::new(bytes), RawAudio { rate: 8_000, channels: 1, encoding }, 8_000).unwrap())
            .unwrap()
    };
    assert!(raw(RawEncoding::S16, wav_bytes(&samples, 8_000)[44..].to_vec()) == whole);
    let floats: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    assert!(raw(RawEncoding::F32, floats) == samples);
    assert_eq!(raw(RawEncoding::U8, vec![0, 128, 192]), [-1.0, 0.0, 0.5]);
    assert_eq!(raw(RawEncoding::S24, vec![0, 0, 0x40, 0, 0, 0xc0]), [0.5, -0.5]);
    for encoding in RawEncoding::ALL {
        assert_eq!(RawEncoding::from_name(encoding.name()), Some(encoding));
    }
}

proptest! {
    #[test]
    fn a_slow_stream_is_the_resampled_whole(
        seconds in 0.0..0.4f64, rate in prop::sample::select(vec![8_000u32, 16_000, 17_600, 22_050, 44_100, 48_000]),
        to in prop::sample::select(vec![8_000u32, 16_000, 24_000]), most in 1usize..5_000,
    ) {
        let samples = tone(300.0, seconds, rate);
        let bytes = wav_bytes(&samples, rate);
        let read = |most| all(AudioStream::from_wav(Slow { bytes: Cursor::new(bytes.clone()), most }, rate).unwrap()).unwrap();
        let whole = resample(read(usize::MAX), rate, to);
        let found = all(AudioStream::from_wav(Slow { bytes: Cursor::new(bytes.clone()), most }, to).unwrap()).unwrap();
        prop_assert!(found == whole, "{} {}", found.len(), whole.len());
    }
}
