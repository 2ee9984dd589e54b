//! Writes ARPA text.

use std::io::{self, Write};

use crate::ngrams::ModelData;

/// Writes a model. Numbers have as many digits as they need to be read as the same 32-bit floats.
pub(super) fn write(data: &ModelData, text: &mut impl Write) -> io::Result<()> {
    let order = 1 + data.longer.len();
    writeln!(text, "\\data\\\nngram 1={}", data.words.len())?;
    for list in &data.longer {
        writeln!(text, "ngram {}={}", list.order, list.len())?;
    }
    writeln!(text, "\n\\1-grams:")?;
    for (word, &(prob, backoff)) in data.words.iter().zip(&data.unigrams) {
        write_line(text, prob, [word.as_str()].into_iter(), (order > 1).then_some(backoff))?;
    }
    for list in &data.longer {
        writeln!(text, "\n\\{}-grams:", list.order)?;
        for index in 0..list.len() {
            let words = list.gram(index).iter().rev().map(|&id| data.words[id as usize].as_str());
            write_line(text, list.probs[index], words, list.backoffs.get(index).copied())?;
        }
    }
    writeln!(text, "\n\\end\\")
}

fn write_line<'a>(
    text: &mut impl Write,
    prob: f32,
    words: impl Iterator<Item = &'a str>,
    backoff: Option<f32>,
) -> io::Result<()> {
    write!(text, "{prob}")?;
    for (index, word) in words.enumerate() {
        write!(text, "{}{word}", if index == 0 { '\t' } else { ' ' })?;
    }
    match backoff {
        // The negative zero is a mark of the lookup and nothing to write.
        Some(backoff) => writeln!(text, "\t{}", backoff + 0.0),
        None => writeln!(text),
    }
}
