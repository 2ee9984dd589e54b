//! Long texts in parts that a synthesiser has learned to say at once.

/// Signs that end a sentence, in the scripts that we have met.
const SENTENCE_ENDS: &[char] = &['.', '!', '?', '…', '।', '॥', '؟', '۔', '。', '！', '？', '\n'];
/// Signs at which one may breathe.
const BREATHS: &[char] = &[',', ';', ':', '،', '؛', '、', '，', '—', '–'];

/// `text` in parts of at most `longest` characters: whole sentences, where these are too long what stands between
/// commas, else whole words, and a word in pieces only where it alone is too long.
pub fn parts(text: &str, longest: usize) -> Vec<String> {
    let longest = longest.max(1);
    let mut parts = Vec::new();
    for sentence in text.split_inclusive(SENTENCE_ENDS).map(str::trim) {
        if length(sentence) <= longest {
            parts.push(sentence.to_string());
        } else {
            let clauses = sentence.split_inclusive(BREATHS).map(str::trim);
            let fitting =
                clauses.flat_map(
                    |clause| if length(clause) <= longest { vec![clause.into()] } else { words(clause, longest) },
                );
            parts.extend(joined(fitting, longest));
        }
    }
    parts.retain(|part| part.chars().any(char::is_alphanumeric));
    parts
}

/// The words of a clause, each at most so long.
fn words(clause: &str, longest: usize) -> Vec<String> {
    let pieces = |word: &str| -> Vec<String> {
        let letters: Vec<char> = word.chars().collect();
        letters.chunks(longest).map(|piece| piece.iter().collect()).collect()
    };
    clause.split_whitespace().flat_map(pieces).collect()
}

/// As many of `pieces` together as fit.
fn joined(pieces: impl Iterator<Item = String>, longest: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for piece in pieces {
        match all.last_mut() {
            Some(last) if length(last) + 1 + length(&piece) <= longest => {
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

    fn check(text: &str, longest: usize, expected: &[&str]) {
        assert_eq!(parts(text, longest), expected, "{text}");
    }

    #[test]
    fn sentences_stay_whole_where_they_fit() {
        check("Good day. How are you?  Fine!", 40, &["Good day.", "How are you?", "Fine!"]);
        check("नमस्कार। तुम कैसे हो", 40, &["नमस्कार।", "तुम कैसे हो"]);
        check("one two three four five", 11, &["one two", "three four", "five"]);
        check("one two, three four, five", 13, &["one two,", "three four,", "five"]);
        check("abcdefghij kl", 4, &["abcd", "efgh", "ij", "kl"]);
        check("...", 40, &[]);
        check("", 40, &[]);
    }

    #[test]
    fn nothing_is_lost_of_a_long_text() {
        let text = "word after word and again, ".repeat(200);
        let found = parts(&text, 30);
        assert!(found.iter().all(|part| length(part) <= 30));
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        assert_eq!(words(&found.join(" ")), words(&text));
    }
}
