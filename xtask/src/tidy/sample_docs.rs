//! Draws doc comments at random, for a person to judge their language.

use std::process::ExitCode;

use anyhow::Result;

use super::enclosing::Enclosing;
use super::house::{House, TextFile};
use super::lexer::{Kind, Token, tokens};
use crate::Misuse;
use crate::cargo::root;

/// A doc comment with its place, and the item that it describes.
#[derive(Debug, PartialEq, Eq)]
struct Doc {
    path: String,
    line: usize,
    /// First line of the documented item; `(module)` for the comment of a module.
    item: String,
    /// Items around the documented item, which its reader sees; empty at the level of a file.
    enclosing: String,
    /// Lines of the comment, without the slashes.
    text: Vec<String>,
}

/// Runs `cargo xtask sample-docs [--seed S] [--count N]`.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let Options { seed, count } = Options::from_args(args)?;
    let house = House::read(&root())?;
    let docs: Vec<Doc> = house.rust().filter(|file| is_code_of_a_crate(file)).flat_map(docs).collect();
    let n_docs = docs.len();
    for Doc { path, line, item, enclosing, text } in sample(docs, seed, count) {
        let enclosing = if enclosing.is_empty() { enclosing } else { format!("  (in {enclosing})") };
        println!("{path}:{line}: {item}{enclosing}");
        for line in text {
            println!("    {line}");
        }
        println!();
    }
    println!("sample-docs: {} of {n_docs} doc comments, seed {seed}", count.min(n_docs));
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    seed: u64,
    count: usize,
}

impl Options {
    fn from_args(args: &[String]) -> Result<Self, Misuse> {
        let mut options = Self { seed: 1, count: 60 };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (arg.as_str(), args.next().map(String::as_str)),
            };
            let wrong = || Misuse(format!("`{name}` needs a whole number"));
            match name {
                "--seed" => options.seed = value.and_then(|value| value.parse().ok()).ok_or_else(wrong)?,
                "--count" => options.count = value.and_then(|value| value.parse().ok()).ok_or_else(wrong)?,
                _ => return Err(Misuse(format!("`sample-docs` takes --seed S and --count N, but got `{arg}`"))),
            }
        }
        Ok(options)
    }
}

fn is_code_of_a_crate(file: &TextFile) -> bool {
    file.path.starts_with("crates/") && !file.only_checks_or_shows()
}

/// Lists the doc comments of a file, in order. Consecutive lines are one comment.
fn docs(file: &TextFile) -> Vec<Doc> {
    let (tokens, mut docs, mut at) = (tokens(&file.text), Vec::new(), 0);
    let mut enclosing = Enclosing::new(&file.text);
    while at < tokens.len() {
        let Some(slashes) = slashes(&tokens[at]) else {
            enclosing.read(tokens[at]);
            at += 1;
            continue;
        };
        let line = tokens[at].line;
        let mut text = Vec::new();
        while let Some(token) = tokens.get(at).filter(|token| self::slashes(token) == Some(slashes)) {
            text.push(token.text[slashes.len()..].trim().to_owned());
            at += 1;
        }
        let item = if slashes == "//!" { "(module)".to_owned() } else { item(file, &tokens[at..]) };
        docs.push(Doc { path: file.path.clone(), line, item, enclosing: enclosing.describe(), text });
    }
    docs
}

/// Returns the `///` or `//!` of a doc comment; `None` for other tokens. Four slashes are no doc comment.
fn slashes(token: &Token<'_>) -> Option<&'static str> {
    let is_doc = token.kind == Kind::Comment && !token.text.starts_with("////");
    ["///", "//!"].into_iter().find(|slashes| is_doc && token.text.starts_with(slashes))
}

/// Returns the first line of the item that begins with `tokens`, without the comments and attributes before it.
fn item(file: &TextFile, tokens: &[Token<'_>]) -> String {
    let (mut depth, mut attribute) = (0_usize, false);
    for token in tokens.iter().filter(|token| token.kind != Kind::Comment) {
        attribute |= depth == 0 && token.is("#");
        if !attribute {
            return file.text.lines().nth(token.line - 1).unwrap_or_default().trim().to_owned();
        }
        depth += usize::from(token.is("["));
        if token.is("]") {
            depth -= 1;
            attribute = depth > 0;
        }
    }
    String::new()
}

/// Draws `count` of `docs`, in the order of their places; equal seeds draw equal comments.
fn sample(mut docs: Vec<Doc>, seed: u64, count: usize) -> Vec<Doc> {
    let mut state = seed;
    let n_docs = docs.len();
    for place in 0..count.min(n_docs) {
        let left = u64::try_from(n_docs - place).expect("a count fits 64 bits");
        let other = usize::try_from(random(&mut state) % left).expect("it is below a count");
        docs.swap(place, place + other);
    }
    docs.truncate(count);
    docs.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    docs
}

/// Returns the next random number of SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> TextFile {
        TextFile { path: "a.rs".into(), text: text.into() }
    }

    #[test]
    fn finds_each_comment_with_its_item() {
        let text = "//! A.\n//! B.\n\n/// C.\n#[derive(Debug)]\n#[arg(\n    long\n)]\npub struct D {\n    /// E.\n    f: [u8; 2],\n}\n// no\n";
        let found = docs(&file(text));
        let found = found.iter().map(|doc| (doc.line, &*doc.item, &*doc.enclosing, doc.text.join(" ")));
        let expected =
            [(1, "(module)", "", "A. B."), (4, "pub struct D {", "", "C."), (10, "f: [u8; 2],", "struct D", "E.")];
        assert!(found.eq(expected.map(|(line, item, enclosing, text)| (line, item, enclosing, text.to_owned()))));
    }

    #[test]
    fn a_seed_draws_the_same_comments() {
        let text: String = (0..100).map(|name| format!("/// N{name}.\nfn f{name}() {{}}\n")).collect();
        let drawn = |seed, count| sample(docs(&file(&text)), seed, count);
        let lines = |seed| drawn(seed, 10).iter().map(|doc| doc.line).collect::<Vec<_>>();
        assert_eq!(lines(1), lines(1));
        assert_ne!(lines(1), lines(2));
        assert!(lines(1).is_sorted_by(|a, b| a < b));
        assert_eq!(drawn(1, 1000).len(), 100);
    }

    #[test]
    fn reads_its_options() {
        let read = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Options::from_args(&args).map_err(|misuse| misuse.0)
        };
        assert_eq!(read(""), Ok(Options { seed: 1, count: 60 }));
        assert_eq!(read("--seed 7 --count=5"), Ok(Options { seed: 7, count: 5 }));
        assert_eq!(read("--seed"), Err("`--seed` needs a whole number".to_owned()));
        assert_eq!(read("--all"), Err("`sample-docs` takes --seed S and --count N, but got `--all`".to_owned()));
    }
}
