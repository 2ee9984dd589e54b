//! The table of an evaluation: one line per utterance, for spreadsheets and scripts.

use std::fmt::Write;

use super::report::{ScoredUtterance, errors};

/// Names of the columns of the table.
const HEADER: &str = "name\tseconds\tword_errors\twords\tcharacter_errors\tcharacters\ttruth\theard";

/// Formats the table: the header, and one line per utterance.
pub(super) fn table(scored: &[ScoredUtterance]) -> String {
    let mut table = format!("{HEADER}\n");
    for ScoredUtterance { transcription, seconds, words, characters, .. } in scored {
        let numbers = [errors(words), words.reference_length(), errors(characters), characters.reference_length()];
        let numbers = numbers.map(|number| number.to_string()).join("\t");
        let (name, truth, heard) =
            (cell(&transcription.name), cell(&transcription.reference), cell(&transcription.hypothesis));
        let _ = writeln!(table, "{name}\t{:.3}\t{numbers}\t{truth}\t{heard}", seconds.0);
    }
    table
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
        let text = table(&[ScoredUtterance::new(transcription, Seconds(1.5))]);
        assert_eq!(text, format!("{HEADER}\na b\t1.500\t1\t2\t1\t7\tone two\tone too\n"));
    }
}
