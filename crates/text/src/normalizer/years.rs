//! Numbers that are years, and decades.

use crate::spoken::{Language, Replacement, is_boundary, replace_numbers, year};

/// Replaces whole numbers of four digits between 1100 and 2099 by the words of a year.
pub(super) fn apply(language: Language, text: &str) -> String {
    replace_numbers(language, text, |found| {
        let number = found.whole.parse().ok().filter(|number| (1100..2100).contains(number))?;
        // The number has no group mark, no sign and no fraction.
        let is_plain = !found.before.ends_with([',', '.', '/', ':']) || found.before.ends_with(". ");
        let consumed = found.length == 4;
        let words = year(language, number);
        let is_decade = language == Language::English && found.after.starts_with('s') && number % 10 == 0;
        let is_decade = is_decade && is_boundary(found.after[1..].chars().next());
        let stands_alone = is_boundary(found.before.chars().next_back()) && is_boundary(found.after.chars().next());
        if found.negative || !found.fraction.is_empty() || !is_plain || !consumed || !(stands_alone || is_decade) {
            return None;
        }
        let text = if is_decade { plural(&words) } else { words };
        Some(Replacement { text, before: 0, after: usize::from(is_decade) })
    })
}

/// Returns the plural of a year: `nineteen eighties`, `nineteen hundreds`.
fn plural(words: &str) -> String {
    words.strip_suffix('y').map_or_else(|| format!("{words}s"), |head| format!("{head}ies"))
}
