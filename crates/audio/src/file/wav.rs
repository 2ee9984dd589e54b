//! WAV files with any number of channels, any sample rate and any common encoding, also as programs write them into a
//! pipe. Other files with uncompressed samples have a header of their own and are read in the same way.

mod header;

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use plimsoll_core::{Samples, Seconds};

use super::mix::{self, Mix, MixJudge, Mixer};
use super::movie_pcm::JoinedPieces;
use super::mp4::{self, Movie};
use super::other_pcm::{self, OtherHeader, OtherProblem};
use super::pcm::{Encoding, PcmBlocks};
use super::{
    Audio, AudioError, AudioInfo, AudioKind, AudioReader, AudioSegment, AudioSource, SAMPLE_RATES, SampleRange,
    check_channel, unreadable,
};
use crate::buffers;
use header::{ForwardReader, Header, Problem};

/// Most bytes that a thread keeps for the next file: a minute of speech at 16 kHz.
const KEPT_BYTES: usize = 2 << 20;

thread_local! {
    /// Bytes of the last file, to be used again.
    static BYTES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Reads a segment of a WAV file as one channel.
pub(super) fn read(path: &Path, segment: AudioSegment) -> Result<Audio, AudioError> {
    let mut file = WavFile::open(path)?;
    let SampleRange { first, count } = file.info().locate(path, segment)?;
    // Fresh memory is cleared by the system first, which takes as long as decoding.
    let mut bytes = BYTES.take();
    let samples = file.mix(first..first + count, &mut bytes).and_then(|mix| {
        file.read(first, count, &mut bytes)?;
        let mix = mix.unwrap_or_else(|| file.judged(&bytes));
        let mut samples = buffers::take(count as usize);
        file.encoding.mixed(&bytes, file.channels(), mix, first, &mut samples);
        Ok(samples)
    });
    if bytes.capacity() <= KEPT_BYTES {
        BYTES.set(bytes);
    }
    Ok(Audio { samples: samples?, rate: file.rate })
}

/// Reads the header of a WAV file.
pub(super) fn info(path: &Path) -> Result<AudioInfo, AudioError> {
    Ok(WavFile::open(path)?.info())
}

/// Finds how the channels of a WAV file are mixed.
pub(super) fn mix(path: &Path) -> Result<Mix, AudioError> {
    WavFile::open(path)?.find_mix(&mut Vec::new())
}

/// Opens a WAV file whose samples are read in blocks. Returns its sample rate and length, too.
pub(super) fn blocks(path: &Path) -> Result<(PcmBlocks, AudioInfo), AudioError> {
    let mut file = WavFile::open(path)?;
    file.reader.seek(SeekFrom::Start(file.start)).map_err(|error| unreadable(path, error))?;
    let (info, bytes) = (file.info(), file.length * file.frame_bytes());
    let mixer = Mixer::of_file(file.named, info.channels.into(), info.rate);
    let blocks = PcmBlocks::new(path, Box::new(file.reader), file.encoding, mixer);
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
    let Header { rate, channels, encoding, audio_bytes, .. } =
        Header::read(&mut reader).map_err(|problem| broken(name, problem))?;
    check_rate(name, rate)?;
    let mixer = Mixer::new(channels.into(), rate);
    let blocks = PcmBlocks::new(name, Box::new(reader.into_inner()), encoding, mixer);
    Ok((blocks.with_most(audio_bytes.unwrap_or(u64::MAX)), rate))
}

/// Describes a stream that begins with the bytes `first`, and not with RIFF.
fn not_riff(first: &[u8]) -> String {
    let found = match first {
        [b'f', b'L', b'a', b'C', ..] => "FLAC",
        [b'O', b'g', b'g', b'S', ..] => "Ogg",
        [b'I', b'D', b'3', ..] => "MP3 or FLAC with a tag",
        [b'F', b'O', b'R', b'M', ..] => "AIFF",
        [b'.', b's', b'n', b'd', ..] => "Sun audio (AU)",
        [b'c', b'a', b'f', b'f', ..] => "Core Audio (CAF)",
        // Layer III. Other bytes behind 0xff may be samples without a header, or AAC.
        [0xff, 0xe2 | 0xe3 | 0xf2 | 0xf3 | 0xfa | 0xfb, ..] => "MP3",
        _ => return "it does not begin with RIFF".into(),
    };
    format!("it begins as {found}, which is read from files only")
}

/// Open WAV file, or another file with uncompressed samples, with a valid header.
struct WavFile<'a> {
    path: &'a Path,
    reader: BufReader<Sound>,
    kind: AudioKind,
    rate: u32,
    channels: u16,
    /// Channel that is asked for, counted from 0.
    named: Option<u16>,
    encoding: Encoding,
    /// Position of the first sample in the file, in bytes.
    start: u64,
    /// Number of samples in each channel.
    length: u64,
}

impl<'a> WavFile<'a> {
    fn open(path: &'a Path) -> Result<Self, AudioError> {
        let source = AudioSource::from_path(path);
        let file = source.open().map_err(|error| unreadable(path, error))?;
        let size = file.byte_len();
        if size == 0 {
            return Err(AudioError::Empty(path.into()));
        }
        let mut reader = BufReader::new(Sound::File(file));
        let first = reader.fill_buf().map_err(|error| unreadable(path, error))?;
        let header = if other_pcm::may_begin_with(first) {
            other_header(path, &mut reader)?
        } else if mp4::may_begin_with(first) {
            let (joined, header) = of_movie(path, reader.into_inner())?;
            reader = BufReader::new(joined);
            header
        } else {
            let header = Header::read(&mut reader).map_err(|problem| broken(path, problem))?;
            let Header { rate, channels, encoding, start, audio_bytes } = header;
            OtherHeader { kind: AudioKind::Wav, rate, channels, encoding, start, audio_bytes }
        };
        let OtherHeader { kind, rate, channels, encoding, start, audio_bytes } = header;
        let frame_bytes = encoding.width() as u64 * u64::from(channels);
        let size = if kind == AudioKind::MoviePcm { audio_bytes.unwrap_or(size) } else { size };
        let found = size.saturating_sub(start);
        let length = audio_bytes.unwrap_or(found) / frame_bytes;
        if length == 0 {
            return Err(AudioError::Empty(path.into()));
        }
        check_rate(path, rate)?;
        let named = source.channel;
        check_channel(path, named, channels)?;
        match audio_bytes {
            Some(promised) if promised > found => Err(AudioError::Truncated { file: path.into(), promised, found }),
            _ => Ok(Self { path, reader, kind, rate, channels, named, encoding, start, length }),
        }
    }

    fn info(&self) -> AudioInfo {
        let (rate, channels) = (self.rate, self.channels);
        AudioInfo { kind: self.kind, rate, channels, duration: Samples(self.length).at(rate) }
    }

    fn channels(&self) -> usize {
        self.channels.into()
    }

    /// Returns how the channels of a range are mixed; `None` for a whole file, which decides that itself.
    fn mix(&mut self, range: Range<u64>, bytes: &mut Vec<u8>) -> Result<Option<Mix>, AudioError> {
        if self.channels() == 1 {
            return Ok(Some(Mix::default()));
        }
        if let Some(channel) = self.named {
            return Ok(Some(Mix::named(channel)));
        }
        if range == (0..self.length) {
            return Ok(None);
        }
        mix::known(self.path, || self.find_mix(bytes)).map(Some)
    }

    /// Finds how the channels are mixed by the whole file in `bytes`.
    fn judged(&self, bytes: &[u8]) -> Mix {
        let mut judge = MixJudge::new(self.channels(), self.rate);
        self.encoding.show(bytes, self.channels(), &mut judge).unwrap_or_else(|| judge.finish())
    }

    /// Reads the beginning of the file, and finds how its channels are mixed.
    fn find_mix(&mut self, bytes: &mut Vec<u8>) -> Result<Mix, AudioError> {
        if let Some(channel) = self.named {
            return Ok(Mix::named(channel));
        }
        let mut judge = MixJudge::new(self.channels(), self.rate);
        let (mut at, step) = (0, u64::from(self.rate));
        while at < self.length && judge.decided().is_none() {
            let count = step.min(self.length - at);
            self.read(at, count, bytes)?;
            self.encoding.show(bytes, self.channels(), &mut judge);
            at += count;
        }
        Ok(judge.finish())
    }

    /// Returns the number of bytes of one value of each channel.
    fn frame_bytes(&self) -> u64 {
        self.encoding.width() as u64 * u64::from(self.channels)
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

/// Where samples are read from.
enum Sound {
    File(AudioReader),
    /// Pieces of a movie.
    Pieces(JoinedPieces),
}

impl Read for Sound {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(buffer),
            Self::Pieces(pieces) => pieces.read(buffer),
        }
    }
}

impl Seek for Sound {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::File(file) => file.seek(to),
            Self::Pieces(pieces) => pieces.seek(to),
        }
    }
}

/// Returns whether a movie has uncompressed sound, as far as its index can be read.
pub(super) fn is_in_movie(path: &Path) -> Result<bool, AudioError> {
    let movie = AudioSource::from_path(path).open().and_then(|mut file| Movie::read(&mut file));
    Ok(movie.map_err(|error| unreadable(path, error))?.is_ok_and(|movie| movie.pcm.is_some()))
}

/// Finds the uncompressed sound of a movie.
fn of_movie(path: &Path, sound: Sound) -> Result<(Sound, OtherHeader), AudioError> {
    let not_here = || AudioError::NotAudio(path.into());
    let Sound::File(mut file) = sound else { return Err(not_here()) };
    let movie = Movie::read(&mut file).map_err(|error| unreadable(path, error))?;
    let pcm = movie.ok().and_then(|movie| movie.pcm).ok_or_else(not_here)?;
    let (promised, found) = (pcm.end(), file.byte_len());
    if promised > found {
        return Err(AudioError::Truncated { file: path.into(), promised, found });
    }
    let (rate, channels, encoding, audio_bytes) = (pcm.rate, pcm.channels, pcm.encoding, Some(pcm.byte_len()));
    let header = OtherHeader { kind: AudioKind::MoviePcm, rate, channels, encoding, start: 0, audio_bytes };
    Ok((Sound::Pieces(pcm.reader(file)), header))
}

/// Reads the header of a file that is not WAV.
fn other_header(path: &Path, reader: &mut BufReader<Sound>) -> Result<OtherHeader, AudioError> {
    let found = OtherHeader::read(reader).map_err(|error| unreadable(path, error))?;
    found.map_err(|problem| match problem {
        OtherProblem::Codec(found) => AudioError::Codec { file: path.into(), found },
        OtherProblem::Broken(problem) => {
            AudioError::Damaged { file: path.into(), after: Seconds(0.0), problem: problem.into() }
        }
    })
}

/// Checks a sample rate.
fn check_rate(path: &Path, rate: u32) -> Result<(), AudioError> {
    match SAMPLE_RATES.contains(&rate) {
        true => Ok(()),
        false => Err(AudioError::Unsupported { file: path.into(), found: format!("a sample rate of {rate} Hz") }),
    }
}

fn broken(path: &Path, problem: Problem) -> AudioError {
    let file = path.into();
    let error = match problem {
        Problem::Broken(error) => error,
        Problem::Unusual(found) => return AudioError::Unsupported { file, found },
        Problem::Codec(found) => return AudioError::Codec { file, found },
    };
    match error {
        hound::Error::Unsupported => {
            AudioError::Unsupported { file, found: "samples that are neither integers nor floats".into() }
        }
        // For example a header for 16-bit floats.
        hound::Error::FormatError(problem) if problem.starts_with("bits per sample") => {
            AudioError::Unsupported { file, found: problem.into() }
        }
        hound::Error::FormatError(problem) => AudioError::NotWav { file, problem: problem.into() },
        // `hound` returns its own I/O error when the file ends inside the header.
        hound::Error::IoError(_) => AudioError::NotWav { file, problem: "it ends before its sound begins".into() },
        other => AudioError::NotWav { file, problem: other.to_string() },
    }
}

#[cfg(test)]
mod tests;
