//! Characters that a model never learned: those of held-out texts that no training text has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

/// A character that no training text has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnheardCharacter {
    /// The character.
    pub character: char,
    /// How often the held-out texts have it.
    pub occurrences: usize,
    /// Names of the held-out utterances that have it, in their order, each once.
    pub utterances: Vec<String>,
}

/// Finds the characters of held-out texts that no training text has, the most frequent first.
///
/// `held_out` has the name and the text of each utterance. Normalize all texts in the same way before. White space is
/// never reported.
///
/// ```
/// use plimsoll_text::unheard_characters;
/// let unheard = unheard_characters(["ab", "c"], [("u1", "axx"), ("u2", "by"), ("u3", "xc")]);
/// assert_eq!(unheard[0].to_string(), "`x` 3 times in u1, u3");
/// assert_eq!(unheard[1].to_string(), "`y` once in u2");
/// assert_eq!(unheard.len(), 2);
/// ```
pub fn unheard_characters<'a>(
    training: impl IntoIterator<Item = &'a str>,
    held_out: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<UnheardCharacter> {
    let known: BTreeSet<char> = training.into_iter().flat_map(str::chars).collect();
    let mut unheard: BTreeMap<char, UnheardCharacter> = BTreeMap::new();
    for (name, text) in held_out {
        let mut seen = BTreeSet::new();
        for character in text.chars().filter(|character| !character.is_whitespace() && !known.contains(character)) {
            let empty = || UnheardCharacter { character, occurrences: 0, utterances: Vec::new() };
            let found = unheard.entry(character).or_insert_with(empty);
            found.occurrences += 1;
            if seen.insert(character) {
                found.utterances.push(name.to_owned());
            }
        }
    }
    let mut unheard: Vec<UnheardCharacter> = unheard.into_values().collect();
    unheard.sort_by_key(|found| std::cmp::Reverse(found.occurrences));
    unheard
}

impl fmt::Display for UnheardCharacter {
    /// Formats the character, its number, and up to three utterances.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        // A combining mark or an invisible character is shown by its code point.
        let visible = self.character.is_alphanumeric() || self.character.is_ascii_punctuation();
        match visible {
            true => write!(f, "`{}`", self.character)?,
            false => write!(f, "`{}` (U+{:04X})", self.character.escape_debug(), self.character as u32)?,
        }
        match self.occurrences {
            1 => write!(f, " once in ")?,
            count => write!(f, " {count} times in ")?,
        }
        f.write_str(&self.utterances[..self.utterances.len().min(SHOWN)].join(", "))?;
        match self.utterances.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_character_is_counted_once_with_its_utterances() {
        let names: Vec<String> = (0..5).map(|n| format!("u{n}")).collect();
        let held_out = names.iter().map(|name| (name.as_str(), "a é\u{301}é b"));
        let unheard = unheard_characters(["ab"], held_out);
        let counts: Vec<_> = unheard.iter().map(|u| (u.character, u.occurrences, u.utterances.len())).collect();
        assert_eq!(counts, [('é', 10, 5), ('\u{301}', 5, 5)]);
        assert_eq!(unheard[0].to_string(), "`é` 10 times in u0, u1, u2 and 2 more");
        assert_eq!(unheard[1].to_string(), "`\\u{301}` (U+0301) 5 times in u0, u1, u2 and 2 more");
        assert!(unheard_characters(["abc"], [("u", "cab")]).is_empty());
        assert!(unheard_characters([], []).is_empty());
    }
}
