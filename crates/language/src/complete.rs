//! Prepares n-grams for lookups: sorts them, marks contexts, and fills gaps.

use crate::error::LanguageError;
use crate::ngrams::{ENDS_HERE, ModelData, NgramList};

/// Sorts the n-grams, marks those that begin longer ones, and adds n-grams that are missing as endings.
///
/// # Errors
/// When an n-gram stands there twice, or begins with words that are no n-gram: the model could never use it.
pub(crate) fn complete(data: &mut ModelData) -> Result<(), LanguageError> {
    for list in &mut data.longer {
        list.sort();
        if let Some(at) = (1..list.len()).find(|&at| list.gram(at - 1) == list.gram(at)) {
            return Err(LanguageError::Model(format!("\"{}\" stands there twice", text(&data.words, list.gram(at)))));
        }
    }
    mark_contexts(data)?;
    for longer in (1..data.longer.len()).rev() {
        let (shorter, longer) = data.longer.split_at_mut(longer);
        let shorter = shorter.last_mut().expect("the split is behind the first list");
        add_endings(shorter, &longer[0]);
    }
    for at in 0..data.longer.len().saturating_sub(1) {
        fill_endings(data, at);
    }
    Ok(())
}

/// Writes an n-gram as a person reads it.
fn text(words: &[String], newest_first: &[u32]) -> String {
    let words: Vec<&str> = newest_first.iter().rev().map(|&id| words[id as usize].as_str()).collect();
    words.join(" ")
}

/// Turns the back-off of an n-gram that begins a longer one from the negative to the positive zero.
fn mark(backoff: &mut f32) {
    if *backoff == 0.0 {
        *backoff = 0.0;
    }
}

fn mark_contexts(data: &mut ModelData) -> Result<(), LanguageError> {
    for at in 0..data.longer.len() {
        let (shorter, longer) = data.longer.split_at_mut(at);
        let longer = &longer[0];
        for index in 0..longer.len() {
            let context = &longer.gram(index)[1..];
            match shorter.last_mut() {
                None => mark(&mut data.unigrams[context[0] as usize].1),
                Some(list) => match list.find(context) {
                    Some(found) => mark(&mut list.backoffs[found]),
                    None => {
                        let (gram, context) = (text(&data.words, longer.gram(index)), text(&data.words, context));
                        let problem = format!("\"{gram}\" is an n-gram, but its beginning \"{context}\" is none");
                        return Err(LanguageError::Model(problem));
                    }
                },
            }
        }
    }
    Ok(())
}

/// Adds to `shorter` the endings of `longer` that it lacks, with NaN in place of their log-probability.
fn add_endings(shorter: &mut NgramList, longer: &NgramList) {
    let (mut at, n_known) = (0, shorter.len());
    let mut last: Vec<u32> = Vec::new();
    for index in 0..longer.len() {
        let ending = &longer.gram(index)[..shorter.order];
        while at < n_known && shorter.gram(at) < ending {
            at += 1;
        }
        let known = at < n_known && shorter.gram(at) == ending;
        if !known && last != ending {
            last = ending.to_vec();
            shorter.push(last.iter().copied(), f32::NAN, Some(ENDS_HERE));
        }
    }
    if shorter.len() > n_known {
        shorter.sort();
    }
}

/// Computes the log-probabilities of added endings by backing off, as a lookup would.
fn fill_endings(data: &mut ModelData, at: usize) {
    let (shorter, list) = data.longer.split_at_mut(at);
    let (shorter, list) = (shorter.last(), &mut list[0]);
    for index in 0..list.len() {
        if !list.probs[index].is_nan() {
            continue;
        }
        let gram = list.gram(index);
        let (ending, context) = (&gram[..list.order - 1], &gram[1..]);
        let (prob, backoff) = match shorter {
            None => (data.unigrams[ending[0] as usize].0, data.unigrams[context[0] as usize].1),
            Some(shorter) => (
                shorter.find(ending).map_or(f32::NEG_INFINITY, |found| shorter.probs[found]),
                shorter.find(context).map_or(0.0, |found| shorter.backoffs[found]),
            ),
        };
        list.probs[index] = prob + backoff;
    }
}
