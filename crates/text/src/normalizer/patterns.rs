//! Replacement of what a regular expression finds.

use regex::{Captures, Regex};

use crate::spoken::is_boundary;

/// Replaces the matches of `pattern` that are whole words and for which `replace` returns a text.
///
/// `replace` gets the match and the text before and after it.
pub(super) fn replace_words(
    pattern: &Regex,
    text: &str,
    replace: impl Fn(&Captures<'_>, &str, &str) -> Option<String>,
) -> String {
    let mut output = String::with_capacity(text.len());
    let (mut done, mut place) = (0, 0);
    while let Some(captures) = pattern.captures_at(text, place) {
        let found = captures.get_match();
        let (before, after) = (&text[..found.start()], &text[found.end()..]);
        // The end of a match may be a point, after which a word can begin.
        let ends = is_boundary(after.chars().next()) || is_boundary(found.as_str().chars().next_back());
        let is_word = is_boundary(before.chars().next_back()) && ends;
        match is_word.then(|| replace(&captures, before, after)).flatten() {
            Some(new) => {
                output.push_str(&text[done..found.start()]);
                output.push_str(&new);
                if !is_boundary(after.chars().next()) {
                    output.push(' ');
                }
                (done, place) = (found.end(), found.end());
            }
            None => place = found.start() + found.as_str().chars().next().map_or(1, char::len_utf8),
        }
        if place >= text.len() {
            break;
        }
    }
    output.push_str(&text[done..]);
    output
}

/// Returns whether a number, such as `.5`, continues at the start of `after`.
pub(super) fn number_continues(after: &str) -> bool {
    let mut characters = after.chars();
    let is_mark = characters.next().is_some_and(|mark| matches!(mark, '.' | ',' | '/' | '-' | ':' | '–'));
    is_mark && characters.next().is_some_and(char::is_numeric)
}

/// Returns whether a number, such as `5.`, ends at the end of `before`.
pub(super) fn number_precedes(before: &str) -> bool {
    let mut characters = before.chars().rev();
    let is_mark = characters.next().is_some_and(|mark| matches!(mark, '.' | ',' | '/' | '-' | ':' | '–'));
    is_mark && characters.next().is_some_and(char::is_numeric)
}
