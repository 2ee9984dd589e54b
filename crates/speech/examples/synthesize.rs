//! Builds a small synthesizer with random weights and synthesizes a text: `... --example synthesize [OUT.wav]`.
//!
//! The sound is noise, because nothing was trained. The example shows the parts of a synthesizer and the result of a
//! text.

use burn::tensor::Device;
use plimsoll_core::Key;
use plimsoll_speech::audio::{LogMelConfig, write_wav};
use plimsoll_speech::text::Tokenizer;
use plimsoll_speech::tts::{SpeechOptions, SpeechPipeline, SynthesizerConfig, SynthesizerMetadata};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A preset whose features can be turned back into sound.
    let features = LogMelConfig::preset("myxtts").ok_or("no such preset")?;
    let tokenizer = Tokenizer::characters(["the quick brown fox jumps over the lazy dog"]);
    let config = SynthesizerConfig::recommended(features.n_mels, tokenizer.size(), 32, 2);
    let model = config.init(&Device::flex(), Key::new(1));
    let pipeline = SpeechPipeline::new(model, &SynthesizerMetadata::new(config, features, tokenizer))?;

    // Half a second of a 220 Hz tone is the reference of the voice.
    let rate = pipeline.sample_rate() as usize;
    let sample = |i: usize| (std::f32::consts::TAU * 220.0 * i as f32 / rate as f32).sin() * 0.5;
    let voice = pipeline.encode_voice(&(0..rate / 2).map(sample).collect::<Vec<f32>>())?;

    let options = SpeechOptions { seed: 1, ..SpeechOptions::default() };
    let speech = pipeline.synthesize("the lazy dog jumps", &voice, &options, &mut |_, _| {})?;
    for segment in &speech.segments {
        let frames = segment.generated.mels.len() / pipeline.log_mel().n_mels();
        println!("{:?}: {frames} frames, ended by {:?}", segment.text, segment.generated.ending);
    }
    println!("{:.2} s of sound", speech.samples.len() as f64 / rate as f64);
    if let Some(out) = std::env::args().nth(1) {
        write_wav(out.as_ref(), &speech.samples, pipeline.sample_rate())?;
    }
    Ok(())
}
