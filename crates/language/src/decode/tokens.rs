//! The text of tokens.

/// Text of the tokens of a recognizer.
///
/// The search asks through it, so it works with any tokenizer. A space or U+2581 separates words, wherever it stands:
/// as a token of its own (characters), or before a piece that begins a word (BPE). A token without text, such as the
/// start of a sentence, adds nothing. Token 0 is CTC's blank and is never asked for.
pub trait TokenText {
    /// Returns the text of a token.
    fn text(&self, token: u32) -> &str;

    /// Returns the number of tokens with the blank.
    fn n_tokens(&self) -> usize;
}

impl<T: AsRef<str>> TokenText for [T] {
    fn text(&self, token: u32) -> &str {
        self[token as usize].as_ref()
    }

    fn n_tokens(&self) -> usize {
        self.len()
    }
}

impl<T: AsRef<str>> TokenText for Vec<T> {
    fn text(&self, token: u32) -> &str {
        self.as_slice().text(token)
    }

    fn n_tokens(&self) -> usize {
        self.len()
    }
}

/// Returns whether a character separates words.
pub(super) fn is_boundary(character: char) -> bool {
    matches!(character, ' ' | '▁')
}

/// Joins the texts of tokens. Words are separated by one space.
pub(super) fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let whole: String = texts.collect();
    let words: Vec<&str> = whole.split(is_boundary).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}
