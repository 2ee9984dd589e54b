//! Splits Rust source into tokens, comments included, each with its line.
//!
//! It distinguishes as much of the language as the rules need: strings, comments and code.

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A comment of any kind, with its slashes.
    Comment,
    /// A string literal of any kind, with its quotes.
    Text,
    /// An identifier or a keyword; a raw identifier stands without its `r#`.
    Word,
    /// One character of punctuation, or `::`.
    Mark,
    /// A number, a character or a lifetime.
    Other,
}

/// A token: a piece of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// Line of the token's first character, counted from 1.
    pub(super) line: usize,
}

impl Token<'_> {
    /// Returns whether this token is the keyword or the punctuation `text`.
    pub(super) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }
}

/// Splits `source` into tokens, in order. An unfinished string or comment ends with the source.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < source.len() {
        let rest = &source[at..];
        let (kind, len) = first(rest);
        let text = &rest[..len];
        match kind {
            Some(Kind::Word) => found.push(Token { kind: Kind::Word, text: text.trim_start_matches("r#"), line }),
            Some(kind) => found.push(Token { kind, text, line }),
            None => {}
        }
        line += text.matches('\n').count();
        at += len;
    }
    found
}

/// Returns the kind and the length of the token at the beginning of `rest`; no kind for white space.
fn first(rest: &str) -> (Option<Kind>, usize) {
    let char = rest.chars().next().expect("the caller stops at the end");
    if char.is_whitespace() {
        return (None, len_while(rest, char::is_whitespace));
    }
    if rest.starts_with("//") {
        return (Some(Kind::Comment), rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Some(Kind::Comment), block_comment_len(rest));
    }
    if is_word(char) && !char.is_ascii_digit() {
        let len = len_while(rest, is_word);
        return after_prefix(rest, len);
    }
    if char.is_ascii_digit() {
        return (Some(Kind::Other), number_len(rest));
    }
    match char {
        '"' => (Some(Kind::Text), quoted_len(rest, '"')),
        '\'' => (Some(Kind::Other), char_or_lifetime_len(rest)),
        ':' if rest.starts_with("::") => (Some(Kind::Mark), 2),
        _ => (Some(Kind::Mark), char.len_utf8()),
    }
}

/// Returns the kind and the length of a word of `len` bytes, or of the literal or raw identifier whose prefix the word
/// is.
fn after_prefix(rest: &str, len: usize) -> (Option<Kind>, usize) {
    let (word, after) = rest.split_at(len);
    if matches!(word, "r" | "br" | "cr") {
        let n_hashes = len_while(after, |char| char == '#');
        if after[n_hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(n_hashes));
            let body = &after[n_hashes + 1..];
            let body_len = body.find(&end).map_or(body.len(), |at| at + end.len());
            return (Some(Kind::Text), len + n_hashes + 1 + body_len);
        }
        let raw = len_while(&after[n_hashes..], is_word);
        if word == "r" && n_hashes == 1 && raw > 0 {
            return (Some(Kind::Word), len + 1 + raw);
        }
    }
    if matches!(word, "b" | "c") && after.starts_with('"') {
        return (Some(Kind::Text), len + quoted_len(after, '"'));
    }
    if word == "b" && after.starts_with('\'') {
        return (Some(Kind::Other), len + quoted_len(after, '\''));
    }
    (Some(Kind::Word), len)
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn len_while(text: &str, is_in: impl Fn(char) -> bool) -> usize {
    text.find(|char| !is_in(char)).unwrap_or(text.len())
}

/// Returns the length of a block comment, which may contain other block comments.
fn block_comment_len(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest[at..].chars().next().map_or(0, char::len_utf8);
        }
        if depth == 0 || at == rest.len() {
            return at;
        }
    }
}

/// Returns the length up to and including the closing `quote`.
fn quoted_len(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in rest.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn char_or_lifetime_len(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted_len(rest, '\''),
        _ => 1 + len_while(&rest[1..], is_word),
    }
}

fn number_len(rest: &str) -> usize {
    let whole = len_while(rest, is_word);
    let fraction =
        rest[whole..].strip_prefix('.').filter(|after| after.starts_with(|char: char| char.is_ascii_digit()));
    whole + fraction.map_or(0, |after| 1 + len_while(after, is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[(Kind, &str)]) {
        let found: Vec<_> = tokens(source).iter().map(|token| (token.kind, token.text)).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn splits_code() {
        use Kind::{Mark, Other, Word};
        check(
            "use a::{b};",
            &[(Word, "use"), (Word, "a"), (Mark, "::"), (Mark, "{"), (Word, "b"), (Mark, "}"), (Mark, ";")],
        );
        check("0..1.5e3", &[(Other, "0"), (Mark, "."), (Mark, "."), (Other, "1.5e3")]);
        check("r#type x", &[(Word, "type"), (Word, "x")]);
    }

    #[test]
    fn separates_characters_from_lifetimes() {
        use Kind::{Mark, Other, Word};
        check("'a 'b' '\\'' '\\u{41}'", &[(Other, "'a"), (Other, "'b'"), (Other, "'\\''"), (Other, "'\\u{41}'")]);
        check("b'\"' &'static x", &[(Other, "b'\"'"), (Mark, "&"), (Other, "'static"), (Word, "x")]);
    }

    #[test]
    fn keeps_strings_whole() {
        use Kind::{Text, Word};
        for text in [r#""a // \" b""#, "r\"a\\\"", "r#\"a\"b\"#", "b\"a\"", "br##\"\"#\"##", "\"two\nlines\""] {
            check(&format!("{text} x"), &[(Text, text), (Word, "x")]);
        }
        check("\"never closed", &[(Text, "\"never closed")]);
    }

    #[test]
    fn keeps_comments_whole() {
        use Kind::{Comment, Word};
        check("/// a \"b\nx", &[(Comment, "/// a \"b"), (Word, "x")]);
        check("/* a /* b */ c */ x", &[(Comment, "/* a /* b */ c */"), (Word, "x")]);
        check("/* never closed", &[(Comment, "/* never closed")]);
    }

    #[test]
    fn counts_lines() {
        let lines: Vec<usize> = tokens("a\n\"b\nc\" d\n/* e\n*/ f").iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5]);
    }
}
