//! Finds the items around a place in Rust source, such as the type of a field.

use super::lexer::{Kind, Token};

/// Words that may stand before the keyword of an item.
const MODIFIERS: [&str; 8] = ["async", "auto", "const", "default", "extern", "pub", "safe", "unsafe"];
/// Keywords of items that can contain other items, each before a name. An `impl` has no name and is treated apart.
const KEYWORDS: [&str; 6] = ["enum", "fn", "mod", "struct", "trait", "union"];

/// Items that are open after the tokens read so far, outermost first.
pub(super) struct Enclosing<'a> {
    lines: Vec<&'a str>,
    /// Open brackets, outermost first. The first scope is the file.
    scopes: Vec<Scope<'a>>,
}

/// What stands between two brackets that belong together.
#[derive(Default)]
struct Scope<'a> {
    /// Description of the item that owns the brackets, such as `struct Plan`; `None` where no item does.
    item: Option<String>,
    /// Words and exclamation marks since the last item in this scope ended.
    header: Vec<Token<'a>>,
}

impl<'a> Enclosing<'a> {
    /// Starts before the first token of `source`.
    pub(super) fn new(source: &'a str) -> Self {
        Self { lines: source.lines().collect(), scopes: vec![Scope::default()] }
    }

    /// Reads the next token.
    pub(super) fn read(&mut self, token: Token<'a>) {
        let scope = self.scopes.last_mut().expect("the scope of the file is never closed");
        let is_enum = scope.item.as_ref().is_some_and(|item| item.starts_with("enum "));
        match (token.kind, token.text) {
            (Kind::Word, _) | (Kind::Mark, "!") => scope.header.push(token),
            (Kind::Mark, ";") => scope.header.clear(),
            (Kind::Mark, ",") if is_enum => scope.header.clear(),
            (Kind::Mark, "{" | "(" | "[") => {
                let item = if token.is("[") { None } else { self.item(token.line) };
                self.scopes.push(Scope { item, header: Vec::new() });
            }
            (Kind::Mark, "}" | ")" | "]") if self.scopes.len() > 1 => {
                self.scopes.pop();
                let scope = self.scopes.last_mut().expect("the scope of the file is never closed");
                if token.is("}") {
                    scope.header.clear();
                }
            }
            _ => {}
        }
    }

    /// Describes the item whose bracket opens in line `line`.
    fn item(&self, line: usize) -> Option<String> {
        let scope = self.scopes.last()?;
        let words = &scope.header[scope.header.iter().position(|word| !MODIFIERS.contains(&word.text))?..];
        let outer = scope.item.as_deref().unwrap_or_default();
        match words {
            _ if outer.starts_with("enum ") => Some(format!("variant {}", words[0].text)),
            [only] if outer.ends_with('!') => Some(only.text.to_owned()),
            [first, ..] if first.text == "impl" => Some(self.implementation(first.line, line)),
            [first, name, ..] if KEYWORDS.contains(&first.text) => Some(format!("{} {}", first.text, name.text)),
            [first, _, name] if first.text == "macro_rules" => Some(format!("macro_rules {}", name.text)),
            [name, mark] if mark.text == "!" => Some(format!("{}!", name.text)),
            _ => None,
        }
    }

    /// Returns the head of an `impl` that stands in the lines `first` to `last`, without its `where`.
    fn implementation(&self, first: usize, last: usize) -> String {
        let lines: Vec<&str> = self.lines[first - 1..last].iter().map(|line| line.trim()).collect();
        let text = lines.join(" ");
        let head = &text[text.find("impl").unwrap_or_default()..];
        let end = head.find(" where ").or_else(|| head.find('{')).unwrap_or(head.len());
        head[..end].trim().to_owned()
    }

    /// Describes the open items, as in `enum Kind, variant Text`; empty at the level of the file.
    pub(super) fn describe(&self) -> String {
        self.scopes.iter().filter_map(|scope| scope.item.as_deref()).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer::tokens;
    use super::*;

    /// Checks the items around the only comment of `source`.
    fn check(source: &str, expected: &str) {
        let mut enclosing = Enclosing::new(source);
        for token in tokens(source).into_iter().take_while(|token| token.kind != Kind::Comment) {
            enclosing.read(token);
        }
        assert_eq!(enclosing.describe(), expected, "{source}");
    }

    #[test]
    fn a_module_encloses_its_items() {
        check("use a::{b, c};\nfn d() {}\n/// E", "");
        check("mod a {\n    pub(crate) mod b {\n        /// C", "mod a, mod b");
        check("mod a {}\n/// B", "");
    }

    #[test]
    fn a_type_encloses_its_fields() {
        check("#[derive(Debug)]\npub(crate) struct Plan<T> {\n    a: [u8; 2],\n    /// B", "struct Plan");
        check("pub struct Plan(\n    /// A", "struct Plan");
        check("enum Kind {\n    A,\n    /// B", "enum Kind");
        check("enum Kind {\n    A(u8),\n    #[error(\"b\")]\n    B {\n        /// C", "enum Kind, variant B");
        check("enum Kind {\n    A {},\n    B(\n        /// C", "enum Kind, variant B");
    }

    #[test]
    fn an_implementation_encloses_its_methods() {
        check("impl Loader {\n    const A: u8 = 1;\n    fn b(&self) { if c { d } }\n    /// E", "impl Loader");
        check("unsafe impl<T> A\n    for B<T>\nwhere\n    T: C,\n{\n    /// D", "impl<T> A for B<T>");
        check("pub trait Batch: Clone {\n    fn len(&self) -> usize;\n    /// A", "trait Batch");
        check(
            "impl A {\n    pub const fn b(c: u8) -> u8 {\n        struct D {\n            /// E",
            "impl A, fn b, struct D",
        );
    }

    #[test]
    fn a_macro_encloses_what_it_is_given() {
        check("choice! {\n    Task {\n        /// A", "choice!, Task");
        check(
            "macro_rules! choice {\n    ($a:ident) => {\n        impl $a {\n            /// B",
            "macro_rules choice, impl $a",
        );
    }
}
