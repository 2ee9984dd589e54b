//! Tables of text: which character separates their columns, and why one is no list of utterances.

use std::path::Path;

use super::builder::shortened;
use super::lines::Lines;
use super::walk::ending;

/// Characters that separate columns, with their names.
const DELIMITERS: [(char, &str); 4] = [('\t', "tabs"), (';', "semicolons"), ('|', "`|`"), (',', "commas")];

/// Number of columns that a message shows.
const SHOWN: usize = 8;

/// What tables need to be read.
pub(super) const NEEDED: &str = "a table needs a header with `file_name` and `text` (`huggingface`), a header with `path` \
     and `sentence`, separated by tabs (`common-voice`), or lines of `id|text` (`ljspeech`)";

/// Returns whether a file is a table, judged by its extension.
pub(super) fn is_table(file: &Path) -> bool {
    let bare = if ending(file) == "gz" { file.with_extension("") } else { file.into() };
    ["csv", "tsv"].contains(&&*ending(&bare))
}

/// Returns the character that separates the columns of a header, and its name: the one that occurs most often outside of
/// quotation marks. `None` for a single column.
pub(super) fn delimiter_of(header: &str) -> Option<(char, &'static str)> {
    let unquoted: String = header.split('"').step_by(2).collect();
    let counted = DELIMITERS.map(|(character, name)| (unquoted.matches(character).count(), character, name));
    let most = counted.iter().map(|(count, ..)| *count).max()?;
    counted.into_iter().find(|(count, ..)| *count == most && most > 0).map(|(_, character, name)| (character, name))
}

/// Describes the columns of a table, for a message that begins with its name; `None` for one that is empty or no text.
pub(super) fn description(file: &Path) -> Option<String> {
    let (_, header) = Lines::open(file).ok()?.next()?;
    let header = header.ok()?;
    let Some((character, delimiter)) = delimiter_of(&header) else {
        return Some(format!("has one column: `{}`", shortened(header.trim())));
    };
    let cells: Vec<String> = header
        .split(character)
        .take(SHOWN)
        .map(|cell| format!("`{}`", shortened(cell.trim_matches(['"', ' ']))))
        .collect();
    let more = if header.split(character).count() > SHOWN { " and more" } else { "" };
    Some(format!("has columns separated by {delimiter}: {}{more}", cells.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_character_separates() {
        let name = |header: &str| delimiter_of(header).map(|(_, name)| name);
        assert_eq!(name("file_name;text;speaker"), Some("semicolons"));
        assert_eq!(name("path\tsentence, as read"), Some("tabs"));
        assert_eq!(name("\"a;b;c\",text"), Some("commas"));
        assert_eq!(name("id|text|x"), Some("`|`"));
        assert_eq!(name("text"), None);
    }
}
