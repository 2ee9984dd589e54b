//! The file of a fingerprint: JSON lines, one for each utterance, which all threads write and read.

use std::borrow::Cow;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

use plimsoll_core::{SampleId, Seconds};
use serde::{Deserialize, Serialize};

use crate::audio_identity::AudioIdentity;
use crate::table::{Piece, PieceRow, Record};

/// Number of bytes of a piece of the file, besides its last line.
const PIECE_BYTES: u64 = 1 << 20;

/// Utterance of a fingerprint, a line of its file.
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    id: Cow<'a, str>,
    /// Hash of everything besides the id, in hexadecimal.
    sum: Cow<'a, str>,
    held_out: bool,
    /// Identity of the audio; absent in the files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audio: Option<Cow<'a, str>>,
}

/// Lines of a part of the file, read by one thread.
#[derive(Debug, Default)]
pub(super) struct LinesPiece {
    /// Utterances with nothing but their ids.
    pub(super) piece: Piece,
    pub(super) sums: Vec<u64>,
    pub(super) held_out: Vec<bool>,
    pub(super) audio: Vec<AudioIdentity>,
}

/// Reads some pieces of whole lines, two for each thread; none at the end of the file.
pub(super) fn read_pieces(lines: &mut impl BufRead) -> io::Result<Vec<Vec<u8>>> {
    let mut pieces = Vec::new();
    while pieces.len() < 2 * rayon::current_num_threads() {
        let mut piece = Vec::new();
        lines.take(PIECE_BYTES).read_to_end(&mut piece)?;
        lines.read_until(b'\n', &mut piece)?;
        if piece.is_empty() {
            break;
        }
        pieces.push(piece);
    }
    Ok(pieces)
}

impl LinesPiece {
    /// Reads whole lines; `None` if one of them is something else.
    pub(super) fn read(lines: &[u8]) -> Option<Self> {
        let mut found = Self::default();
        let voice = found.piece.names.voice(None, None);
        for line in simdutf8::basic::from_utf8(lines).ok()?.split_inclusive('\n') {
            let Line { id, sum, held_out, audio } = usual_line(line).or_else(|| any_line(line))?;
            let at = u32::try_from(found.piece.records.len()).ok()?;
            let offset = Seconds(0.0);
            let record = Record { id: &id, audio: Path::new(""), offset, text: "", rate: None, resampled: None };
            record.write(&mut found.piece.records);
            found.piece.rows.push(PieceRow { at, sample: SampleId::from_name(&id), duration: 0.0, voice });
            found.sums.push(sum);
            found.held_out.push(held_out);
            found.audio.extend(audio);
        }
        Some(found)
    }
}

/// What stands in a line around the id, the sum and the side.
const BEFORE_ID: &str = "{\"id\":\"";
const BEFORE_SUM: &str = "\",\"sum\":\"";
const BEFORE_SIDE: &str = "\",\"held_out\":";
const BEFORE_AUDIO: &str = ",\"audio\":\"";

/// What a line says of an utterance.
pub(super) struct Line<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) sum: u64,
    pub(super) held_out: bool,
    pub(super) audio: Option<AudioIdentity>,
}

/// Whether JSON writes a text as it is.
fn is_plain(text: &str) -> bool {
    text.bytes().fold(true, |plain, byte| plain & (byte >= 0x20) & (byte != b'"') & (byte != b'\\'))
}

/// Appends a line.
pub(super) fn write_line(lines: &mut Vec<u8>, line: &Line<'_>) -> io::Result<()> {
    let (id, held_out, audio) = (&*line.id, line.held_out, line.audio);
    let sum = hexadecimal(line.sum);
    if is_plain(id) {
        let side = if held_out { "true" } else { "false" };
        let parts: [&[u8]; 6] =
            [BEFORE_ID.as_bytes(), id.as_bytes(), BEFORE_SUM.as_bytes(), &sum, BEFORE_SIDE.as_bytes(), side.as_bytes()];
        parts.into_iter().for_each(|part| lines.extend_from_slice(part));
        if let Some(audio) = audio {
            write!(lines, "{BEFORE_AUDIO}{audio}\"")?;
        }
        lines.push(b'}');
    } else {
        let sum = String::from_utf8_lossy(&sum);
        let audio = audio.map(|audio| audio.to_string().into());
        serde_json::to_writer(&mut *lines, &Entry { id: id.into(), sum, held_out, audio })?;
    }
    lines.push(b'\n');
    Ok(())
}

/// Reads a line that is written as [`write_line`] writes most; `None` for any other line.
fn usual_line(line: &str) -> Option<Line<'_>> {
    let line = line.strip_prefix(BEFORE_ID)?.strip_suffix("}\n")?;
    let (line, audio) = match line.strip_suffix('"') {
        Some(line) => {
            let (line, audio) = line.rsplit_once(BEFORE_AUDIO)?;
            (line, Some(AudioIdentity::from_text(audio)?))
        }
        None => (line, None),
    };
    let (line, held_out) = match line.strip_suffix("false") {
        Some(line) => (line, false),
        None => (line.strip_suffix("true")?, true),
    };
    let line = line.strip_suffix(BEFORE_SIDE)?;
    let (line, digits) = line.split_at_checked(line.len().checked_sub(16)?)?;
    let id = line.strip_suffix(BEFORE_SUM).filter(|id| is_plain(id))?;
    Some(Line { id: id.into(), sum: number(digits)?, held_out, audio })
}

/// Reads any line.
fn any_line(line: &str) -> Option<Line<'_>> {
    let Entry { id, sum, held_out, audio } = serde_json::from_str(line).ok()?;
    let audio = audio.and_then(|audio| AudioIdentity::from_text(&audio));
    Some(Line { id, sum: number(&sum)?, held_out, audio })
}

/// Reads sixteen hexadecimal digits.
fn number(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok().filter(|number| digits.as_bytes() == hexadecimal(*number))
}

/// Writes a number in sixteen hexadecimal digits.
pub(super) fn hexadecimal(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    for (place, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15];
    }
    digits
}
