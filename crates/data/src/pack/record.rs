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
        let (audio, extension, duration) = match is_whole(utterance, &info) && can_be_copied(&info, format) {
            true => (copied(utterance)?, info.kind.extension(), info.duration),
            false => {
                let segment = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
                let part = read_audio_segment(&utterance.audio, segment, info.rate)?;
                let duration = part.duration();
                (exact_wav(&part), AudioKind::Wav.extension(), duration)
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
    }
}

fn copied(utterance: &Utterance) -> Result<Vec<u8>, AudioError> {
    let unreadable = |source| AudioError::Unreadable { file: utterance.audio.clone(), source };
    let mut bytes = Vec::new();
    let open = AudioSource::from_path(&utterance.audio).open();
    open.and_then(|mut audio| audio.read_to_end(&mut bytes)).map_err(unreadable)?;
    Ok(bytes)
}

/// Encodes audio as WAV without changing a sample: with 16 bits where they are enough, else as floats.
fn exact_wav(audio: &Audio) -> Vec<u8> {
    const FULL: f32 = 32_768.0;
    let has_16_bits = |&sample: &f32| {
        let scaled = sample * FULL;
        scaled.fract() == 0.0 && (-FULL..FULL).contains(&scaled)
    };
    let (kind, width) = if audio.samples.iter().all(has_16_bits) { (1u16, 2u32) } else { (3, 4) };
    let size = audio.samples.len() as u32 * width;
    let mut bytes = Vec::with_capacity(44 + size as usize);
    bytes.extend(b"RIFF");
    bytes.extend((36 + size).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16u32.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(audio.rate.to_le_bytes());
    bytes.extend((audio.rate * width).to_le_bytes());
    bytes.extend((width as u16).to_le_bytes());
    bytes.extend((width as u16 * 8).to_le_bytes());
    bytes.extend(b"data");
    bytes.extend(size.to_le_bytes());
    match kind {
        1 => bytes.extend(audio.samples.iter().flat_map(|sample| ((sample * FULL) as i16).to_le_bytes())),
        _ => bytes.extend(audio.samples.iter().flat_map(|sample| sample.to_le_bytes())),
    }
    bytes
}

/// Makes the name of utterance number `index` in a shard. Formats divide names at dots and slashes.
fn key(index: usize, id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if id.len() <= MAX_KEY && id.chars().all(is_plain) {
        return id.into();
    }
    let plain: String = id.chars().take(MAX_KEY).map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("{plain}-{index}")
}
