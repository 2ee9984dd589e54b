//! Reads what a Rust file declares, imports and names by its path. Code for tests is left out.

use std::collections::BTreeSet;

use super::lexer::{Kind, Token, tokens};

/// Declarations, imports and names in the body of a file or of an inline module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    /// Names of items that are declared directly in the body.
    pub(super) items: BTreeSet<String>,
    pub(super) modules: Vec<Declared>,
    pub(super) uses: Vec<Use>,
    /// Paths of at least two names in code, such as `config::load` in `config::load(file)`, each with its line.
    pub(super) paths: Vec<(Vec<String>, usize)>,
    /// Every name in code that is not part of a path, each with its line; an import that ends in `*` can have brought
    /// it.
    pub(super) words: Vec<(String, usize)>,
    /// Path in each `include_str!` and similar macro: its first string, such as `../page.css`, with its line.
    pub(super) includes: Vec<(String, usize)>,
}

/// A module declaration: `mod name;` or `mod name { ... }`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) public: bool,
    /// Path in `#[path = "..."]`; `None` without this attribute.
    pub(super) path: Option<String>,
    pub(super) inline: Option<Body>,
}

/// One name of a `use` declaration.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) path: Vec<String>,
    /// Name of the import in this module; `None` for `*` and `as _`.
    pub(super) name: Option<String>,
    pub(super) glob: bool,
    /// Whether the import is `pub`; `pub(crate)` is not public.
    pub(super) public: bool,
    pub(super) line: usize,
}

/// Parses the source of a file; a file that is only for tests gives an empty body.
pub(super) fn read(source: &str) -> Body {
    let tokens: Vec<Token<'_>> = tokens(source).into_iter().filter(|token| token.kind != Kind::Comment).collect();
    let mut reader = Reader { tokens: &tokens, at: 0 };
    if reader.only_for_tests() {
        return Body::default();
    }
    reader.body()
}

/// Words that begin an item, such as `fn`. An item that is skipped does not end at a comma, as a field or a variant
/// does.
const ITEMS: [&str; 17] = [
    "pub",
    "fn",
    "struct",
    "enum",
    "union",
    "impl",
    "trait",
    "mod",
    "use",
    "const",
    "static",
    "type",
    "async",
    "unsafe",
    "extern",
    "let",
    "macro_rules",
];

/// Attributes of an item that decide how it is read: whether the item is only for tests, and the path of
/// `#[path = "..."]`.
#[derive(Default)]
struct Attributes {
    for_tests: bool,
    path: Option<String>,
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self, ahead: usize) -> Option<&'a Token<'a>> {
        self.tokens.get(self.at + ahead)
    }

    fn next_is(&self, ahead: usize, text: &str) -> bool {
        self.peek(ahead).is_some_and(|token| token.is(text))
    }

    fn word(&self, ahead: usize) -> Option<&'a str> {
        self.peek(ahead).filter(|token| token.kind == Kind::Word).map(|token| token.text)
    }

    /// Returns whether the file begins with `#![cfg(test)]`.
    fn only_for_tests(&self) -> bool {
        let text: Vec<&str> = self.tokens.iter().take(8).map(|token| token.text).collect();
        text == ["#", "!", "[", "cfg", "(", "test", ")", "]"]
    }

    /// Parses up to the brace that closes this module, or to the end of the file.
    fn body(&mut self) -> Body {
        let (mut body, mut depth) = (Body::default(), 0_usize);
        let (mut attributes, mut public) = (Attributes::default(), false);
        while let Some(token) = self.peek(0) {
            if token.is("#") && (self.next_is(1, "[") || (self.next_is(1, "!") && self.next_is(2, "["))) {
                self.attribute(&mut attributes);
                continue;
            }
            if attributes.for_tests {
                self.skip_item();
                attributes = Attributes::default();
                continue;
            }
            match token.text {
                "}" if depth == 0 && token.kind == Kind::Mark => break,
                "pub" if token.kind == Kind::Word => {
                    public = !self.visibility();
                    continue;
                }
                "mod" if token.kind == Kind::Word && self.word(1).is_some() => {
                    self.module(&mut body, attributes.path.take(), public);
                }
                "use" if token.kind == Kind::Word && !self.next_is(1, "<") => self.uses(&mut body, public),
                _ => self.code(&mut body, &mut depth),
            }
            (attributes, public) = (Attributes::default(), false);
        }
        body
    }

    /// Skips `pub` and its brackets; returns whether there were brackets, as in `pub(crate)`.
    fn visibility(&mut self) -> bool {
        self.at += 1;
        let restricted = self.next_is(0, "(") && (self.next_is(2, ")") || self.next_is(1, "in"));
        if restricted {
            self.at = self.after_group();
        }
        restricted
    }

    fn attribute(&mut self, attributes: &mut Attributes) {
        let inner = self.next_is(1, "!");
        self.at += if inner { 2 } else { 1 };
        let end = self.after_group();
        let inside = &self.tokens[self.at + 1..end.saturating_sub(1).max(self.at + 1)];
        self.at = end;
        if inner {
            return;
        }
        let words: Vec<&str> = inside.iter().map(|token| token.text).collect();
        match words[..] {
            ["test"] | ["cfg", "(", "test", ")"] | ["cfg", "(", "all", "(", "test", ..] => attributes.for_tests = true,
            ["path", "=", text] => attributes.path = Some(text.trim_matches('"').to_owned()),
            _ => {}
        }
    }

    /// Returns the index of the token after the bracket that closes the bracket at the current token.
    fn after_group(&self) -> usize {
        let mut depth = 0_usize;
        for (ahead, token) in self.tokens[self.at..].iter().enumerate() {
            if token.kind != Kind::Mark {
                continue;
            }
            match token.text {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return self.at + ahead + 1;
            }
        }
        self.tokens.len()
    }

    /// Skips an item, a field, a variant, an arm or a statement.
    fn skip_item(&mut self) {
        let is_item = self.word(0).is_some_and(|word| ITEMS.contains(&word));
        let mut keyword = self.word(0);
        if keyword == Some("pub") {
            self.visibility();
            keyword = self.word(0);
        }
        let value = match keyword {
            Some("const") => !matches!(self.word(1), Some("fn" | "unsafe" | "async" | "extern")),
            Some("use" | "static" | "let") => true,
            _ => false,
        };
        while let Some(token) = self.peek(0) {
            match token.text {
                _ if token.kind != Kind::Mark => self.at += 1,
                ";" => {
                    self.at += 1;
                    return;
                }
                "," if !is_item => {
                    self.at += 1;
                    return;
                }
                "}" | ")" | "]" => return,
                "{" => {
                    self.at = self.after_group();
                    if !value {
                        return;
                    }
                }
                "(" | "[" => self.at = self.after_group(),
                _ => self.at += 1,
            }
        }
    }

    fn module(&mut self, body: &mut Body, path: Option<String>, public: bool) {
        let name = self.word(1).expect("the caller looked").to_owned();
        self.at += 2;
        let inline = self.next_is(0, "{").then(|| {
            self.at += 1;
            self.body()
        });
        // The semicolon, or the brace that closes the module.
        self.at += 1;
        body.modules.push(Declared { name, public, path, inline });
    }

    fn uses(&mut self, body: &mut Body, public: bool) {
        self.at += 1;
        self.tree(body, &mut Vec::new(), public);
        if self.next_is(0, ";") {
            self.at += 1;
        }
    }

    /// Parses one branch of a `use` tree, up to the comma, the brace or the semicolon behind it.
    fn tree(&mut self, body: &mut Body, path: &mut Vec<String>, public: bool) {
        let n_names = path.len();
        let mut done = false;
        while let Some(token) = self.peek(0) {
            match token.text {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while self.peek(0).is_some() && !self.next_is(0, "}") {
                        self.tree(body, path, public);
                        if self.next_is(0, ",") {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    done = true;
                }
                "*" => {
                    self.at += 1;
                    body.uses.push(Use { path: path.clone(), name: None, glob: true, public, line: token.line });
                    done = true;
                }
                _ if token.kind == Kind::Word => {
                    path.push(token.text.to_owned());
                    self.at += 1;
                    if self.next_is(0, "::") {
                        continue;
                    }
                    if path.last().is_some_and(|name| name == "self") && path.len() > 1 {
                        path.pop();
                    }
                    let mut name = path.last().cloned();
                    if self.next_is(0, "as") {
                        name = self.word(1).filter(|name| *name != "_").map(str::to_owned);
                        self.at += 2;
                    }
                    body.uses.push(Use { path: path.clone(), name, glob: false, public, line: token.line });
                    done = true;
                }
                _ => break,
            }
            if done {
                break;
            }
        }
        path.truncate(n_names);
    }

    /// Parses one token of code, or a path of several tokens. Adds the item, the include, the path or the name that
    /// begins there to `body`; `depth` counts the open braces.
    fn code(&mut self, body: &mut Body, depth: &mut usize) {
        let token = self.peek(0).expect("the caller looked");
        match token.text {
            "{" if token.kind == Kind::Mark => *depth += 1,
            "}" if token.kind == Kind::Mark => *depth -= 1,
            _ => {}
        }
        if token.kind != Kind::Word {
            self.at += 1;
            return;
        }
        if *depth == 0
            && let Some(name) = self.item_name()
        {
            body.items.insert(name.to_owned());
        }
        if token.text.starts_with("include") && self.next_is(1, "!") {
            body.includes.extend(self.included());
        }
        // A path from the root, `::std::mem`, is never ours.
        let from_root = self.at > 0 && self.tokens[self.at - 1].is("::");
        let mut path = vec![token.text.to_owned()];
        self.at += 1;
        while self.next_is(0, "::")
            && let Some(name) = self.word(1)
        {
            path.push(name.to_owned());
            self.at += 2;
        }
        match path.len() {
            _ if from_root => {}
            1 => body.words.push((path.remove(0), token.line)),
            _ => body.paths.push((path, token.line)),
        }
    }

    /// Returns the path in `include!("path")` or `include!(concat!("path", ...))`, with its line; `None` if the
    /// argument is no string.
    fn included(&self) -> Option<(String, usize)> {
        let argument = self.tokens[self.at..].get(3..)?;
        let text = match argument.first()?.is("concat") {
            true => argument.get(3)?,
            false => argument.first()?,
        };
        (text.kind == Kind::Text).then(|| (text.text.trim_matches('"').to_owned(), text.line))
    }

    /// Returns the name of the item whose keyword, such as `fn`, is the current token; `None` if no named item begins
    /// there.
    fn item_name(&self) -> Option<&'a str> {
        match self.word(0)? {
            "fn" | "struct" | "enum" | "union" | "trait" | "type" => self.word(1),
            "static" if self.word(1) == Some("mut") => self.word(2),
            "static" => self.word(1),
            "const" => self.word(1).filter(|next| !matches!(*next, "fn" | "unsafe" | "async" | "extern" | "_")),
            "macro_rules" if self.next_is(1, "!") => self.word(2),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
