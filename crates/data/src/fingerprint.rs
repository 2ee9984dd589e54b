//! Fingerprint of the utterances of a run, which shows whether the data changed since the run began.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::sync::OnceLock;

use plimsoll_audio::AudioSource;
use plimsoll_core::SampleId;
use rayon::prelude::*;

use crate::audio_identity::{AudioIdentity, identities};
use crate::store::{KeyBuilder, StoreKey, write_key_part};
use crate::table::{Piece, Table};
use crate::utterances::{UtteranceRef, Utterances};
use lines::{Line, LinesPiece, hexadecimal, read_pieces, write_line};

mod lines;

/// Number of lines that a thread writes at a time.
const LINES_AT_ONCE: usize = 1 << 13;

/// Content of the utterances of a run, in the order in which batches are made of them: ids, texts, times, speakers and
/// languages, and which utterances are held out.
///
/// The paths and times of audio files do not count, so a corpus can move. The channel of a file counts. Their content counts after
/// [`with_audio`](Self::with_audio).
#[derive(Clone, Debug, Default)]
pub struct CorpusFingerprint {
    /// Utterances with their ids, and whether they are held out.
    sides: Vec<(Utterances, bool)>,
    /// Hash of everything besides the id, for each utterance in order.
    sums: Vec<u64>,
    /// Identity of the audio of each utterance in order; empty if it is not known.
    audio: Vec<AudioIdentity>,
    summary: OnceLock<String>,
}

impl CorpusFingerprint {
    /// Computes the fingerprint of the utterances of a run. The order of the validation utterances does not count.
    pub fn new(training: &Utterances, validation: &Utterances) -> Self {
        let mut order: Vec<usize> = (0..validation.len()).collect();
        order.sort_by(|&a, &b| validation.get(a).id.cmp(validation.get(b).id));
        let sides = vec![(training.clone(), false), (validation.part(order), true)];
        let mut sums = Vec::with_capacity(training.len() + validation.len());
        for (side, _) in &sides {
            let sum_of = |bytes: &mut Vec<u8>, index| sum(side.get(index), bytes);
            sums.par_extend((0..side.len()).into_par_iter().map_init(Vec::new, sum_of));
        }
        Self { sides, sums, audio: Vec::new(), summary: OnceLock::new() }
    }

    /// Adds the content of the audio files: of each its size, and parts of the content of up to 10,000 files.
    #[must_use]
    pub fn with_audio(mut self) -> Self {
        self.audio = self.sides.iter().flat_map(|(side, _)| identities(side)).collect();
        self
    }

    /// Returns a hash of the content of all audio files; `None` if it is not known.
    pub fn audio_summary(&self) -> Option<String> {
        let mut key = KeyBuilder::default();
        self.audio.iter().for_each(|identity| key.add(&identity.to_bytes()));
        (!self.audio.is_empty()).then(|| key.finish().short())
    }

    /// Returns the ids of the utterances that `earlier` has too, with other audio; none if the audio of one of the
    /// fingerprints is not known.
    pub fn changed_audio(&self, earlier: &Self) -> Vec<&str> {
        // By the hash of an id, because a list may be long.
        let with_audio = |of: &Self| -> HashMap<SampleId, AudioIdentity> {
            of.entries().zip(&of.audio).map(|((id, ..), audio)| (SampleId::from_name(id), *audio)).collect()
        };
        let before = with_audio(earlier);
        let is_changed = |(id, audio): &(&str, AudioIdentity)| {
            before.get(&SampleId::from_name(id)).is_some_and(|before| !before.may_equal(*audio))
        };
        let now = self.entries().zip(&self.audio).map(|((id, ..), audio)| (id, *audio));
        now.filter(is_changed).map(|(id, _)| id).collect()
    }

    /// Returns the ids in order, with the hashes, and whether they are held out.
    fn entries(&self) -> impl Iterator<Item = (&str, u64, bool)> {
        let ids =
            self.sides.iter().flat_map(|(side, held_out)| (0..side.len()).map(|index| (side.id(index), *held_out)));
        ids.zip(&self.sums).map(|((id, held_out), sum)| (id, *sum, held_out))
    }

    fn count(&self, held_out: bool) -> usize {
        self.sides.iter().filter(|(_, held)| *held == held_out).map(|(side, _)| side.len()).sum()
    }

    /// Returns the numbers of utterances and a hash of all entries. Equal fingerprints have equal summaries.
    pub fn summary(&self) -> String {
        let make = || {
            let mut key = KeyBuilder::default();
            for (id, sum, held_out) in self.entries() {
                key.add(id.as_bytes());
                key.add(&hexadecimal(sum));
                key.add(if held_out { b"held" } else { b"" });
            }
            let (training, held_out) = (self.count(false), self.count(true));
            format!("{training} training and {held_out} validation utterances, {}", key.finish().short())
        };
        self.summary.get_or_init(make).clone()
    }

    /// Returns the ids of the utterances that are held out for validation, in alphabetical order.
    pub fn held_out(&self) -> Vec<&str> {
        self.entries().filter(|(.., held_out)| *held_out).map(|(id, ..)| id).collect()
    }

    /// Formats the fingerprint as JSON lines, one for each utterance.
    pub fn to_lines(&self) -> String {
        let mut lines = Vec::new();
        self.write_lines(&mut lines).expect("a vector can be written");
        String::from_utf8(lines).expect("JSON is UTF-8")
    }

    /// Writes the fingerprint as JSON lines, one for each utterance.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write_lines(&self, mut out: impl Write) -> io::Result<()> {
        // Some for each thread, and not all at once: a list may be long.
        let at_once = LINES_AT_ONCE * 2 * rayon::current_num_threads();
        for first in (0..self.sums.len()).step_by(at_once) {
            let part: Vec<usize> = (first..(first + at_once).min(self.sums.len())).step_by(LINES_AT_ONCE).collect();
            let lines = |&first: &usize| {
                let mut lines = Vec::with_capacity(LINES_AT_ONCE * 96);
                for index in first..(first + LINES_AT_ONCE).min(self.sums.len()) {
                    write_line(&mut lines, &self.line(index))?;
                }
                Ok(lines)
            };
            let written: io::Result<Vec<Vec<u8>>> = part.par_iter().map(lines).collect();
            written?.iter().try_for_each(|lines| out.write_all(lines))?;
        }
        Ok(())
    }

    /// Returns what the line of utterance number `index` says.
    fn line(&self, index: usize) -> Line<'_> {
        let (mut place, mut sides) = (index, self.sides.iter());
        let (side, held_out) = loop {
            let (side, held_out) = sides.next().expect("each sum has an utterance");
            if place < side.len() {
                break (side, *held_out);
            }
            place -= side.len();
        };
        let audio = self.audio.get(index).copied();
        Line { id: side.id(place).into(), sum: self.sums[index], held_out, audio }
    }

    /// Parses what [`to_lines`](Self::to_lines) formats; `None` if `text` is something else.
    pub fn from_lines(text: &str) -> Option<Self> {
        Self::read_lines(text.as_bytes()).ok().flatten()
    }

    /// Reads what [`write_lines`](Self::write_lines) writes; `None` if it is something else.
    ///
    /// # Errors
    /// When `lines` cannot be read.
    pub fn read_lines(mut lines: impl BufRead) -> io::Result<Option<Self>> {
        let (mut found, mut table, mut sides) = (Self::default(), Table::default(), Vec::<(Range<usize>, bool)>::new());
        loop {
            let pieces = read_pieces(&mut lines)?;
            if pieces.is_empty() {
                break;
            }
            let read: Vec<Option<LinesPiece>> = pieces.par_iter().map(|piece| LinesPiece::read(piece)).collect();
            for piece in read {
                let Some(LinesPiece { piece: Piece { records, rows, names }, sums, held_out, audio }) = piece else {
                    return Ok(None);
                };
                let added = table.add_piece(records, &names);
                for (row, held_out) in rows.iter().zip(held_out) {
                    let end = table.push_piece_row(&added, row) as usize + 1;
                    match sides.last_mut() {
                        Some((side, held)) if *held == held_out => side.end = end,
                        _ => sides.push((end - 1..end, held_out)),
                    }
                }
                found.sums.extend(sums);
                found.audio.extend(audio);
            }
        }
        let all = Utterances::from_table(table);
        found.sides = sides.into_iter().map(|(side, held_out)| (all.part(side), held_out)).collect();
        if found.audio.len() != found.sums.len() {
            found.audio.clear();
        }
        Ok(Some(found))
    }

    /// Describes the difference from an earlier fingerprint in words, such as `40 utterances added`; empty if there is
    /// none.
    pub fn changes_since(&self, earlier: &Self) -> Vec<String> {
        if self == earlier {
            return Vec::new();
        }
        // By the hash of an id, because a list may be long.
        let by_name = |fingerprint: &Self| -> HashMap<(SampleId, bool), u64> {
            let entries = fingerprint.entries();
            entries.map(|(id, sum, held_out)| ((SampleId::from_name(id), held_out), sum)).collect()
        };
        let (before, now) = (by_name(earlier), by_name(self));
        let (mut added, mut moved, mut changed) = (0, [0, 0], 0);
        for ((id, held_out), sum) in &now {
            let other_side = (*id, !held_out);
            match before.get(&(*id, *held_out)) {
                Some(old) => changed += usize::from(old != sum),
                None if before.contains_key(&other_side) && !now.contains_key(&other_side) => {
                    moved[usize::from(*held_out)] += 1;
                }
                None => added += 1,
            }
        }
        let removed = (before.len() + added).saturating_sub(now.len());
        let mut words: Vec<String> = [
            (added, "added"),
            (removed, "removed"),
            (changed, "changed in text, times, speaker or language"),
            (moved[1], "moved from training to validation"),
            (moved[0], "moved from validation to training"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} utterance{} {what}", if count == 1 { "" } else { "s" }))
        .collect();
        if words.is_empty() {
            words.push("the utterances are in another order".into());
        }
        words
    }
}

impl PartialEq for CorpusFingerprint {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |index| {
            let (line, other) = (self.line(index), other.line(index));
            line.id == other.id && line.held_out == other.held_out
        };
        self.sums == other.sums && (0..self.sums.len()).into_par_iter().all(is_same)
    }
}

/// Computes the hash of everything besides the id and the path of the audio; the channel that the path names counts. `bytes` is memory to work in.
fn sum(utterance: UtteranceRef<'_>, bytes: &mut Vec<u8>) -> u64 {
    let UtteranceRef { id: _, audio, offset, duration, text, speaker, language } = utterance;
    bytes.clear();
    write_key_part(bytes, text.as_bytes());
    for time in [offset, duration] {
        write_key_part(bytes, &time.0.to_bits().to_le_bytes());
    }
    for part in [speaker, language] {
        // A missing name differs from an empty one.
        let start = bytes.len();
        write_key_part(bytes, if part.is_some() { b"=" } else { b"" });
        if let Some(part) = part {
            bytes.extend_from_slice(part.as_bytes());
            bytes[start..start + 8].copy_from_slice(&(1 + part.len() as u64).to_le_bytes());
        }
    }
    if let Some(channel) = AudioSource::named_channel(audio) {
        write_key_part(bytes, &channel.to_le_bytes());
    }
    StoreKey::from_written(bytes).short_bits()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Seconds;
    use proptest::prelude::*;

    use super::*;
    use crate::utterance::Utterance;

    fn utterance(id: usize) -> Utterance {
        Utterance {
            id: format!("u{id}"),
            audio: format!("/old/{id}.wav").into(),
            offset: Seconds(0.0),
            duration: Seconds(1.0 + id as f64),
            text: format!("text {id}"),
            speaker: None,
            language: None,
        }
    }

    fn utterances(count: usize) -> Vec<Utterance> {
        (0..count).map(utterance).collect()
    }

    fn fingerprint(all: &[Utterance]) -> CorpusFingerprint {
        let (validation, training) = all.split_at(2);
        CorpusFingerprint::new(&training.into(), &validation.into())
    }

    #[test]
    fn moved_folder_is_no_change() {
        let before = utterances(9);
        let after: Vec<Utterance> =
            before.iter().cloned().map(|u| Utterance { audio: format!("/new/{}.wav", u.id).into(), ..u }).collect();
        assert_eq!(fingerprint(&after), fingerprint(&before));
        assert!(fingerprint(&before).summary().starts_with("7 training and 2 validation utterances, "));
    }

    #[test]
    fn changes_are_described_in_words() {
        let before = utterances(9);
        let words = |change: &dyn Fn(&mut Vec<Utterance>)| {
            let mut after = before.clone();
            change(&mut after);
            fingerprint(&after).changes_since(&fingerprint(&before)).join("; ")
        };
        assert_eq!(words(&|_| ()), "");
        assert_eq!(words(&|all| all.extend((20..60).map(utterance))), "40 utterances added");
        assert_eq!(words(&|all| drop(all.pop())), "1 utterance removed");
        assert_eq!(words(&|all| all[3].text.push('x')), "1 utterance changed in text, times, speaker or language");
        assert_eq!(
            words(&|all| all[5].speaker = Some(String::new())),
            "1 utterance changed in text, times, speaker or language"
        );
        assert_eq!(words(&|all| all.swap(4, 7)), "the utterances are in another order");
        // The validation utterances are the first two.
        assert_eq!(words(&|all| all.swap(0, 1)), "");
        let moved = "1 utterance moved from training to validation; 1 utterance moved from validation to training";
        assert_eq!(words(&|all| all.swap(0, 5)), moved);
        assert_eq!(
            words(&|all| {
                all.pop();
                all.extend([utterance(30), utterance(31)]);
            }),
            "2 utterances added; 1 utterance removed"
        );
    }

    proptest! {
        #[test]
        fn every_change_is_noticed_and_lines_keep_the_fingerprint(
            count in 3usize..20, index in 0usize..20, what in 0usize..6, id in "[a-z\"\\n\\\\ü ]{1,9}",
        ) {
            let mut all = utterances(count);
            let before = fingerprint(&all);
            let changed = &mut all[index % count];
            match what {
                0 => changed.id = id.clone() + "!",
                1 => changed.text.push_str(&id),
                2 => changed.duration.0 += 1e-9,
                3 => changed.offset.0 += 0.5,
                4 => changed.speaker = Some(id.clone()),
                _ => changed.language = Some(id.clone()),
            }
            let after = fingerprint(&all);
            prop_assert_ne!(after.summary(), before.summary());
            prop_assert!(!after.changes_since(&before).is_empty());
            prop_assert_eq!(CorpusFingerprint::from_lines(&after.to_lines()), Some(after));
        }
    }
}
