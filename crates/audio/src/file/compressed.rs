//! Compressed audio, decoded by Symphonia: FLAC, MP3, Ogg Vorbis, and Ogg Opus with the feature `opus`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use plimsoll_core::{Samples, Seconds};
use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_FLAC, CODEC_ID_MP3, CODEC_ID_OPUS, CODEC_ID_VORBIS};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::codecs::registry::CodecRegistry;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, SeekMode, SeekTo, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;
use symphonia::core::units::Timestamp;

use super::{
    Audio, AudioError, AudioInfo, AudioKind, AudioSegment, AudioSource, DURATION_TOLERANCE, SAMPLE_RATES, SampleRange,
    flac, unreadable,
};

/// Length of audio that is decoded before a segment: an MP3 frame depends on up to nine frames before it, 0.33 s at 16
/// kHz.
const PREROLL: Seconds = Seconds(0.5);

/// Largest number of missing samples that become silence, because a broken timestamp may have any value.
const ALLOCATION_MAX: u64 = 1 << 22;

/// Reads format, sample rate, channels and length of a compressed file. Without `is_counted`, a length that would have
/// to be counted is infinite.
pub(super) fn info(path: &Path, is_counted: bool) -> Result<AudioInfo, AudioError> {
    Ok(CompressedFile::open(path, is_counted)?.info)
}

/// Reads a segment of a compressed file and averages its channels.
pub(super) fn read(path: &Path, segment: AudioSegment) -> Result<Audio, AudioError> {
    // A caller who gives a duration need not wait until all packets of an hour of MP3 are counted.
    let file = CompressedFile::open(path, segment.duration.is_none())?;
    let (rate, range) = (file.info.rate, file.info.locate(path, segment)?);
    // Without a count, a segment past the end looks like damage. Count now, and report the wrong segment.
    let outside_or = |error| match info(path, true).map(|counted| counted.locate(path, segment)) {
        Ok(Err(outside)) => outside,
        _ => error,
    };
    let decode = || {
        let mut decoding = Decoding::new(file, range)?;
        while decoding.advance()? {}
        decoding.finish()?;
        Ok(decoding.mono.samples)
    };
    Ok(Audio { samples: decode().map_err(outside_or)?, rate })
}

/// Opens a compressed file whose samples are read in blocks. Returns its facts, too.
pub(super) fn blocks(path: &Path) -> Result<(CompressedBlocks, AudioInfo), AudioError> {
    let file = CompressedFile::open(path, true)?;
    let info = file.info;
    let range = info.locate(path, AudioSegment::default())?;
    Ok((CompressedBlocks(Decoding::new(file, range)?), info))
}

/// Samples of a compressed file that are read in blocks.
pub(super) struct CompressedBlocks(Decoding);

impl CompressedBlocks {
    /// Appends the samples of the next packets, averaged to one channel; false at the end.
    pub(super) fn read(&mut self, samples: &mut Vec<f32>) -> Result<bool, AudioError> {
        while self.0.mono.samples.is_empty() {
            if !self.0.advance()? {
                self.0.finish()?;
                return Ok(false);
            }
        }
        samples.append(&mut self.0.mono.samples);
        Ok(true)
    }
}

/// A range of a compressed file that is being decoded.
struct Decoding {
    file: CompressedFile,
    decoder: Box<dyn AudioDecoder>,
    mono: MonoMix,
    /// Index in the audio of the sample behind the last packet.
    end: i64,
}

impl Decoding {
    fn new(mut file: CompressedFile, range: SampleRange) -> Result<Self, AudioError> {
        let decoder = decoder(&file.path, &file.params)?;
        file.seek_with_preroll(range.first)?;
        Ok(Self { file, decoder, mono: MonoMix::new(&range), end: i64::MIN })
    }

    /// Decodes one packet; false at the end.
    fn advance(&mut self) -> Result<bool, AudioError> {
        let Self { file, decoder, mono, end } = self;
        if !mono.wants_more() {
            return Ok(false);
        }
        let Some(packet) = file.next_packet(mono)? else { return Ok(false) };
        match decoder.decode(&packet) {
            Ok(sound) => {
                let at = file.start_of(&packet, sound.frames());
                let is_next = file.info.kind != AudioKind::Flac || at >= *end;
                *end = at + sound.frames() as i64;
                if !is_next {
                    // Its samples would fill what the first stream has lost.
                    let (after, problem) = (Samples(mono.taken).at(file.info.rate), "a second stream begins inside it");
                    return Err(AudioError::Damaged { file: file.path.clone(), after, problem: problem.into() });
                }
                let missing = mono.gap_before(at, &sound);
                if missing > 0 && file.info.kind != AudioKind::Mp3 {
                    let after = Samples((at - missing).max(0) as u64).at(file.info.rate);
                    let problem = format!("{missing} samples are missing");
                    return Err(AudioError::Damaged { file: file.path.clone(), after, problem });
                }
                mono.take(at, &sound);
            }
            // Players of MP3 turn a frame that cannot be decoded into silence, and files with such frames are
            // common.
            Err(Error::DecodeError(_)) if file.info.kind == AudioKind::Mp3 => {}
            Err(error) => {
                let at = file.start_of(&packet, 0).max(0) as u64;
                return Err(damaged(&file.path, Samples(at).at(file.info.rate), error));
            }
        }
        Ok(true)
    }

    /// Checks that the range is complete. Where the header has the exact length, any missing sample means that the file was
    /// cut or damaged. In other files a missing length up to [`DURATION_TOLERANCE`] is rounding.
    fn finish(&self) -> Result<(), AudioError> {
        let (mono, rate) = (&self.mono, self.file.info.rate);
        let missing = Samples(mono.count - mono.taken).at(rate);
        let tolerance = if self.file.is_exact { Seconds(0.0) } else { DURATION_TOLERANCE };
        if missing > tolerance || mono.taken == 0 {
            let at = |samples: u64| Samples(mono.first as u64 + samples).at(rate);
            let (promised, found) = (at(mono.count), at(mono.taken));
            return Err(AudioError::CutShort { file: self.file.path.clone(), promised, found });
        }
        Ok(())
    }
}

/// Open compressed file with a valid header.
struct CompressedFile {
    path: PathBuf,
    reader: Box<dyn FormatReader>,
    /// Id of the audio track that is read.
    track: u32,
    /// Timestamp of the first sample of the audio track.
    zero: i64,
    params: AudioCodecParameters,
    info: AudioInfo,
    /// Whether the header has the exact number of samples, as that of FLAC has outside of Ogg, if the encoder knew it.
    is_exact: bool,
}

impl CompressedFile {
    /// Opens a compressed file. Without `is_counted`, a file whose packets would have to be counted has an infinite
    /// length.
    fn open(path: &Path, is_counted: bool) -> Result<Self, AudioError> {
        let mut reader = probe(path)?;
        let unsupported = |found: &str| AudioError::Unsupported { file: path.into(), found: found.into() };
        let track = reader.default_track(TrackType::Audio).ok_or_else(|| unsupported("no audio track"))?;
        let params = track.codec_params.as_ref().and_then(|params| params.audio());
        let params = params.ok_or_else(|| unsupported("an unknown codec"))?.clone();
        let (id, start, frames) = (track.id, track.start_ts.get().max(0), track.num_frames);
        let delay = track.delay.unwrap_or(0);
        let kind = kind(&params).ok_or_else(|| unsupported("a codec other than FLAC, MP3, Vorbis and Opus"))?;
        let rate = params.sample_rate.unwrap_or(0);
        if !SAMPLE_RATES.contains(&rate) {
            return Err(unsupported(&format!("a sample rate of {rate} Hz")));
        }
        // The timestamps of Opus packets include the delay of the encoder; those of other formats begin with the
        // audio.
        let before = if kind == AudioKind::Opus { delay } else { 0 };
        let zero = start + i64::from(before);
        let is_exact = kind == AudioKind::Flac && frames.is_some() && reader.format_info().short_name == "flac";
        let length = match frames {
            Some(frames) if kind != AudioKind::Mp3 => Some(frames.saturating_sub(before.into())),
            _ if !is_counted => None,
            _ => {
                let counted = count(&mut *reader, id).map_err(|error| damaged(path, Seconds(0.0), error))?;
                reader = probe(path)?;
                Some(counted)
            }
        };
        if length == Some(0) {
            return Err(AudioError::Empty(path.into()));
        }
        let channels = params.channels.as_ref().map_or(1, |channels| channels.count() as u16);
        let duration = length.map_or(Seconds(f64::INFINITY), |length| Samples(length).at(rate));
        let info = AudioInfo { kind, rate, channels, duration };
        Ok(Self { path: path.into(), reader, track: id, zero, params, info, is_exact })
    }

    /// Computes the index in the audio of the first sample that the decoder returned for `packet`, where `frames` is
    /// the number of samples per channel that it returned. The padding of the encoder is not counted.
    fn start_of(&self, packet: &Packet, frames: usize) -> i64 {
        let begin = match self.info.kind {
            // The duration of an Ogg packet is what remains of it; decoders remove more from the first packet they
            // see.
            AudioKind::Vorbis | AudioKind::Opus => packet.pts.get() + packet.dur.get() as i64 - frames as i64,
            AudioKind::Wav | AudioKind::Flac | AudioKind::Mp3 => packet.pts.get() + packet.trim_start.get() as i64,
        };
        begin - self.zero
    }

    /// Seeks to [`PREROLL`] before sample `first`.
    fn seek_with_preroll(&mut self, first: u64) -> Result<(), AudioError> {
        let Some(target) = first.checked_sub((PREROLL.0 * f64::from(self.info.rate)) as u64).filter(|&t| t > 0) else {
            return Ok(());
        };
        let to = SeekTo::Timestamp { ts: Timestamp::from(self.zero + target as i64), track_id: self.track };
        let result = self.reader.seek(SeekMode::Accurate, to);
        result.map(drop).map_err(|error| damaged(&self.path, Samples(target).at(self.info.rate), error))
    }

    /// Returns the next packet of the audio track; `None` at the end. `so_far` gives the position for an error message.
    fn next_packet(&mut self, so_far: &MonoMix) -> Result<Option<Packet>, AudioError> {
        loop {
            match self.reader.next_packet() {
                Ok(Some(packet)) if packet.track_id == self.track => return Ok(Some(packet)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) if is_end(&error) => return Ok(None),
                Err(error) => {
                    let after = Samples(so_far.taken).at(self.info.rate);
                    return Err(damaged(&self.path, after, error));
                }
            }
        }
    }
}

/// Mono samples of the requested range of a file, filled packet by packet as they are decoded.
struct MonoMix {
    first: i64,
    count: u64,
    /// Number of samples so far, with those that were taken away from `samples`.
    taken: u64,
    samples: Vec<f32>,
    interleaved: Vec<f32>,
}

impl MonoMix {
    fn new(range: &SampleRange) -> Self {
        Self { first: range.first as i64, count: range.count, taken: 0, samples: Vec::new(), interleaved: Vec::new() }
    }

    fn wants_more(&self) -> bool {
        self.taken < self.count
    }

    /// Counts the samples that are missing before audio that begins at sample `at`.
    fn gap_before(&self, at: i64, sound: &GenericAudioBufferRef<'_>) -> i64 {
        if sound.frames() == 0 { 0 } else { (at - self.next()).max(0) }
    }

    fn next(&self) -> i64 {
        self.first + self.taken as i64
    }

    /// Appends those samples of decoded `sound` that lie in the requested range, averaged to one channel. The first
    /// sample of `sound` has index `at` in the file. A gap between the samples so far and `at` becomes silence.
    fn take(&mut self, at: i64, sound: &GenericAudioBufferRef<'_>) {
        // Limited by the range and by [`ALLOCATION_MAX`]: a broken timestamp may have any value.
        let gap = self.gap_before(at, sound).min((self.count - self.taken) as i64).min(ALLOCATION_MAX as i64);
        self.samples.resize(self.samples.len() + gap as usize, 0.0);
        self.taken += gap as u64;
        let frames = sound.frames();
        let skipped = (self.next() - at).clamp(0, frames as i64) as usize;
        let taken = ((frames - skipped) as u64).min(self.count - self.taken) as usize;
        if taken > 0 {
            self.average(sound, skipped, taken);
            self.taken += taken as u64;
        }
    }

    fn average(&mut self, sound: &GenericAudioBufferRef<'_>, skipped: usize, taken: usize) {
        let channels = sound.num_planes().max(1);
        self.interleaved.clear();
        self.interleaved.resize(sound.samples_interleaved(), 0.0);
        sound.copy_to_slice_interleaved(&mut self.interleaved);
        let wanted = &self.interleaved[skipped * channels..(skipped + taken) * channels];
        let scale = 1.0 / channels as f32;
        // A lossy decoder may return a broken float; one NaN would spread over the whole model.
        let finite = |value: f32| if value.is_finite() { value } else { 0.0 };
        self.samples.extend(wanted.chunks_exact(channels).map(|frame| finite(frame.iter().sum::<f32>() * scale)));
    }
}

fn probe(path: &Path) -> Result<Box<dyn FormatReader>, AudioError> {
    let file = AudioSource::from_path(path).open().and_then(flac::without_tags);
    let file = file.map_err(|error| unreadable(path, error))?;
    let stream = MediaSourceStream::new(Box::new(file), Default::default());
    let probed = symphonia::default::get_probe().probe(
        &Hint::new(),
        stream,
        FormatOptions::default(),
        MetadataOptions::default(),
    );
    probed.map_err(|error| match error {
        Error::IoError(source) if source.kind() == std::io::ErrorKind::UnexpectedEof => {
            damaged(path, Seconds(0.0), Error::IoError(source))
        }
        Error::IoError(source) => unreadable(path, source),
        // Symphonia recognized the format, but could not read on.
        error @ Error::DecodeError(_) => damaged(path, Seconds(0.0), error),
        Error::Unsupported(problem) if problem.starts_with("core") => AudioError::NotAudio(path.into()),
        error => AudioError::Unsupported { file: path.into(), found: describe(&error) },
    })
}

fn kind(params: &AudioCodecParameters) -> Option<AudioKind> {
    match params.codec {
        CODEC_ID_FLAC => Some(AudioKind::Flac),
        CODEC_ID_MP3 => Some(AudioKind::Mp3),
        CODEC_ID_VORBIS => Some(AudioKind::Vorbis),
        CODEC_ID_OPUS => Some(AudioKind::Opus),
        _ => None,
    }
}

/// Counts the samples of a track from its packets, without decoding them.
fn count(reader: &mut dyn FormatReader, track: u32) -> Result<u64, Error> {
    let mut end = 0;
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) if packet.track_id == track => {
                // Mostly MP3 files are counted. There `dur` is the whole packet, trimmed or not, and samples trimmed
                // from the front have times below zero.
                end = end.max(packet.pts.get() + packet.dur.get() as i64 - packet.trim_end.get() as i64);
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(end.max(0) as u64),
            Err(error) if is_end(&error) => return Ok(end.max(0) as u64),
            Err(error) => return Err(error),
        }
    }
}

fn decoder(path: &Path, params: &AudioCodecParameters) -> Result<Box<dyn AudioDecoder>, AudioError> {
    codec_registry().make_audio_decoder(params, &AudioDecoderOptions::default()).map_err(|error| {
        let is_opus = params.codec == CODEC_ID_OPUS && !cfg!(feature = "opus");
        let found = if is_opus { "Opus, which needs the feature `opus`".into() } else { describe(&error) };
        AudioError::Unsupported { file: path.into(), found }
    })
}

fn codec_registry() -> &'static CodecRegistry {
    static CODECS: OnceLock<CodecRegistry> = OnceLock::new();
    CODECS.get_or_init(|| {
        let mut codec_registry = CodecRegistry::new();
        symphonia::default::register_enabled_codecs(&mut codec_registry);
        #[cfg(feature = "opus")]
        codec_registry.register_audio_decoder::<symphonia_adapter_libopus::OpusDecoder>();
        codec_registry
    })
}

/// Returns whether an error means that the file ended early. [`Decoding::finish`] then looks at what is missing.
fn is_end(error: &Error) -> bool {
    matches!(error, Error::IoError(source) if source.kind() == std::io::ErrorKind::UnexpectedEof)
}

fn damaged(path: &Path, after: Seconds, error: Error) -> AudioError {
    match error {
        Error::IoError(source) if source.kind() != std::io::ErrorKind::UnexpectedEof => unreadable(path, source),
        error => AudioError::Damaged { file: path.into(), after, problem: describe(&error) },
    }
}

/// Converts an error of Symphonia to a text for messages.
fn describe(error: &Error) -> String {
    match error {
        Error::DecodeError(problem) | Error::Unsupported(problem) | Error::LimitError(problem) => (*problem).into(),
        Error::IoError(_) => "it ends before its sound begins".into(),
        Error::ResetRequired => "a second stream begins inside it".into(),
        other => other.to_string(),
    }
}
