//! Divides utterances into training and validation, by speaker where speakers are known.

use std::collections::{BTreeSet, HashSet};

use plimsoll_core::Key;

use crate::utterances::Utterances;

/// Smallest number of speakers for holding out whole speakers. Of fewer speakers, one would be too many of the training
/// voices.
const MIN_SPEAKERS: usize = 4;
/// Factor by which the utterances of the chosen speakers may be more or fewer than the share that was asked for. One voice
/// may have most of a corpus: without it there would be little to learn from.
const MOST_APART: f64 = 3.0;
/// Number of utterances that may be held out whatever the share is.
const FEW: f64 = 12.0;

/// Unit that is held out for validation: speakers or utterances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitBy {
    /// All utterances of some speakers are held out, so validation measures unseen voices.
    Speaker,
    /// Single utterances are held out. A voice may occur in training and in validation.
    Utterance,
}

/// Disjoint lists of utterances for training and for validation, neither empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Utterances for training.
    pub train: Utterances,
    /// Utterances for validation.
    pub validation: Utterances,
    /// Unit that was held out for validation.
    pub by: SplitBy,
}

/// Reason why utterances cannot be split.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// There are fewer than two utterances. Holds their number.
    #[error("{0} utterances cannot be split into training and validation")]
    TooFew(usize),
    /// The share of validation is not between 0 and 1. Holds the share.
    #[error("the validation share is {0}; it must be above 0 and below 1")]
    Share(f64),
}

/// Holds out about `share` of the utterances for validation.
///
/// With four or more named speakers, whole speakers are held out if they have a third to three times as many utterances as
/// `share` asks for, or no more than 12; utterances without a speaker stay in training. Otherwise single utterances are held out. `unit` replaces this choice: give the unit of an earlier split, so
/// that a fourth speaker does not change it. Where all utterances have one speaker, they are held out singly.
///
/// Each speaker or utterance is held out by a random number of its own, which follows from its name and `key` alone: it
/// is held out if the number is below `share`. So data that is added never moves a speaker or an utterance from
/// training to validation, as long as the unit stays. The price is that the held-out share is near `share` and not equal
/// to it: of 300 speakers and a share of 0.05, 11 to 19 are held out in two of three corpora.
///
/// Neither side is empty. If no number is below `share`, the lowest number is held out; it can return to training when
/// data is added. If all numbers are below `share`, the highest number stays in training. Only this one can move to
/// validation later; of two utterances and a share of 0.1, that is one corpus in a hundred.
///
/// # Errors
/// With fewer than two utterances, or when `share` is not above 0 and below 1.
pub fn hold_out(utterances: &Utterances, share: f64, key: Key, unit: Option<SplitBy>) -> Result<Split, SplitError> {
    if utterances.len() < 2 {
        return Err(SplitError::TooFew(utterances.len()));
    }
    if !(share > 0.0 && share < 1.0) {
        return Err(SplitError::Share(share));
    }
    let by_voice = utterances.voice_speakers();
    let mut is_used = vec![false; by_voice.len()];
    (0..utterances.len()).for_each(|index| is_used[utterances.voice(index)] = true);
    let used = || by_voice.iter().zip(&is_used).filter(|(_, is_used)| **is_used).map(|(speaker, _)| *speaker);
    let speakers: BTreeSet<&str> = used().flatten().collect();
    let has_unnamed = used().any(|speaker| speaker.is_none());
    let is_held = |held: HashSet<&str>| -> Vec<bool> {
        by_voice.iter().map(|speaker| speaker.is_some_and(|speaker| held.contains(speaker))).collect()
    };
    let by = match unit {
        // Without two groups of utterances, one side would be empty.
        Some(SplitBy::Speaker) if speakers.len() + usize::from(has_unnamed) < 2 || speakers.is_empty() => {
            SplitBy::Utterance
        }
        Some(unit) => unit,
        None if speakers.len() >= MIN_SPEAKERS => {
            let is_held = is_held(choose(speakers.iter().copied(), share, key, has_unnamed));
            let held = (0..utterances.len()).filter(|&index| is_held[utterances.voice(index)]).count();
            let wanted = share * utterances.len() as f64;
            // Of a small corpus the share is too little to judge a model by.
            let is_near = |held: f64| held <= (wanted * MOST_APART).max(FEW) && held + 1.0 >= wanted / MOST_APART;
            if is_near(held as f64) { SplitBy::Speaker } else { SplitBy::Utterance }
        }
        None => SplitBy::Utterance,
    };
    let (validation, train) = match by {
        SplitBy::Speaker => {
            let is_held = is_held(choose(speakers.into_iter(), share, key, has_unnamed));
            divide(utterances, |index| is_held[utterances.voice(index)])
        }
        SplitBy::Utterance => {
            let number = |index| key.at(utterances.sample(index).0).unit();
            let below = (0..utterances.len()).filter(|&index| number(index) < share).count();
            if below == 0 || below == utterances.len() {
                let held = choose((0..utterances.len()).map(|index| utterances.get(index).id), share, key, false);
                divide(utterances, |index| held.contains(utterances.get(index).id))
            } else {
                // Without the names: a list may be long.
                divide(utterances, |index| number(index) < share)
            }
        }
    };
    Ok(Split { train, validation, by })
}

fn divide(utterances: &Utterances, is_held: impl Fn(usize) -> bool) -> (Utterances, Utterances) {
    (utterances.filter(|&index| is_held(index)), utterances.filter(|&index| !is_held(index)))
}

/// Chooses the names to hold out: those whose random number is below `share`, and at least one. At least one name is
/// not held out, unless `all_may_go`.
fn choose<'a>(names: impl Iterator<Item = &'a str>, share: f64, key: Key, all_may_go: bool) -> HashSet<&'a str> {
    let mut numbered: Vec<(f64, &str)> = names.map(|name| (key.with(name).unit(), name)).collect();
    numbered.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)));
    let below = numbered.iter().filter(|(number, _)| *number < share).count();
    let most = if all_may_go { numbered.len() } else { numbered.len().saturating_sub(1) };
    numbered.into_iter().take(below.clamp(1, most.max(1))).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Seconds;
    use proptest::prelude::*;

    use super::*;
    use crate::utterance::Utterance;

    fn utterance(id: usize, speaker: Option<u8>) -> Utterance {
        Utterance {
            id: id.to_string(),
            audio: "x.wav".into(),
            offset: Seconds(0.0),
            duration: Seconds(1.0),
            text: "x".into(),
            speaker: speaker.map(|s| s.to_string()),
            language: None,
        }
    }

    fn utterances(speakers: &[Option<u8>]) -> Vec<Utterance> {
        speakers.iter().enumerate().map(|(id, &speaker)| utterance(id, speaker)).collect()
    }

    fn split(all: &[Utterance], share: f64, seed: u64) -> Split {
        hold_out(&all.into(), share, Key::new(seed), None).unwrap()
    }

    #[test]
    fn few_speakers_are_split_by_utterance() {
        let all = utterances(&[Some(1), Some(2), Some(3), None, None].repeat(200));
        let found = split(&all, 0.1, 1);
        assert_eq!((found.by, found.train.len() + found.validation.len()), (SplitBy::Utterance, 1000));
        assert_eq!(split(&all, 0.1, 1), found);
        assert_ne!(split(&all, 0.1, 2), found);
        for seed in 0..50 {
            assert_eq!(split(&all[..2], 0.01, seed).validation.len(), 1);
        }
    }

    #[test]
    fn many_speakers_are_held_out_whole() {
        let names: Vec<_> = (0..200).map(|n| Some(n % 40)).collect();
        let found = split(&utterances(&names), 0.1, 1);
        assert_eq!((found.by, found.validation.len() % 5), (SplitBy::Speaker, 0));
        let one_speaker =
            hold_out(&utterances(&[Some(1); 9]).into(), 0.1, Key::new(1), Some(SplitBy::Speaker)).unwrap();
        assert_eq!(one_speaker.by, SplitBy::Utterance);
    }

    #[test]
    fn a_voice_with_most_of_the_corpus_is_not_held_out() {
        // Two voices with 45 % each, and twenty with half a percent each.
        let names: Vec<_> = (0..1000).map(|n| Some(if n < 900 { n % 2 } else { 2 + n % 20 } as u8)).collect();
        for seed in 0..50 {
            let found = split(&utterances(&names), 0.05, seed);
            let held = found.validation.len();
            assert!((15..=160).contains(&held), "{held} of 1000 by {:?}, seed {seed}", found.by);
        }
    }

    #[test]
    fn fourth_speaker_keeps_the_unit_of_an_earlier_split() {
        let mut all = utterances(&[Some(1), Some(2), Some(3)].repeat(30));
        let before = split(&all, 0.1, 1);
        all.extend((90..95).map(|id| utterance(id, Some(4))));
        let seed = (0..).find(|&seed| split(&all, 0.1, seed).by == SplitBy::Speaker);
        assert!(seed.is_some_and(|seed| seed < 100));
        let after = hold_out(&all.into(), 0.1, Key::new(1), Some(before.by)).unwrap();
        assert!(before.train.iter().all(|utterance| after.train.iter().any(|other| other == utterance)));
    }

    #[test]
    fn one_utterance_and_a_share_of_one_are_errors() {
        let split = |speakers: &[Option<u8>], share| hold_out(&utterances(speakers).into(), share, Key::new(0), None);
        assert_eq!(split(&[None], 0.5), Err(SplitError::TooFew(1)));
        assert_eq!(split(&[None; 9], 1.0), Err(SplitError::Share(1.0)));
    }

    /// Returns the names of the units on one side of a split.
    fn units(by: SplitBy, side: &Utterances) -> BTreeSet<String> {
        match by {
            SplitBy::Speaker => side.iter().filter_map(|utterance| utterance.speaker.map(str::to_owned)).collect(),
            SplitBy::Utterance => side.iter().map(|utterance| utterance.id.to_owned()).collect(),
        }
    }

    proptest! {
        #[test]
        fn both_sides_hold_everything_once_and_share_no_speaker(
            speakers in prop::collection::vec(prop::option::of(0u8..9), 2..60), share in 0.01..0.99, seed in any::<u64>(),
        ) {
            let all = utterances(&speakers);
            let split = split(&all, share, seed);
            prop_assert!(!split.train.is_empty() && !split.validation.is_empty());
            let mut ids: Vec<_> = split.train.iter().chain(&split.validation).map(|u| u.id.to_owned()).collect();
            ids.sort_unstable();
            let mut expected: Vec<_> = all.iter().map(|u| u.id.clone()).collect();
            expected.sort_unstable();
            prop_assert_eq!(ids, expected);
            if split.by == SplitBy::Speaker {
                prop_assert!(units(split.by, &split.train).is_disjoint(&units(split.by, &split.validation)));
            }
        }

        /// The documentation names the one case in which a unit may move: all units were below the share.
        #[test]
        fn added_data_moves_nothing_from_training_to_validation(
            first in prop::collection::vec(prop::option::of(0u8..30), 2..80),
            added in prop::collection::vec(prop::option::of(0u8..60), 1..80),
            at_front in any::<bool>(), share in 0.01..0.5, seed in any::<u64>(),
        ) {
            let before_all = utterances(&first);
            let new = added.iter().enumerate().map(|(n, &speaker)| utterance(1000 + n, speaker));
            let after_all: Vec<Utterance> = match at_front {
                true => new.chain(before_all.clone()).collect(),
                false => before_all.iter().cloned().chain(new).collect(),
            };
            let before = split(&before_all, share, seed);
            let after = hold_out(&after_all.into(), share, Key::new(seed), Some(before.by)).unwrap();
            let key = Key::new(seed);
            let all_below = units(before.by, &before_all.clone().into()).iter().all(|name| key.with(name).unit() < share);
            let moved = units(before.by, &before.train).intersection(&units(before.by, &after.validation)).count();
            prop_assert!(moved <= usize::from(all_below), "{moved} moved");
        }

        #[test]
        fn held_out_share_is_near_the_asked_share(count in 2usize..3000, share in 0.02..0.5, seed in any::<u64>()) {
            let found = split(&utterances(&vec![None; count]), share, seed).validation.len() as f64;
            let expected = share * count as f64;
            let spread = (expected * (1.0 - share)).sqrt();
            prop_assert!((found - expected).abs() <= 5.0 * spread + 1.0, "{found} of {count}, {expected} expected");
        }
    }
}
