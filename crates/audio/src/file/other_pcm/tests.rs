//! Tests of AIFF, AU and CAF: the samples of the same sound in WAV, and damage.

use std::fs;
use std::path::Path;

use plimsoll_core::Seconds;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::{AudioError, AudioKind, AudioSegment, AudioStream, audio_info, read_audio_segment, read_recording};

const RATE: u32 = 22_050;

/// Writes an extended number of 80 bits.
fn extended(rate: u32) -> Vec<u8> {
    let shift = rate.leading_zeros();
    let exponent = 16_383 + 31 - shift as u16;
    [&exponent.to_be_bytes()[..], &(u64::from(rate << shift) << 32).to_be_bytes()].concat()
}

fn chunk(id: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [&id[..], &(content.len() as u32).to_be_bytes(), content, &[0][..content.len() % 2]].concat()
}

fn aiff(form: Option<&[u8; 4]>, bits: u16, channels: u16, audio: &[u8]) -> Vec<u8> {
    let frames = audio.len() as u32 / u32::from(channels) / u32::from(bits / 8);
    let mut common =
        [&channels.to_be_bytes()[..], &frames.to_be_bytes(), &bits.to_be_bytes(), &extended(RATE)].concat();
    if let Some(form) = form {
        common.extend([&form[..], &[0, 0]].concat());
    }
    let kind = if form.is_some() { b"AIFC" } else { b"AIFF" };
    let sound = [&[0; 8], audio].concat();
    let body = [&kind[..], &chunk(b"NAME", b"odd"), &chunk(b"COMM", &common), &chunk(b"SSND", &sound)].concat();
    [b"FORM", &(body.len() as u32).to_be_bytes()[..], &body].concat()
}

fn au(form: u32, channels: u32, size: Option<u32>, audio: &[u8]) -> Vec<u8> {
    let numbers = [28, size.unwrap_or(u32::MAX), form, RATE, channels, 0];
    let numbers: Vec<u8> = numbers.into_iter().flat_map(u32::to_be_bytes).collect();
    [b".snd", &numbers[..], audio].concat()
}

fn caf(form: &[u8; 4], flags: u32, bits: u32, channels: u32, size: Option<i64>, audio: &[u8]) -> Vec<u8> {
    let frame = bits / 8 * channels;
    let numbers: Vec<u8> = [flags, frame, 1, channels, bits].into_iter().flat_map(u32::to_be_bytes).collect();
    let description = [&f64::from(RATE).to_be_bytes()[..], form, &numbers].concat();
    let size = size.unwrap_or(-1).to_be_bytes();
    [b"caff\0\x01\0\0desc", &32i64.to_be_bytes()[..], &description, b"data", &size, &[0; 4], audio].concat()
}

/// Reads a file in every way.
fn read(bytes: &[u8]) -> Result<(AudioKind, u32, Vec<f32>), AudioError> {
    let folder = TempDir::new().unwrap();
    // The name says nothing.
    let path = folder.path().join("x.mp3");
    fs::write(&path, bytes).unwrap();
    let (info, audio) = (audio_info(&path)?, read_recording(&path)?);
    assert_eq!((info.duration, info.rate), (audio.duration(), audio.rate));
    let mut streamed = Vec::new();
    let mut stream = AudioStream::open(&path, audio.rate).unwrap();
    while stream.read(&mut streamed).unwrap() {}
    assert_eq!(streamed, audio.samples);
    let second = 1.0 / f64::from(audio.rate);
    let segment = AudioSegment { offset: Seconds(second), duration: Some(Seconds(second)) };
    assert_eq!(read_audio_segment(&path, segment, audio.rate)?.samples, audio.samples[1..2]);
    Ok((info.kind, audio.rate, audio.samples))
}

/// Values of both channels, and their averages.
const VALUES: [f64; 6] = [0.5, 0.25, -0.75, -0.25, 0.0, 0.125];
const MEANS: [f32; 3] = [0.375, -0.5, 0.0625];

fn words(width: usize, is_big: bool) -> Vec<u8> {
    let word = |value: f64| {
        let whole = (value * 2f64.powi(8 * width as i32 - 1)) as i64;
        let mut bytes = whole.to_le_bytes()[..width].to_vec();
        if is_big {
            bytes.reverse();
        }
        bytes
    };
    VALUES.into_iter().flat_map(word).collect()
}

#[test]
fn every_encoding_of_every_header_gives_the_samples() {
    let floats: Vec<u8> = VALUES.into_iter().flat_map(|value| (value as f32).to_be_bytes()).collect();
    let doubles: Vec<u8> = VALUES.into_iter().flat_map(f64::to_be_bytes).collect();
    let little: Vec<u8> = VALUES.into_iter().flat_map(|value| (value as f32).to_le_bytes()).collect();
    let mut files = vec![
        (AudioKind::Aiff, aiff(Some(b"sowt"), 16, 2, &words(2, false))),
        (AudioKind::Aiff, aiff(Some(b"fl32"), 32, 2, &floats)),
        (AudioKind::Aiff, aiff(Some(b"FL64"), 64, 2, &doubles)),
        (AudioKind::Au, au(6, 2, None, &floats)),
        (AudioKind::Au, au(7, 2, Some(48), &doubles)),
        (AudioKind::Caf, caf(b"lpcm", 1, 32, 2, None, &floats)),
        (AudioKind::Caf, caf(b"lpcm", 3, 32, 2, Some(28), &little)),
        (AudioKind::Caf, caf(b"lpcm", 1, 64, 2, None, &doubles)),
    ];
    for width in 1..=4u16 {
        let audio = words(width.into(), true);
        let bits = u32::from(width) * 8;
        files.push((AudioKind::Aiff, aiff(None, 8 * width, 2, &audio)));
        files.push((AudioKind::Aiff, aiff(Some(b"NONE"), 8 * width, 2, &audio)));
        files.push((AudioKind::Au, au(1 + u32::from(width), 2, Some(audio.len() as u32), &audio)));
        files.push((AudioKind::Caf, caf(b"lpcm", 0, bits, 2, Some(audio.len() as i64 + 4), &audio)));
        files.push((AudioKind::Caf, caf(b"lpcm", 2, bits, 2, None, &words(width.into(), false))));
    }
    for (kind, bytes) in files {
        assert_eq!(read(&bytes).unwrap(), (kind, RATE, MEANS.to_vec()), "{:?}", &bytes[..60.min(bytes.len())]);
    }
    let telephone = [0.5f32, 0.25].map(|_| 0x80u8);
    for (bytes, sample) in [
        (aiff(Some(b"ulaw"), 8, 1, &telephone), 32_124.0),
        (aiff(Some(b"alaw"), 8, 1, &telephone), 5_504.0),
        (au(1, 1, None, &telephone), 32_124.0),
        (au(27, 1, None, &telephone), 5_504.0),
        (caf(b"ulaw", 0, 8, 1, None, &telephone), 32_124.0),
    ] {
        assert_eq!(read(&bytes).unwrap().2, [sample / 32_768.0; 2]);
    }
}

#[test]
fn what_is_not_read_is_named() {
    let audio = words(2, true);
    let problem = |bytes: &[u8]| {
        let message = read(bytes).unwrap_err().to_string();
        message[message.find("x.mp3").unwrap()..].to_owned()
    };
    let whole = aiff(None, 16, 2, &audio);
    insta::assert_snapshot!(
        [
            problem(&aiff(Some(b"ima4"), 16, 2, &audio)),
            problem(&au(23, 1, None, &audio)),
            problem(&caf(b"aac ", 0, 0, 2, None, &audio)),
            problem(b"FORM\0\0\0\x048SVX"),
            problem(b"caff\0\x01"),
            problem(&whole[..whole.len() - 3]),
            problem(&au(3, 0, None, &audio)),
            problem(&aiff(None, 16, 2, &[])),
        ].join("\n"), @"
    x.mp3 has sound that cannot be read: 16 bits of the form `ima4` in AIFF; convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    x.mp3 has sound that cannot be read: the encoding 23 of Sun audio (AU); convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    x.mp3 has sound that cannot be read: the form `aac` in Apple's Core Audio (CAF); convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    x.mp3 has sound that cannot be read: IFF of the type `8SVX`; convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    x.mp3 is damaged after 0s: it ends before its sound begins
    x.mp3 is truncated: its header promises 12 bytes of audio, the file has 9
    x.mp3 is damaged after 0s: it has no channel
    x.mp3 is empty
    ");
}

proptest! {
    #[test]
    fn damaged_headers_never_panic(
        which in 0usize..3, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
    ) {
        let audio = words(2, true);
        let mut bytes = [aiff(Some(b"twos"), 16, 2, &audio), au(3, 2, None, &audio), caf(b"lpcm", 0, 16, 2, None, &audio)][which].clone();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(1 + end.index(bytes.len()));
        let folder = TempDir::new().unwrap();
        let path: &Path = &folder.path().join("x.au");
        fs::write(path, bytes).unwrap();
        let _ = read_recording(path);
    }
}
