//! Coded sound, through Symphonia: FLAC, MP3, Ogg Vorbis, and Ogg Opus with the feature `opus`.

use std::fs::File;
use std::path::Path;
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

use super::{Audio, AudioError, AudioInfo, AudioKind, RATES, SLACK, Span, Stretch, unreadable};

/// Decoding begins so much before a stretch: an MP3 frame leans on up to nine before it, 0.33 s of them at 16 kHz.
const RUN_UP: Seconds = Seconds(0.5);

/// Memory is taken for so many samples at once at most, as a broken header may promise any number.
const TAKEN_AT_ONCE: u64 = 1 << 22;

/// What a file says of its sound.
pub(super) fn info(path: &Path) -> Result<AudioInfo, AudioError> {
    Ok(Coded::open(path, true)?.info)
}

/// Reads a stretch of a file, its channels averaged.
pub(super) fn read(path: &Path, stretch: Stretch) -> Result<Audio, AudioError> {
    // Whoever says how much is wanted need not wait until the packets of an hour of MP3 are counted.
    let file = Coded::open(path, stretch.duration.is_none())?;
    let (rate, span) = (file.info.rate, file.info.locate(path, stretch)?);
    // What is not in a file whose length was taken on trust is a mistake of the list and no damage.
    let explained = |error| match info(path).map(|counted| counted.locate(path, stretch)) {
        Ok(Err(outside)) => outside,
        _ => error,
    };
    Ok(Audio { samples: file.decode(&span).map_err(explained)?, rate })
}

/// An open file whose header made sense.
struct Coded<'a> {
    path: &'a Path,
    reader: Box<dyn FormatReader>,
    /// The one track that is read, and the time that its first sample has.
    track: u32,
    zero: i64,
    params: AudioCodecParameters,
    info: AudioInfo,
}

impl<'a> Coded<'a> {
    /// Opens a file; unless `is_counted`, the length of one that has to be counted is taken to be endless.
    fn open(path: &'a Path, is_counted: bool) -> Result<Self, AudioError> {
        let mut reader = probe(path)?;
        let unsupported = |found: &str| AudioError::Unsupported { file: path.into(), found: found.into() };
        let track = reader.default_track(TrackType::Audio).ok_or_else(|| unsupported("no sound in it"))?;
        let params = track.codec_params.as_ref().and_then(|params| params.audio());
        let params = params.ok_or_else(|| unsupported("sound of an unknown kind"))?.clone();
        let (id, start, frames) = (track.id, track.start_ts.get().max(0), track.num_frames);
        let delay = track.delay.unwrap_or(0);
        let kind = kind(&params).ok_or_else(|| unsupported("neither FLAC, MP3, Vorbis nor Opus"))?;
        let rate = params.sample_rate.unwrap_or(0);
        if !RATES.contains(&rate) {
            return Err(unsupported(&format!("{rate} samples a second")));
        }
        // What an Opus coder puts before the sound counts in the times of its packets; elsewhere they begin with the sound.
        let before = if kind == AudioKind::Opus { delay } else { 0 };
        let zero = start + i64::from(before);
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
        Ok(Self { path, reader, track: id, zero, params, info })
    }

    fn decode(mut self, span: &Span) -> Result<Vec<f32>, AudioError> {
        let mut decoder = decoder(self.path, &self.params)?;
        let mut mono = Mono::new(span);
        self.run_up(span.first)?;
        while mono.wants_more() {
            let Some(packet) = self.next_packet(&mono)? else { break };
            match decoder.decode(&packet) {
                Ok(sound) => {
                    let at = self.start_of(&packet, sound.frames());
                    let missing = mono.gap_before(at, &sound);
                    if missing > 0 && self.info.kind != AudioKind::Mp3 {
                        let after = Samples((at - missing).max(0) as u64).at(self.info.rate);
                        let problem = format!("{missing} samples are missing");
                        return Err(AudioError::Damaged { file: self.path.into(), after, problem });
                    }
                    mono.take(at, &sound);
                }
                // A frame that cannot be decoded is silence to every player of MP3, and files with one are common.
                Err(Error::DecodeError(_)) if self.info.kind == AudioKind::Mp3 => {}
                Err(error) => {
                    let at = self.start_of(&packet, 0).max(0) as u64;
                    return Err(damaged(self.path, Samples(at).at(self.info.rate), error));
                }
            }
        }
        mono.finish(self.path, span, self.info.rate)
    }

    /// Where the `frames` samples of a packet begin, once what its coder put around them is cut away.
    fn start_of(&self, packet: &Packet, frames: usize) -> i64 {
        let begin = match self.info.kind {
            // The length of a packet in Ogg is what is left of it; decoders cut more from the first one that they see.
            AudioKind::Vorbis | AudioKind::Opus => packet.pts.get() + packet.dur.get() as i64 - frames as i64,
            AudioKind::Wav | AudioKind::Flac | AudioKind::Mp3 => packet.pts.get() + packet.trim_start.get() as i64,
        };
        begin - self.zero
    }

    /// Goes to shortly before sample `first`.
    fn run_up(&mut self, first: u64) -> Result<(), AudioError> {
        let Some(target) = first.checked_sub((RUN_UP.0 * f64::from(self.info.rate)) as u64).filter(|&t| t > 0) else {
            return Ok(());
        };
        let to = SeekTo::Timestamp { ts: Timestamp::from(self.zero + target as i64), track_id: self.track };
        let sought = self.reader.seek(SeekMode::Accurate, to);
        sought.map(drop).map_err(|error| damaged(self.path, Samples(target).at(self.info.rate), error))
    }

    /// The next packet of our track.
    fn next_packet(&mut self, so_far: &Mono) -> Result<Option<Packet>, AudioError> {
        loop {
            match self.reader.next_packet() {
                Ok(Some(packet)) if packet.track_id == self.track => return Ok(Some(packet)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) if is_end(&error) => return Ok(None),
                Err(error) => {
                    let after = Samples(so_far.samples.len() as u64).at(self.info.rate);
                    return Err(damaged(self.path, after, error));
                }
            }
        }
    }
}

/// The samples of a span, as they come in.
struct Mono {
    first: i64,
    count: usize,
    samples: Vec<f32>,
    interleaved: Vec<f32>,
}

impl Mono {
    fn new(span: &Span) -> Self {
        let samples = Vec::with_capacity(span.count.min(TAKEN_AT_ONCE) as usize);
        Self { first: span.first as i64, count: span.count as usize, samples, interleaved: Vec::new() }
    }

    fn wants_more(&self) -> bool {
        self.samples.len() < self.count
    }

    /// How many samples are missing before sound that begins at `at`.
    fn gap_before(&self, at: i64, sound: &GenericAudioBufferRef<'_>) -> i64 {
        if sound.frames() == 0 { 0 } else { (at - self.next()).max(0) }
    }

    fn next(&self) -> i64 {
        self.first + self.samples.len() as i64
    }

    /// Takes what belongs to the span of the sound that begins at `at`; what is missing before it becomes silence.
    fn take(&mut self, at: i64, sound: &GenericAudioBufferRef<'_>) {
        // At most as much as is wanted, and no more than is taken at once: a broken time may be any.
        let gap = self.gap_before(at, sound).min((self.count - self.samples.len()) as i64).min(TAKEN_AT_ONCE as i64);
        self.samples.resize(self.samples.len() + gap as usize, 0.0);
        let frames = sound.frames();
        let skipped = (self.next() - at).clamp(0, frames as i64) as usize;
        let taken = (frames - skipped).min(self.count - self.samples.len());
        if taken > 0 {
            self.average(sound, skipped, taken);
        }
    }

    fn average(&mut self, sound: &GenericAudioBufferRef<'_>, skipped: usize, taken: usize) {
        let channels = sound.num_planes().max(1);
        self.interleaved.clear();
        self.interleaved.resize(sound.samples_interleaved(), 0.0);
        sound.copy_to_slice_interleaved(&mut self.interleaved);
        let wanted = &self.interleaved[skipped * channels..(skipped + taken) * channels];
        let scale = 1.0 / channels as f32;
        // A broken float may come out of a lossy decoder; one NaN would spread over the whole model.
        let finite = |value: f32| if value.is_finite() { value } else { 0.0 };
        self.samples.extend(wanted.chunks_exact(channels).map(|moment| finite(moment.iter().sum::<f32>() * scale)));
    }

    /// A few samples less than promised are rounding; more are a file that was cut.
    fn finish(self, path: &Path, span: &Span, rate: u32) -> Result<Vec<f32>, AudioError> {
        let missing = Samples((self.count - self.samples.len()) as u64).at(rate);
        if missing > SLACK || self.samples.is_empty() {
            let at = |samples: u64| Samples(span.first + samples).at(rate);
            let (promised, found) = (at(span.count), at(self.samples.len() as u64));
            return Err(AudioError::CutShort { file: path.into(), promised, found });
        }
        Ok(self.samples)
    }
}

fn probe(path: &Path) -> Result<Box<dyn FormatReader>, AudioError> {
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
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
        // Symphonia knew what it is, and could not go on.
        error @ Error::DecodeError(_) => damaged(path, Seconds(0.0), error),
        Error::Unsupported(problem) if problem.starts_with("core") => AudioError::NotAudio(path.into()),
        error => AudioError::Unsupported { file: path.into(), found: words(&error) },
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

/// The samples of all packets, without decoding one.
fn count(reader: &mut dyn FormatReader, track: u32) -> Result<u64, Error> {
    let mut end = 0;
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) if packet.track_id == track => {
                // Of an MP3, which is what mostly is counted, `dur` is the whole packet, trimmed or not; what is
                // trimmed from the front has times below zero.
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
    codecs().make_audio_decoder(params, &AudioDecoderOptions::default()).map_err(|error| {
        let is_opus = params.codec == CODEC_ID_OPUS && !cfg!(feature = "opus");
        let found = if is_opus { "Opus, which needs the feature `opus`".into() } else { words(&error) };
        AudioError::Unsupported { file: path.into(), found }
    })
}

fn codecs() -> &'static CodecRegistry {
    static CODECS: OnceLock<CodecRegistry> = OnceLock::new();
    CODECS.get_or_init(|| {
        let mut codecs = CodecRegistry::new();
        symphonia::default::register_enabled_codecs(&mut codecs);
        #[cfg(feature = "opus")]
        codecs.register_audio_decoder::<symphonia_adapter_libopus::OpusDecoder>();
        codecs
    })
}

/// Files that were cut off end with this; how much is missing is known from what was promised.
fn is_end(error: &Error) -> bool {
    matches!(error, Error::IoError(source) if source.kind() == std::io::ErrorKind::UnexpectedEof)
}

fn damaged(path: &Path, after: Seconds, error: Error) -> AudioError {
    match error {
        Error::IoError(source) if source.kind() != std::io::ErrorKind::UnexpectedEof => unreadable(path, source),
        error => AudioError::Damaged { file: path.into(), after, problem: words(&error) },
    }
}

/// What Symphonia says, in the words of our messages.
fn words(error: &Error) -> String {
    match error {
        Error::DecodeError(problem) | Error::Unsupported(problem) | Error::LimitError(problem) => (*problem).into(),
        Error::IoError(_) => "it ends before its sound begins".into(),
        Error::ResetRequired => "another recording begins in the middle of it".into(),
        other => other.to_string(),
    }
}
