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
const SWEEPS: [(&str, AudioKind); 11] = [
    ("sweep.wav", AudioKind::Wav),
    ("sweep.flac", AudioKind::Flac),
    ("sweep.mp3", AudioKind::Mp3),
    ("sweep.ogg", AudioKind::Vorbis),
    ("sweep.opus", AudioKind::Opus),
    ("sweep.m4a", AudioKind::Aac),
    ("sweep.aac", AudioKind::Aac),
    ("sweep.mp4", AudioKind::Aac),
    ("sweep-opus.mp4", AudioKind::Opus),
    ("sweep.webm", AudioKind::Opus),
    ("sweep.mka", AudioKind::Vorbis),
];

fn sweep(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/audio").join(name)
}

/// Returns the path and format of each sweep.
pub(super) fn readable() -> impl Iterator<Item = (PathBuf, AudioKind)> {
    SWEEPS.into_iter().map(|(name, kind)| (sweep(name), kind))
}

/// Computes the energy of the difference between `found` and `expected`, relative to the energy of `expected`.
fn difference(found: &[f32], expected: &[f32]) -> f64 {
    let energy = |samples: &mut dyn Iterator<Item = f32>| samples.map(|v| f64::from(v) * f64::from(v)).sum::<f64>();
    energy(&mut found.iter().zip(expected).map(|(f, t)| f - t)) / energy(&mut expected.iter().copied())
}

#[test]
fn every_format_gives_the_same_samples() {
    let original = read_audio(sweep("sweep.wav"), 16_000).unwrap();
    for (path, kind) in readable() {
        let info = audio_info(&path).unwrap();
        assert_eq!((info.kind, info.channels), (kind, 2), "{}", path.display());
        let audio = read_audio(&path, 16_000).unwrap();
        // Nothing in AAC without a container says what the encoder put before the sound: one packet.
        let delay = if path.ends_with("sweep.aac") { 1_024 } else { 0 };
        let name = path.display();
        let length = audio.samples.len() - delay;
        // Containers with a length for the sound keep it to the sample; Vorbis in Matroska ends with a packet.
        let spare = if path.ends_with("sweep.aac") || path.ends_with("sweep.mka") { 512 } else { 0 };
        assert!((16_000..=16_000 + spare).contains(&length), "{name}: {length} samples");
        assert!((info.duration.0 - audio.duration().0).abs() < 0.001, "{name}: {info:?}, {length} samples");
        let difference = difference(&audio.samples[delay..], &original.samples);
        let most = match kind {
            AudioKind::Wav | AudioKind::Flac => 1e-7,
            // Few bits, so that the files are small.
            AudioKind::Aac | AudioKind::Opus => 0.04,
            _ => 0.02,
        };
        assert!(difference < most, "{name}: {difference}");
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
    let outcome = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(sweep(name)).unwrap();
        change(&mut bytes);
        match read_bytes(&bytes) {
            Ok(audio) => format!("{name}: {}", audio.duration()),
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
    for (name, _) in &SWEEPS[1..] {
        seen.extend([outcome(name, &half), outcome(name, &hole), outcome(name, &header)]);
    }
    insta::assert_snapshot!(seen.join("\n"), @"
    audio file broken.wav is cut short: 1s expected, 256ms found
    audio file broken.wav is damaged after 256ms: 4096 samples are missing
    audio file broken.wav is damaged after 0s: it ends before its sound begins
    sweep.mp3: 398.9ms
    sweep.mp3: 902.9ms
    broken.wav is neither WAV, AIFF, AU, CAF, FLAC, MP3, Ogg, MP4, AAC nor Matroska
    audio file broken.wav is damaged after 0s: it ends before its sound begins
    audio file broken.wav is damaged after 0s: ogg: crc mismatch
    audio file broken.wav is damaged after 0s: it ends before its sound begins
    audio file broken.wav is damaged after 0s: it ends before its sound begins
    audio file broken.wav is damaged after 0s: ogg: crc mismatch
    audio file broken.wav is damaged after 0s: it ends before its sound begins
    audio file broken.wav is damaged after 0s: the index of the movie is missing, as when a recording or a download was cut
    audio file broken.wav is damaged after 576ms: aac: invalid data
    audio file broken.wav is damaged after 0s: the index of the movie is missing, as when a recording or a download was cut
    sweep.aac: 512ms
    audio file broken.wav is damaged after 512ms: aac: invalid data
    broken.wav is neither WAV, AIFF, AU, CAF, FLAC, MP3, Ogg, MP4, AAC nor Matroska
    audio file broken.wav is damaged after 0s: the index of the movie is missing, as when a recording or a download was cut
    audio file broken.wav is damaged after 640ms: aac: invalid data
    audio file broken.wav is damaged after 0s: the index of the movie is missing, as when a recording or a download was cut
    audio file broken.wav is damaged after 0s: the index of the movie is missing, as when a recording or a download was cut
    audio file broken.wav is damaged after 607.5ms: 480 samples are missing
    audio file broken.wav is damaged after 0s: the index of the movie is missing, as when a recording or a download was cut
    audio file broken.wav is damaged after 0s: it is shorter than its header says, as when a recording or a download was cut
    audio file broken.wav is damaged after 0s: mkv (ebml): invalid ebml element id length
    audio file broken.wav is damaged after 0s: it ends before its sound begins
    audio file broken.wav is damaged after 0s: it is shorter than its header says, as when a recording or a download was cut
    broken.wav has an unsupported audio format: vorbis: invalid codebook sync
    broken.wav has an unsupported audio format: mkv: missing segment element
    ");
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
    broken.wav has sound that cannot be read: MP3 in WAV; convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    broken.wav has an unsupported audio format: a sample rate of 1 Hz
    broken.wav is not a WAV file: file contains zero channels
    broken.wav has an unsupported audio format: bits per sample is not 32
    "#);
    assert_eq!(read_recording("no/such.wav").unwrap_err().to_string(), "audio file no/such.wav does not exist");
}

/// Returns the bytes of a sweep in which the first `from` became `to`.
fn patched(name: &str, from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = fs::read(sweep(name)).unwrap();
    let place = bytes.windows(from.len()).position(|window| window == from).unwrap();
    bytes[place..place + to.len()].copy_from_slice(to);
    bytes
}

#[test]
fn sound_that_cannot_be_read_is_named() {
    // The configuration of AAC stands behind the tag 5 and a length.
    let config = b"\x05\x80\x80\x80\x05";
    let with_config = |bytes: [u8; 2]| patched("sweep.m4a", config, &[&config[..], &bytes].concat());
    insta::assert_snapshot!(
        [
            problem(&patched("sweep.m4a", b"mp4a", b"drms")),
            problem(&patched("sweep.mp4", b"mp4a", b"ac-3")),
            problem(&patched("sweep.mp4", b"mp4a", b"samr")),
            problem(&patched("sweep.mp4", b"soun", b"text")),
            problem(&with_config([0xf9, 0x46])),
            problem(&with_config([0x14, 0x30])),
            problem(&patched("sweep.mka", b"A_VORBIS", b"A_AC3\0\0\0")),
            problem(&patched("sweep.mka", b"A_VORBIS", b"A_MS/ACM")),
            problem(b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\x00\xaa"),
            problem(b"#!AMR\n0123456789"),
        ].join("\n"), @"
    broken.wav is protected against copying (DRM), so its sound cannot be read; use a copy without protection
    broken.wav has sound that cannot be read: AC-3 (Dolby Digital); convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    broken.wav has sound that cannot be read: AMR; convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    broken.wav has no sound: none of its tracks is audio
    broken.wav has sound that cannot be read: xHE-AAC; convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    broken.wav has sound that cannot be read: AAC with 6 channels; convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    broken.wav has sound that cannot be read: AC-3 (Dolby Digital); convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    broken.wav has sound that cannot be read: the codec `A_MS/ACM`; convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    broken.wav has sound that cannot be read: Windows Media (WMA or WMV); convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    broken.wav has sound that cannot be read: AMR; convert it with `ffmpeg -i IN -ar 16000 OUT.flac`
    ");
}

#[test]
fn an_edit_list_says_what_is_heard() {
    let whole = read_recording(sweep("sweep.m4a")).unwrap();
    let bytes = fs::read(sweep("sweep.m4a")).unwrap();
    let list = bytes.windows(4).position(|window| window == b"elst").unwrap() + 12;
    let edited = |length: u32, start: u32| {
        let mut bytes = bytes.clone();
        bytes[list..list + 4].copy_from_slice(&length.to_be_bytes());
        bytes[list + 4..list + 8].copy_from_slice(&start.to_be_bytes());
        read_bytes(&bytes).unwrap().samples
    };
    // The file gives lengths in milliseconds, and starts in samples; its encoder put 1,024 before the sound.
    for start in [0, 1, 160, 1_000, 8_000] {
        for milliseconds in [1, 10, 123, 400] {
            let found = edited(milliseconds, 1_024 + start);
            let start = start as usize;
            assert_eq!(found, whole.samples[start..start + milliseconds as usize * 16], "{start} {milliseconds}");
        }
        assert_eq!(edited(0, 1_024 + start), whole.samples[start as usize..], "{start}");
    }
    // The clock of a phone jitters: lengths of packets that differ move no sample.
    let times = bytes.windows(4).position(|window| window == b"stts").unwrap() + 12;
    let with_times = |table: [u32; 4]| {
        let mut bytes = bytes.clone();
        let table: Vec<u8> = table.into_iter().flat_map(u32::to_be_bytes).collect();
        bytes[times..times + 16].copy_from_slice(&table);
        read_bytes(&bytes).unwrap().samples
    };
    assert_eq!(with_times([16, 1_024, 1, 640]), whole.samples);
    for (first, rest) in [(1_000, 1_040), (1_023, 1_025), (1_060, 1_023)] {
        assert_eq!(with_times([5, first, 12, rest]), whole.samples, "{first} {rest}");
    }
    // A length in milliseconds is rounded; the samples behind it belong to the sound.
    assert_eq!(edited(999, 1_024), whole.samples);
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
        which in 1usize..SWEEPS.len(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
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
