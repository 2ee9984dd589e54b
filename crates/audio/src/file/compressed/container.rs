//! Containers of compressed audio: opens them, and finds which of their samples are the sound.

use std::io::{Seek, SeekFrom};
use std::path::Path;

use plimsoll_core::Seconds;
use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_AC3, CODEC_ID_AC4, CODEC_ID_DCA, CODEC_ID_EAC3, CODEC_ID_MP1, CODEC_ID_MP2, CODEC_ID_TRUEHD, CODEC_ID_WMA,
};
use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::well_known::{FORMAT_ID_ADTS, FORMAT_ID_FLAC};
use symphonia::core::formats::{FormatOptions, FormatReader, Track};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;

use super::super::matroska::{self, Matroska};
use super::super::mp4::{self, Movie, MovieProblem};
use super::super::opus::OpusHead;
use super::super::{AudioError, AudioKind, AudioReader, AudioSource, aac, flac, unreadable};
use super::{damaged, describe};

/// Container of the sound, with what Symphonia does not pass on.
pub(super) enum Container {
    /// Ogg, or no container: all that matters is known.
    Plain,
    Movie(Movie),
    Matroska(Matroska),
}

/// Stream of packets, as its codec describes it.
pub(super) struct Stream {
    pub(super) kind: AudioKind,
    /// Sample rate in hertz.
    pub(super) rate: u32,
    pub(super) params: AudioCodecParameters,
    /// Number of samples that the decoder returns earlier than the encoder expects.
    pub(super) early: i64,
}

/// Place of the sound among the samples that a decoder returns.
pub(super) struct Place {
    /// Number of samples before the sound.
    pub(super) zero: i64,
    /// Number of samples behind the sound, where the length must be counted.
    pub(super) padding: u64,
    /// Number of samples of the sound; `None` if it must be counted.
    pub(super) length: Option<u64>,
    /// Number of samples that are heard at most, and its largest error.
    heard: Option<(f64, f64)>,
    /// Whether the length is exact.
    pub(super) is_exact: bool,
    /// Whether the packets must be counted, because their timestamps do not count samples.
    pub(super) is_counted: bool,
}

impl Place {
    /// Returns the number of samples that are heard of `rest`, the number from the first to the last.
    pub(super) fn heard(&self, rest: u64) -> u64 {
        // A length that is rounded would cut some samples.
        let cuts = |&(heard, error): &(f64, f64)| heard + 1.5 * error < rest as f64;
        self.heard.filter(cuts).map_or(rest, |(heard, _)| heard as u64)
    }
}

impl Container {
    fn read(file: &mut AudioReader, first: &[u8]) -> std::io::Result<Result<Self, MovieProblem>> {
        let found = if first.starts_with(&matroska::MAGIC) {
            Ok(Self::Matroska(Matroska::read(file)?))
        } else if mp4::may_begin_with(first) {
            Movie::read(file)?.map(Self::Movie)
        } else {
            Ok(Self::Plain)
        };
        file.seek(SeekFrom::Start(0))?;
        Ok(found)
    }

    /// Returns whether the file is shorter than its header says.
    fn is_cut(&self) -> bool {
        match self {
            Self::Plain => false,
            Self::Movie(movie) => movie.is_cut,
            Self::Matroska(facts) => facts.is_cut,
        }
    }

    /// Returns the error for a file in which no audio track with a known codec was found.
    pub(super) fn no_track(&self, path: &Path) -> AudioError {
        let codec = match self {
            Self::Matroska(facts) => facts.audio_codec().map(|name| format!("the codec `{name}`")),
            Self::Movie(movie) => Some(format!("the codec `{}`", String::from_utf8_lossy(&movie.codec))),
            Self::Plain => Some("no audio track".into()),
        };
        match codec {
            Some(found) => AudioError::Codec { file: path.into(), found },
            None => AudioError::NoTrack(path.into()),
        }
    }

    /// Finds the place of the sound of a track.
    pub(super) fn place(&self, reader: &dyn FormatReader, track: &Track, stream: &Stream) -> Place {
        let (kind, rate) = (stream.kind, stream.rate);
        let head = stream.params.extra_data.as_deref().filter(|_| kind == AudioKind::Opus).and_then(OpusHead::parse);
        let pre_skip = head.map_or(0, |head| i64::from(head.pre_skip));
        match self {
            Self::Plain => {
                // The timestamps of Opus packets include the delay of the encoder; those of other formats begin with the
                // audio.
                let before = if kind == AudioKind::Opus { track.delay.unwrap_or(0) } else { 0 };
                let format = reader.format_info().format;
                let is_guess = kind == AudioKind::Mp3 || format == FORMAT_ID_ADTS;
                Place {
                    zero: track.start_ts.get().max(0) + i64::from(before),
                    padding: 0,
                    heard: None,
                    length: track.num_frames.filter(|_| !is_guess).map(|frames| frames.saturating_sub(before.into())),
                    is_exact: track.num_frames.is_some() && format == FORMAT_ID_FLAC,
                    is_counted: false,
                }
            }
            Self::Movie(movie) => {
                let samples = |seconds: f64| (seconds * f64::from(rate)).round();
                let scale = f64::from(movie.edit.timescale);
                let start = samples(movie.edit.start as f64 / scale) as i64;
                let zero = if start == 0 { pre_skip } else { (start - stream.early).max(0) };
                let heard = movie.edit.seconds.map(|length| (samples(length), movie.edit.tolerance * f64::from(rate)));
                let is_even = !movie.is_fragmented
                    && movie.packet.is_some_and(|ticks| match kind {
                        AudioKind::Aac => samples(f64::from(ticks) / scale) == aac::SAMPLES as f64,
                        _ => true,
                    });
                let is_counted = !is_even || movie.edit.timescale != rate;
                let mut place = Place { zero, padding: 0, heard, length: None, is_exact: !is_counted, is_counted };
                let whole = track.duration.filter(|_| is_even).map(|ticks| samples(ticks.get() as f64 / scale));
                place.length = whole.map(|whole| place.heard((whole - zero as f64).max(0.0) as u64));
                place
            }
            Self::Matroska(facts) => {
                let samples = |nanoseconds: u64| (nanoseconds as f64 * 1e-9 * f64::from(rate)).round() as u64;
                let (delay, padding) = facts.around(track.id);
                let zero = if kind == AudioKind::Opus { pre_skip } else { samples(delay) as i64 };
                Place { zero, padding: samples(padding), heard: None, length: None, is_exact: false, is_counted: true }
            }
        }
    }
}

/// Opens a compressed file.
pub(super) fn probe(path: &Path) -> Result<(Box<dyn FormatReader>, Container), AudioError> {
    let open = || {
        let mut file = AudioSource::from_path(path).open().and_then(flac::without_tags)?;
        let first = first_bytes(&mut file)?;
        Ok((Container::read(&mut file, &first)?, file, first))
    };
    let (container, file, first) = open().map_err(|error| unreadable(path, error))?;
    let cut = |problem: &str| AudioError::Damaged { file: path.into(), after: Seconds(0.0), problem: problem.into() };
    let container = container.map_err(|problem| match problem {
        MovieProblem::NoIndex => cut("the index of the movie is missing, as when a recording or a download was cut"),
        MovieProblem::NoSound => AudioError::NoTrack(path.into()),
        MovieProblem::Protected => AudioError::Protected(path.into()),
        MovieProblem::Codec(found) => AudioError::Codec { file: path.into(), found },
    })?;
    if container.is_cut() {
        return Err(cut("it is shorter than its header says, as when a recording or a download was cut"));
    }
    let source: Box<dyn MediaSource> = match &container {
        Container::Movie(movie) => Box::new(movie.only_sound(file)),
        _ => Box::new(file),
    };
    let probed = symphonia::default::get_probe().probe(
        &Hint::new(),
        MediaSourceStream::new(source, Default::default()),
        FormatOptions::default(),
        MetadataOptions::default(),
    );
    let reader = probed.map_err(|error| match error {
        Error::IoError(source) if source.kind() == std::io::ErrorKind::UnexpectedEof => {
            damaged(path, Seconds(0.0), Error::IoError(source))
        }
        Error::IoError(source) => unreadable(path, source),
        // Symphonia recognized the format, but could not read on.
        error @ Error::DecodeError(_) => damaged(path, Seconds(0.0), error),
        Error::Unsupported(problem) if problem.starts_with("core") => match other_format(&first) {
            Some(found) => AudioError::Codec { file: path.into(), found: found.into() },
            None => AudioError::NotAudio(path.into()),
        },
        error => AudioError::Unsupported { file: path.into(), found: describe(&error) },
    })?;
    Ok((reader, container))
}

/// Reads the bytes that tell formats apart, and goes back to the start.
fn first_bytes(file: &mut AudioReader) -> std::io::Result<Vec<u8>> {
    use std::io::Read;

    let mut first = Vec::with_capacity(16);
    file.by_ref().take(16).read_to_end(&mut first)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(first)
}

/// Names a format of audio that is not read, by the first bytes of a file.
fn other_format(first: &[u8]) -> Option<&'static str> {
    const NAMES: [(&[u8], &str); 8] = [
        (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Windows Media (WMA or WMV)"),
        (b"#!AMR", "AMR"),
        (b"wvpk", "WavPack"),
        (b"MAC ", "Monkey's Audio"),
        (b"\x0b\x77", "AC-3 (Dolby Digital)"),
        (b"\x7f\xfe\x80\x01", "DTS"),
        (b"FLV\x01", "Flash video"),
        (b"\x00\x00\x01\xba", "MPEG video"),
    ];
    NAMES.into_iter().find(|(bytes, _)| first.starts_with(bytes)).map(|(_, name)| name)
}

/// Returns the name of a codec for messages.
pub(super) fn codec_name(codec: AudioCodecId) -> &'static str {
    match codec {
        CODEC_ID_AC3 => "AC-3 (Dolby Digital)",
        CODEC_ID_EAC3 => "E-AC-3 (Dolby Digital Plus)",
        CODEC_ID_AC4 => "AC-4 (Dolby)",
        CODEC_ID_TRUEHD => "TrueHD (Dolby)",
        CODEC_ID_DCA => "DTS",
        CODEC_ID_WMA => "Windows Media Audio",
        CODEC_ID_MP1 => "MPEG layer 1",
        CODEC_ID_MP2 => "MPEG layer 2 (MP2)",
        _ => "a codec that is none of FLAC, MP3, Vorbis, Opus, AAC and ALAC",
    }
}
