//! Changes single values of a TOML file and leaves all other text as it is.

use std::fmt::Display;

use plimsoll_recipes::Failure;
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

/// A new value of a configuration key, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    section: String,
    key: String,
    /// Value as TOML.
    value: String,
    /// Comment behind the value.
    why: String,
}

impl Change {
    /// Makes a change that sets `section.key` to `value`, which is TOML; `why` becomes a comment in the file.
    pub(crate) fn new(section: &str, key: &str, value: impl Display, why: &str) -> Self {
        Self { section: section.into(), key: key.into(), value: value.to_string(), why: why.into() }
    }
}

/// Returns `text` with `changes`, whose comments name the command `by`: an existing key keeps its place and its comment, a
/// new key is added at the end of its section, and a new section at the end of the file. Inline tables and dotted keys stay
/// what they are.
///
/// # Errors
/// If `text` is not TOML, or a section is not a table.
pub(crate) fn edited(text: &str, changes: &[Change], by: &str) -> Result<String, Failure> {
    if changes.is_empty() {
        return Ok(text.to_string());
    }
    let wrong = |reason: String| Failure::invalid(reason, "the file is not changed");
    let mut document: DocumentMut = text.parse().map_err(|error| wrong(format!("this is not TOML: {error}")))?;
    for change in changes {
        let value: Value = change.value.parse().expect("a value of a configuration is TOML");
        let comment = format!("{by}: {}", change.why);
        let root = document.as_table_mut();
        let (section, is_inline): (&mut dyn TableLike, bool) = match change.section.as_str() {
            "" => (root, false),
            name => {
                let item = root.entry(name).or_insert_with(|| Item::Table(Table::new()));
                let is_inline = item.is_inline_table();
                let table = item.as_table_like_mut();
                (table.ok_or_else(|| wrong(format!("`{name}` is not a section")))?, is_inline)
            }
        };
        let comment = (!is_inline).then_some(comment.as_str());
        set(section, &change.key, value, comment);
    }
    let lines = document.to_string();
    // The parser keeps one kind of line ends.
    Ok(if text.contains("\r\n") { lines.replace("\r\n", "\n").replace('\n', "\r\n") } else { lines })
}

/// Sets a key of `section`, with a comment behind it unless the section is an inline table.
fn set(section: &mut dyn TableLike, key: &str, mut value: Value, comment: Option<&str>) {
    let old = section.get(key).and_then(Item::as_value).map(|old| old.decor().clone());
    let suffix = old.as_ref().and_then(|decor| decor.suffix()?.as_str()).unwrap_or_default().trim_end();
    let suffix = match comment {
        None => suffix.to_string(),
        Some(comment) if suffix.contains('#') => format!("{suffix}; {comment}"),
        Some(comment) => format!("  # {comment}"),
    };
    let prefix = old.as_ref().and_then(|decor| decor.prefix()?.as_str()).unwrap_or(" ");
    *value.decor_mut() = toml_edit::Decor::new(prefix, suffix);
    match section.get_mut(key) {
        Some(item) => *item = Item::Value(value),
        None => drop(section.insert(key, Item::Value(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# mine\ntask = \"asr\"\n\n[training]  # how\nremat = \"none\"\nepochs = 3\n\n[data]\nbatch_size = 8 # eight\n";

    fn edit(text: &str, changes: &[Change]) -> String {
        let edited = edited(text, changes, "optimize").unwrap();
        edited.parse::<toml::Table>().unwrap_or_else(|error| panic!("{error}: {edited}"));
        edited
    }

    #[test]
    fn edit_keeps_all_other_lines() {
        let changes = [
            Change::new("training", "remat", "\"all\"", "less memory"),
            Change::new("training", "micro_batch", 4, "it fits"),
            Change::new("data", "batch_size", 9, "one more"),
            Change::new("model", "attention", "\"chunked\"", "long"),
        ];
        let expected = "# mine\ntask = \"asr\"\n\n[training]  # how\nremat = \"all\"  # optimize: less memory\nepochs = 3\n\
                        micro_batch = 4  # optimize: it fits\n\n[data]\nbatch_size = 9 # eight; optimize: one more\n\n[model]\n\
                        attention = \"chunked\"  # optimize: long\n";
        assert_eq!(edit(TEXT, &changes), expected);
        assert_eq!(edit(TEXT, &[]), TEXT);
        let top = [Change::new("", "task", "\"tts\"", "by a flag"), Change::new("", "seed", 3, "by a flag")];
        let expected = TEXT.replace("\"asr\"\n", "\"tts\"  # optimize: by a flag\nseed = 3  # optimize: by a flag\n");
        assert_eq!(edit(TEXT, &top), expected);
        assert_eq!(edit("", &top[1..]), "seed = 3  # optimize: by a flag\n");
    }

    #[test]
    fn every_form_of_a_table_keeps_its_form() {
        let change =
            [Change::new("training", "steps", 7, "fewer"), Change::new("training", "warmup_steps", 2, "fewer")];
        for (text, expected) in [
            ("training = { steps = 9, epochs = 1 }\n", "training = { steps = 7, epochs = 1 , warmup_steps = 2 }\n"),
            ("training.steps = 9 # nine\n", "training.steps = 7 # nine; optimize: fewer\n"),
            ("[training]\r\nsteps = 9\r\n", "[training]\r\nsteps = 7  # optimize: fewer\r\n"),
            ("[training]\n[data]\nx = 1\n", "[training]\nsteps = 7"),
        ] {
            let found = edit(text, &change);
            assert!(found.starts_with(expected.trim_end_matches(" }\n")) || found == expected, "{found}");
            let table: toml::Table = found.parse().unwrap();
            assert_eq!(table["training"]["steps"].as_integer(), Some(7), "{found}");
            assert_eq!(table["training"]["warmup_steps"].as_integer(), Some(2), "{found}");
            assert_eq!(
                found.matches('\n').count() - found.matches("\r\n").count(),
                if text.contains('\r') { 0 } else { found.matches('\n').count() }
            );
        }
        assert!(edited("training = 3\n", &change, "optimize").is_err());
        assert!(edited("training = \n", &change, "optimize").is_err());
    }
}
