//! Adjusted counts: how often n-grams of the highest order occur, and how many words precede the shorter ones.

use crate::vocabulary::UNKNOWN;

use super::counts::{BEGIN, Gram};

/// An n-gram with its counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) gram: Gram,
    /// Number of different words before the n-gram; its count for the highest order and at the start of a sentence.
    pub(super) adjusted: u64,
    /// Number of times that the n-gram occurs.
    pub(super) actual: u64,
    /// Whether the model leaves the n-gram out.
    pub(super) is_pruned: bool,
}

/// N-grams of one order, sorted by their words from the last to the first.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) order: usize,
    pub(super) grams: Vec<Counted>,
    /// Number of n-grams with an adjusted count of 0 to 4.
    pub(super) count_of_counts: [u64; 5],
}

/// Computes the n-grams of all orders from the sorted counts of the highest order, in which `<s>` fills the places before
/// a sentence.
pub(super) fn levels(order: usize, padded: Vec<(Gram, u64)>, thresholds: &[u64]) -> Vec<Level> {
    // The length of each n-gram without the starts that only fill places.
    let length = |gram: &Gram| gram[..order].iter().position(|&word| word == BEGIN).map_or(order, |at| at + 1);
    let last_length = padded.last().map_or(0, |(gram, _)| length(gram));
    let mut by_length: Vec<Vec<Counted>> = vec![Vec::new(); order];
    for (gram, count) in padded {
        let length = length(&gram);
        let mut gram = gram;
        gram[length..].fill(0);
        by_length[length - 1].push(Counted { gram, adjusted: count, actual: count, is_pruned: false });
    }
    for shorter in (1..order).rev() {
        let mut endings = endings(&by_length[shorter], shorter);
        by_length[shorter - 1].append(&mut endings);
    }
    for word in [UNKNOWN, BEGIN] {
        let mut gram = Gram::default();
        gram[0] = word;
        by_length[0].push(Counted { gram, adjusted: 0, actual: 0, is_pruned: false });
    }
    let levels = by_length.into_iter().enumerate().map(|(index, mut grams)| {
        grams.sort_unstable_by_key(|counted| counted.gram);
        let level_order = index + 1;
        for counted in &mut grams {
            let is_special = level_order == 1 && counted.gram[0] <= BEGIN;
            counted.is_pruned = !is_special && counted.actual <= thresholds[index];
        }
        // lmplz takes the last n-grams of its stream at their actual count when it computes discounts. It makes no
        // difference for a large text, but results should agree for small ones too.
        let is_last_actual = level_order < order && level_order <= last_length;
        let count_of_counts = count_of_counts(&grams, is_last_actual);
        Level { order: level_order, grams, count_of_counts }
    });
    levels.collect()
}

/// Computes the n-grams of `shorter` words with which `longer` ones end. These are sorted.
fn endings(longer: &[Counted], shorter: usize) -> Vec<Counted> {
    let mut sorted: Vec<&Counted> = longer.iter().collect();
    sorted.sort_unstable_by_key(|counted| counted.gram);
    let mut endings: Vec<Counted> = Vec::new();
    for counted in sorted {
        let mut gram = counted.gram;
        gram[shorter..].fill(0);
        match endings.last_mut().filter(|last| last.gram == gram) {
            Some(last) => {
                last.adjusted += 1;
                last.actual += counted.actual;
            }
            None => endings.push(Counted { gram, adjusted: 1, ..*counted }),
        }
    }
    endings
}

fn count_of_counts(grams: &[Counted], is_last_actual: bool) -> [u64; 5] {
    let mut counts = [0; 5];
    for (index, counted) in grams.iter().enumerate() {
        let is_last = index + 1 == grams.len();
        let count = if is_last && is_last_actual { counted.actual } else { counted.adjusted };
        if let Some(of_count) = counts.get_mut(count as usize) {
            *of_count += 1;
        }
    }
    counts
}
