//! Changes single values of a TOML file and leaves all other text as it is.

use std::fmt::Display;

/// A new value of a configuration key, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    section: String,
    key: String,
    value: String,
    /// Comment behind the value.
    why: String,
}

impl Change {
    /// Makes a change that sets `section.key` to `value`; `why` becomes a comment in the file.
    pub(crate) fn new(section: &str, key: &str, value: impl Display, why: &str) -> Self {
        Self { section: section.into(), key: key.into(), value: value.to_string(), why: why.into() }
    }

    fn line(&self, by: &str) -> String {
        format!("{} = {}  # {by}: {}", self.key, self.value, self.why)
    }
}

/// Returns `text` with `changes`, whose comments name the command `by`: an existing key is replaced in its line, a new key is added at the end of its
/// section, and a new section at the end of the file.
pub(crate) fn edited(text: &str, changes: &[Change], by: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    for change in changes {
        // Keys without a section stand before the first section.
        let header = format!("[{}]", change.section);
        let header_at = lines.iter().position(|line| without_comment(line) == header);
        let first = match (change.section.as_str(), header_at) {
            ("", _) => 0,
            (_, Some(start)) => start + 1,
            (_, None) => {
                lines.extend([String::new(), header, change.line(by)]);
                continue;
            }
        };
        let rest = &lines[first..];
        let end = first + rest.iter().position(|line| line.trim_start().starts_with('[')).unwrap_or(rest.len());
        let is_key = |line: &String| line.split_once('=').is_some_and(|(key, _)| key.trim() == change.key);
        match lines[first..end].iter().position(is_key) {
            Some(index) => lines[first + index] = change.line(by),
            None => {
                // Before the empty lines between this section and the next.
                let last = lines[first..end].iter().rposition(|line| !line.trim().is_empty());
                lines.insert(first + last.map_or(0, |last| last + 1), change.line(by));
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Returns a line without its comment and surrounding spaces.
fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# mine\ntask = \"asr\"\n\n[training]  # how\nremat = \"none\"\nepochs = 3\n\n[data]\nbatch_size = 8\n";

    #[test]
    fn edit_keeps_all_other_lines() {
        let changes = [
            Change::new("training", "remat", "\"all\"", "less memory"),
            Change::new("training", "micro_batch", 4, "it fits"),
            Change::new("model", "attention", "\"chunked\"", "long"),
        ];
        let expected = "# mine\ntask = \"asr\"\n\n[training]  # how\nremat = \"all\"  # optimize: less memory\nepochs = 3\n\
                        micro_batch = 4  # optimize: it fits\n\n[data]\nbatch_size = 8\n\n[model]\n\
                        attention = \"chunked\"  # optimize: long\n";
        assert_eq!(edited(TEXT, &changes, "optimize"), expected);
        assert_eq!(edited(TEXT, &[], "optimize"), TEXT);
        let top = [Change::new("", "task", "\"tts\"", "by a flag"), Change::new("", "seed", 3, "by a flag")];
        let expected = TEXT.replace("\"asr\"\n", "\"tts\"  # optimize: by a flag\nseed = 3  # optimize: by a flag\n");
        assert_eq!(edited(TEXT, &top, "optimize"), expected);
        assert_eq!(edited("", &top[1..], "optimize"), "seed = 3  # optimize: by a flag\n");
    }
}
