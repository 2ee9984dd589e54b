//! Discounts: what seen n-grams give to unseen ones.

use crate::error::LanguageError;

use super::levels::Level;

/// Computes the discounts of n-grams that were counted once, twice, and more often, by equation 26 of Chen and Goodman
/// 1998; the given ones if that fails. Also returns whether they are the given ones.
pub(super) fn discounts(level: &Level, fallback: Option<[f32; 3]>) -> Result<([f32; 3], bool), LanguageError> {
    match closed_form(&level.count_of_counts) {
        Ok(discounts) => Ok((discounts, false)),
        Err(problem) => match fallback {
            Some(fallback) => Ok((fallback, true)),
            None => Err(LanguageError::Training(format!("discounts of {}-grams: {problem}", level.order))),
        },
    }
}

fn closed_form(n: &[u64; 5]) -> Result<[f32; 3], String> {
    if let Some(count) = (1..4).find(|&count| n[count] == 0) {
        return Err(format!("no n-gram has the adjusted count {count}; the text may be too small or repeat itself"));
    }
    let y = (n[1] as f64 / (n[1] as f64 + 2.0 * n[2] as f64)) as f32;
    let mut discounts = [0.0; 3];
    for count in 1..4 {
        let discount = count as f32 - (count + 1) as f32 * y * n[count + 1] as f32 / n[count] as f32;
        if !(0.0..=count as f32).contains(&discount) {
            return Err(format!("the discount of the count {count} is {discount}, not from 0 to {count}"));
        }
        discounts[count - 1] = discount;
    }
    Ok(discounts)
}
