//! MP4, M4A and QuickTime: which track has the sound, and which part of it is meant to be heard.
//!
//! Symphonia reads the sound but knows no edit lists, and reads all tracks, also those of video. So this module reads the
//! index of a file first, and hides all other tracks from Symphonia.

use std::io::{self, Read, Seek, SeekFrom};

use symphonia::core::io::MediaSource;

use super::AudioReader;
use super::movie_pcm::{self, MoviePcm, SampleTables};

/// Largest index that is read into memory, in bytes. That of a film of ten hours has 10 MB.
const INDEX_MAX: u64 = 1 << 28;

/// Largest number of boxes that are walked over at one level, because a broken file may have billions.
const BOXES_MAX: usize = 1 << 16;

/// Type of a box that readers skip.
const HIDDEN: [u8; 4] = *b"free";

/// Returns whether a file begins as MP4 or QuickTime.
pub(super) fn may_begin_with(first: &[u8]) -> bool {
    matches!(first.get(4..8), Some(b"ftyp" | b"moov" | b"mdat" | b"wide" | b"free" | b"skip" | b"pnot"))
}

/// Index of a movie with one audio track.
#[derive(Debug)]
pub(super) struct Movie {
    /// Type of its samples, such as `mp4a`.
    pub(super) codec: [u8; 4],
    /// Whether the index lies in parts between the sound, as in a live stream.
    pub(super) is_fragmented: bool,
    /// Length of each packet but the last, in units of the track; `None` where lengths differ. Phones write the times of
    /// their clock, which jitter.
    pub(super) packet: Option<u32>,
    /// Whether the file is shorter than its boxes say.
    pub(super) is_cut: bool,
    /// Part of the track that is heard.
    pub(super) edit: Edit,
    /// Uncompressed sound, of which only the part that is heard.
    pub(super) pcm: Option<MoviePcm>,
    /// Positions of the types of boxes to hide.
    hidden: Vec<u64>,
}

/// Part of a track that is heard, in units of the track.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Edit {
    /// Units in a second.
    pub(super) timescale: u32,
    /// First unit that is heard. What lies before was added by the encoder.
    pub(super) start: u64,
    /// Length in seconds; `None` up to the end.
    pub(super) seconds: Option<f64>,
    /// Largest error of the length in seconds.
    pub(super) tolerance: f64,
}

/// Reason why a movie cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MovieProblem {
    /// The index is missing.
    NoIndex,
    /// No track is audio.
    NoSound,
    /// The samples are encrypted.
    Protected,
    /// The sound is in a form that cannot be read.
    Codec(String),
}

impl Movie {
    /// Reads the index of a file.
    pub(super) fn read(file: &mut AudioReader) -> io::Result<Result<Self, MovieProblem>> {
        let Some((bytes, at)) = index(file)? else { return Ok(Err(MovieProblem::NoIndex)) };
        let mut movie = Self::from_index(&bytes, at);
        if let Ok(movie) = &mut movie {
            // The parts of a live stream are many, and each is read on its own.
            movie.is_cut = !movie.is_fragmented && is_cut(file, at + bytes.len() as u64)?;
        }
        Ok(movie)
    }

    /// Reads an index that lies at position `at` of its file.
    fn from_index(bytes: &[u8], at: u64) -> Result<Self, MovieProblem> {
        let boxes = boxes(bytes, at);
        let timescale = child(&boxes, b"mvhd").and_then(Part::timescale).unwrap_or(1_000);
        let tracks: Vec<Track<'_>> = boxes.iter().filter(|part| part.kind == *b"trak").map(Track::new).collect();
        let sounds = || tracks.iter().filter(|track| track.is_audio);
        let track = sounds().find(|track| track.is_enabled).or(sounds().next()).ok_or(MovieProblem::NoSound)?;
        if matches!(&track.codec, b"enca" | b"drms") {
            return Err(MovieProblem::Protected);
        }
        if let Some(name) = unread_codec(track.codec) {
            return Err(MovieProblem::Codec(name));
        }
        let mut hidden: Vec<u64> = tracks.iter().filter(|other| other.at != track.at).map(|other| other.at).collect();
        let fragments = child(&boxes, b"mvex");
        let others = fragments.iter().flat_map(|part| part.children()).filter(|part| part.kind == *b"trex");
        hidden.extend(others.filter(|part| part.number(4) != Some(track.id)).map(|part| part.at));
        let mut edit = track.edit(timescale)?;
        if edit.start == 0
            && let Some((start, length)) = gapless_comment(bytes)
        {
            edit.start = start;
            edit.seconds = Some(length as f64 / f64::from(edit.timescale));
        }
        let packet = track.packet();
        let pcm = match movie_pcm::is_pcm(track.codec) {
            true => Some(track.pcm(&edit, fragments.is_some())?),
            false => None,
        };
        Ok(Self { pcm, codec: track.codec, is_fragmented: fragments.is_some(), packet, is_cut: false, edit, hidden })
    }

    /// Returns a reader of the file in which the other tracks are hidden.
    pub(super) fn only_sound(&self, file: AudioReader) -> OnlySound {
        OnlySound { file, hidden: self.hidden.clone(), position: 0 }
    }
}

/// Names a type of samples that is not read; `None` for one that is.
fn unread_codec(codec: [u8; 4]) -> Option<String> {
    Some(match &codec {
        b"mp4a" | b"alac" | b"Opus" | b"fLaC" | b".mp3" => return None,
        b"ac-3" => "AC-3 (Dolby Digital)".into(),
        b"ec-3" => "E-AC-3 (Dolby Digital Plus)".into(),
        b"dtsc" | b"dtse" | b"dtsh" | b"dtsl" | b"dtsx" => "DTS".into(),
        b"samr" => "AMR".into(),
        b"sawb" | b"sawp" => "AMR-WB".into(),
        other if movie_pcm::is_pcm(*other) => return None,
        b"mha1" | b"mhm1" => "MPEG-H".into(),
        other => format!("the codec `{}`", String::from_utf8_lossy(other).trim()),
    })
}

/// Reads the index of a file, with its position.
fn index(file: &mut AudioReader) -> io::Result<Option<(Vec<u8>, u64)>> {
    let size = file.seek(SeekFrom::End(0))?;
    let mut at = 0;
    for _ in 0..BOXES_MAX {
        file.seek(SeekFrom::Start(at))?;
        let mut header = Vec::with_capacity(16);
        file.by_ref().take(16).read_to_end(&mut header)?;
        let Some((kind, length, length_of_header)) = header_of(&header, size - at) else { return Ok(None) };
        let body = length - length_of_header;
        if kind == *b"moov" && body <= INDEX_MAX {
            file.seek(SeekFrom::Start(at + length_of_header))?;
            let mut bytes = Vec::new();
            file.by_ref().take(body).read_to_end(&mut bytes)?;
            return Ok((bytes.len() as u64 == body).then_some((bytes, at + length_of_header)));
        }
        let Some(next) = at.checked_add(length).filter(|&next| next < size) else { return Ok(None) };
        at = next;
    }
    Ok(None)
}

/// Returns whether a box from position `at` on ends behind the file.
fn is_cut(file: &mut AudioReader, mut at: u64) -> io::Result<bool> {
    let size = file.byte_len();
    for _ in 0..BOXES_MAX {
        file.seek(SeekFrom::Start(at))?;
        let mut header = Vec::with_capacity(16);
        file.by_ref().take(16).read_to_end(&mut header)?;
        let Some((_, length, _)) = header_of(&header, size.saturating_sub(at)) else { return Ok(false) };
        at = at.saturating_add(length);
        if at >= size {
            break;
        }
    }
    Ok(at > size)
}

/// Reads the header of a box: its type, its length with the header, and the length of the header. `left` is the length up
/// to the end of what is around it.
fn header_of(bytes: &[u8], left: u64) -> Option<([u8; 4], u64, u64)> {
    let short = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?);
    let kind = bytes.get(4..8)?.try_into().ok()?;
    let (length, header) = match short {
        0 => (left, 8),
        1 => (u64::from_be_bytes(bytes.get(8..16)?.try_into().ok()?), 16),
        _ => (short.into(), 8),
    };
    (length >= header).then_some((kind, length, header))
}

/// Box of an index.
struct Part<'a> {
    kind: [u8; 4],
    /// Position of its type in the file.
    at: u64,
    body: &'a [u8],
    /// Position of its body in the file.
    body_at: u64,
}

impl<'a> Part<'a> {
    fn children(&self) -> Vec<Part<'a>> {
        boxes(self.body, self.body_at)
    }

    /// Follows a path of types through the boxes inside.
    fn find(&self, path: &[&[u8; 4]]) -> Option<Part<'a>> {
        let [first, rest @ ..] = path else { return None };
        let found = self.children().into_iter().find(|part| part.kind == **first)?;
        if rest.is_empty() { Some(found) } else { found.find(rest) }
    }

    /// Reads a number of 32 bits at `place`.
    fn number(&self, place: usize) -> Option<u32> {
        Some(u32::from_be_bytes(self.body.get(place..place + 4)?.try_into().ok()?))
    }

    /// Reads a number of 32 bits, or of 64 bits if `is_long`.
    fn sized(&self, place: usize, is_long: bool) -> Option<u64> {
        let high = if is_long { u64::from(self.number(place)?) << 32 } else { 0 };
        Some(high | u64::from(self.number(place + if is_long { 4 } else { 0 })?))
    }

    fn is_long(&self) -> bool {
        self.body.first() == Some(&1)
    }

    /// Reads the units in a second from the header of a movie or a track.
    fn timescale(&self) -> Option<u32> {
        self.number(if self.is_long() { 20 } else { 12 }).filter(|&scale| scale > 0)
    }
}

/// Lists the boxes in `bytes`, which lie at position `at` of the file. A broken box is the end.
fn boxes(bytes: &[u8], at: u64) -> Vec<Part<'_>> {
    let mut found = Vec::new();
    let mut place = 0;
    while let Some(rest) = bytes.get(place..).filter(|rest| !rest.is_empty() && found.len() < BOXES_MAX) {
        let Some((kind, length, header)) = header_of(rest, rest.len() as u64) else { break };
        let Some(body) = usize::try_from(length).ok().and_then(|length| rest.get(header as usize..length)) else {
            break;
        };
        let start = at + place as u64;
        found.push(Part { kind, at: start + 4, body, body_at: start + header });
        place += length as usize;
    }
    found
}

fn child<'a, 'b>(boxes: &'b [Part<'a>], kind: &[u8; 4]) -> Option<&'b Part<'a>> {
    boxes.iter().find(|part| part.kind == *kind)
}

/// Track of a movie.
struct Track<'a> {
    part: &'a Part<'a>,
    /// Position of its type in the file.
    at: u64,
    id: u32,
    is_enabled: bool,
    is_audio: bool,
    codec: [u8; 4],
}

impl<'a> Track<'a> {
    fn new(part: &'a Part<'a>) -> Self {
        let header = part.find(&[b"tkhd"]);
        let id = header.as_ref().and_then(|header| header.number(if header.is_long() { 20 } else { 12 }));
        let is_enabled = header.is_none_or(|header| header.number(0).is_none_or(|flags| flags & 1 == 1));
        let handler = part.find(&[b"mdia", b"hdlr"]);
        let is_audio = handler.is_some_and(|handler| handler.body.get(8..12) == Some(b"soun"));
        let samples = part.find(&[b"mdia", b"minf", b"stbl", b"stsd"]);
        let codec = samples.and_then(|samples| samples.body.get(12..16)?.try_into().ok()).unwrap_or_default();
        Self { part, at: part.at, id: id.unwrap_or(0), is_enabled, is_audio, codec }
    }

    /// Reads the length of the packets, if all but the last have the same.
    fn packet(&self) -> Option<u32> {
        let table = self.part.find(&[b"mdia", b"minf", b"stbl", b"stts"])?;
        let (count, length) = (table.number(4)?, table.number(12)?);
        let is_last = |place| table.number(place) == Some(1);
        // Pairs of a number of packets and their length.
        (count == 1 || count == 2 && is_last(16)).then_some(length)
    }

    /// Reads where the uncompressed sound lies. `edit` is the part that is heard.
    fn pcm(&self, edit: &Edit, is_fragmented: bool) -> Result<MoviePcm, MovieProblem> {
        let table = |kind| self.part.find(&[b"mdia", b"minf", b"stbl", kind]).map(|part| part.body);
        let tables = || {
            let narrow = table(b"stco");
            Some(SampleTables {
                form: table(b"stsd")?,
                sizes: table(b"stsz")?,
                runs: table(b"stsc")?,
                places: narrow.or_else(|| table(b"co64"))?,
                is_wide: narrow.is_none(),
            })
        };
        let unread = |what: &str| {
            let codec = String::from_utf8_lossy(&self.codec);
            MovieProblem::Codec(format!("uncompressed sound of the form `{}`{what}", codec.trim()))
        };
        if is_fragmented {
            return Err(unread(" in a movie whose index lies in parts"));
        }
        let mut pcm = tables().and_then(|tables| MoviePcm::read(&tables)).ok_or_else(|| unread(" in a movie"))?;
        let frames = |seconds: f64| (seconds * f64::from(pcm.rate)).round();
        let start = frames(edit.start as f64 / f64::from(edit.timescale)) as u64;
        let rest = pcm.frames().saturating_sub(start) as f64;
        // A length that is rounded would cut some samples.
        let error = 1.5 * edit.tolerance * f64::from(pcm.rate);
        let length = edit.seconds.map(frames).filter(|length| length + error < rest);
        pcm.narrow(start, length.map(|length| length as u64));
        Ok(pcm)
    }

    /// Reads the edit list. `movie_timescale` is the unit of its lengths.
    fn edit(&self, movie_timescale: u32) -> Result<Edit, MovieProblem> {
        let timescale = self.part.find(&[b"mdia", b"mdhd"]).and_then(|header| header.timescale()).unwrap_or(1);
        let whole = Edit { timescale, ..Edit::default() };
        let Some(list) = self.part.find(&[b"edts", b"elst"]) else { return Ok(whole) };
        let is_long = list.is_long();
        let (entry, half) = if is_long { (20, 8) } else { (12, 4) };
        let count = (list.number(4).unwrap_or(0) as usize).min(list.body.len() / entry);
        let mut edits = (0..count).filter_map(|index| {
            let place = 8 + index * entry;
            Some((list.sized(place, is_long)?, list.sized(place + half, is_long)?))
        });
        // An entry of all ones waits: the sound begins later than the picture.
        let pause = if is_long { u64::MAX } else { u32::MAX.into() };
        let mut heard = edits.by_ref().filter(|&(_, start)| start != pause);
        let Some((length, start)) = heard.next() else { return Ok(whole) };
        if heard.next().is_some() {
            return Err(MovieProblem::Codec("a movie that joins several pieces of its sound".into()));
        }
        let scale = f64::from(movie_timescale);
        let seconds = (length > 0).then_some(length as f64 / scale);
        Ok(Edit { start, seconds, tolerance: 1.0 / scale, ..whole })
    }
}

/// Finds what iTunes writes instead of an edit list: the number of samples before the sound, and its length.
fn gapless_comment(index: &[u8]) -> Option<(u64, u64)> {
    let name = b"iTunSMPB";
    let place = index.windows(name.len()).position(|window| window == name)?;
    let behind = index.get(place..index.len().min(place + 256))?;
    let data = behind.windows(4).position(|window| window == b"data")?;
    let text = String::from_utf8_lossy(behind.get(data + 12..)?);
    let mut numbers = text.split_whitespace().map_while(|word| u64::from_str_radix(word, 16).ok()).skip(1);
    let (start, _, length) = (numbers.next()?, numbers.next()?, numbers.next()?);
    (length > 0 && length < 1 << 48 && start < 1 << 16).then_some((start, length))
}

/// File of a movie whose other tracks are hidden: the types of their boxes read as `free`.
pub(super) struct OnlySound {
    file: AudioReader,
    hidden: Vec<u64>,
    position: u64,
}

impl Read for OnlySound {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        let range = self.position..self.position + count as u64;
        for &at in &self.hidden {
            for (index, value) in HIDDEN.into_iter().enumerate() {
                let place = at + index as u64;
                if range.contains(&place) {
                    buffer[(place - range.start) as usize] = value;
                }
            }
        }
        self.position = range.end;
        Ok(count)
    }
}

impl Seek for OnlySound {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = self.file.seek(to)?;
        Ok(self.position)
    }
}

impl MediaSource for OnlySound {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.file.byte_len())
    }
}
