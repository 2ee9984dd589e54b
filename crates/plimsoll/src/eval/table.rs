//! The table of an evaluation: one line per utterance, for spreadsheets and scripts.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::report::{ScoredUtterance, errors};
use plimsoll_recipes::{Failure, FailureExt};

/// Names of the columns of the table.
const HEADER: &str = "name\tseconds\tword_errors\twords\tcharacter_errors\tcharacters\ttruth\theard";

/// Creates the file of the table at `path`, and replaces an older file.
pub(super) fn create(path: &Path) -> Result<File, Failure> {
    let help = "`--table` takes the name of a file to write";
    File::create(path).map_err(|error| Failure::invalid(format!("cannot write {}: {error}", path.display()), help))
}

/// Writes the header of the table and one line for each utterance of `scored`.
pub(super) fn write(table: File, scored: &[ScoredUtterance]) -> Result<(), Failure> {
    lines(BufWriter::new(table), scored).failed()
}

fn lines(mut table: impl Write, scored: &[ScoredUtterance]) -> io::Result<()> {
    writeln!(table, "{HEADER}")?;
    for ScoredUtterance { transcription, seconds, words, characters } in scored {
        let numbers = [errors(words), words.reference_length(), errors(characters), characters.reference_length()];
        let numbers = numbers.map(|number| number.to_string()).join("\t");
        let (name, truth, heard) =
            (cell(&transcription.name), cell(&transcription.reference), cell(&transcription.hypothesis));
        writeln!(table, "{name}\t{:.3}\t{numbers}\t{truth}\t{heard}", seconds.0)?;
    }
    table.flush()
}

/// Returns `text` without tabs and line breaks, which would end its cell.
fn cell(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Seconds;
    use plimsoll_speech::asr::Transcription;

    use super::*;

    #[test]
    fn every_utterance_has_eight_cells() {
        let transcription =
            Transcription { name: "a\tb".into(), reference: "one two".into(), hypothesis: "one too".into() };
        let mut table = Vec::new();
        lines(&mut table, &[ScoredUtterance::new(transcription, Seconds(1.5))]).unwrap();
        let text = String::from_utf8(table).unwrap();
        assert_eq!(text, format!("{HEADER}\na b\t1.500\t1\t2\t1\t7\tone two\tone too\n"));
    }
}
