//! Fingerprint of the utterances of a run, which shows whether the data changed since the run began.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::OnceLock;

use plimsoll_core::SampleId;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::audio_identity::{AudioIdentity, identities};
use crate::store::{KeyBuilder, StoreKey, write_key_part};
use crate::utterances::{UtteranceRef, Utterances};

/// Content of the utterances of a run, in the order in which batches are made of them: ids, texts, times, speakers and
/// languages, and which utterances are held out.
///
/// The paths and times of audio files do not count, so a corpus can move. Their content counts after
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
        let mut lines = Vec::with_capacity(2 * LINES_BYTES);
        for (index, (id, sum, held_out)) in self.entries().enumerate() {
            write_line(&mut lines, (id, sum, held_out), self.audio.get(index).copied())?;
            if lines.len() >= LINES_BYTES {
                out.write_all(&lines)?;
                lines.clear();
            }
        }
        out.write_all(&lines)
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
        let (mut found, mut line) = (Self::default(), Vec::new());
        let (mut side, mut is_held) = (Vec::new(), false);
        let mut ids = Utterances::builder();
        while lines.read_until(b'\n', &mut line)? > 0 {
            let entry = std::str::from_utf8(&line).ok().and_then(|line| usual_line(line).or_else(|| any_line(line)));
            let Some(Line { id, sum, held_out, audio }) = entry else { return Ok(None) };
            if held_out != is_held {
                side.push((std::mem::take(&mut ids).finish(), is_held));
                is_held = held_out;
            }
            ids.push(UtteranceRef { id: &id, ..UtteranceRef::default() });
            found.sums.push(sum);
            found.audio.extend(audio);
            line.clear();
        }
        side.push((ids.finish(), is_held));
        found.sides = side;
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
        self.sums == other.sums && self.entries().eq(other.entries())
    }
}

/// Computes the hash of everything besides the id and the path of the audio. `bytes` is memory to work in.
fn sum(utterance: UtteranceRef<'_>, bytes: &mut Vec<u8>) -> u64 {
    let UtteranceRef { id: _, audio: _, offset, duration, text, speaker, language } = utterance;
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
    StoreKey::from_written(bytes).short_bits()
}

/// Number of bytes of lines that are written at a time.
const LINES_BYTES: usize = 1 << 16;

/// What stands in a line around the id, the sum and the side.
const BEFORE_ID: &str = "{\"id\":\"";
const BEFORE_SUM: &str = "\",\"sum\":\"";
const BEFORE_SIDE: &str = "\",\"held_out\":";
const BEFORE_AUDIO: &str = ",\"audio\":\"";

/// What a line says of an utterance.
struct Line<'a> {
    id: Cow<'a, str>,
    sum: u64,
    held_out: bool,
    audio: Option<AudioIdentity>,
}

/// Whether JSON writes a text as it is.
fn is_plain(text: &str) -> bool {
    text.bytes().fold(true, |plain, byte| plain & (byte >= 0x20) & (byte != b'"') & (byte != b'\\'))
}

fn write_line(
    lines: &mut Vec<u8>,
    (id, sum, held_out): (&str, u64, bool),
    audio: Option<AudioIdentity>,
) -> io::Result<()> {
    let sum = hexadecimal(sum);
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
fn hexadecimal(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    for (place, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15];
    }
    digits
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
