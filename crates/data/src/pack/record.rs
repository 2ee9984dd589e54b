//! Reads an utterance for packing: its audio file as it is, or a part of it with the same samples.

use std::io::Read;

use plimsoll_core::Seconds;

use super::PackFormat;
use crate::utterance::Utterance;
use plimsoll_audio::{
    Audio, AudioError, AudioInfo, AudioKind, AudioSegment, AudioSource, audio_info, read_audio_segment,
};

/// Utterance with the bytes of its audio.
pub(super) struct Record<'a> {
    pub(super) utterance: &'a Utterance,
    /// Name of the utterance in a shard: its id, or a similar name where the id has dots, slashes and the like.
    pub(super) key: String,
    /// Bytes of an audio file.
    pub(super) audio: Vec<u8>,
    /// Extension of the audio file.
    pub(super) extension: &'static str,
    /// Sample rate in hertz.
    pub(super) rate: u32,
    /// Length of the audio.
    pub(super) duration: Seconds,
}

/// Longest id that is a name in a shard, in bytes. Longer names take headers of their own.
const MAX_KEY: usize = 80;

impl<'a> Record<'a> {
    /// Reads utterance number `index`.
    pub(super) fn read(index: usize, utterance: &'a Utterance, format: PackFormat) -> Result<Self, AudioError> {
        let info = audio_info(&utterance.audio)?;
        let has_channel = AudioSource::from_path(&utterance.audio).channel.is_some();
        let is_copied = !has_channel && is_whole(utterance, &info) && can_be_copied(&info, format);
        let copy = if is_copied { copied(utterance, &info)? } else { None };
        let (audio, extension, duration) = match copy.filter(|bytes| format != PackFormat::Kaldi || is_wav_16(bytes)) {
            Some(bytes) => (bytes, info.kind.extension(), info.duration),
            None => {
                let segment = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
                let part = read_audio_segment(&utterance.audio, segment, info.rate)?;
                let duration = part.duration();
                let bytes = if format == PackFormat::Kaldi { wav_16(&part) } else { exact_wav(&part) };
                (bytes, AudioKind::Wav.extension(), duration)
            }
        };
        Ok(Self { utterance, key: key(index, &utterance.id), audio, extension, rate: info.rate, duration })
    }
}

/// Whether an utterance is all of its file, to less than a sample.
fn is_whole(utterance: &Utterance, info: &AudioInfo) -> bool {
    let sample = 1.0 / f64::from(info.rate);
    utterance.offset.0 == 0.0 && (utterance.duration.0 - info.duration.0).abs() < 0.5 * sample
}

/// Whether the readers of a format get the same samples from the file.
fn can_be_copied(info: &AudioInfo, format: PackFormat) -> bool {
    match format {
        PackFormat::WebDataset | PackFormat::Parquet => true,
        // A cut of Lhotse is one channel, and has an exact number of samples, which decoders of MP3 disagree about.
        PackFormat::Shar => info.channels == 1 && matches!(info.kind, AudioKind::Wav | AudioKind::Flac),
        // Kaldi takes the first of several channels, where others mix them.
        PackFormat::Kaldi => info.channels == 1 && info.kind == AudioKind::Wav,
    }
}

/// Bytes of tags and pictures that a file of sound may have beside its sound.
const TAGS_MAX: u64 = 1 << 20;

/// Reads the bytes of the audio file; `None` if most of them are not sound, as in a video.
fn copied(utterance: &Utterance, info: &AudioInfo) -> Result<Option<Vec<u8>>, AudioError> {
    let read = || {
        let mut audio = AudioSource::from_path(&utterance.audio).open()?;
        let bytes_per_second = f64::from(info.rate) * f64::from(info.channels) * size_of::<f32>() as f64;
        let plain = (info.duration.0 * bytes_per_second) as u64;
        if info.kind != AudioKind::Wav && audio.byte_len() > plain + TAGS_MAX {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        audio.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    };
    read().map_err(|source| AudioError::Unreadable { file: utterance.audio.clone(), source })
}

/// Value of a sample in 16 bits for an amplitude of 1.
const FULL: f32 = 32_768.0;

/// Encodes audio as WAV without changing a sample: with 16 bits where they are enough, else as floats.
fn exact_wav(audio: &Audio) -> Vec<u8> {
    let has_16_bits = |&sample: &f32| {
        let scaled = sample * FULL;
        scaled.fract() == 0.0 && (-FULL..FULL).contains(&scaled)
    };
    if audio.samples.iter().all(has_16_bits) {
        return wav_16(audio);
    }
    let mut bytes = wav_header(audio, 3, 4);
    bytes.extend(audio.samples.iter().flat_map(|sample| sample.to_le_bytes()));
    bytes
}

/// Encodes audio as WAV with 16 bits. Samples with more bits are rounded.
fn wav_16(audio: &Audio) -> Vec<u8> {
    let mut bytes = wav_header(audio, 1, 2);
    // A cast to an integer keeps to the range of that integer.
    bytes.extend(audio.samples.iter().flat_map(|sample| ((sample * FULL).round() as i16).to_le_bytes()));
    bytes
}

/// Returns the header of a WAV file of one channel: `kind` is 1 for integers and 3 for floats, and a sample has `width`
/// bytes.
fn wav_header(audio: &Audio, kind: u16, width: u16) -> Vec<u8> {
    let (width_32, size) = (u32::from(width), audio.samples.len() as u32 * u32::from(width));
    let mut bytes = Vec::with_capacity(44 + size as usize);
    bytes.extend(b"RIFF");
    bytes.extend((36 + size).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16u32.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(audio.rate.to_le_bytes());
    bytes.extend((audio.rate * width_32).to_le_bytes());
    bytes.extend(width.to_le_bytes());
    bytes.extend((width * 8).to_le_bytes());
    bytes.extend(b"data");
    bytes.extend(size.to_le_bytes());
    bytes
}

/// Returns whether `bytes` are WAV with 16 bits and the sizes of all its parts, with nothing between its format and its
/// samples and nothing behind them: what every reader of Kaldi's archives takes.
fn is_wav_16(bytes: &[u8]) -> bool {
    let number = |at: usize, width: usize| {
        let digits = bytes.get(at..at + width)?;
        Some(digits.iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte)))
    };
    bytes.starts_with(b"RIFF")
        && bytes.get(8..16) == Some(b"WAVEfmt ")
        && (number(4, 4), number(16, 4)) == (Some(bytes.len() - 8), Some(16))
        && (number(20, 2), number(34, 2)) == (Some(1), Some(16))
        && bytes.get(36..40) == Some(b"data")
        && number(40, 4) == Some(bytes.len() - 44)
}

/// Makes the name of utterance number `index` in a shard. Formats divide names at dots and slashes.
///
/// A changed name has its number behind a tilde, which no other name has, so that no two are equal.
pub(super) fn key(index: usize, id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if id.len() <= MAX_KEY && id.chars().all(is_plain) {
        return id.into();
    }
    let plain: String = id.chars().take(MAX_KEY).map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("{plain}~{index}")
}
