//! Splits a text into runs of words and the marks between them.

/// Word whose phonemes end those of a line. The program writes a line for each clause, so their number says nothing.
pub(super) const LAST_WORD: &str = "plimsollplimsoll";
/// Marks that shape how a sentence is read, in the scripts of the languages that have voices.
const MARKS: &str = ".,;:!?…—–¿¡।॥؟،؛。，、；：！？";
/// Marks that are not heard, and end no run: quotation marks and brackets.
const SILENT: &str = "\"«»“”„‟()[]{}<>|*_=~`^\\";
/// Most bytes of a run. The program reads a longer line in parts of its own.
const RUN_BYTES: usize = 400;

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run<'a> {
    /// Words without marks between them. What cannot be heard may stand inside.
    Words(&'a str),
    /// A mark that is kept.
    Mark(char),
}

/// Splits `text` into runs of words and the marks after them. Equal marks that follow each other, as in `...`, are one; a mark inside of
/// a word or a number, as in `3.5`, stays in it.
pub(super) fn runs(text: &str) -> Vec<Run<'_>> {
    let mut runs = Vec::new();
    let mut begin = 0;
    let mut before = None;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let after = characters.peek().map(|&(_, after)| after);
        let joins = |side: Option<char>| side.is_some_and(char::is_alphanumeric);
        let is_inside = joins(before) && joins(after);
        before = Some(character);
        if MARKS.contains(character) && !is_inside {
            push_words(&mut runs, &text[begin..at]);
            begin = at + character.len_utf8();
            if runs.last() != Some(&Run::Mark(character)) {
                runs.push(Run::Mark(character));
            }
        }
    }
    push_words(&mut runs, &text[begin..]);
    // A text begins with what is heard.
    let first = runs.iter().position(|run| matches!(run, Run::Words(_))).unwrap_or(runs.len());
    runs.split_off(first)
}

/// Adds the words of `text`, in parts that are not too long.
fn push_words<'a>(runs: &mut Vec<Run<'a>>, mut text: &'a str) {
    let is_heard = |text: &str| text.chars().any(|one| !one.is_whitespace() && !SILENT.contains(one) && one != '-');
    while text.len() > RUN_BYTES {
        let end = text.floor_char_boundary(RUN_BYTES);
        let end = text[..end].rfind(char::is_whitespace).filter(|&space| space > 0).unwrap_or(end);
        let (part, rest) = text.split_at(end);
        if is_heard(part) {
            runs.push(Run::Words(part.trim()));
        }
        text = rest;
    }
    if is_heard(text) {
        runs.push(Run::Words(text.trim()));
    }
}

/// Returns `words` as one line for the program: without marks that it would read aloud or take for the end of a line.
pub(super) fn line(words: &str) -> String {
    let heard: String =
        words.chars().map(|one| if SILENT.contains(one) || one.is_control() { ' ' } else { one }).collect();
    // The word that ends a line in the talk with the program is in no text.
    let is_read = |word: &&str| word.chars().any(|one| one != '-') && !word.to_lowercase().contains(LAST_WORD);
    let heard = heard.split_whitespace().filter(is_read);
    heard.collect::<Vec<_>>().join(" ")
}
