//! Listed utterances while they are read and checked: a table, and the place of each utterance in its lists.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use plimsoll_core::{SampleId, Seconds};

use super::listing::Entry;
use crate::issue::SourceLocation;
use crate::table::{AddedPiece, Names, PieceRow, Record, Row, Table};

/// Line number of a place that is a whole file.
const WHOLE_FILE: u32 = u32::MAX;

/// Utterances of a listing, with unique ids.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    table: Table,
    /// File and line of each utterance.
    places: Vec<(u32, u32)>,
    files: Files,
    ids: IdIndex,
    /// Order of the utterances, if it is not that of the table.
    order: Option<Vec<Row>>,
    has_durations: bool,
}

impl Entries {
    /// Adds an utterance. Returns the place of an earlier utterance with its id, and the utterance, if there is one.
    pub(crate) fn push(&mut self, entry: Entry) -> Result<(), (SourceLocation, Box<Entry>)> {
        let Entry { id, audio, offset, text, rate, resampled, .. } = &entry;
        let sample = SampleId::from_name(id);
        if let Some(row) = self.ids.find(&self.table, sample, id) {
            return Err((self.location(row), Box::new(entry)));
        }
        let record = Record { id, audio, offset: *offset, text, rate: *rate, resampled: *resampled };
        let row = self.table.push(&record, entry.duration, entry.speaker.as_deref(), entry.language.as_deref());
        let place = self.files.place(&entry.location);
        self.added(row, place);
        Ok(())
    }

    /// Makes room for a number of utterances.
    pub(super) fn reserve(&mut self, count: usize) {
        self.table.reserve(count);
        self.places.reserve_exact(count);
        self.ids.reserve(&self.table, count);
    }

    /// Adds the records of a piece. Its utterances follow with [`push_piece_row`](Self::push_piece_row).
    pub(crate) fn add_piece(&mut self, records: Vec<u8>, names: &Names) -> AddedPiece {
        self.table.add_piece(records, names)
    }

    /// Prepares for rows of a piece that follow.
    pub(super) fn expect(&self, rows: &[PieceRow]) {
        self.ids.warm(rows.iter().map(|row| row.sample));
    }

    /// Returns the number of a file of a list.
    pub(super) fn file(&mut self, file: &Path) -> u32 {
        self.files.place_in(file, None).0
    }

    /// Adds an utterance of a piece, listed in a line of the file with a number.
    pub(crate) fn push_piece_row(
        &mut self,
        piece: &AddedPiece,
        row: &PieceRow,
        (file, line): (u32, u32),
    ) -> Result<(), (SourceLocation, Box<Entry>)> {
        let place = (file, line.min(WHOLE_FILE - 1));
        let new = self.table.push_piece_row(piece, row);
        match self.ids.find(&self.table, row.sample, self.table.id(new)) {
            Some(earlier) => {
                let entry = Entry { location: self.files.location(place), ..self.entry_without_location(new) };
                self.table.pop();
                Err((self.location(earlier), Box::new(entry)))
            }
            None => {
                self.added(new, place);
                Ok(())
            }
        }
    }

    fn added(&mut self, row: Row, place: (u32, u32)) {
        self.places.push(place);
        self.ids.insert(&self.table, row);
        self.has_durations |= self.table.duration(row).is_some();
        if let Some(order) = &mut self.order {
            order.push(row);
        }
    }

    /// Returns the number of utterances.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn has_durations(&self) -> bool {
        self.has_durations
    }

    /// Sorts the utterances by the line that they are listed in.
    pub(super) fn sort_by_line(&mut self) {
        let mut order: Vec<Row> = (0..self.len() as Row).collect();
        // A whole file comes first.
        order.sort_by_key(|&row| self.places[row as usize].1.wrapping_add(1));
        self.order = Some(order);
    }

    /// Returns row number `index` in the order of the listing.
    pub(crate) fn row(&self, index: usize) -> Row {
        self.order.as_ref().map_or(index as Row, |order| order[index])
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Replaces the path of the audio of an utterance.
    pub(crate) fn set_audio(&mut self, row: Row, audio: &Path) {
        let Record { id, offset, text, rate, resampled, .. } = self.table.record(row);
        let (id, text) = (id.to_owned(), text.to_owned());
        let record = Record { id: &id, audio, offset, text: &text, rate, resampled };
        self.table.set_record(row, |bytes| record.write(bytes));
    }

    pub(crate) fn location(&self, row: Row) -> SourceLocation {
        self.files.location(self.places[row as usize])
    }

    /// Copies an utterance.
    pub(crate) fn entry(&self, row: Row) -> Entry {
        Entry { location: self.location(row), ..self.entry_without_location(row) }
    }

    fn entry_without_location(&self, row: Row) -> Entry {
        let Record { id, audio, offset, text, rate, resampled } = self.table.record(row);
        let (voice, names) = (self.table.voice(row), self.table.names());
        Entry {
            id: id.to_owned(),
            audio: audio.to_path_buf(),
            offset,
            duration: self.table.duration(row),
            text: text.to_owned(),
            speaker: names.speaker(voice).map(str::to_owned),
            language: names.language(voice).map(str::to_owned),
            rate,
            resampled,
            location: SourceLocation { file: PathBuf::new(), line: None },
        }
    }

    /// Copies all utterances, in the order of the listing.
    pub(super) fn into_vec(self) -> Vec<Entry> {
        (0..self.len()).map(|index| self.entry(self.row(index))).collect()
    }

    /// Adds an utterance whose id is already there, and returns its row. Only its row may be used.
    pub(crate) fn push_replacement(&mut self, entry: &Entry) -> Row {
        let Entry { id, audio, offset, text, rate, resampled, .. } = entry;
        let record = Record { id, audio, offset: *offset, text, rate: *rate, resampled: *resampled };
        let place = self.files.place(&entry.location);
        self.places.push(place);
        self.table.push(&record, entry.duration, entry.speaker.as_deref(), entry.language.as_deref())
    }

    /// Sets a duration that was measured.
    pub(crate) fn set_duration(&mut self, row: Row, duration: Seconds) {
        self.table.set_duration(row, duration);
    }

    /// Frees what is not needed once all utterances are read.
    pub(super) fn finish(&mut self) {
        self.ids = IdIndex::default();
        self.places.shrink_to_fit();
        self.table.finish();
    }

    /// Returns the line of each utterance in bytes; `None` if an index cannot hold the entries: it has those of one list, in
    /// its order, with their durations.
    pub(super) fn indexed(&self) -> Option<Vec<u8>> {
        let is_plain = self.order.is_none() && self.files.files.len() == 1 && !self.table.has_rates();
        let has_all = || (0..self.len() as Row).all(|row| self.table.duration(row).is_some());
        let lines = || self.places.iter().flat_map(|(_, line)| line.to_le_bytes()).collect();
        (is_plain && has_all()).then(lines)
    }

    /// Makes the entries of `list` of its index: the lines, and the sections of the table. `None` if they make no sense.
    pub(super) fn from_index(list: &Path, lines: &[u8], table: Vec<Mmap>) -> Option<Self> {
        let mut entries = Self { table: Table::from_sections(table)?, has_durations: true, ..Self::default() };
        let file = entries.file(list);
        let (lines, rest) = lines.as_chunks::<4>();
        entries.places = lines.iter().map(|line| (file, u32::from_le_bytes(*line))).collect();
        (rest.is_empty() && entries.places.len() == entries.table.len()).then_some(entries)
    }

    pub(crate) fn into_table(self) -> Table {
        self.table
    }
}

impl FromIterator<Entry> for Entries {
    /// Collects entries, of which several may have one id.
    fn from_iter<T: IntoIterator<Item = Entry>>(entries: T) -> Self {
        let mut all = Self::default();
        for entry in entries {
            all.push_replacement(&entry);
        }
        all
    }
}

/// Files of lists, each kept once.
#[derive(Debug, Default)]
struct Files {
    files: Vec<PathBuf>,
    numbers: HashMap<PathBuf, u32>,
}

impl Files {
    fn place(&mut self, location: &SourceLocation) -> (u32, u32) {
        self.place_in(&location.file, location.line)
    }

    fn place_in(&mut self, file: &Path, line: Option<usize>) -> (u32, u32) {
        // No list has more lines than a table has utterances, and most of those come from the same file as the last.
        let line = line.map_or(WHOLE_FILE, |line| u32::try_from(line).unwrap_or(WHOLE_FILE - 1));
        if let Some(last) = self.files.last()
            && last.as_os_str() == file.as_os_str()
        {
            return (self.files.len() as u32 - 1, line);
        }
        let number = match self.numbers.get(file) {
            Some(&number) => number,
            None => {
                self.files.push(file.into());
                self.numbers.insert(file.into(), self.files.len() as u32 - 1);
                self.files.len() as u32 - 1
            }
        };
        (number, line)
    }

    fn location(&self, (file, line): (u32, u32)) -> SourceLocation {
        let line = (line != WHOLE_FILE).then_some(line as usize);
        SourceLocation { file: self.files[file as usize].clone(), line }
    }
}

/// Rows by the ids of their utterances: a hash table with open addressing of row numbers alone.
#[derive(Debug, Default)]
struct IdIndex {
    /// Rows, plus one, in the lower half, and a part of their hash in the upper half; 0 is free. The length is a power of
    /// two, and a quarter or more is free.
    slots: Vec<u64>,
    count: usize,
}

impl IdIndex {
    fn find(&self, table: &Table, sample: SampleId, id: &str) -> Option<Row> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut slot = sample.0 as usize & mask;
        while let Some(row) = (self.slots[slot] as u32).checked_sub(1) {
            let is_alike = self.slots[slot] >> 32 == sample.0 >> 32;
            if is_alike && table.sample(row) == sample && table.id(row) == id {
                return Some(row);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    /// Brings the places of ids into the processor's cache: all at once, and not one after the other as `find` does.
    fn warm(&self, samples: impl Iterator<Item = SampleId>) {
        let Some(mask) = self.slots.len().checked_sub(1) else { return };
        std::hint::black_box(samples.fold(0, |sum, sample| sum ^ self.slots[sample.0 as usize & mask]));
    }

    /// Adds a row whose id is not there.
    fn insert(&mut self, table: &Table, row: Row) {
        self.count += 1;
        if self.count > self.slots.len() / 4 * 3 {
            self.resize(table, (self.slots.len() * 2).max(64));
        }
        self.place(table, row);
    }

    /// Makes room for a number of rows.
    fn reserve(&mut self, table: &Table, count: usize) {
        let size = (count / 3 * 4 + 64).next_power_of_two();
        if size > self.slots.len() {
            self.resize(table, size);
        }
    }

    fn resize(&mut self, table: &Table, size: usize) {
        for slot in std::mem::replace(&mut self.slots, vec![0; size]) {
            if let Some(row) = (slot as u32).checked_sub(1) {
                self.place(table, row);
            }
        }
    }

    fn place(&mut self, table: &Table, row: Row) {
        let mask = self.slots.len() - 1;
        let hash = table.sample(row).0;
        let mut slot = hash as usize & mask;
        while self.slots[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = hash >> 32 << 32 | u64::from(row + 1);
    }
}
