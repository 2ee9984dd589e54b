//! Tables in files: written once, and then mapped.

use std::borrow::Cow;

use memmap2::Mmap;
use plimsoll_core::SampleId;
use rayon::prelude::*;

use super::blob::{Blob, Parts, Position, write_part};
use super::names::Names;
use super::{Record, Table};

/// Sections of a table before those of its records: positions, samples, durations, voices and names.
const COLUMNS: usize = 5;

impl Table {
    /// Returns the content of the table in sections.
    pub(crate) fn sections(&self) -> Vec<Cow<'_, [u8]>> {
        let bytes_of = |column: &[u64]| column.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        let samples: Vec<u64> = self.samples.iter().map(|sample| sample.0).collect();
        let durations: Vec<u64> = self.durations.iter().map(|duration| duration.to_bits()).collect();
        let voices = self.voices.iter().flat_map(|voice| voice.to_le_bytes()).collect::<Vec<u8>>();
        let columns =
            [bytes_of(&self.positions), bytes_of(&samples), bytes_of(&durations), voices, self.names.to_bytes()];
        columns.into_iter().map(Cow::Owned).chain(self.records.blocks().map(Cow::Borrowed)).collect()
    }

    /// Makes the table of [`sections`](Self::sections) without a copy of its records; `None` if they make no sense.
    pub(crate) fn from_sections(mut sections: Vec<Mmap>) -> Option<Self> {
        let blocks = sections.split_off(COLUMNS.min(sections.len()));
        let numbers = |bytes: &[u8]| -> Option<Vec<u64>> {
            let (numbers, rest) = bytes.as_chunks::<8>();
            rest.is_empty().then(|| numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
        };
        let [positions, samples, durations, voices, names] = &sections[..] else { return None };
        let (positions, names) = (numbers(positions)?, Names::from_bytes(names)?);
        let (voices, rest) = voices.as_chunks::<4>();
        let voices: Vec<u32> = voices.iter().map(|voice| u32::from_le_bytes(*voice)).collect();
        let table = Self {
            samples: numbers(samples)?.into_iter().map(SampleId).collect(),
            durations: numbers(durations)?.into_iter().map(f64::from_bits).collect(),
            records: Blob::from_blocks(blocks),
            has_rates: false,
            positions,
            voices,
            names,
        };
        let count = table.len();
        let is_even = rest.is_empty() && [table.samples.len(), table.durations.len(), table.voices.len()] == [count; 3];
        let is_known = || table.voices.par_iter().all(|&voice| (voice as usize) < table.names.len());
        let is_record = |&position: &Position| table.records.get(position).and_then(Record::checked).is_some();
        (is_even && is_known() && table.positions.par_iter().all(is_record)).then_some(table)
    }
}

impl Record<'_> {
    /// Returns `bytes` if they begin with a record that gives no sample rate, whose id and text are UTF-8.
    fn checked(bytes: &[u8]) -> Option<&[u8]> {
        let (&flags, rest) = bytes.split_first()?;
        let mut parts = Parts(rest.get(8 * usize::from(flags & 1)..)?);
        let [id, _audio, text] = [parts.checked_part()?, parts.checked_part()?, parts.checked_part()?];
        let are_texts = [id, text].into_iter().all(|text| simdutf8::basic::from_utf8(text).is_ok());
        (flags <= 1 && are_texts).then_some(bytes)
    }
}

impl Names {
    /// Returns the pairs in order: for each a number of two bits, and its names.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for voice in 0..self.len() as u32 {
            let (speaker, language) = (self.speaker(voice), self.language(voice));
            bytes.push(u8::from(speaker.is_some()) | u8::from(language.is_some()) << 1);
            [speaker, language].into_iter().flatten().for_each(|name| write_part(&mut bytes, name.as_bytes()));
        }
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) returns; `None` for something else.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (mut names, mut parts, mut count) = (Self::default(), Parts(bytes), 0);
        while let Some((&flags, rest)) = parts.0.split_first() {
            parts = Parts(rest);
            let mut name = |flag: u8| match flags & flag {
                0 => Some(None),
                _ => Some(Some(std::str::from_utf8(parts.checked_part()?).ok()?)),
            };
            let (speaker, language) = (name(1)?, name(2)?);
            if flags > 3 || names.voice(speaker, language) != count {
                return None;
            }
            count += 1;
        }
        Some(names)
    }
}
