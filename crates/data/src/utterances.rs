//! Lists of utterances that take little memory, and indexes of long ones, from which a start takes what it would read.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use plimsoll_core::{SampleId, Seconds};
use rayon::prelude::*;

pub use crate::import::{IndexError, ListIndex, index_list};
use crate::table::{Record, Row, Table};
use crate::utterance::Utterance;

/// Utterance in a list: its fields without a copy of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UtteranceRef<'a> {
    /// Id of the utterance, unique in the manifest.
    pub id: &'a str,
    /// Audio file that contains the utterance.
    pub audio: &'a Path,
    /// Start of the utterance in the audio file.
    pub offset: Seconds,
    /// Duration of the utterance.
    pub duration: Seconds,
    /// Spoken text, as written in the manifest: not normalized.
    pub text: &'a str,
    /// Name of the speaker, if known.
    pub speaker: Option<&'a str>,
    /// Language of the utterance, if known.
    pub language: Option<&'a str>,
}

impl Default for UtteranceRef<'_> {
    fn default() -> Self {
        let (id, audio, text) = ("", Path::new(""), "");
        let (offset, duration) = (Seconds(0.0), Seconds(0.0));
        Self { id, audio, offset, duration, text, speaker: None, language: None }
    }
}

impl UtteranceRef<'_> {
    /// Copies the utterance.
    pub fn to_owned(self) -> Utterance {
        let Self { id, audio, offset, duration, text, speaker, language } = self;
        let (id, audio, text) = (id.to_owned(), audio.to_path_buf(), text.to_owned());
        let (speaker, language) = (speaker.map(str::to_owned), language.map(str::to_owned));
        Utterance { id, audio, offset, duration, text, speaker, language }
    }
}

impl From<UtteranceRef<'_>> for Utterance {
    fn from(utterance: UtteranceRef<'_>) -> Self {
        utterance.to_owned()
    }
}

impl<'a> From<&'a Utterance> for UtteranceRef<'a> {
    fn from(utterance: &'a Utterance) -> Self {
        let Utterance { id, audio, offset, duration, text, speaker, language } = utterance;
        let (speaker, language) = (speaker.as_deref(), language.as_deref());
        Self { id, audio, offset: *offset, duration: *duration, text, speaker, language }
    }
}

/// List of utterances. An utterance takes about 30 bytes of memory, and 4 more in each part of the list.
///
/// Ids, paths and texts of a long list are in a temporary file without a name: in `TMPDIR`, or in `/var/tmp`. Parts and
/// clones of a list share it.
///
/// ```
/// use plimsoll_data::Utterance;
/// use plimsoll_data::utterances::Utterances;
///
/// let utterance = |id: &str| Utterance { id: id.into(), text: "some words".into(), ..Utterance::default() };
/// let list: Utterances = ["a", "b"].map(utterance).into_iter().collect();
/// assert_eq!(list.len(), 2);
/// assert_eq!(list.get(1).id, "b");
/// assert_eq!(list.iter().map(|utterance| utterance.text.len()).sum::<usize>(), 20);
/// ```
#[derive(Clone, Default)]
pub struct Utterances {
    table: Arc<Table>,
    /// Utterances of the table that are in the list; `None` for all of them.
    rows: Option<Arc<Vec<Row>>>,
}

impl Utterances {
    pub(crate) fn from_table(mut table: Table) -> Self {
        table.finish();
        Self { table: Arc::new(table), rows: None }
    }

    /// Makes a list of some rows of `table`.
    pub(crate) fn from_rows(mut table: Table, rows: Vec<Row>) -> Self {
        table.finish();
        let is_all = rows.len() == table.len() && rows.iter().zip(0..).all(|(row, index)| *row == index);
        Self { table: Arc::new(table), rows: (!is_all).then(|| Arc::new(rows)) }
    }

    /// Returns the number of utterances.
    pub fn len(&self) -> usize {
        self.rows.as_ref().map_or(self.table.len(), |rows| rows.len())
    }

    /// Returns whether the list has no utterance.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn row(&self, index: usize) -> Row {
        match &self.rows {
            Some(rows) => rows[index],
            None => index as Row,
        }
    }

    /// Returns utterance number `index`.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    pub fn get(&self, index: usize) -> UtteranceRef<'_> {
        let row = self.row(index);
        let Record { id, audio, offset, text, .. } = self.table.record(row);
        let (voice, names) = (self.table.voice(row), self.table.names());
        let (speaker, language) = (names.speaker(voice), names.language(voice));
        UtteranceRef { id, audio, offset, duration: self.duration(index), text, speaker, language }
    }

    /// Returns the utterances in order.
    pub fn iter(&self) -> UtterancesIter<'_> {
        self.into_iter()
    }

    /// Returns the texts in order.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|index| self.text(index))
    }

    pub(crate) fn text(&self, index: usize) -> &str {
        self.table.text(self.row(index))
    }

    pub(crate) fn id(&self, index: usize) -> &str {
        self.table.id(self.row(index))
    }

    /// Returns the duration of utterance number `index`.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    pub fn duration(&self, index: usize) -> Seconds {
        self.table.seconds(self.row(index))
    }

    /// Returns the id of the sample that utterance number `index` becomes.
    pub(crate) fn sample(&self, index: usize) -> SampleId {
        self.table.sample(self.row(index))
    }

    /// Returns the number of the speaker and language of utterance number `index`: below `voices`.
    pub(crate) fn voice(&self, index: usize) -> usize {
        self.table.voice(self.row(index)) as usize
    }

    /// Returns the speaker of each number that `voice` returns.
    pub(crate) fn voice_speakers(&self) -> Vec<Option<&str>> {
        (0..self.table.names().len()).map(|voice| self.table.names().speaker(voice as u32)).collect()
    }

    /// Makes a list of the utterances for whose indices `keep` returns true.
    #[must_use]
    pub fn filter(&self, keep: impl FnMut(&usize) -> bool) -> Self {
        self.part((0..self.len()).filter(keep))
    }

    /// Makes a list of the utterances with these indices.
    ///
    /// # Panics
    /// When an index is not below [`len`](Self::len).
    #[must_use]
    pub fn part(&self, indices: impl IntoIterator<Item = usize>) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for index in indices {
            if rows.len() == rows.capacity() {
                // An eighth more, and not as much again: a list may be long.
                rows.reserve_exact((rows.len() / 8).max(64));
            }
            rows.push(self.row(index));
        }
        rows.shrink_to_fit();
        Self { table: self.table.clone(), rows: Some(Arc::new(rows)) }
    }

    /// Sorts the utterances by duration; equally long ones keep their order.
    #[must_use]
    pub fn sorted_by_duration(&self) -> Self {
        let mut indices: Vec<usize> = (0..self.len()).collect();
        indices.sort_by(|&a, &b| self.duration(a).0.total_cmp(&self.duration(b).0));
        self.part(indices)
    }

    /// Replaces each text by `change` of it, on all threads.
    #[must_use]
    pub fn map_texts(&self, change: impl Fn(&str) -> String + Sync) -> Self {
        /// Number of utterances whose texts are in memory together.
        const AT_ONCE: usize = 1 << 14;
        let is_same = |index| change(self.text(index)) == self.text(index);
        if (0..self.len()).into_par_iter().all(is_same) {
            return self.clone();
        }
        let mut table = Table::default();
        table.reserve(self.len());
        for first in (0..self.len()).step_by(AT_ONCE) {
            let part = first..(first + AT_ONCE).min(self.len());
            let texts: Vec<String> = part.clone().into_par_iter().map(|index| change(self.text(index))).collect();
            for (index, text) in part.zip(&texts) {
                push(&mut table, UtteranceRef { text, ..self.get(index) });
            }
        }
        Self::from_table(table)
    }

    /// Copies the utterances.
    pub fn to_vec(&self) -> Vec<Utterance> {
        self.iter().map(UtteranceRef::to_owned).collect()
    }
}

fn push(table: &mut Table, utterance: UtteranceRef<'_>) {
    let UtteranceRef { id, audio, offset, duration, text, speaker, language } = utterance;
    let record = Record { id, audio, offset, text, rate: None, resampled: None };
    table.push(&record, Some(duration), speaker, language);
}

impl FromIterator<Utterance> for Utterances {
    fn from_iter<T: IntoIterator<Item = Utterance>>(utterances: T) -> Self {
        let mut table = Table::default();
        utterances.into_iter().for_each(|utterance| push(&mut table, (&utterance).into()));
        Self::from_table(table)
    }
}

impl<'a> FromIterator<UtteranceRef<'a>> for Utterances {
    fn from_iter<T: IntoIterator<Item = UtteranceRef<'a>>>(utterances: T) -> Self {
        let mut table = Table::default();
        utterances.into_iter().for_each(|utterance| push(&mut table, utterance));
        Self::from_table(table)
    }
}

impl From<Vec<Utterance>> for Utterances {
    fn from(utterances: Vec<Utterance>) -> Self {
        utterances.into_iter().collect()
    }
}

impl From<&[Utterance]> for Utterances {
    fn from(utterances: &[Utterance]) -> Self {
        utterances.iter().map(UtteranceRef::from).collect()
    }
}

impl<'a> IntoIterator for &'a Utterances {
    type Item = UtteranceRef<'a>;
    type IntoIter = UtterancesIter<'a>;

    fn into_iter(self) -> UtterancesIter<'a> {
        UtterancesIter { list: self, indices: 0..self.len() }
    }
}

/// Iterator over the utterances of a list.
#[derive(Clone, Debug)]
pub struct UtterancesIter<'a> {
    list: &'a Utterances,
    indices: Range<usize>,
}

impl<'a> Iterator for UtterancesIter<'a> {
    type Item = UtteranceRef<'a>;

    fn next(&mut self) -> Option<UtteranceRef<'a>> {
        self.indices.next().map(|index| self.list.get(index))
    }

    fn nth(&mut self, n: usize) -> Option<UtteranceRef<'a>> {
        self.indices.nth(n).map(|index| self.list.get(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.indices.size_hint()
    }
}

impl ExactSizeIterator for UtterancesIter<'_> {}

impl PartialEq for Utterances {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Utterances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utterance(n: usize, text: &str) -> Utterance {
        Utterance {
            id: format!("u{n}"),
            audio: format!("{n}.wav").into(),
            offset: Seconds(if n.is_multiple_of(3) { 0.0 } else { n as f64 }),
            duration: Seconds(1.0 + (n * 7 % 10) as f64),
            text: text.into(),
            speaker: (!n.is_multiple_of(4)).then(|| format!("s{}", n % 5)),
            language: n.is_multiple_of(2).then(|| "mr".into()),
        }
    }

    #[test]
    fn long_lists_are_read_from_their_file() {
        // More than the bytes that stay in memory.
        let all: Vec<Utterance> = (0..90).map(|n| utterance(n, &format!("{n} ").repeat(300_000))).collect();
        let list = Utterances::from(all.clone());
        assert!(list.iter().map(UtteranceRef::to_owned).eq(all.iter().cloned()));
        let upper = list.part([89, 3]).map_texts(|text| text[..4].to_uppercase() + "é");
        assert_eq!(upper.texts().collect::<Vec<_>>(), ["89 8é", "3 3 é"]);
        assert_eq!((upper.get(0).id, upper.get(1).speaker, upper.get(1).offset), ("u89", Some("s3"), Seconds(0.0)));
    }

    #[test]
    fn parts_and_sorted_lists_hold_the_same_utterances() {
        let all: Vec<Utterance> = (0..40).map(|n| utterance(n, "x")).collect();
        let list = Utterances::from(&all[..]);
        assert_eq!(list, all.iter().map(UtteranceRef::from).collect());
        let mut sorted = all.clone();
        sorted.sort_by(|a, b| a.duration.0.total_cmp(&b.duration.0));
        assert_eq!(list.sorted_by_duration().to_vec(), sorted);
        assert_eq!(list.filter(|index| index % 2 == 1).part([0, 2]).to_vec(), [all[1].clone(), all[5].clone()]);
        assert_eq!((list.iter().nth(7).unwrap().id, list.iter().len()), ("u7", 40));
        assert!(Utterances::default().is_empty() && list != list.part(0..39));
    }
}
