//! The note beside an installed `libdevice.10.bc`: where it came from, and its checksum.

use std::path::{Path, PathBuf};

/// A note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Package and version, or the path that was copied.
    pub(super) source: String,
    /// SHA-256 of the file, in hexadecimal digits.
    pub(super) sha256: String,
}

impl Record {
    /// Returns the path of the note for the file at `path`.
    pub(super) fn path(path: &Path) -> PathBuf {
        path.with_extension("bc.toml")
    }

    /// Reads the note for the file at `path`; `None` if there is none.
    pub(super) fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(Self::path(path)).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let table: toml::Table = text.parse().ok()?;
        let value = |key: &str| Some(table.get(key)?.as_str()?.to_owned());
        Some(Self { source: value("source")?, sha256: value("sha256")? })
    }

    /// Formats the note as TOML.
    pub(super) fn text(&self) -> String {
        let value = |text: &str| toml::Value::from(text);
        format!("source = {}\nsha256 = {}\n", value(&self.source), value(&self.sha256))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_written() {
        for source in ["nvidia-cuda-nvcc-cu12 12.9.86", "a \"path\" with\\signs", "", "line\nbreak"] {
            let record = Record { source: source.into(), sha256: "00ff".into() };
            assert_eq!(Record::parse(&record.text()), Some(record), "{source:?}");
        }
        for text in ["", "source = 1\nsha256 = \"\"", "source = \"a\"", "no toml"] {
            assert_eq!(Record::parse(text), None, "{text:?}");
        }
    }
}
