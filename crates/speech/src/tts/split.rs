//! Splits a long text into parts that are short enough for a synthesizer.

/// Characters that end a sentence, in the scripts that were tested.
const SENTENCE_ENDS: &[char] = &['.', '!', '?', '…', '।', '॥', '؟', '۔', '。', '！', '？', '\n'];
/// Characters that end a clause.
const CLAUSE_ENDS: &[char] = &[',', ';', ':', '،', '؛', '、', '，', '—', '–'];

/// Splits `text` into parts of at most `limit` characters, at the largest unit that fits: sentences, clauses, words,
/// and pieces of a word as the last resort. Parts without a letter or digit are dropped.
///
/// ```
/// use plimsoll_speech::tts::split_text;
///
/// assert_eq!(split_text("Good day. How are you?", 12), ["Good day.", "How are you?"]);
/// ```
pub fn split_text(text: &str, limit: usize) -> Vec<String> {
    let limit = limit.max(1);
    let mut parts = Vec::new();
    for sentence in split_after(text, SENTENCE_ENDS).into_iter().map(str::trim) {
        if length(sentence) <= limit {
            parts.push(sentence.to_string());
        } else {
            let clauses = split_after(sentence, CLAUSE_ENDS).into_iter().map(str::trim);
            let fitting = clauses
                .flat_map(|clause| if length(clause) <= limit { vec![clause.into()] } else { words(clause, limit) });
            parts.extend(join(fitting, limit));
        }
    }
    parts.retain(|part| part.chars().any(char::is_alphanumeric));
    parts
}

/// Splits `text` after each of `marks` that is not inside of a word or a number, as in `3.5` or `U.S.A.`. A script without spaces has its own
/// marks, which always end.
fn split_after<'a>(text: &'a str, marks: &[char]) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let (mut begin, mut before) = (0, None::<char>);
    let mut characters = text.char_indices().peekable();
    while let Some((at, mark)) = characters.next() {
        let after = characters.peek().map(|&(_, after)| after);
        let is_inside =
            mark.is_ascii() && before.is_some_and(char::is_alphanumeric) && after.is_some_and(char::is_alphanumeric);
        if marks.contains(&mark) && !is_inside {
            let end = at + mark.len_utf8();
            parts.push(&text[begin..end]);
            begin = end;
        }
        before = Some(mark);
    }
    parts.push(&text[begin..]);
    parts
}

/// Splits a clause into words, and a word longer than `limit` into pieces.
fn words(clause: &str, limit: usize) -> Vec<String> {
    let pieces = |word: &str| -> Vec<String> {
        let characters: Vec<char> = word.chars().collect();
        characters.chunks(limit).map(|piece| piece.iter().collect()).collect()
    };
    clause.split_whitespace().flat_map(pieces).collect()
}

/// Joins neighboring `pieces` with a space, so that the parts are as long as possible and joining makes no part longer
/// than `limit` characters.
fn join(pieces: impl Iterator<Item = String>, limit: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for piece in pieces {
        match all.last_mut() {
            Some(last) if length(last) + 1 + length(&piece) <= limit => {
                last.push(' ');
                last.push_str(&piece);
            }
            _ => all.push(piece),
        }
    }
    all
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, limit: usize, expected: &[&str]) {
        assert_eq!(split_text(text, limit), expected, "{text}");
    }

    #[test]
    fn text_is_split_at_the_largest_unit_that_fits() {
        check("Good day. How are you?  Fine!", 40, &["Good day.", "How are you?", "Fine!"]);
        check("नमस्कार। तुम कैसे हो", 40, &["नमस्कार।", "तुम कैसे हो"]);
        check("It is 3.5 miles in the U.S.A. today.", 60, &["It is 3.5 miles in the U.S.A.", "today."]);
        check("one two three four five", 11, &["one two", "three four", "five"]);
        check("one two, three four, five", 13, &["one two,", "three four,", "five"]);
        check("abcdefghij kl", 4, &["abcd", "efgh", "ij", "kl"]);
        check("...", 40, &[]);
        check("", 40, &[]);
    }

    #[test]
    fn splitting_keeps_every_word() {
        let text = "word after word and again, ".repeat(200);
        let found = split_text(&text, 30);
        assert!(found.iter().all(|part| length(part) <= 30));
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        assert_eq!(words(&found.join(" ")), words(&text));
    }
}
