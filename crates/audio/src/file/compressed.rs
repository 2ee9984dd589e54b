//! Compressed audio, decoded by Symphonia: FLAC, MP3, Vorbis, Opus, AAC and ALAC, alone or in Ogg, Matroska and MP4.

mod clock;
mod container;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use plimsoll_core::{Samples, Seconds};
use symphonia::core::audio::{Channels, GenericAudioBufferRef};
use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_AAC, CODEC_ID_ALAC, CODEC_ID_FLAC, CODEC_ID_MP3, CODEC_ID_OPUS, CODEC_ID_VORBIS,
};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::codecs::registry::CodecRegistry;
use symphonia::core::errors::Error;
use symphonia::core::formats::well_known::FORMAT_ID_OGG;
use symphonia::core::formats::{FormatReader, SeekMode, SeekTo, Track, TrackType};
use symphonia::core::packet::Packet;
use symphonia::core::units::Timestamp;

use super::mix::{self, Mix, Mixer};
use super::{
    Audio, AudioError, AudioInfo, AudioKind, AudioSegment, AudioSource, DURATION_TOLERANCE, SAMPLE_RATES, SampleRange,
    aac, check_channel, opus, unreadable,
};
use clock::PacketClock;
use container::{Stream, codec_name, probe};

/// Length of audio that is decoded before a segment: an MP3 frame depends on up to nine frames before it, 0.33 s at 16
/// kHz.
const PREROLL: Seconds = Seconds(0.5);

/// The same for Opus, whose frames of music are differences from those before: after 0.5 s, 2e-5 of the energy still
/// differs.
const PREROLL_OPUS: Seconds = Seconds(1.0);

/// Largest number of missing samples that become silence, because a broken timestamp may have any value.
const ALLOCATION_MAX: u64 = 1 << 22;

/// Reads format, sample rate, channels and length of a compressed file. Without `is_counted`, a length that would have
/// to be counted is infinite.
pub(super) fn info(path: &Path, is_counted: bool) -> Result<AudioInfo, AudioError> {
    Ok(CompressedFile::open(path, is_counted)?.info)
}

/// Reads a segment of a compressed file as one channel.
pub(super) fn read(path: &Path, segment: AudioSegment) -> Result<Audio, AudioError> {
    // A caller who gives a duration need not wait until all packets of an hour of MP3 are counted.
    let file = CompressedFile::open(path, segment.duration.is_none())?;
    let (rate, range) = (file.info.rate, file.info.locate(path, segment)?);
    // Without a count, a segment past the end looks like damage. Count now, and report the wrong segment.
    let outside_or = |error| match info(path, true).map(|counted| counted.locate(path, segment)) {
        Ok(Err(outside)) => outside,
        _ => error,
    };
    // The whole file decides how its channels are mixed while it is decoded.
    let mix = match file.info.channels {
        1 => Some(Mix::default()),
        _ if file.named.is_some() => file.named.map(Mix::named),
        _ if segment == AudioSegment::default() => None,
        _ => Some(mix::known(path, || mix_of(path))?),
    };
    let decode = || {
        let mut decoding = Decoding::new(file, range, mix)?;
        while decoding.advance()? {}
        decoding.finish()?;
        Ok(decoding.mono.samples)
    };
    Ok(Audio { samples: decode().map_err(outside_or)?, rate })
}

/// Finds how the channels of a compressed file are mixed. Damage ends what is looked at.
pub(super) fn mix_of(path: &Path) -> Result<Mix, AudioError> {
    let file = CompressedFile::open(path, false)?;
    if let Some(channel) = file.named {
        return Ok(Mix::named(channel));
    }
    // The length of some files is not known before they are counted.
    let mut decoding = Decoding::new(file, SampleRange { first: 0, count: 1 << 40 }, None)?;
    while decoding.mono.mix().is_none() && decoding.advance().unwrap_or(false) {
        decoding.mono.samples.clear();
    }
    decoding.mono.finish();
    Ok(decoding.mono.mix().unwrap_or_default())
}

/// Opens a compressed file whose samples are read in blocks. Returns its facts, too.
pub(super) fn blocks(path: &Path) -> Result<(CompressedBlocks, AudioInfo), AudioError> {
    let file = CompressedFile::open(path, true)?;
    let info = file.info;
    let range = info.locate(path, AudioSegment::default())?;
    let mix = file.named.map(Mix::named);
    Ok((CompressedBlocks(Decoding::new(file, range, mix)?), info))
}

/// Samples of a compressed file that are read in blocks.
pub(super) struct CompressedBlocks(Decoding);

impl CompressedBlocks {
    /// Returns how the channels are mixed, once that is known.
    pub(super) fn mix(&self) -> Option<Mix> {
        self.0.mono.mix()
    }

    /// Appends the samples of the next packets as one channel; false at the end.
    pub(super) fn read(&mut self, samples: &mut Vec<f32>) -> Result<bool, AudioError> {
        while self.0.mono.samples.is_empty() {
            if !self.0.advance()? {
                self.0.finish()?;
                samples.append(&mut self.0.mono.samples);
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
    /// Begins to decode a range. Without `mix`, the range begins with the file.
    fn new(mut file: CompressedFile, range: SampleRange, mix: Option<Mix>) -> Result<Self, AudioError> {
        let decoder = decoder(&file.path, &file.params)?;
        file.seek_with_preroll(range.first)?;
        let mono = MonoMix::new(&range, file.info.rate, mix);
        Ok(Self { file, decoder, mono, end: i64::MIN })
    }

    /// Decodes one packet; false at the end.
    fn advance(&mut self) -> Result<bool, AudioError> {
        let Self { file, decoder, mono, end } = self;
        if !mono.wants_more() {
            return Ok(false);
        }
        let Some(packet) = file.next_packet(mono)? else { return Ok(false) };
        let start = file.clock.as_mut().map(|clock| clock.start(&packet) - file.zero);
        if let (Some(start), Some(length)) = (start, samples_of(file.info.kind, &packet))
            && start + (length as i64) < mono.first - file.preroll()
        {
            file.passed(length);
            return Ok(true);
        }
        match decoder.decode(&packet) {
            Ok(sound) => {
                let at = start.unwrap_or_else(|| file.start_of(&packet, sound.frames()));
                file.passed(sound.frames() as u64);
                let is_next = file.info.kind != AudioKind::Flac || at >= *end;
                *end = at + sound.frames() as i64;
                if !is_next {
                    // Its samples would fill what the first stream has lost.
                    let (after, problem) = (Samples(mono.taken).at(file.info.rate), "a second stream begins inside it");
                    return Err(AudioError::Damaged { file: file.path.clone(), after, problem: problem.into() });
                }
                let missing = mono.gap_before(at, &sound);
                if missing > 0 && file.info.kind != AudioKind::Mp3 && file.clock.is_none() {
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
                let at = start.unwrap_or_else(|| file.start_of(&packet, 0)).max(0) as u64;
                return Err(damaged(&file.path, Samples(at).at(file.info.rate), error));
            }
        }
        Ok(true)
    }

    /// Checks that the range is complete. Where the header has the exact length, any missing sample means that the file was
    /// cut or damaged. In other files a missing length up to [`DURATION_TOLERANCE`] is rounding.
    fn finish(&mut self) -> Result<(), AudioError> {
        self.mono.finish();
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
    /// Timestamp of the first sample of the audio track, in samples.
    zero: i64,
    /// Counts the samples, where timestamps do not.
    clock: Option<PacketClock>,
    params: AudioCodecParameters,
    info: AudioInfo,
    /// Channel that is asked for, counted from 0.
    named: Option<u16>,
    /// Whether the header has the exact number of samples, as those of MP4 and FLAC have outside of Ogg, if the encoder
    /// knew it.
    is_exact: bool,
}

impl CompressedFile {
    /// Opens a compressed file. Without `is_counted`, a file whose packets would have to be counted has an infinite
    /// length.
    fn open(path: &Path, is_counted: bool) -> Result<Self, AudioError> {
        let (mut reader, container) = probe(path)?;
        let no_track = || container.no_track(path);
        let track = reader.default_track(TrackType::Audio).ok_or_else(no_track)?;
        let id = track.id;
        let stream = stream_of(path, track)?;
        let place = container.place(&*reader, track, &stream);
        let Stream { kind, rate, params, .. } = stream;
        let clock = place.is_counted.then(|| PacketClock::new(track.time_base, rate));
        let length = match place.length {
            Some(length) => Some(length),
            None if !is_counted => None,
            None => {
                let counted = match &clock {
                    Some(clock) => count_samples(&mut *reader, id, clock.clone(), &mut *decoder(path, &params)?, kind),
                    None => count(&mut *reader, id),
                };
                let counted = counted.map_err(|error| damaged(path, Seconds(0.0), error))?;
                reader = probe(path)?.0;
                Some(place.heard(counted.saturating_sub(place.zero as u64 + place.padding)))
            }
        };
        if length == Some(0) {
            return Err(AudioError::Empty(path.into()));
        }
        let channels = params.channels.as_ref().map_or(1, |channels| channels.count() as u16);
        let duration = length.map_or(Seconds(f64::INFINITY), |length| Samples(length).at(rate));
        let info = AudioInfo { kind, rate, channels, duration };
        let named = AudioSource::from_path(path).channel;
        check_channel(path, named, channels)?;
        let (path, is_exact) = (path.into(), place.is_exact);
        Ok(Self { named, path, reader, track: id, zero: place.zero, clock, params, info, is_exact })
    }

    /// Returns the number of samples that are decoded before a segment.
    fn preroll(&self) -> i64 {
        let length = if self.info.kind == AudioKind::Opus { PREROLL_OPUS } else { PREROLL };
        (length.0 * f64::from(self.info.rate)) as i64
    }

    /// Moves the clock, if there is one, behind the packet that it was asked about last, which has `length` samples.
    fn passed(&mut self, length: u64) {
        if let Some(clock) = &mut self.clock {
            clock.pass(length);
        }
    }

    /// Computes the index in the audio of the first sample that the decoder returned for `packet`, where `frames` is
    /// the number of samples per channel that it returned. The padding of the encoder is not counted.
    fn start_of(&self, packet: &Packet, frames: usize) -> i64 {
        let begin = match self.info.kind {
            // The duration of an Ogg packet is what remains of it; decoders remove more from the first packet they
            // see.
            AudioKind::Vorbis | AudioKind::Opus if self.is_ogg() => {
                packet.pts.get() + packet.dur.get() as i64 - frames as i64
            }
            _ => packet.pts.get() + packet.trim_start.get() as i64,
        };
        begin - self.zero
    }

    fn is_ogg(&self) -> bool {
        self.reader.format_info().format == FORMAT_ID_OGG
    }

    /// Seeks to the [preroll](Self::preroll) of sample `first`. Where samples are counted, packets are passed over instead.
    fn seek_with_preroll(&mut self, first: u64) -> Result<(), AudioError> {
        if self.clock.is_some() {
            return Ok(());
        }
        let Some(target) = first.checked_sub(self.preroll() as u64).filter(|&t| t > 0) else {
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
    rate: u32,
    /// How the channels are mixed, if that is known before.
    mix: Option<Mix>,
    /// Mixes the channels; `None` before the first samples.
    mixer: Option<Mixer>,
}

impl MonoMix {
    fn new(range: &SampleRange, rate: u32, mix: Option<Mix>) -> Self {
        let (samples, interleaved) = (Vec::new(), Vec::new());
        Self { first: range.first as i64, count: range.count, taken: 0, samples, interleaved, rate, mix, mixer: None }
    }

    /// Returns how the channels are mixed, once that is known.
    fn mix(&self) -> Option<Mix> {
        self.mix.or_else(|| self.mixer.as_ref()?.mix())
    }

    /// Appends the samples that waited for a decision.
    fn finish(&mut self) {
        if let Some(mixer) = &mut self.mixer {
            mixer.finish(&mut self.samples);
        }
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

    /// Appends those samples of decoded `sound` that lie in the requested range, as one channel. The first
    /// sample of `sound` has index `at` in the file. A gap between the samples so far and `at` becomes silence.
    fn take(&mut self, at: i64, sound: &GenericAudioBufferRef<'_>) {
        // Limited by the range and by [`ALLOCATION_MAX`]: a broken timestamp may have any value.
        let gap = self.gap_before(at, sound).min((self.count - self.taken) as i64).min(ALLOCATION_MAX as i64);
        let channels = self.mixer(sound).channels();
        self.interleaved.clear();
        self.interleaved.resize(gap as usize * channels, 0.0);
        self.push();
        self.taken += gap as u64;
        let frames = sound.frames();
        let skipped = (self.next() - at).clamp(0, frames as i64) as usize;
        let taken = ((frames - skipped) as u64).min(self.count - self.taken) as usize;
        if taken > 0 {
            self.add(sound, skipped, taken);
            self.taken += taken as u64;
        }
    }

    fn mixer(&mut self, sound: &GenericAudioBufferRef<'_>) -> &mut Mixer {
        self.mixer.get_or_insert_with(|| {
            let channels = sound.num_planes().max(1);
            match self.mix {
                Some(mix) => Mixer::decided(mix, channels, (self.first + self.taken as i64).max(0) as u64),
                None => Mixer::new(channels, self.rate),
            }
        })
    }

    /// Mixes what is in `interleaved`.
    fn push(&mut self) {
        if let Some(mixer) = &mut self.mixer {
            mixer.push(&self.interleaved, &mut self.samples);
        }
    }

    fn add(&mut self, sound: &GenericAudioBufferRef<'_>, skipped: usize, taken: usize) {
        let (channels, expected) = (sound.num_planes().max(1), self.mixer(sound).channels());
        self.interleaved.clear();
        self.interleaved.resize(sound.samples_interleaved(), 0.0);
        sound.copy_to_slice_interleaved(&mut self.interleaved);
        self.interleaved.truncate((skipped + taken) * channels);
        self.interleaved.drain(..skipped * channels);
        // A lossy decoder may return a broken float; one NaN would spread over the whole model.
        self.interleaved.iter_mut().filter(|value| !value.is_finite()).for_each(|value| *value = 0.0);
        if channels != expected {
            // A frame with another number of channels, as a damaged file has.
            let mut mono = Vec::with_capacity(taken);
            Mix::default().apply(&self.interleaved, channels, 0, &mut mono);
            self.interleaved = mono.iter().flat_map(|&sample| std::iter::repeat_n(sample, expected)).collect();
        }
        self.push();
    }
}

/// Returns the format of a track. The error names a codec that is not read.
fn kind_of(path: &Path, track: &Track) -> Result<AudioKind, AudioError> {
    let codec = track.codec_params.as_ref().and_then(|params| params.audio()).map(|params| params.codec);
    Ok(match codec.unwrap_or_default() {
        CODEC_ID_FLAC => AudioKind::Flac,
        CODEC_ID_MP3 => AudioKind::Mp3,
        CODEC_ID_VORBIS => AudioKind::Vorbis,
        CODEC_ID_OPUS => AudioKind::Opus,
        CODEC_ID_AAC => AudioKind::Aac,
        CODEC_ID_ALAC => AudioKind::Alac,
        other => return Err(AudioError::Codec { file: path.into(), found: codec_name(other).into() }),
    })
}

/// Reads what the codec of a track says, and puts right what containers write differently.
fn stream_of(path: &Path, track: &Track) -> Result<Stream, AudioError> {
    let kind = kind_of(path, track)?;
    let mut params = track.codec_params.as_ref().and_then(|params| params.audio()).cloned().unwrap_or_default();
    let unread = |found: String| AudioError::Codec { file: path.into(), found };
    let mut early = 0;
    if kind == AudioKind::Aac
        && let Some(config) = &params.extra_data
    {
        let core = aac::core(config).map_err(unread)?;
        early = if core.is_extended { aac::EXTENSION_DELAY } else { 0 };
        params.with_sample_rate(core.rate).with_channels(Channels::Discrete(core.channels));
        params.with_extra_data(core.config.into());
    }
    if kind == AudioKind::Opus {
        params.with_sample_rate(opus::RATE);
        if let Some(head) = params.extra_data.as_deref().and_then(opus::OpusHead::parse) {
            params.with_channels(Channels::Discrete(head.channels.into()));
        }
    }
    let channels = params.channels.as_ref().map_or(1, Channels::count);
    if matches!(kind, AudioKind::Aac | AudioKind::Opus) && channels > 2 {
        return Err(unread(format!("{} with {channels} channels", kind.name())));
    }
    let rate = params.sample_rate.unwrap_or(0);
    if !SAMPLE_RATES.contains(&rate) {
        return Err(AudioError::Unsupported { file: path.into(), found: format!("a sample rate of {rate} Hz") });
    }
    Ok(Stream { kind, rate, params, early })
}

/// Returns the number of samples per channel in a packet; `None` if only the decoder can tell.
fn samples_of(kind: AudioKind, packet: &Packet) -> Option<u64> {
    match kind {
        AudioKind::Aac => Some(aac::SAMPLES),
        AudioKind::Opus => opus::samples_of(&packet.data),
        _ => None,
    }
}

/// Counts the samples of a track by a clock. Decodes the packets of codecs that do not tell their lengths.
fn count_samples(
    reader: &mut dyn FormatReader,
    track: u32,
    mut clock: PacketClock,
    decoder: &mut dyn AudioDecoder,
    kind: AudioKind,
) -> Result<u64, Error> {
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) if packet.track_id == track => {
                clock.start(&packet);
                let length = match samples_of(kind, &packet) {
                    Some(length) => length,
                    None => decoder.decode(&packet)?.frames() as u64,
                };
                clock.pass(length);
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(clock.passed()),
            Err(error) if is_end(&error) => return Ok(clock.passed()),
            Err(error) => return Err(error),
        }
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
    let made = codec_registry().make_audio_decoder(params, &AudioDecoderOptions::default());
    made.map_err(|error| AudioError::Unsupported { file: path.into(), found: describe(&error) })
}

fn codec_registry() -> &'static CodecRegistry {
    static CODECS: OnceLock<CodecRegistry> = OnceLock::new();
    CODECS.get_or_init(|| {
        let mut codec_registry = CodecRegistry::new();
        symphonia::default::register_enabled_codecs(&mut codec_registry);
        codec_registry.register_audio_decoder::<opus::OpusDecoder>();
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
