//! Checks that words of the project's earlier, figurative language do not come back, and names the plain word for each.

use std::collections::BTreeMap;

use super::house::{House, TextFile};
use super::lexer::{Kind, tokens};
use super::{Finding, Weight};

const WEIGHT: Weight = Weight::Breaks;

/// An unwelcome word or phrase in lower case, its places, and its replacement.
struct Word {
    word: &'static str,
    unwelcome: Unwelcome,
    instead: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unwelcome {
    /// Unwelcome in comments, strings and documents: the whole word, in any case.
    InProse,
    /// Unwelcome as a part of an identifier: `Told` and `make_told`, not `untold`.
    InNames,
    /// Unwelcome in prose and in names.
    Everywhere,
    /// Unwelcome in prose and in names, and at the beginning of longer words too.
    AsBeginning,
}

const fn word(word: &'static str, unwelcome: Unwelcome, instead: &'static str) -> Word {
    Word { word, unwelcome, instead }
}

const WORDS: &[Word] = &[
    word("told", Unwelcome::Everywhere, "`reports`, `receives` or `prints`; a function is `summary` or `Display`"),
    word("tells", Unwelcome::Everywhere, "`reports`, `prints` or `distinguishes`"),
    word("voyage", Unwelcome::Everywhere, "`training loop` or `run`"),
    word("sail", Unwelcome::Everywhere, "`run`"),
    word("craft", Unwelcome::Everywhere, "`training task`"),
    word("glance", Unwelcome::Everywhere, "`single-query attention`"),
    word("narrator", Unwelcome::Everywhere, "`speech pipeline`"),
    word("careful", Unwelcome::InNames, "`inference runner`"),
    word("story", Unwelcome::InNames, "`event log` or `timeline`"),
    word("paper", Unwelcome::InNames, "`planning`"),
    word("on paper", Unwelcome::InProse, "`while planning`"),
    word("whoever", Unwelcome::InProse, "who it is: `the caller`, `the user`, the name of the type"),
    word("nobody", Unwelcome::InProse, "what is missing: `unknown`, `no process`, `not used`"),
    word("of a card", Unwelcome::InProse, "`of a GPU`"),
    word("card admits", Unwelcome::InProse, "`the GPU supports`"),
    word("that is here", Unwelcome::InProse, "`local`"),
    word("batch of none", Unwelcome::InProse, "`empty batch`"),
    word("recognis", Unwelcome::AsBeginning, "the American spelling, `recogniz`"),
    word("synthesise", Unwelcome::Everywhere, "the American spelling, `synthesize`"),
    word("synthesised", Unwelcome::Everywhere, "the American spelling, `synthesized`"),
    word("synthesiser", Unwelcome::Everywhere, "the American spelling, `synthesizer`"),
    word("initialis", Unwelcome::AsBeginning, "the American spelling, `initializ`"),
    word("normalis", Unwelcome::AsBeginning, "the American spelling, `normaliz`"),
    word("serialis", Unwelcome::AsBeginning, "the American spelling, `serializ`"),
    word("rematerialis", Unwelcome::AsBeginning, "the American spelling, `rematerializ`"),
    word("optimise", Unwelcome::AsBeginning, "the American spelling, `optimize`"),
    word("behaviour", Unwelcome::AsBeginning, "the American spelling, `behavior`"),
    word("colour", Unwelcome::AsBeginning, "the American spelling, `color`"),
    word("favour", Unwelcome::AsBeginning, "the American spelling, `favor`"),
    word("neighbour", Unwelcome::AsBeginning, "the American spelling, `neighbor`"),
    word("centre", Unwelcome::AsBeginning, "the American spelling, `center`"),
    word("labelled", Unwelcome::AsBeginning, "the American spelling, `labeled`"),
];

/// Places that must keep a word, such as an older configuration key: the file, and the word as listed in `WORDS`.
const KEPT: &[(&str, &str)] = &[
    // The list itself.
    ("xtask/src/tidy/words.rs", "*"),
    // The name of a command.
    ("xtask/src/main.rs", "paper"),
    ("xtask/src/smoke.rs", "paper"),
    ("xtask/src/soak.rs", "paper"),
    ("xtask/src/test.rs", "paper"),
    // Names in files that users have: configurations, stored features, models, reports.
    ("crates/audio/src/features/config.rs", "normalis"),
    ("crates/audio/src/features/tests.rs", "normalis"),
    ("crates/memory/src/plan_error.rs", "rematerialis"),
    ("crates/plimsoll/src/data/report.rs", "told"),
    ("crates/plimsoll/src/export/synthesizer.rs", "centre"),
    ("crates/recipes/src/plan.rs", "tells"),
    ("crates/speech/src/metadata.rs", "recognis"),
    ("crates/speech/src/tts/config.rs", "centre"),
    // The name of a key of random numbers: another name draws others.
    ("crates/data/src/augment.rs", "colour"),
];

/// Beginnings of the paths of files that record history, and may keep old words.
const HISTORY: [&str; 2] = ["docs/log/", "CHANGELOG.md"];

/// Finds the words of `WORDS` in Rust files and in documents, one finding for each file and word.
pub(super) fn of_the_house(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &house.files {
        for (place, lines) in lines_by_word(file) {
            let Word { word, instead, .. } = &WORDS[place];
            let kept = |(path, kept): &(&str, &str)| *path == file.path && (*kept == "*" || kept == word);
            if KEPT.iter().any(kept) {
                continue;
            }
            let others = match &lines[1..] {
                [] => String::new(),
                others => format!(
                    " (again in line {})",
                    others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                ),
            };
            let message = format!("house word `{word}`{others}: write {instead}");
            findings.push(Finding::new(WEIGHT, &file.path, lines[0], message));
        }
    }
    findings
}

/// Lists the lines that contain each word, by its index in `WORDS`; a line that has a word twice is listed twice.
fn lines_by_word(file: &TextFile) -> BTreeMap<usize, Vec<usize>> {
    let mut found = BTreeMap::<usize, Vec<usize>>::new();
    let records_history = HISTORY.iter().any(|start| file.path.starts_with(start));
    if file.path.ends_with(".md") && !records_history {
        in_prose(&file.text, 1, &mut found);
    } else if file.path.ends_with(".rs") {
        for token in tokens(&file.text) {
            match token.kind {
                Kind::Comment | Kind::Text => in_prose(token.text, token.line, &mut found),
                Kind::Word => in_name(token.text, token.line, &mut found),
                Kind::Mark | Kind::Other => {}
            }
        }
    }
    found
}

fn in_prose(text: &str, line: usize, found: &mut BTreeMap<usize, Vec<usize>>) {
    for (line_idx, text) in text.lines().enumerate() {
        let text = text.to_ascii_lowercase();
        for (place, Word { word, unwelcome, .. }) in WORDS.iter().enumerate() {
            if *unwelcome == Unwelcome::InNames {
                continue;
            }
            let ends = |char: Option<char>| !char.is_some_and(char::is_alphanumeric);
            let stands = |(at, _): &(usize, &str)| {
                let whole = *unwelcome == Unwelcome::AsBeginning || ends(text[at + word.len()..].chars().next());
                whole && ends(text[..*at].chars().next_back())
            };
            let n_times = text.match_indices(word).filter(stands).count();
            for _ in 0..n_times {
                found.entry(place).or_default().push(line + line_idx);
            }
        }
    }
}

fn in_name(name: &str, line: usize, found: &mut BTreeMap<usize, Vec<usize>>) {
    let parts = parts(name);
    for (place, Word { word, unwelcome, .. }) in WORDS.iter().enumerate() {
        let stands = |part: &String| match unwelcome {
            Unwelcome::InProse => false,
            Unwelcome::InNames | Unwelcome::Everywhere => part == word,
            Unwelcome::AsBeginning => part.starts_with(word),
        };
        if parts.iter().any(stands) {
            found.entry(place).or_default().push(line);
        }
    }
}

/// Splits an identifier into words, in lower case: `make_told` and `MakeTold` have the same two words.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = '_';
    for char in name.chars() {
        if char == '_' || (char.is_uppercase() && !before.is_uppercase()) {
            parts.push(String::new());
        }
        if char != '_' {
            parts.last_mut().expect("it begins with one").extend(char.to_lowercase());
        }
        before = char;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[(&str, &[usize])]) {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        let found: Vec<(&str, Vec<usize>)> =
            lines_by_word(&file).into_iter().map(|(place, lines)| (WORDS[place].word, lines)).collect();
        let expected: Vec<(&str, Vec<usize>)> = expected.iter().map(|(word, lines)| (*word, lines.to_vec())).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn finds_words_in_prose() {
        check("docs/a.md", "It is told\nand Told again, untold.\n", &[("told", &[1, 2])]);
        check(
            "a.rs",
            "// Whoever sails.\nlet x = \"the size of a card\";\n",
            &[("whoever", &[1]), ("of a card", &[2])],
        );
        check("a.rs", "/* one\n two: nobody */", &[("nobody", &[2])]);
        check("a.rs", "// A careful story.", &[]);
        check("docs/log/data.md", "It is told.", &[]);
        check("docs/data.md", "It is told.", &[("told", &[1])]);
        check("CHANGELOG.md", "It is told.", &[]);
        check("configs/a.toml", "# It is told.", &[]);
    }

    #[test]
    fn finds_words_in_names() {
        check("a.rs", "fn make_told() -> ToldReport {}", &[("told", &[1, 1])]);
        check("a.rs", "struct Careful; fn carefully() {}", &[("careful", &[1])]);
        check("a.rs", "let sailing = aircraft;", &[]);
        check("a.md", "Careful: mind the story.", &[]);
    }

    #[test]
    fn finds_british_spelling() {
        check("a.rs", "// Recognisers\nfn initialise_all() {}", &[("recognis", &[1]), ("initialis", &[2])]);
        check("a.rs", "// recognizer, synthesis", &[]);
    }

    #[test]
    fn names_the_plain_word() {
        let found =
            "a.md:1: house word `nobody` (again in line 3): write what is missing: `unknown`, `no process`, `not used`";
        crate::tidy::check(
            of_the_house,
            &[("a.md", "Nobody.\n\nNobody.\n"), ("xtask/src/tidy/words.rs", "// told")],
            &[found],
        );
    }
}
