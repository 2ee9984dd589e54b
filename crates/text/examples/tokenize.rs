//! Trains a tokenizer of word pieces on a few sentences, saves it, and encodes a text with it.
//!
//! `cargo run -p plimsoll-text --example tokenize -- texts.txt "a text to encode"`: one sentence a line; both optional.

use plimsoll_text::{Case, Numbers, Tokenizer, normalize};

const SENTENCES: &str = "\
The tide lifts the ship.
A loaded ship sinks deeper than an empty ship.
The mark on the hull shows how deep it may sink.
Twenty one ships left the harbor on the tide.";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let sentences = match arguments.next() {
        Some(path) => std::fs::read_to_string(path)?,
        None => SENTENCES.into(),
    };
    let text = arguments.next().unwrap_or_else(|| "21 ships sink; the tide lifts the hull".into());

    // Train on texts in the form that the tokenizer will see: numbers as words, one case.
    let numbers = Numbers::English;
    let texts: Vec<String> = sentences.lines().map(|line| normalize(&numbers.apply(line), Case::Lower)).collect();
    let tokenizer = Tokenizer::bpe(&texts, 80)?.with_numbers(numbers).with_languages(["en".into(), "kok".into()]);
    println!("{} ids, the last ones: {:?}", tokenizer.size(), &tokenizer.names()[tokenizer.size() - 8..]);

    let path = std::env::temp_dir().join("plimsoll-tokenizer.json");
    std::fs::write(&path, serde_json::to_string_pretty(&tokenizer)?)?;
    let tokenizer = Tokenizer::from_file(&path)?;

    let (ids, unknown) = tokenizer.encode_lossy(&normalize(&text, Case::Lower));
    let names = tokenizer.names();
    let pieces: Vec<&str> = ids.iter().map(|&id| names[id as usize].as_str()).collect();
    println!("pieces:  {pieces:?}");
    println!("unknown: {unknown} characters, {:?}", tokenizer.unknown_characters(&text));
    println!("decoded: {:?}", tokenizer.decode(&ids));
    println!("for synthesis in Konkani: {:?}", tokenizer.with_language_and_end(ids, Some("kok")));
    Ok(())
}
