//! Divides utterances into training and validation, by speaker where speakers are known.

use std::collections::BTreeMap;

use plimsoll_core::Key;

use crate::utterance::Utterance;

/// Smallest number of speakers for holding out whole speakers. Of fewer speakers, one would be too many of the training
/// voices.
const MIN_SPEAKERS: usize = 4;

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
    pub train: Vec<Utterance>,
    /// Utterances for validation.
    pub validation: Vec<Utterance>,
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
/// With four or more named speakers, whole speakers are held out, at least one; utterances without a speaker stay in
/// training. With fewer speakers, single utterances are held out.
///
/// Equal utterances, share and key always give an equal split. A changed list does not: the number to hold out grows
/// with the list, so adding utterances can move utterances and whole speakers from training to validation, or back. A
/// model that was trained before such a change may have been trained on data that is now validation data.
///
/// # Errors
/// With fewer than two utterances, or when `share` is not above 0 and below 1.
pub fn hold_out(utterances: &[Utterance], share: f64, key: Key) -> Result<Split, SplitError> {
    if utterances.len() < 2 {
        return Err(SplitError::TooFew(utterances.len()));
    }
    if !(share > 0.0 && share < 1.0) {
        return Err(SplitError::Share(share));
    }
    let wanted = (share * utterances.len() as f64).round().clamp(1.0, (utterances.len() - 1) as f64) as usize;
    let speakers = speakers(utterances);
    let (by, held) = if speakers.len() >= MIN_SPEAKERS {
        (SplitBy::Speaker, hold_out_speakers(speakers, wanted, utterances.len(), key))
    } else {
        (SplitBy::Utterance, hold_out_utterances(utterances, wanted, key))
    };
    let mut split = Split { train: vec![], validation: vec![], by };
    for (utterance, held) in utterances.iter().zip(held) {
        let side = if held { &mut split.validation } else { &mut split.train };
        side.push(utterance.clone());
    }
    Ok(split)
}

/// Returns the indices of the utterances of each named speaker.
fn speakers(utterances: &[Utterance]) -> BTreeMap<&str, Vec<usize>> {
    let mut speakers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, utterance) in utterances.iter().enumerate() {
        if let Some(speaker) = &utterance.speaker {
            speakers.entry(speaker).or_default().push(index);
        }
    }
    speakers
}

/// Chooses whole speakers for validation: goes through the speakers in random order, and takes each speaker that brings
/// the number of held-out utterances closer to `wanted`. Returns a flag for each of the `total` utterances, true if
/// held out.
fn hold_out_speakers(speakers: BTreeMap<&str, Vec<usize>>, wanted: usize, total: usize, key: Key) -> Vec<bool> {
    let count = speakers.len();
    let smallest = speakers.values().min_by_key(|indices| indices.len()).cloned().unwrap_or_default();
    let mut order: Vec<(&str, Vec<usize>)> = speakers.into_iter().collect();
    order.sort_by_key(|(name, _)| key.with(name).bits());
    let mut taken: Vec<Vec<usize>> = Vec::new();
    for (_, indices) in order {
        let now: usize = taken.iter().map(Vec::len).sum();
        let closer = (now + indices.len()).abs_diff(wanted) < now.abs_diff(wanted);
        if closer && taken.len() + 1 < count {
            taken.push(indices);
        }
    }
    if taken.is_empty() {
        taken.push(smallest);
    }
    mark(total, taken.into_iter().flatten())
}

/// Chooses `wanted` random utterances for validation, and returns a flag for each utterance that is true if it is held
/// out.
fn hold_out_utterances(utterances: &[Utterance], wanted: usize, key: Key) -> Vec<bool> {
    let mut order: Vec<usize> = (0..utterances.len()).collect();
    order.sort_by_key(|&index| key.with(&utterances[index].id).bits());
    mark(utterances.len(), order.into_iter().take(wanted))
}

/// Returns a vector of `total` flags that are true at each of `indices` and false elsewhere.
fn mark(total: usize, indices: impl Iterator<Item = usize>) -> Vec<bool> {
    let mut marks = vec![false; total];
    indices.for_each(|index| marks[index] = true);
    marks
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Seconds;
    use proptest::prelude::*;

    use super::*;

    fn utterances(speakers: &[Option<u8>]) -> Vec<Utterance> {
        let utterance = |(n, speaker): (usize, &Option<u8>)| Utterance {
            id: n.to_string(),
            audio: "x.wav".into(),
            offset: Seconds(0.0),
            duration: Seconds(1.0),
            text: "x".into(),
            speaker: speaker.map(|s| s.to_string()),
            language: None,
        };
        speakers.iter().enumerate().map(utterance).collect()
    }

    #[test]
    fn few_speakers_are_split_by_utterance() {
        let all = utterances(&[Some(1), Some(2), Some(3), None, None].repeat(20));
        let split = hold_out(&all, 0.1, Key::new(1)).unwrap();
        assert_eq!((split.by, split.validation.len(), split.train.len()), (SplitBy::Utterance, 10, 90));
        assert_eq!(hold_out(&all, 0.1, Key::new(1)).unwrap(), split);
        assert_ne!(hold_out(&all, 0.1, Key::new(2)).unwrap(), split);
        assert_eq!(hold_out(&all[..2], 0.01, Key::new(1)).unwrap().validation.len(), 1);
    }

    #[test]
    fn many_speakers_are_held_out_whole() {
        let names: Vec<_> = (0..200).map(|n| Some(n % 20)).collect();
        let split = hold_out(&utterances(&names), 0.1, Key::new(1)).unwrap();
        assert_eq!((split.by, split.validation.len()), (SplitBy::Speaker, 20));
        let lopsided = utterances(&[vec![Some(0); 97], vec![Some(1), Some(2), Some(3)]].concat());
        assert!((1..=3).contains(&hold_out(&lopsided, 0.1, Key::new(1)).unwrap().validation.len()));
    }

    #[test]
    fn one_utterance_and_a_share_of_one_are_errors() {
        assert_eq!(hold_out(&utterances(&[None]), 0.5, Key::new(0)), Err(SplitError::TooFew(1)));
        assert_eq!(hold_out(&utterances(&[None; 9]), 1.0, Key::new(0)), Err(SplitError::Share(1.0)));
    }

    proptest! {
        #[test]
        fn both_sides_hold_everything_once_and_share_no_speaker(
            speakers in prop::collection::vec(prop::option::of(0u8..9), 2..60), share in 0.01..0.99, seed in any::<u64>(),
        ) {
            let all = utterances(&speakers);
            let split = hold_out(&all, share, Key::new(seed)).unwrap();
            prop_assert!(!split.train.is_empty() && !split.validation.is_empty());
            let mut ids: Vec<_> = split.train.iter().chain(&split.validation).map(|u| u.id.clone()).collect();
            ids.sort_unstable();
            let mut expected: Vec<_> = all.iter().map(|u| u.id.clone()).collect();
            expected.sort_unstable();
            prop_assert_eq!(ids, expected);
            if split.by == SplitBy::Speaker {
                let speakers = |side: &[Utterance]| side.iter().filter_map(|u| u.speaker.clone()).collect::<Vec<_>>();
                let train = speakers(&split.train);
                prop_assert!(speakers(&split.validation).iter().all(|s| !train.contains(s)));
            }
        }
    }
}
