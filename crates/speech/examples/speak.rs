//! Synthesizes a text with a trained run: `... --example speak -- RUN "TEXT" OUT.wav [REFERENCE.wav]`.

use std::error::Error;
use std::path::Path;

use burn::tensor::Device;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::audio::{read_audio, write_wav};
use plimsoll_speech::tts::{Ending, SpeechOptions, SpeechPipeline};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [run, text, out, rest @ ..] = args.as_slice() else {
        return Err("usage: speak RUN \"TEXT\" OUT.wav [REFERENCE.wav]".into());
    };
    let (run, out) = (Path::new(run), Path::new(out));
    let pipeline = SpeechPipeline::load(run, &Device::flex())?;
    let own = ModelFolder(run).default_voice();
    let reference = rest.first().map_or(own.as_path(), Path::new);
    let voice = pipeline.encode_voice(&read_audio(reference, pipeline.sample_rate())?.samples)?;
    let speech = pipeline.synthesize(
        text,
        &voice,
        &SpeechOptions { seed: 1, ..SpeechOptions::default() },
        &mut |done, all| {
            eprintln!("{done} of {all} parts");
        },
    )?;
    write_wav(out, &speech.samples, pipeline.sample_rate())?;
    for segment in &speech.segments {
        let end = if segment.generated.ending == Ending::Stopped { "complete" } else { "cut off" };
        println!("{}: {end}", segment.text);
    }
    Ok(())
}
