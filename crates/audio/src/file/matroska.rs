//! Matroska and WebM: facts that Symphonia does not pass on, read by walking over the elements of a file.
//!
//! Clusters are walked over and not read, so that a film of gigabytes costs some hundred seeks.

use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;

/// First bytes of each Matroska file.
pub(super) const MAGIC: [u8; 4] = [0x1a, 0x45, 0xdf, 0xa3];

/// Largest number of elements that are walked over at one level, because a broken file may have billions.
const ELEMENTS_MAX: usize = 1 << 16;

/// Largest element that is read into memory, in bytes.
const BODY_MAX: u64 = 1 << 20;

mod id {
    //! Names of the elements, as they stand in files.
    pub(super) const SEGMENT: u32 = 0x1853_8067;
    pub(super) const TRACKS: u32 = 0x1654_ae6b;
    pub(super) const TRACK: u32 = 0xae;
    pub(super) const TRACK_NUMBER: u32 = 0xd7;
    pub(super) const TRACK_TYPE: u32 = 0x83;
    pub(super) const CODEC: u32 = 0x86;
    pub(super) const CODEC_DELAY: u32 = 0x56aa;
    pub(super) const CLUSTER: u32 = 0x1f43_b675;
    pub(super) const BLOCK_GROUP: u32 = 0xa0;
    pub(super) const BLOCK: u32 = 0xa1;
    pub(super) const DISCARD_PADDING: u32 = 0x75a2;
}

/// Type of the tracks that are audio.
const AUDIO: u64 = 2;

/// Facts about a Matroska file.
#[derive(Debug, Default)]
pub(super) struct Matroska {
    tracks: Vec<MatroskaTrack>,
    /// Track of the last block that has padding, and the length of the padding in nanoseconds.
    padding: Option<(u64, u64)>,
    /// Whether the file is shorter than its header says.
    pub(super) is_cut: bool,
}

#[derive(Debug, Default)]
struct MatroskaTrack {
    number: u64,
    kind: u64,
    codec: String,
    /// Length of what the encoder put before the sound, in nanoseconds.
    delay: u64,
}

impl Matroska {
    /// Walks over a file. Where it is broken, the facts behind stay unknown.
    pub(super) fn read(file: &mut (impl Read + Seek)) -> io::Result<Self> {
        let mut found = Self::default();
        let size = file.seek(SeekFrom::End(0))?;
        let Some(segment) = elements(file, 0..size)?.into_iter().find(|element| element.id == id::SEGMENT) else {
            return Ok(found);
        };
        found.is_cut = segment.end.is_some_and(|end| end > size);
        let mut cluster = None;
        for element in elements(file, segment.body..segment.end.map_or(size, |end| end.min(size)))? {
            match element.id {
                id::TRACKS => found.tracks = element.body(file)?.map_or(Ok(Vec::new()), |body| tracks(&body))?,
                id::CLUSTER => cluster = Some(element.body..element.end.map_or(size, |end| end.min(size))),
                _ => {}
            }
        }
        if let Some(cluster) = cluster {
            found.padding = padding(file, cluster)?;
        }
        Ok(found)
    }

    /// Returns the name of the codec of the first audio track.
    pub(super) fn audio_codec(&self) -> Option<&str> {
        self.tracks.iter().find(|track| track.kind == AUDIO).map(|track| track.codec.as_str())
    }

    /// Returns the lengths of what the encoder put before and behind the sound of a track, in nanoseconds.
    pub(super) fn around(&self, number: u32) -> (u64, u64) {
        let number = u64::from(number);
        let delay = self.tracks.iter().find(|track| track.number == number).map_or(0, |track| track.delay);
        (delay, self.padding.filter(|padding| padding.0 == number).map_or(0, |padding| padding.1))
    }
}

fn tracks(bytes: &[u8]) -> io::Result<Vec<MatroskaTrack>> {
    let mut tracks = Vec::new();
    for entry in children(bytes)?.into_iter().filter(|(id, _)| *id == id::TRACK) {
        let mut track = MatroskaTrack::default();
        for (id, body) in children(entry.1)? {
            match id {
                id::TRACK_NUMBER => track.number = number(body),
                id::TRACK_TYPE => track.kind = number(body),
                id::CODEC => track.codec = String::from_utf8_lossy(body).trim_end_matches('\0').into(),
                id::CODEC_DELAY => track.delay = number(body),
                _ => {}
            }
        }
        tracks.push(track);
    }
    Ok(tracks)
}

/// Finds the padding behind the last block of a cluster that has one, with the number of its track.
fn padding(file: &mut (impl Read + Seek), cluster: Range<u64>) -> io::Result<Option<(u64, u64)>> {
    let mut found = None;
    for group in elements(file, cluster)?.into_iter().filter(|element| element.id == id::BLOCK_GROUP) {
        let Some(body) = group.body(file)? else { continue };
        let parts = children(&body)?;
        let part = |wanted| parts.iter().find(|(id, _)| *id == wanted).map(|(_, body)| *body);
        let (Some(block), Some(padding)) = (part(id::BLOCK), part(id::DISCARD_PADDING)) else { continue };
        // Negative padding would be cut from the front.
        let is_behind = padding.first().is_some_and(|first| first & 0x80 == 0);
        if let Some((track, _)) = variable(block).filter(|_| is_behind) {
            found = Some((track, number(padding)));
        }
    }
    Ok(found)
}

/// Element of a file.
struct Element {
    id: u32,
    /// Position of its first byte behind the header.
    body: u64,
    /// Position behind its last byte; `None` if its header leaves the size open, as a live recording does.
    end: Option<u64>,
}

impl Element {
    /// Reads the bytes of an element; `None` if they are too many.
    fn body(&self, file: &mut (impl Read + Seek)) -> io::Result<Option<Vec<u8>>> {
        let Some(length) = self.end.map(|end| end - self.body).filter(|&length| length <= BODY_MAX) else {
            return Ok(None);
        };
        file.seek(SeekFrom::Start(self.body))?;
        let mut bytes = Vec::new();
        file.take(length).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }
}

/// Lists the elements in a range of a file. An element without a size is the last.
fn elements(file: &mut (impl Read + Seek), range: Range<u64>) -> io::Result<Vec<Element>> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end && found.len() < ELEMENTS_MAX {
        file.seek(SeekFrom::Start(at))?;
        let mut header = Vec::with_capacity(12);
        file.by_ref().take(12.min(range.end - at)).read_to_end(&mut header)?;
        let Some((id, id_length)) = name(&header) else { break };
        let Some((size, size_length)) = variable(&header[id_length..]) else { break };
        let body = at + (id_length + size_length) as u64;
        let is_open = size == (1 << (7 * size_length)) - 1;
        let end = if is_open { None } else { body.checked_add(size) };
        found.push(Element { id, body, end });
        let Some(next) = end else { break };
        at = next;
    }
    Ok(found)
}

/// Lists the names and bytes of the elements in `bytes`, without those that are cut.
fn children(bytes: &[u8]) -> io::Result<Vec<(u32, &[u8])>> {
    let list = elements(&mut Cursor::new(bytes), 0..bytes.len() as u64)?;
    let whole = |element: Element| Some((element.id, bytes.get(element.body as usize..element.end? as usize)?));
    Ok(list.into_iter().filter_map(whole).collect())
}

/// Reads the name of an element, with the number of its bytes.
fn name(bytes: &[u8]) -> Option<(u32, usize)> {
    let length = bytes.first()?.leading_zeros() as usize + 1;
    let id = bytes.get(..length).filter(|_| length <= 4)?;
    Some((number(id) as u32, length))
}

/// Reads a number whose first bits give the number of its bytes.
fn variable(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = bytes.first()?.leading_zeros() as usize + 1;
    let value = bytes.get(..length).filter(|_| length <= 8)?;
    Some((number(value) & ((1 << (7 * length)) - 1), length))
}

/// Reads a number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}
