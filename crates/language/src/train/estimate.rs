//! Probabilities and back-offs from counts.

use rustc_hash::FxHashMap;

use crate::ngrams::{ENDS_HERE, ModelData, NgramList};
use crate::vocabulary::UNKNOWN;

use super::TrainProgress;
use super::counts::{BEGIN, END, Gram};
use super::levels::{Counted, Level};

/// Sums over all n-grams with the same beginning.
#[derive(Clone, Copy, Default)]
struct Context {
    /// Sum of the counts.
    total: u64,
    /// Sum of the counts that pruning leaves out.
    pruned: u64,
    /// Number of kept n-grams that were counted once, twice, and more often.
    kept: [u64; 3],
}

impl Context {
    /// Returns the weight of the next shorter context: the mass of all discounts.
    fn weight(&self, discounts: &[f32; 3]) -> f32 {
        let mass: f32 = discounts.iter().zip(&self.kept).map(|(discount, &kept)| discount * kept as f32).sum();
        (mass + self.pruned as f32) / self.total as f32
    }
}

/// Estimates the probabilities and back-offs of the n-grams that are kept.
pub(super) fn estimate(
    words: Vec<String>,
    levels: Vec<Level>,
    discounts: &[[f32; 3]],
    characters: bool,
    progress: &mut dyn FnMut(TrainProgress),
) -> ModelData {
    let contexts: Vec<FxHashMap<Gram, Context>> = levels.iter().map(contexts).collect();
    // The unknown word counts as a word here, the start of a sentence does not.
    let n_words = levels[0].grams.iter().filter(|counted| !counted.is_pruned).count() - 1;
    let mut shorter: Vec<(Gram, f32)> = vec![(Gram::default(), 1.0 / n_words as f32)];
    let mut numbering = Numbering::default();
    let mut unigrams = Vec::new();
    let mut longer = Vec::new();
    for (index, level) in levels.iter().enumerate() {
        let probs = probs(level, &contexts[index], &discounts[index], &shorter);
        let mut list = NgramList::new(level.order);
        for (gram, prob) in &probs {
            let log_prob = prob.log10().min(0.0);
            let backoff = contexts.get(index + 1).map(|contexts| backoff(gram, contexts, &discounts[index + 1]));
            if index == 0 {
                numbering.add(gram[0]);
                unigrams.push((log_prob, backoff.unwrap_or(ENDS_HERE)));
            } else {
                list.push(gram[..level.order].iter().map(|&word| numbering.id(word)), log_prob, backoff);
            }
        }
        if index > 0 {
            longer.push(list);
        }
        progress(TrainProgress::Estimated { order: level.order, n_ngrams: probs.len() as u64 });
        shorter = probs;
    }
    let words = numbering.kept.iter().map(|&word| words[word as usize].clone()).collect();
    ModelData { words, unigrams, longer, characters }
}

/// New ids of the words that are kept.
#[derive(Default)]
struct Numbering {
    kept: Vec<u32>,
    ids: FxHashMap<u32, u32>,
}

impl Numbering {
    fn add(&mut self, word: u32) {
        self.ids.insert(word, self.kept.len() as u32);
        self.kept.push(word);
    }

    fn id(&self, word: u32) -> u32 {
        *self.ids.get(&word).expect("an n-gram is kept only with all of its words: thresholds do not fall")
    }
}

/// Removes the last word: the context of an n-gram.
fn context(gram: &Gram) -> Gram {
    let mut context = Gram::default();
    context[..gram.len() - 1].copy_from_slice(&gram[1..]);
    context
}

fn contexts(level: &Level) -> FxHashMap<Gram, Context> {
    let mut contexts = FxHashMap::<Gram, Context>::default();
    for counted in &level.grams {
        let sums = contexts.entry(context(&counted.gram)).or_default();
        sums.total += counted.adjusted;
        if counted.is_pruned {
            sums.pruned += counted.adjusted;
        } else if let Some(class) = class(counted.adjusted) {
            sums.kept[class] += 1;
        }
    }
    contexts
}

/// Returns which discount belongs to a count; none to zero.
fn class(count: u64) -> Option<usize> {
    (count.min(3) as usize).checked_sub(1)
}

/// Computes the interpolated probabilities of the kept n-grams of a level from those of the next shorter level.
fn probs(
    level: &Level,
    contexts: &FxHashMap<Gram, Context>,
    discounts: &[f32; 3],
    shorter: &[(Gram, f32)],
) -> Vec<(Gram, f32)> {
    let mut at = 0;
    let kept = level.grams.iter().filter(|counted| !counted.is_pruned);
    let prob = |counted: &Counted| {
        let gram = counted.gram;
        // Both levels are sorted from the last word, so the endings come in the order of the longer n-grams.
        let mut ending = gram;
        ending[level.order - 1..].fill(0);
        while shorter.get(at).is_some_and(|(shorter, _)| *shorter < ending) {
            at += 1;
        }
        let lower = shorter.get(at).filter(|(shorter, _)| *shorter == ending).map_or(0.0, |&(_, prob)| prob);
        let sums = contexts.get(&context(&gram)).copied().unwrap_or_default();
        let discount = class(counted.adjusted).map_or(0.0, |class| discounts[class]);
        let own = (counted.adjusted as f32 - discount) / sums.total as f32;
        // The start of a sentence is given and not chosen.
        let is_begin = level.order == 1 && gram[0] == BEGIN;
        (gram, if is_begin { 1.0 } else { own + sums.weight(discounts) * lower })
    };
    kept.map(prob).collect()
}

/// Computes the back-off of an n-gram: the weight of what it leaves to shorter contexts.
fn backoff(gram: &Gram, contexts: &FxHashMap<Gram, Context>, discounts: &[f32; 3]) -> f32 {
    let sums = if matches!(gram[0], UNKNOWN | END) { None } else { contexts.get(gram) };
    let log = sums.map_or(0.0, |sums| sums.weight(discounts).log10());
    if log == 0.0 { ENDS_HERE } else { log }
}
