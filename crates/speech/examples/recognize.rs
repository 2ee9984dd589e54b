//! Builds a small recognizer with random weights and transcribes a tone: `... --example recognize`.
//!
//! The text has no meaning, because nothing was trained. The example shows the parts of a recognizer and every search.

use std::num::NonZeroUsize;

use burn::tensor::Device;
use plimsoll_core::Key;
use plimsoll_speech::asr::{RecognizerConfig, RecognizerMetadata, Search, Transcriber};
use plimsoll_speech::audio::LogMelConfig;
use plimsoll_speech::text::Tokenizer;
use plimsoll_tape::count;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Features and tokens come first: the sizes of the model follow from them.
    let features = LogMelConfig::default();
    let tokenizer = Tokenizer::characters(["the quick brown fox jumps over the lazy dog"]);
    let config =
        RecognizerConfig { features: features.n_mels, ..RecognizerConfig::recommended(32, 2, 1, tokenizer.size()) };
    let model = config.init(&Device::flex(), Key::new(1));
    println!("{} parameters, {} tokens", count(&model), tokenizer.size());

    // The same file that training writes as model.json.
    let transcriber = Transcriber::new(model, &RecognizerMetadata::new(config, features, tokenizer))?;

    // Half a second of a 440 Hz tone.
    let rate = transcriber.sample_rate() as usize;
    let sample = |i: usize| (std::f32::consts::TAU * 440.0 * i as f32 / rate as f32).sin() * 0.5;
    let tone: Vec<f32> = (0..rate / 2).map(sample).collect();

    let width = NonZeroUsize::new(4).ok_or("4 is not zero")?;
    for name in Search::NAMES {
        let search = Search::from_name(name, width, 0.3, 0.0).ok_or("every listed name is a search")?;
        println!("{name:>12}: {:?}", transcriber.transcribe(&tone, &search));
    }
    Ok(())
}
