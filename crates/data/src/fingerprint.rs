//! Fingerprint of the utterances of a run, which shows whether the data changed since the run began.

use std::collections::HashMap;

use plimsoll_core::Seconds;
use serde::{Deserialize, Serialize};

use crate::store::StoreKey;
use crate::utterance::Utterance;

/// Content of the utterances of a run, in the order in which batches are made of them: ids, texts, times, speakers and
/// languages, and which utterances are held out.
///
/// The paths of audio files do not count, so a corpus can move.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CorpusFingerprint(Vec<Entry>);

/// Utterance of a fingerprint, a line of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    id: String,
    /// Hash of everything besides the id, in hexadecimal.
    sum: String,
    held_out: bool,
}

impl CorpusFingerprint {
    /// Computes the fingerprint of the utterances of a run. The order of the validation utterances does not count.
    pub fn new(training: &[Utterance], validation: &[Utterance]) -> Self {
        let mut held_out: Vec<Entry> = validation.iter().map(|utterance| Entry::new(utterance, true)).collect();
        held_out.sort_by(|a, b| a.id.cmp(&b.id));
        Self(training.iter().map(|utterance| Entry::new(utterance, false)).chain(held_out).collect())
    }

    /// Returns the numbers of utterances and a hash of all entries. Equal fingerprints have equal summaries.
    pub fn summary(&self) -> String {
        let held_out = self.0.iter().filter(|entry| entry.held_out).count();
        let parts: Vec<&[u8]> = self
            .0
            .iter()
            .flat_map(|entry| [entry.id.as_bytes(), entry.sum.as_bytes(), if entry.held_out { b"held" } else { b"" }])
            .collect();
        let training = self.0.len() - held_out;
        format!("{training} training and {held_out} validation utterances, {}", StoreKey::new(&parts).short())
    }

    /// Returns the ids of the utterances that are held out for validation, in alphabetical order.
    pub fn held_out(&self) -> Vec<&str> {
        self.0.iter().filter(|entry| entry.held_out).map(|entry| entry.id.as_str()).collect()
    }

    /// Formats the fingerprint as JSON lines, one for each utterance.
    pub fn to_lines(&self) -> String {
        let line = |entry| serde_json::to_string(entry).expect("an entry is plain data") + "\n";
        self.0.iter().map(line).collect()
    }

    /// Parses what [`to_lines`](Self::to_lines) formats; `None` if `text` is something else.
    pub fn from_lines(text: &str) -> Option<Self> {
        let entries: Result<_, _> = text.lines().map(serde_json::from_str).collect();
        entries.ok().map(Self)
    }

    /// Describes the difference from an earlier fingerprint in words, such as `40 utterances added`; empty if there is
    /// none.
    pub fn changes_since(&self, earlier: &Self) -> Vec<String> {
        let by_name = |entries: &'_ [Entry]| -> HashMap<(String, bool), String> {
            entries.iter().map(|entry| ((entry.id.clone(), entry.held_out), entry.sum.clone())).collect()
        };
        let (before, now) = (by_name(&earlier.0), by_name(&self.0));
        let (mut added, mut moved, mut changed) = (0, [0, 0], 0);
        for ((id, held_out), sum) in &now {
            let other_side = (id.clone(), !held_out);
            match before.get(&(id.clone(), *held_out)) {
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
        if words.is_empty() && self != earlier {
            words.push("the utterances are in another order".into());
        }
        words
    }
}

impl Entry {
    fn new(utterance: &Utterance, held_out: bool) -> Self {
        let Utterance { id, audio: _, offset, duration, text, speaker, language } = utterance;
        let bits = |time: &Seconds| time.0.to_bits().to_le_bytes();
        // A missing name differs from an empty one.
        let [speaker, language] =
            [speaker, language].map(|name| name.as_ref().map_or_else(Vec::new, |name| format!("={name}").into_bytes()));
        let key = StoreKey::new(&[text.as_bytes(), &bits(offset), &bits(duration), &speaker, &language]);
        Self { id: id.clone(), sum: key.short(), held_out }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        CorpusFingerprint::new(training, validation)
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
