//! Tests of reading whole, segmented, damaged and truncated audio files.

use std::fs;

use hound::{SampleFormat, WavSpec, WavWriter};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::testing::{tone, write_wav};

/// Sample value of the left channel.
const LEFT: f32 = 0.5;
/// Sample value of the right channel.
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
        let audio = read_recording(&path).unwrap();
        assert_eq!(audio, Audio { samples: vec![(LEFT + RIGHT) / 2.0; 10], rate: 16_000 }, "{bits} bits {format:?}");
    }
}

#[test]
fn a_segment_equals_that_part_of_the_whole_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.wav");
    write_wav(&path, &tone(300.0, 1.0, 8_000), 8_000);
    let whole = read_recording(&path).unwrap();
    assert_eq!(whole.duration(), Seconds(1.0));
    let segment = |offset, duration: Option<f64>| {
        let segment = AudioSegment { offset: Seconds(offset), duration: duration.map(Seconds) };
        read_audio_segment(&path, segment, 8_000)
    };
    assert_eq!(segment(0.25, Some(0.5)).unwrap().samples, whole.samples[2_000..6_000]);
    assert_eq!(segment(0.25, None).unwrap().samples, whole.samples[2_000..]);
    assert_eq!(segment(0.5, Some(0.52)).unwrap().samples, whole.samples[4_000..]);
    for (offset, duration) in [(1.0, None), (0.5, Some(0.7)), (f64::NAN, None), (0.0, Some(0.0)), (-1.0, None)] {
        assert!(matches!(segment(offset, duration), Err(AudioError::Outside { .. })), "{offset} {duration:?}");
    }
    assert_eq!(read_audio(&path, 16_000).unwrap().samples.len(), 16_000);
    assert_eq!(audio_info(&path).unwrap().duration, Seconds(1.0));
}

/// Returns the bytes of a valid file of eight samples, which tests then damage.
fn valid() -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.wav");
    write_wav(&path, &[0.25; 8], 16_000);
    fs::read(path).unwrap()
}

/// Files with one identical second of audio in every format (made by `fixtures/audio.py`).
const SWEEPS: [(&str, AudioKind); 5] = [
    ("wav", AudioKind::Wav),
    ("flac", AudioKind::Flac),
    ("mp3", AudioKind::Mp3),
    ("ogg", AudioKind::Vorbis),
    ("opus", AudioKind::Opus),
];

fn sweep(extension: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/audio");
    folder.join("sweep").with_extension(extension)
}

/// Returns the path and format of each sweep that this build can read.
pub(super) fn readable() -> impl Iterator<Item = (PathBuf, AudioKind)> {
    let all = SWEEPS.into_iter().filter(|(_, kind)| *kind != AudioKind::Opus || cfg!(feature = "opus"));
    all.map(|(extension, kind)| (sweep(extension), kind))
}

/// Computes the energy of the difference between `found` and `expected`, relative to the energy of `expected`.
fn difference(found: &[f32], expected: &[f32]) -> f64 {
    let energy = |samples: &mut dyn Iterator<Item = f32>| samples.map(|v| f64::from(v) * f64::from(v)).sum::<f64>();
    energy(&mut found.iter().zip(expected).map(|(f, t)| f - t)) / energy(&mut expected.iter().copied())
}

#[test]
fn every_format_gives_the_same_samples() {
    let original = read_audio(sweep("wav"), 16_000).unwrap();
    for (path, kind) in readable() {
        let info = audio_info(&path).unwrap();
        assert_eq!((info.kind, info.channels), (kind, 2), "{}", path.display());
        let audio = read_audio(&path, 16_000).unwrap();
        let length = audio.samples.len();
        assert!((16_000..16_000 + 1_600).contains(&length), "{}: {length} samples", kind.name());
        assert!((info.duration.0 - audio.duration().0).abs() < 0.001, "{}: {info:?}, {length} samples", kind.name());
        let difference = difference(&audio.samples, &original.samples);
        let most = if matches!(kind, AudioKind::Wav | AudioKind::Flac) { 1e-7 } else { 0.02 };
        assert!(difference < most, "{}: {difference}", kind.name());
    }
}

#[test]
fn a_segment_of_compressed_audio_equals_that_part_of_the_whole_file() {
    for (path, kind) in readable() {
        let whole = read_recording(&path).unwrap();
        let place = |seconds: f64| (seconds * f64::from(whole.rate)).round() as usize;
        for (from, to) in [(0.0, 0.3), (0.2, 0.25), (0.6, 0.9), (0.7, 0.71), (0.95, 1.0)] {
            let segment = AudioSegment { offset: Seconds(from), duration: Some(Seconds(to - from)) };
            let part = read_audio_segment(&path, segment, whole.rate).unwrap();
            let expected = &whole.samples[place(from)..place(to)];
            assert_eq!(part.samples.len(), expected.len(), "{} {from} {to}", kind.name());
            let difference = difference(&part.samples, expected);
            assert!(difference < 1e-6, "{} {from} {to}: {difference}", kind.name());
        }
    }
}

#[test]
fn a_segment_past_the_end_is_refused_in_every_format() {
    for (path, kind) in readable() {
        let length = audio_info(&path).unwrap().duration.0;
        // The packets of an MP3 are not counted first, so both seeking and decoding can run past its end.
        for (offset, duration) in [(60.0, 1.0), (length + 0.2, 0.2), (length - 0.2, 0.5)] {
            let segment = AudioSegment { offset: Seconds(offset), duration: Some(Seconds(duration)) };
            match read_audio_segment(&path, segment, 16_000) {
                Err(AudioError::Outside { length: reported, .. }) => assert_eq!(reported.0, length, "{}", kind.name()),
                other => panic!("{} {offset}: {other:?}", kind.name()),
            }
        }
    }
}

#[test]
fn damage_to_compressed_audio_is_reported() {
    let outcome = |extension: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(sweep(extension)).unwrap();
        change(&mut bytes);
        match read_bytes(&bytes) {
            Ok(audio) => format!("{extension}: {}", audio.duration()),
            Err(_) => problem(&bytes),
        }
    };
    let half = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    let hole = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle..middle + 200].fill(0);
    };
    let header = |bytes: &mut Vec<u8>| bytes.truncate(40);
    let mut seen = Vec::new();
    for extension in ["flac", "mp3", "ogg"] {
        seen.extend([outcome(extension, &half), outcome(extension, &hole), outcome(extension, &header)]);
    }
    insta::assert_snapshot!(seen.join("\n"), @"
    audio file broken.wav is cut short: 1s expected, 256ms found
    audio file broken.wav is damaged after 256ms: 4096 samples are missing
    audio file broken.wav is damaged after 0s: it ends before its sound begins
    mp3: 398.9ms
    mp3: 902.9ms
    broken.wav is neither WAV, FLAC, MP3 nor Ogg
    audio file broken.wav is damaged after 0s: it ends before its sound begins
    audio file broken.wav is damaged after 0s: ogg: crc mismatch
    audio file broken.wav is damaged after 0s: it ends before its sound begins
    ");
    if !cfg!(feature = "opus") {
        let message = read_recording(sweep("opus")).unwrap_err().to_string();
        assert!(message.ends_with("Opus, which needs the feature `opus`"), "{message}");
    }
}

fn read_bytes(bytes: &[u8]) -> Result<Audio, AudioError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("broken.wav");
    fs::write(&path, bytes).unwrap();
    read_audio(&path, 16_000)
}

/// Returns the error of reading `bytes` as a WAV file, without the path of the folder, which differs from run to run.
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
    broken.wav has an unsupported audio format: id3v2: unsupported ID3v2 version
    broken.wav is not a WAV file: it ends before its sound begins
    audio file broken.wav is truncated: its header promises 16 bytes of audio, the file has 13
    audio file broken.wav is empty
    broken.wav has an unsupported audio format: samples that are neither integers nor floats
    broken.wav has an unsupported audio format: a sample rate of 1 Hz
    broken.wav is not a WAV file: file contains zero channels
    broken.wav has an unsupported audio format: bits per sample is not 32
    "#);
    assert_eq!(read_recording("no/such.wav").unwrap_err().to_string(), "audio file no/such.wav does not exist");
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_read() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    assert!(std::process::Command::new("mkfifo").arg(path("pipe.wav")).status().unwrap().success());
    fs::create_dir(path("folder.wav")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", path("zero.wav")).unwrap();
    for (name, expected) in [
        ("folder.wav", "it is a folder, not a file"),
        ("pipe.wav", "it is a named pipe, not a file"),
        ("zero.wav", "it is a device, not a file"),
    ] {
        let path = path(name);
        for error in [
            read_recording(&path).unwrap_err(),
            read_audio(&path, 8_000).unwrap_err(),
            read_audio_segment(&path, AudioSegment::default(), 8_000).unwrap_err(),
            read_heard_segment(&path, AudioSegment::default(), 8_000).unwrap_err(),
            audio_info(&path).unwrap_err(),
        ] {
            let message = plimsoll_core::error_chain(&error);
            assert!(message.starts_with("cannot read audio file ") && message.contains(expected), "{message}");
        }
    }
}

proptest! {
    #[test]
    fn broken_headers_never_panic(changes in prop::collection::vec((0usize..60, any::<u8>()), 1..6), keep in 0usize..61) {
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
    fn damaged_compressed_audio_never_panics(
        which in 1usize..4, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        keep in any::<prop::sample::Index>(), cut in any::<bool>(),
    ) {
        let mut bytes = fs::read(sweep(SWEEPS[which].0)).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(keep.index(bytes.len()));
        }
        let _ = read_bytes(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = read_bytes(&bytes);
    }
}

#[test]
fn a_small_loss_is_seen_in_the_message() {
    let error = |promised, found| {
        AudioError::CutShort { file: "a.flac".into(), promised: Seconds(promised), found: Seconds(found) }.to_string()
    };
    assert_eq!(error(1.9, 1.3), "audio file a.flac is cut short: 1.9s expected, 1.3s found");
    assert_eq!(error(2.7, 2.6999), "audio file a.flac is cut short: 2.70000s expected, 2.69990s found");
}
