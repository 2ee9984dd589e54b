//! The table of all keys in Markdown, for docs/configuration.md.

use super::key::{Key, Section};
use super::keys::SECTIONS;
use super::print::format_value;

/// Writes a Markdown table of the keys of every section.
pub fn key_table() -> String {
    SECTIONS.iter().map(section).collect()
}

fn section(section: &Section) -> String {
    let title = match section.name {
        "" => "Above all sections".to_string(),
        name => format!("`[{name}]`"),
    };
    let rows: String = section.keys.iter().map(row).collect();
    let head = "| key | takes | default | meaning |\n|---|---|---|---|\n";
    format!("\n### {title}\n\n{}\n\n{head}{rows}", section.about)
}

fn row(key: &Key) -> String {
    let default = key.default().map_or("none".to_string(), |value| format!("`{}`", format_value(key, value)));
    let older: Vec<String> = key.aliases().map(|alias| format!("`{}`", alias.old)).collect();
    let older = if older.is_empty() { String::new() } else { format!(" Older names: {}.", older.join(", ")) };
    format!("| `{}` | {} | {default} | {}{older} |\n", key.leaf(), key.kind, key.about)
}

#[cfg(test)]
mod tests {
    const BEGIN: &str = "<!-- keys: a test keeps this table, see the end of the page -->\n";
    const END: &str = "\n<!-- end of keys -->\n";
    const DOCUMENT: &str = include_str!("../../../docs/configuration.md");

    /// The document holds today's table of keys. The test rewrites the table if `PLIMSOLL_UPDATE_DOCS` is set to the
    /// path of the document.
    #[test]
    fn the_document_holds_todays_table() {
        let (before, rest) = DOCUMENT.split_once(BEGIN).expect("the document marks where the table begins");
        let (_, after) = rest.split_once(END).expect("the document marks where the table ends");
        let renewed = format!("{before}{BEGIN}{}{END}{after}", super::key_table());
        match std::env::var("PLIMSOLL_UPDATE_DOCS") {
            Ok(path) => std::fs::write(path, renewed).unwrap(),
            Err(_) => {
                assert!(renewed == DOCUMENT, "set PLIMSOLL_UPDATE_DOCS=$PWD/docs/configuration.md and test again");
            }
        }
    }
}
