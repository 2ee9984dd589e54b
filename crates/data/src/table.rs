//! Table of utterances: the numbers that plan a run in memory, and all texts where they need no memory.
//!
//! A list of ten million utterances has two gigabytes of ids, paths and texts. A run needs them one after the other at its
//! start, and later only those of the current batch.

mod blob;
mod names;
mod saved;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use plimsoll_core::{SampleId, Seconds};

use blob::{Blob, Parts, Position, within, write_optional, write_part};
pub(crate) use names::{Names, Voice};

/// Index of an utterance in a table.
pub(crate) type Row = u32;

/// Fields of an utterance that are not numbers of the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) id: &'a str,
    pub(crate) audio: &'a Path,
    pub(crate) offset: Seconds,
    pub(crate) text: &'a str,
    pub(crate) rate: Option<u32>,
    pub(crate) resampled: Option<u32>,
}

impl<'a> Record<'a> {
    /// Appends the record to `bytes`.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        let offset = self.offset.0.to_bits();
        bytes
            .push(u8::from(offset != 0) | u8::from(self.rate.is_some()) << 1 | u8::from(self.resampled.is_some()) << 2);
        if offset != 0 {
            bytes.extend(offset.to_le_bytes());
        }
        write_optional(bytes, self.rate);
        write_optional(bytes, self.resampled);
        write_part(bytes, self.id.as_bytes());
        write_part(bytes, self.audio.as_os_str().as_bytes());
        write_part(bytes, self.text.as_bytes());
    }

    /// Returns the id, the path and the text of a record: what stands behind the numbers.
    fn parts(bytes: &'a [u8]) -> Parts<'a> {
        let mut parts = Parts(bytes);
        let flags = usize::from(parts.byte());
        parts.bytes(8 * (flags & 1) + 4 * (flags >> 1 & 1) + 4 * (flags >> 2 & 1));
        parts
    }

    fn read(bytes: &'a [u8]) -> Self {
        let mut parts = Parts(bytes);
        let flags = parts.byte();
        let offset = match flags & 1 {
            0 => 0.0,
            _ => f64::from_bits(u64::from_le_bytes(parts.bytes(8).try_into().expect("eight bytes"))),
        };
        let mut optional =
            |flag: u8| (flags & flag != 0).then(|| u32::from_le_bytes(parts.bytes(4).try_into().expect("four bytes")));
        let (rate, resampled) = (optional(2), optional(4));
        let (id, audio, text) = (parts.text(), parts.part(), parts.text());
        Self { id, audio: Path::new(OsStr::from_bytes(audio)), offset: Seconds(offset), text, rate, resampled }
    }
}

/// Utterances of a list, which only grows. Without a duration, an utterance lasts to the end of its audio: then its
/// duration is NaN.
#[derive(Debug, Default)]
pub(crate) struct Table {
    records: Blob,
    positions: Vec<Position>,
    samples: Vec<SampleId>,
    durations: Vec<f64>,
    voices: Vec<Voice>,
    names: Names,
    /// Whether a record gives a sample rate.
    has_rates: bool,
}

/// Many utterances of one piece of a list, made by a thread.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// Records, one after the other.
    pub(crate) records: Vec<u8>,
    /// Utterances in order.
    pub(crate) rows: Vec<PieceRow>,
    pub(crate) names: Names,
}

/// Utterance of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceRow {
    /// Place of the record in the piece.
    pub(crate) at: u32,
    pub(crate) sample: SampleId,
    /// Duration in seconds; NaN if it is not known.
    pub(crate) duration: f64,
    pub(crate) voice: Voice,
}

/// A piece whose records are in the table, while its utterances are not.
#[derive(Debug)]
pub(crate) struct AddedPiece {
    start: Position,
    voices: Vec<Voice>,
}

impl Table {
    /// Returns the number of utterances.
    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Makes room for a number of utterances.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.positions.reserve_exact(count);
        self.samples.reserve_exact(count);
        self.durations.reserve_exact(count);
        self.voices.reserve_exact(count);
    }

    /// Appends an utterance.
    ///
    /// # Panics
    /// With more than four billion utterances.
    pub(crate) fn push(
        &mut self,
        record: &Record<'_>,
        duration: Option<Seconds>,
        speaker: Option<&str>,
        language: Option<&str>,
    ) -> Row {
        let position = self.records.append(|bytes| record.write(bytes));
        self.has_rates |= record.rate.is_some() || record.resampled.is_some();
        let voice = self.names.voice(speaker, language);
        self.push_row(position, SampleId::from_name(record.id), duration.map_or(f64::NAN, |time| time.0), voice)
    }

    fn push_row(&mut self, position: Position, sample: SampleId, duration: f64, voice: Voice) -> Row {
        let row = Row::try_from(self.len()).expect("a data set holds at most four billion samples");
        self.positions.push(position);
        self.samples.push(sample);
        self.durations.push(duration);
        self.voices.push(voice);
        row
    }

    /// Returns whether a record may give a sample rate, of its file or of a reduced one.
    pub(crate) fn has_rates(&self) -> bool {
        self.has_rates
    }

    /// Adds the records of a piece, none of which gives a sample rate. Its utterances follow with
    /// [`push_piece_row`](Self::push_piece_row).
    pub(crate) fn add_piece(&mut self, records: Vec<u8>, names: &Names) -> AddedPiece {
        let voices = self.names.add_all(names);
        AddedPiece { start: self.records.push_block(records), voices }
    }

    /// Appends an utterance of a piece.
    pub(crate) fn push_piece_row(&mut self, piece: &AddedPiece, row: &PieceRow) -> Row {
        let voice = piece.voices[row.voice as usize];
        self.push_row(within(piece.start, row.at), row.sample, row.duration, voice)
    }

    /// Removes the last utterance.
    pub(crate) fn pop(&mut self) {
        self.positions.pop();
        self.samples.pop();
        self.durations.pop();
        self.voices.pop();
    }

    /// Frees the room for more utterances.
    pub(crate) fn finish(&mut self) {
        self.records.seal();
        self.positions.shrink_to_fit();
        self.samples.shrink_to_fit();
        self.durations.shrink_to_fit();
        self.voices.shrink_to_fit();
    }

    /// Returns the id of an utterance.
    pub(crate) fn id(&self, row: Row) -> &str {
        Record::parts(self.records.from(self.positions[row as usize])).text()
    }

    /// Returns the text of an utterance.
    pub(crate) fn text(&self, row: Row) -> &str {
        let mut parts = Record::parts(self.records.from(self.positions[row as usize]));
        parts.part();
        parts.part();
        parts.text()
    }

    pub(crate) fn record(&self, row: Row) -> Record<'_> {
        Record::read(self.records.from(self.positions[row as usize]))
    }

    /// Replaces what is not a number of the plan. The id must be the same.
    pub(crate) fn set_record(&mut self, row: Row, write: impl FnOnce(&mut Vec<u8>)) {
        self.positions[row as usize] = self.records.append(write);
    }

    pub(crate) fn sample(&self, row: Row) -> SampleId {
        self.samples[row as usize]
    }

    /// Returns the duration as it is, also where it is NaN.
    pub(crate) fn seconds(&self, row: Row) -> Seconds {
        Seconds(self.durations[row as usize])
    }

    pub(crate) fn duration(&self, row: Row) -> Option<Seconds> {
        let duration = self.durations[row as usize];
        (!duration.is_nan()).then_some(Seconds(duration))
    }

    pub(crate) fn set_duration(&mut self, row: Row, duration: Seconds) {
        self.durations[row as usize] = duration.0;
    }

    pub(crate) fn voice(&self, row: Row) -> Voice {
        self.voices[row as usize]
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }
}
