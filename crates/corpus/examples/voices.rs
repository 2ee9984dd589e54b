//! Speaks a sentence in two voices of the formant synthesizer and writes a WAV file for each.
//!
//! `cargo run -p plimsoll-corpus --example voices -- seven green tigers`: words outside of the lexicon are skipped.

use plimsoll_core::Key;
use plimsoll_corpus::audio::{VoiceTraits, write_wav};
use plimsoll_corpus::{Lexicon, SAMPLE_RATE, Voice, synthesize};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lexicon = Lexicon::english().words();
    let index = |spelling: &str| lexicon.iter().position(|word| word.spelling == spelling);
    let mut words: Vec<usize> = std::env::args().skip(1).filter_map(|word| index(&word)).collect();
    if words.is_empty() {
        words.extend(["seven", "green", "tiger", "watch", "music"].into_iter().filter_map(index));
    }
    let text: Vec<&str> = words.iter().map(|&word| lexicon[word].spelling).collect();
    println!("\"{}\"", text.join(" "));

    for speaker in 0..2 {
        // The seed and the number of the speaker decide the voice; the key decides this one recording.
        let voice = Voice::new(1, speaker);
        let speech = synthesize(&words, &voice, Key::new(7));
        let path = std::env::temp_dir().join(format!("plimsoll-speaker-{speaker}.wav"));
        write_wav(&path, &speech.samples, SAMPLE_RATE)?;
        let secs = speech.samples.len() as f64 / f64::from(SAMPLE_RATE);
        match VoiceTraits::from_samples(&speech.samples, SAMPLE_RATE) {
            Some(traits) => println!("{}: {secs:.2} s, pitch {:.0} Hz", path.display(), traits.pitch_hz),
            None => println!("{}: {secs:.2} s, no voiced frame", path.display()),
        }
    }
    Ok(())
}
