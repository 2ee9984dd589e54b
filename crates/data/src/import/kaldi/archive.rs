//! Finds the audio of a Kaldi archive: where it begins and ends behind a position that `wav.scp` gives.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use crate::issue::IssueKind;
use plimsoll_audio::{AudioPart, AudioSource};
use plimsoll_core::open_regular_file;

/// Position in an archive, with the row of `wav.scp` that names it.
struct Place<'a> {
    row: usize,
    key: &'a str,
    offset: u64,
}

/// Finds the audio of those rows that name a position in an archive. `rows` gives the number, the key and the path of
/// each row. Returns the position and the length of the audio for each row by its number.
///
/// An archive that cannot be opened keeps its path, and the check of the audio files reports it.
pub(super) fn locate<'a>(
    rows: impl Iterator<Item = (usize, &'a str, PathBuf)>,
) -> HashMap<usize, Result<AudioPart, IssueKind>> {
    let mut archives: HashMap<PathBuf, Vec<Place<'a>>> = HashMap::new();
    for (row, key, path) in rows {
        let AudioSource { file, part, .. } = AudioSource::from_path(path);
        if let Some(AudioPart::Bytes { offset, length: None }) = part {
            archives.entry(file).or_default().push(Place { row, key, offset });
        }
    }
    let mut found = HashMap::new();
    for (file, mut places) in archives {
        let Ok(mut archive) = open_regular_file(&file) else { continue };
        places.sort_by_key(|place| place.offset);
        // The key of an entry and a blank stand before its position.
        let starts: Vec<u64> =
            places.iter().map(|place| place.offset.saturating_sub(place.key.len() as u64 + 1)).collect();
        for (n, place) in places.iter().enumerate() {
            let next = starts[n + 1..].iter().copied().find(|&start| start > place.offset);
            let audio = match audio_at(&mut archive, place.offset, next) {
                Ok(Ok((offset, length))) => Ok(AudioPart::Bytes { offset, length }),
                Ok(Err(found)) => Err(IssueKind::NotAudioInArchive { file: file.clone(), offset: place.offset, found }),
                Err(error) => Err(IssueKind::UnreadableAudio(format!("cannot read {}: {error}", file.display()))),
            };
            found.insert(place.row, audio);
        }
    }
    found
}

/// Position and length of audio in an archive, or what was found instead.
type Found = Result<(u64, Option<u64>), &'static str>;

/// Finds the audio at `offset` of an archive. `next` is the start of the next known entry.
fn audio_at(archive: &mut File, offset: u64, next: Option<u64>) -> io::Result<Found> {
    // A marker of five bytes, a byte with the width of the length, and up to eight bytes of it.
    let mut bytes = Vec::with_capacity(14);
    archive.seek(SeekFrom::Start(offset))?;
    archive.take(14).read_to_end(&mut bytes)?;
    let to_next = || next.map(|next| next - offset);
    Ok(match &*bytes {
        // `take` of the archive ends here; the check says what is missing.
        [] => Ok((offset, None)),
        [b'R', b'I', b'F', b'F', a, b, c, d, ..] => {
            let length = u64::from(u32::from_le_bytes([*a, *b, *c, *d])) + 8;
            // Without a real length in its header, the entry ends before the next.
            let is_real = length > 8 && next.is_none_or(|next| offset + length <= next) && length < 0x7fff_0000;
            Ok((offset, if is_real { Some(length) } else { to_next() }))
        }
        // Written by kaldiio: a file in any format, with its length before it.
        [b'A', b'U', b'D', b'I', b'O', width @ 1..=8, length @ ..] => {
            let width = usize::from(*width);
            let digits = length.get(..width).unwrap_or_default();
            let length = digits.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
            Ok((offset + 6 + width as u64, Some(length)))
        }
        [b'N', b'P', b'Y', ..] | [b'P', b'K', b'L', ..] => Err("an array of Python"),
        [0, b'B', ..] => Err("a matrix, as of features"),
        _ => Ok((offset, to_next())),
    })
}
