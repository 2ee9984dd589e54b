//! Tests of WAV files as programs write them into a pipe, and of chunks with their padding.

use std::fs;

use hound::{SampleFormat, WavSpec, WavWriter};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{audio_info, read_audio_segment, read_recording};
use plimsoll_core::Seconds;

/// Sizes of the audio in headers of programs that did not know the size: ffmpeg, a program that subtracts its header,
/// sox and espeak-ng, and arecord.
const UNKNOWN: [u32; 5] = [0xFFFF_FFFF, 0xFFFF_FFDB, 0x7FFF_F000, 0x7FFF_FFFF, 0x8000_0000];

/// Returns a stereo file of `frames` samples with the encoding number `encoding`.
fn stereo(encoding: usize, frames: usize) -> Vec<u8> {
    let (bits, sample_format) = [
        (8, SampleFormat::Int),
        (16, SampleFormat::Int),
        (24, SampleFormat::Int),
        (32, SampleFormat::Int),
        (32, SampleFormat::Float),
    ][encoding];
    let spec = WavSpec { channels: 2, sample_rate: 16_000, bits_per_sample: bits, sample_format };
    let mut bytes = io::Cursor::new(Vec::new());
    let mut writer = WavWriter::new(&mut bytes, spec).unwrap();
    for n in 0..2 * frames as i32 {
        match sample_format {
            SampleFormat::Int => writer.write_sample(n * 7 % 100).unwrap(),
            SampleFormat::Float => writer.write_sample((n * 7 % 100) as f32 / 100.0).unwrap(),
        }
    }
    writer.finalize().unwrap();
    bytes.into_inner()
}

fn position_of_audio(bytes: &[u8]) -> usize {
    bytes.windows(4).position(|four| four == b"data").unwrap()
}

fn with_sizes(mut bytes: Vec<u8>, riff: u32, audio: u32) -> Vec<u8> {
    let audio_size = position_of_audio(&bytes) + 4;
    bytes[4..8].copy_from_slice(&riff.to_le_bytes());
    bytes[audio_size..audio_size + 4].copy_from_slice(&audio.to_le_bytes());
    bytes
}

/// Puts a chunk before the audio, with or without the byte that pads an odd size.
fn with_chunk(mut bytes: Vec<u8>, size: usize, is_padded: bool) -> Vec<u8> {
    let mut chunk = [b"LIST", &(size as u32).to_le_bytes()[..], &vec![b'x'; size]].concat();
    if is_padded && size % 2 == 1 {
        chunk.push(0);
    }
    let place = position_of_audio(&bytes);
    bytes.splice(place..place, chunk);
    bytes
}

fn read(bytes: &[u8]) -> Result<Audio, AudioError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.wav");
    fs::write(&path, bytes).unwrap();
    let whole = read_recording(&path)?;
    assert_eq!(audio_info(&path).unwrap().duration, whole.duration());
    if whole.samples.len() >= 4 {
        let second = Seconds(1.0 / 16_000.0);
        let segment = AudioSegment { offset: second, duration: Some(Seconds(2.0 * second.0)) };
        assert_eq!(read_audio_segment(&path, segment, 16_000).unwrap().samples, whole.samples[1..3]);
    }
    Ok(whole)
}

/// Makes a file with sizes of 64 bits of a RIFF file: with the chunk `ds64`, in which the audio has `audio` bytes, and
/// where `table` is set with the size of a chunk before the audio.
fn with_long_sizes(bytes: &[u8], magic: &[u8; 4], audio: u64, table: bool) -> Vec<u8> {
    let place = position_of_audio(bytes);
    let other = [b"cue ", &u32::MAX.to_le_bytes()[..], &[7; 24]].concat();
    let (entry, other) = match table {
        true => ([b"cue ", &24u64.to_le_bytes()[..]].concat(), &other[..]),
        false => (Vec::new(), &[][..]),
    };
    let content = [
        &(bytes.len() as u64).to_le_bytes()[..],
        &audio.to_le_bytes(),
        &audio.to_le_bytes(),
        &u32::from(table).to_le_bytes(),
        &entry,
    ]
    .concat();
    let ds64 = [b"ds64", &(content.len() as u32).to_le_bytes()[..], &content].concat();
    let parts = [
        magic,
        &u32::MAX.to_le_bytes()[..],
        b"WAVE",
        &ds64,
        &bytes[12..place],
        other,
        b"data",
        &u32::MAX.to_le_bytes(),
        &bytes[place + 8..],
    ];
    parts.concat()
}

proptest! {
    #[test]
    fn sizes_of_64_bits_are_read(
        encoding in 0usize..5, frames in 1usize..40, is_bw64 in any::<bool>(), table in any::<bool>(), more in 0usize..9,
    ) {
        let plain = stereo(encoding, frames);
        let expected = read(&plain).unwrap();
        let audio = (plain.len() - position_of_audio(&plain) - 8) as u64;
        let magic = if is_bw64 { b"BW64" } else { b"RF64" };
        // What follows the audio is no audio.
        let long = [with_long_sizes(&plain, magic, audio, table), vec![99; more]].concat();
        prop_assert_eq!(&read(&long).unwrap(), &expected);
        for unknown in [0, u64::MAX] {
            prop_assert_eq!(&read(&with_long_sizes(&plain, magic, unknown, table)).unwrap(), &expected);
        }
        // A program that begins with this form for long recordings keeps the size of a short one in its place.
        let mut short = with_long_sizes(&plain, magic, 1, table);
        let size_at = position_of_audio(&short) + 4;
        short[size_at..size_at + 4].copy_from_slice(&(audio as u32).to_le_bytes());
        prop_assert_eq!(&read(&short).unwrap(), &expected);
        let truncated = with_long_sizes(&plain, magic, audio + (5 << 32) * 48, table);
        let error = read(&truncated).unwrap_err();
        prop_assert!(matches!(error, AudioError::Truncated { promised, .. } if promised > 5 << 32), "{error}");
    }

    #[test]
    fn unknown_sizes_and_odd_chunks_give_the_same_samples(
        encoding in 0usize..5, frames in 1usize..40, riff in prop::sample::select(vec![0, 36, 0x7FFF_F024, u32::MAX]),
        audio in prop::sample::select(UNKNOWN.to_vec()), chunk in 0usize..9, is_padded in any::<bool>(), rest in 0usize..2,
    ) {
        let plain = stereo(encoding, frames);
        let expected = read(&plain).unwrap();
        prop_assert_eq!(expected.samples.len(), frames);
        prop_assert_eq!(&read(&with_chunk(plain.clone(), chunk, is_padded)).unwrap(), &expected);
        let piped = with_chunk(with_sizes(plain, riff, audio), chunk, is_padded);
        prop_assert_eq!(&read(&piped).unwrap(), &expected);
        // The program was stopped inside a frame.
        prop_assert_eq!(&read(&[&piped[..], &vec![0; rest]].concat()).unwrap(), &expected);
    }

    #[test]
    fn truncated_files_are_reported(encoding in 0usize..5, frames in 2usize..40, share in 0.0..1.0f64) {
        let bytes = stereo(encoding, frames);
        let start = position_of_audio(&bytes) + 8;
        let (promised, kept) = (bytes.len() - start, ((bytes.len() - start) as f64 * share) as usize);
        match read(&bytes[..start + kept]) {
            Err(AudioError::Truncated { promised: p, found, .. }) => {
                prop_assert_eq!((p, found), (promised as u64, kept as u64));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

#[test]
fn zero_is_an_unknown_size_only_where_both_sizes_are_unknown() {
    let bytes = stereo(1, 10);
    let expected = read(&bytes).unwrap();
    for riff in [0, 0x7FFF_F024, u32::MAX] {
        assert_eq!(read(&with_sizes(bytes.clone(), riff, 0)).unwrap(), expected);
    }
    let size = bytes.len() as u32 - 8;
    for riff in [36, size] {
        assert!(matches!(read(&with_sizes(bytes.clone(), riff, 0)), Err(AudioError::Empty(_))));
    }
    let header = position_of_audio(&bytes) + 8;
    for audio in UNKNOWN.into_iter().chain([0]) {
        let nothing = with_sizes(bytes[..header].to_vec(), u32::MAX, audio);
        assert!(matches!(read(&nothing), Err(AudioError::Empty(_))), "{audio}");
    }
}

/// Makes a file of two channels with any format chunk.
fn with_format(tag: u16, bits: u16, is_extended: bool, audio: &[u8]) -> Vec<u8> {
    let width = (bits / 8).max(1);
    let own = if is_extended { 0xfffe } else { tag };
    let mut format = [own.to_le_bytes(), 2u16.to_le_bytes()].concat();
    format.extend(8_000u32.to_le_bytes());
    format.extend((16_000 * u32::from(width)).to_le_bytes());
    format.extend([(2 * width).to_le_bytes(), bits.to_le_bytes()].concat());
    if is_extended {
        format.extend([22u16.to_le_bytes(), bits.to_le_bytes(), [3, 0], [0, 0], tag.to_le_bytes()].concat());
        format.extend(b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71");
    }
    let parts = [
        &b"RIFF"[..],
        &(20 + format.len() as u32 + audio.len() as u32).to_le_bytes(),
        b"WAVEfmt ",
        &(format.len() as u32).to_le_bytes(),
        &format,
        b"data",
        &(audio.len() as u32).to_le_bytes(),
        audio,
    ];
    parts.concat()
}

#[test]
fn telephone_sound_and_long_floats_are_read() {
    let samples = |bytes: Vec<u8>| read(&bytes).map(|audio| audio.samples);
    let doubles: Vec<u8> = [0.5f64, -0.25, f64::NAN, 0.5].into_iter().flat_map(f64::to_le_bytes).collect();
    for is_extended in [false, true] {
        assert_eq!(samples(with_format(3, 64, is_extended, &doubles)).unwrap(), [0.125, 0.25]);
        let a_law = samples(with_format(6, 8, is_extended, &[0xd5, 0xd5, 0xd5, 0x55])).unwrap();
        assert_eq!(a_law, [8.0 / 32_768.0, 0.0]);
        let mu_law = samples(with_format(7, 8, is_extended, &[0x80, 0x80, 0xff, 0x7f])).unwrap();
        assert_eq!(mu_law, [32_124.0 / 32_768.0, 0.0]);
    }
}

#[test]
fn compressed_sound_in_wav_is_named() {
    let problem = |tag, bits| read(&with_format(tag, bits, false, &[0; 64])).unwrap_err().to_string();
    for (tag, bits, name) in [
        (0x11, 4, "IMA ADPCM in WAV"),
        (2, 4, "MS ADPCM in WAV"),
        (0x31, 0, "GSM in WAV"),
        (0x55, 0, "MP3 in WAV"),
        (6, 16, "A-law or mu-law of other than 8 bits in WAV"),
        (0x1234, 8, "the format 0x1234 of WAV"),
    ] {
        let found = problem(tag, bits);
        let expected =
            format!("has sound that cannot be read: {name}; convert it with `ffmpeg -i IN -ar 16000 OUT.flac`");
        assert!(found.ends_with(&expected), "{found}");
    }
    assert!(problem(3, 16).contains("has an unsupported audio format"), "{}", problem(3, 16));
}
