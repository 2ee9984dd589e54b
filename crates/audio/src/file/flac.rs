//! A fast decoder of FLAC, for files that are read from their beginning.
//!
//! A run reads its FLAC files again in each epoch, and Symphonia's decoder had half of the time of loading. This one decodes
//! whole files from memory, to one channel, and leaves out what that does not need: it cannot seek or stream. It gives up
//! at everything unusual or damaged, however little. Symphonia then decodes the file from the start, and reports what is
//! wrong.

use std::cell::RefCell;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use plimsoll_core::Samples;
use pulp::{Arch, Simd, WithSimd};

use super::mix::MixJudge;
use super::{
    Audio, AudioInfo, AudioKind, AudioPart, AudioReader, AudioSegment, AudioSource, SAMPLE_RATES, SampleRange,
};
use bits::BitReader;
use frame::{Channels, FrameHeader};
use predictor::restore;

mod bits;
mod frame;
mod predictor;

/// First bytes of a FLAC file, or those behind its tags.
const MAGIC: &[u8; 4] = b"fLaC";

/// First bytes of a tag in the format ID3v2, which some programs write in front of a file.
const TAG: &[u8; 3] = b"ID3";

/// First bytes of a tag in the format ID3v1, which some programs write behind a file.
const TAG_BEHIND: &[u8; 3] = b"TAG";

/// Length of a tag in the format ID3v1.
const TAG_BEHIND_LENGTH: u64 = 128;

/// Size of the largest file that is decoded here: about a quarter of an hour of speech. All its bytes are in memory at once.
const FILE_MAX: u64 = 16 << 20;

/// Size of the largest file of which a segment is decoded here, because all audio before the segment is decoded, too.
const SEGMENT_FILE_MAX: u64 = 1 << 20;

/// Size of the largest buffer of bytes that a thread keeps: more than most utterances need.
const KEPT_MAX: usize = 1 << 20;

/// Largest number of tags in front of a file.
const TAGS_MAX: usize = 8;

/// Number of zeros behind the bytes of a file: a reader takes up to eight bytes ahead, and always eight at once.
const PADDING: usize = 16;

thread_local! {
    /// Bytes of the file and samples of a frame: every thread uses its buffers for one file after another.
    static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers { bytes: Vec::new(), planes: Vec::new() }) };
}

struct Buffers {
    bytes: Vec<u8>,
    planes: Vec<Vec<i32>>,
}

/// Returns whether a FLAC file may begin with the bytes `first`.
pub(super) fn may_begin_with(first: &[u8]) -> bool {
    first.starts_with(MAGIC) || first.starts_with(TAG)
}

/// Reads a segment of a FLAC file: one channel, averaged or the one that the path names. `None`: the file is damaged, unusual or large, or its channels
/// cancel each other.
pub(super) fn read(path: &Path, segment: AudioSegment) -> Option<Audio> {
    let source = AudioSource::from_path(path);
    // Of a part without a length, the end of the container is read only where the file is longer than most.
    let is_open = matches!(source.part, Some(AudioPart::Bytes { length: None, .. }));
    let mut reader = source.open().ok()?;
    let start = skip_tags(&mut reader)?;
    let length = reader.byte_len() - start;
    let most = if segment == AudioSegment::default() { FILE_MAX } else { SEGMENT_FILE_MAX };
    if length > most && !is_open {
        return None;
    }
    let mut limits = vec![length.min(most)];
    if is_open && length > SEGMENT_FILE_MAX {
        limits.insert(0, SEGMENT_FILE_MAX);
    }
    let wanted = Wanted { path, segment, channel: source.channel.map(usize::from) };
    BUFFERS.with_borrow_mut(|buffers| {
        let audio = limits.into_iter().find_map(|limit| {
            reader.seek(SeekFrom::Start(start)).ok()?;
            buffers.read(reader.by_ref().take(limit), &wanted)
        });
        if buffers.bytes.capacity() > KEPT_MAX {
            buffers.bytes = Vec::new();
        }
        audio
    })
}

/// Moves `reader` behind the tags in front of a FLAC file, and returns its position. `None`: the file is no FLAC file.
fn skip_tags(reader: &mut (impl Read + Seek)) -> Option<u64> {
    let mut start = 0;
    for _ in 0..=TAGS_MAX {
        reader.seek(SeekFrom::Start(start)).ok()?;
        let mut head = [0; 10];
        reader.read_exact(&mut head).ok()?;
        if head.starts_with(MAGIC) {
            return reader.seek(SeekFrom::Start(start)).ok();
        }
        // The length counts what is behind the ten bytes of the head, but not a copy of the head at the end.
        let [_, _, _, _, _, flags, length @ ..] = head;
        if !head.starts_with(TAG) || length.iter().any(|byte| *byte > 127) {
            return None;
        }
        let has_copy = flags & 0x10 != 0;
        start += length.iter().fold(0, |sum, byte| sum << 7 | u64::from(*byte)) + if has_copy { 20 } else { 10 };
    }
    None
}

/// Hides the tags in front of a FLAC file and behind it. Symphonia does not know copies of a head, and takes a tag behind
/// the last frame for a part of it. Other files stay whole.
pub(super) fn without_tags(mut reader: AudioReader) -> io::Result<AudioReader> {
    let Some(start) = skip_tags(&mut reader) else {
        reader.seek(SeekFrom::Start(0))?;
        return Ok(reader);
    };
    let mut end = reader.byte_len();
    if let Some(before) = end.checked_sub(TAG_BEHIND_LENGTH).filter(|before| *before > start) {
        let mut first = [0; TAG_BEHIND.len()];
        reader.seek(SeekFrom::Start(before))?;
        reader.read_exact(&mut first)?;
        if &first == TAG_BEHIND {
            end = before;
        }
    }
    reader.narrowed(start..end)
}

/// What is read of a file.
struct Wanted<'a> {
    path: &'a Path,
    segment: AudioSegment,
    /// Channel, counted from 0; `None` for the average of all.
    channel: Option<usize>,
}

impl Buffers {
    /// Reads the rest of a file, and decodes a segment.
    fn read(&mut self, mut reader: impl Read, wanted: &Wanted<'_>) -> Option<Audio> {
        self.bytes.clear();
        reader.read_to_end(&mut self.bytes).ok()?;
        self.bytes.extend([0; PADDING]);
        let header = StreamHeader::read(&self.bytes)?;
        if wanted.channel.is_some_and(|channel| channel >= header.channels) {
            return None;
        }
        let range = header.info().locate(wanted.path, wanted.segment).ok()?;
        // Compiled for the processor that runs it, which shifts and counts bits faster than the oldest one.
        let samples = Arch::new().dispatch(Decoding {
            buffers: self,
            header: &header,
            range: &range,
            channel: wanted.channel,
        })?;
        Some(Audio { samples, rate: header.rate })
    }
}

/// What the first metadata block of a file says.
struct StreamHeader {
    rate: u32,
    channels: usize,
    /// Bits per sample.
    bits: u32,
    /// Number of samples per channel.
    length: u64,
    /// Position of the first frame in the file, without tags in front.
    first_frame: usize,
}

impl StreamHeader {
    fn read(bytes: &[u8]) -> Option<Self> {
        let end = bytes.len() - PADDING;
        if !bytes.starts_with(MAGIC) || bytes.get(4)? & 0x7f != 0 {
            return None;
        }
        let stream: &[u8; 34] = bytes.get(8..42)?.try_into().ok()?;
        let packed = u64::from_be_bytes(stream[10..18].try_into().ok()?);
        let mut position = MAGIC.len();
        loop {
            let block = u32::from_be_bytes(bytes.get(position..position + 4)?.try_into().ok()?);
            position += 4 + (block & 0xff_ffff) as usize;
            if position > end {
                return None;
            }
            if block >> 31 == 1 {
                break;
            }
        }
        let header = Self {
            rate: (packed >> 44) as u32,
            channels: (packed >> 41 & 7) as usize + 1,
            bits: (packed >> 36 & 31) as u32 + 1,
            length: packed & 0xf_ffff_ffff,
            first_frame: position,
        };
        let is_usual = (4..=24).contains(&header.bits) && SAMPLE_RATES.contains(&header.rate) && header.length > 0;
        is_usual.then_some(header)
    }

    fn info(&self) -> AudioInfo {
        let duration = Samples(self.length).at(self.rate);
        AudioInfo { kind: AudioKind::Flac, rate: self.rate, channels: self.channels as u16, duration }
    }
}

/// Decodes frame after frame up to the end of a range.
struct Decoding<'a> {
    buffers: &'a mut Buffers,
    header: &'a StreamHeader,
    range: &'a SampleRange,
    /// Channel that is read alone, counted from 0.
    channel: Option<usize>,
}

impl WithSimd for Decoding<'_> {
    type Output = Option<Vec<f32>>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Self::Output {
        decode(self)
    }
}

// All that runs for each sample is a part of this function, so that it is compiled for the processor, too.
#[inline(always)]
fn decode(decoding: Decoding<'_>) -> Option<Vec<f32>> {
    let Decoding { buffers, header, range, channel } = decoding;
    let Buffers { bytes, planes } = buffers;
    let end = bytes.len() - PADDING;
    // The length is a promise of the file. Each frame has 10 bytes or more, and 65536 samples or less.
    let possible = (bytes.len() / 10 + 1) << 16;
    let mut samples = Vec::with_capacity(usize::try_from(range.count).ok()?.min(possible));
    let (mut position, mut done, mut frames, mut usual_size) = (header.first_frame, 0, 0, None);
    let last = range.first + range.count;
    // One channel has nothing to decide.
    let mut judge = MixJudge::new(channel.map_or(header.channels, |_| 1), header.rate);
    while done < last || judge.decided().is_none() && done < header.length {
        let frame = FrameHeader::read(&bytes[position..end])?;
        let is_next = if frame.is_numbered { frame.number == frames } else { frame.number == done };
        let size = frame.size as u64;
        let is_usual = *usual_size.get_or_insert(size) == size || !frame.is_numbered || done + size == header.length;
        if !is_next || !is_usual || !frame.belongs_to(header) || done + size > header.length {
            return None;
        }
        let mut reader = BitReader::new(bytes, position + frame.length);
        planes.resize(planes.len().max(header.channels), Vec::new());
        for (channel, plane) in planes[..header.channels].iter_mut().enumerate() {
            plane.clear();
            plane.resize(frame.size, 0);
            subframe(&mut reader, header.bits + u32::from(frame.channels.is_side(channel)), plane)?;
        }
        let close = reader.align();
        if close + 2 > end || frame::crc16(&bytes[position..close + 2]) != 0 {
            return None;
        }
        position = close + 2;
        let planes = &mut planes[..header.channels];
        frame.channels.separate(planes);
        if !planes.iter().all(|plane| is_within(plane, header.bits)) {
            return None;
        }
        let from = range.first.saturating_sub(done).min(size) as usize;
        let to = last.saturating_sub(done).min(size) as usize;
        if judge.decided().is_none() {
            judge.push(&interleaved(planes, header.bits));
        }
        let heard = channel.map_or(&*planes, |channel| &planes[channel..=channel]);
        average(heard, from..to, header.bits, &mut samples);
        done += size;
        frames += 1;
    }
    judge.finish().channel().is_none().then_some(samples)
}

/// Returns the values of all channels of a frame.
fn interleaved(planes: &[Vec<i32>], bits: u32) -> Vec<f32> {
    let full = 1.0 / (1u32 << (bits - 1)) as f32;
    let size = planes.first().map_or(0, Vec::len);
    (0..size).flat_map(|index| planes.iter().map(move |plane| plane[index] as f32 * full)).collect()
}

/// Decodes the samples of one channel of a frame. `bits`: the bits of a sample.
#[inline(always)]
fn subframe(reader: &mut BitReader<'_>, bits: u32, plane: &mut [i32]) -> Option<()> {
    let head = reader.take(8)?;
    if head & 0x80 != 0 {
        return None;
    }
    let wasted = if head & 1 == 1 { reader.unary()? + 1 } else { 0 };
    let bits = bits.checked_sub(wasted).filter(|&bits| bits > 0)?;
    match head >> 1 {
        0 => plane.fill(reader.take_signed(bits)?),
        1 => verbatim(reader, bits, plane)?,
        kind @ 8..=12 => {
            let order = kind as usize - 8;
            verbatim(reader, bits, plane.get_mut(..order)?)?;
            residual(reader, order, plane)?;
            restore(plane, predictor::FIXED[order], 0);
        }
        kind @ 32..=63 => {
            let order = kind as usize - 31;
            verbatim(reader, bits, plane.get_mut(..order)?)?;
            let precision = reader.take(4)? + 1;
            let shift = reader.take_signed(5)?;
            if precision == 16 || shift < 0 {
                return None;
            }
            let mut coefficients = [0; 32];
            for coefficient in &mut coefficients[..order] {
                *coefficient = reader.take_signed(precision)?;
            }
            residual(reader, order, plane)?;
            restore(plane, &coefficients[..order], shift as u32);
        }
        _ => return None,
    }
    if wasted > 0 {
        plane.iter_mut().for_each(|sample| *sample <<= wasted);
    }
    Some(())
}

/// Reads samples, or differences, as plain numbers of `bits` bits.
#[inline(always)]
fn verbatim(reader: &mut BitReader<'_>, bits: u32, plane: &mut [i32]) -> Option<()> {
    for sample in plane {
        *sample = reader.take_signed(bits)?;
    }
    Some(())
}

/// Reads the differences between samples and their prediction, from sample `order` on.
#[inline(always)]
fn residual(reader: &mut BitReader<'_>, order: usize, plane: &mut [i32]) -> Option<()> {
    // The width of a parameter, whose largest value says that differences are plain numbers.
    let width = match reader.take(2)? {
        0 => 4,
        1 => 5,
        _ => return None,
    };
    let parts = 1 << reader.take(4)?;
    let length = plane.len() / parts;
    if length * parts != plane.len() || length < order {
        return None;
    }
    for part in 0..parts {
        let values = &mut plane[(part * length).max(order)..(part + 1) * length];
        let parameter = reader.take(width)?;
        if parameter + 1 < 1 << width {
            reader.rice(parameter, values)?;
            continue;
        }
        match reader.take(5)? {
            0 => values.fill(0),
            bits => verbatim(reader, bits, values)?,
        }
    }
    Some(())
}

/// Returns whether all samples are numbers of `bits` bits.
#[inline(always)]
fn is_within(plane: &[i32], bits: u32) -> bool {
    plane.iter().fold(0, |all, sample| all | (sample ^ (sample >> 31))) >> (bits - 1) == 0
}

/// Appends a range of the samples of a frame, averaged to one channel. The results have the bits of those of Symphonia.
#[inline(always)]
fn average(planes: &[Vec<i32>], range: std::ops::Range<usize>, bits: u32, samples: &mut Vec<f32>) {
    let full = 1.0 / (1u32 << (bits - 1)) as f32;
    match planes {
        [mono] => samples.extend(mono[range].iter().map(|&sample| sample as f32 * full)),
        planes => {
            let share = 1.0 / planes.len() as f32;
            let sum = |index: usize| planes.iter().map(|plane| plane[index] as f32 * full).sum::<f32>();
            samples.extend(range.map(|index| sum(index) * share));
        }
    }
}

impl Channels {
    /// Returns whether a channel holds the differences between two, which need one bit more.
    fn is_side(self, channel: usize) -> bool {
        match self {
            Self::Independent(_) => false,
            Self::LeftSide | Self::MidSide => channel == 1,
            Self::SideRight => channel == 0,
        }
    }

    /// Computes left and right where one channel holds differences.
    #[inline(always)]
    fn separate(self, planes: &mut [Vec<i32>]) {
        let [first, second] = planes else { return };
        let pairs = first.iter_mut().zip(second);
        match self {
            Self::Independent(_) => {}
            Self::LeftSide => pairs.for_each(|(left, side)| *side = left.wrapping_sub(*side)),
            Self::SideRight => pairs.for_each(|(side, right)| *side = side.wrapping_add(*right)),
            Self::MidSide => pairs.for_each(|(mid, side)| {
                let sum = (*mid << 1) | (*side & 1);
                (*mid, *side) = (sum.wrapping_add(*side) >> 1, sum.wrapping_sub(*side) >> 1);
            }),
        }
    }
}

#[cfg(test)]
mod tests;
