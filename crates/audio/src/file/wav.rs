//! WAV files with any number of channels, any sample rate and any common encoding, also as programs write them into a
//! pipe.

mod header;

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use hound::{SampleFormat, WavSpec};
use plimsoll_core::Samples;

use super::pcm::{Encoding, PcmBlocks};
use super::{
    Audio, AudioError, AudioInfo, AudioKind, AudioReader, AudioSegment, AudioSource, SAMPLE_RATES, SampleRange,
    unreadable,
};
use crate::buffers;
use header::{ForwardReader, Header};

/// Most bytes that a thread keeps for the next file: a minute of speech at 16 kHz.
const KEPT_BYTES: usize = 2 << 20;

thread_local! {
    /// Bytes of the last file, to be used again.
    static BYTES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Reads a segment of a WAV file and averages its channels.
pub(super) fn read(path: &Path, segment: AudioSegment) -> Result<Audio, AudioError> {
    let mut file = WavFile::open(path)?;
    let SampleRange { first, count } = file.info().locate(path, segment)?;
    // Fresh memory is cleared by the system first, which takes as long as decoding.
    let mut bytes = BYTES.take();
    let samples = file.read(first, count, &mut bytes).map(|()| {
        let mut samples = buffers::take(count as usize);
        file.encoding.mono(&bytes, file.spec.channels as usize, &mut samples);
        samples
    });
    if bytes.capacity() <= KEPT_BYTES {
        BYTES.set(bytes);
    }
    Ok(Audio { samples: samples?, rate: file.spec.sample_rate })
}

/// Reads the header of a WAV file.
pub(super) fn info(path: &Path) -> Result<AudioInfo, AudioError> {
    Ok(WavFile::open(path)?.info())
}

/// Opens a WAV file whose samples are read in blocks. Returns its sample rate and length, too.
pub(super) fn blocks(path: &Path) -> Result<(PcmBlocks, AudioInfo), AudioError> {
    let file = WavFile::open(path)?;
    let (info, bytes) = (file.info(), file.length * file.frame_bytes());
    let blocks = PcmBlocks::new(path, Box::new(file.reader), file.encoding, file.spec.channels.into());
    Ok((blocks.with_promised(bytes), info))
}

/// Reads the header of a WAV file from a reader that cannot go back, and returns its samples in blocks, with their rate. The
/// end of the reader ends the sound, whatever its header says.
pub(super) fn stream(name: &Path, reader: impl Read + 'static) -> Result<(PcmBlocks, u32), AudioError> {
    let mut reader = ForwardReader::new(BufReader::new(reader));
    let first = reader.fill_buf().map_err(|error| unreadable(name, error))?;
    if first.is_empty() {
        return Err(AudioError::Empty(name.into()));
    }
    if first[0] != b'R' {
        return Err(AudioError::NotWav { file: name.into(), problem: not_riff(first) });
    }
    let Header { spec, value_bytes, audio_bytes, .. } =
        Header::read(&mut reader).map_err(|error| broken(name, &error))?;
    let encoding = encoding(name, spec, value_bytes)?;
    let blocks = PcmBlocks::new(name, Box::new(reader.into_inner()), encoding, spec.channels.into());
    Ok((blocks.with_most(audio_bytes.unwrap_or(u64::MAX)), spec.sample_rate))
}

/// Describes a stream that begins with the bytes `first`, and not with RIFF.
fn not_riff(first: &[u8]) -> String {
    let found = match first {
        [b'f', b'L', b'a', b'C', ..] => "FLAC",
        [b'O', b'g', b'g', b'S', ..] => "Ogg",
        [b'I', b'D', b'3', ..] => "MP3 or FLAC with a tag",
        // Layer III. Other bytes behind 0xff may be samples without a header, or AAC.
        [0xff, 0xe2 | 0xe3 | 0xf2 | 0xf3 | 0xfa | 0xfb, ..] => "MP3",
        _ => return "it does not begin with RIFF".into(),
    };
    format!("it begins as {found}, which is read from files only")
}

/// Open WAV file with a valid header.
struct WavFile<'a> {
    path: &'a Path,
    reader: BufReader<AudioReader>,
    spec: WavSpec,
    encoding: Encoding,
    /// Position of the first sample in the file, in bytes.
    start: u64,
    /// Number of samples in each channel.
    length: u64,
}

impl<'a> WavFile<'a> {
    fn open(path: &'a Path) -> Result<Self, AudioError> {
        let file = AudioSource::from_path(path).open().map_err(|error| unreadable(path, error))?;
        let size = file.byte_len();
        if size == 0 {
            return Err(AudioError::Empty(path.into()));
        }
        let mut reader = BufReader::new(file);
        let Header { spec, value_bytes, start, audio_bytes } =
            Header::read(&mut reader).map_err(|error| broken(path, &error))?;
        let frame_bytes = value_bytes * u64::from(spec.channels);
        let found = size.saturating_sub(start);
        let length = audio_bytes.unwrap_or(found) / frame_bytes;
        if length == 0 {
            return Err(AudioError::Empty(path.into()));
        }
        let encoding = encoding(path, spec, value_bytes)?;
        match audio_bytes {
            Some(promised) if promised > found => Err(AudioError::Truncated { file: path.into(), promised, found }),
            _ => Ok(Self { path, reader, spec, encoding, start, length }),
        }
    }

    fn info(&self) -> AudioInfo {
        let WavSpec { sample_rate: rate, channels, .. } = self.spec;
        AudioInfo { kind: AudioKind::Wav, rate, channels, duration: Samples(self.length).at(rate) }
    }

    /// Returns the number of bytes of one value of each channel.
    fn frame_bytes(&self) -> u64 {
        self.encoding.width() as u64 * u64::from(self.spec.channels)
    }

    /// Reads `count` values of each channel into `bytes`, from the value `first` on.
    fn read(&mut self, first: u64, count: u64, bytes: &mut Vec<u8>) -> Result<(), AudioError> {
        let frame_bytes = self.frame_bytes();
        bytes.resize((count * frame_bytes) as usize, 0);
        self.reader
            .seek(SeekFrom::Start(self.start + first * frame_bytes))
            .and_then(|_| self.reader.read_exact(bytes))
            .map_err(|error| unreadable(self.path, error))
    }
}

fn encoding(path: &Path, spec: WavSpec, bytes: u64) -> Result<Encoding, AudioError> {
    let unsupported = |found| AudioError::Unsupported { file: path.into(), found };
    if !SAMPLE_RATES.contains(&spec.sample_rate) {
        return Err(unsupported(format!("a sample rate of {} Hz", spec.sample_rate)));
    }
    for_spec(spec, bytes).ok_or_else(|| {
        let kind = if spec.sample_format == SampleFormat::Float { "floats" } else { "integers" };
        unsupported(format!("{}-bit {kind} in {bytes} bytes", spec.bits_per_sample))
    })
}

fn for_spec(spec: WavSpec, bytes: u64) -> Option<Encoding> {
    match (spec.sample_format, bytes, spec.bits_per_sample) {
        (SampleFormat::Float, 4, 32) => Some(Encoding::Float),
        (SampleFormat::Int, 1, 8) => Some(Encoding::Byte),
        (SampleFormat::Int, 2..=4, bits @ (16 | 24 | 32)) if u64::from(bits) <= 8 * bytes => {
            Some(Encoding::Integer { bytes: bytes as usize, bits: bits.into() })
        }
        _ => None,
    }
}

fn broken(path: &Path, error: &hound::Error) -> AudioError {
    let file = path.into();
    match error {
        hound::Error::Unsupported => {
            AudioError::Unsupported { file, found: "samples that are neither integers nor floats".into() }
        }
        // For example a header for 64-bit floats.
        hound::Error::FormatError(problem) if problem.starts_with("bits per sample") => {
            AudioError::Unsupported { file, found: (*problem).into() }
        }
        hound::Error::FormatError(problem) => AudioError::NotWav { file, problem: (*problem).into() },
        // `hound` returns its own I/O error when the file ends inside the header.
        hound::Error::IoError(_) => AudioError::NotWav { file, problem: "it ends before its sound begins".into() },
        other => AudioError::NotWav { file, problem: other.to_string() },
    }
}

#[cfg(test)]
mod tests;
