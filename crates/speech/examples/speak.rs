//! Says a text with a trained synthesiser, from a program of one's own: `speak RUN "TEXT" OUT.wav [REFERENCE.wav]`.

use std::error::Error;
use std::path::Path;

use burn::tensor::Device;
use plimsoll_audio::{read_audio, write_wav};
use plimsoll_speech::ModelFolder;
use plimsoll_speech::tts::{Ending, Narrator};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [run, text, out, rest @ ..] = args.as_slice() else {
        return Err("speak RUN \"TEXT\" OUT.wav [REFERENCE.wav]".into());
    };
    let (run, out) = (Path::new(run), Path::new(out));
    let narrator = Narrator::load(run, &Device::flex())?;
    let own = ModelFolder(run).voice();
    let reference = rest.first().map_or(own.as_path(), Path::new);
    let voice = narrator.voice(&read_audio(reference, narrator.sample_rate())?.samples)?;
    let narration = narrator.say(text, None, &voice, 1, &mut |done, all| eprintln!("{done} of {all} parts"))?;
    write_wav(out, &narration.samples, narrator.sample_rate())?;
    for part in &narration.parts {
        let end = if part.spoken.ending == Ending::Stopped { "stopped by itself" } else { "was cut off" };
        println!("{}: {end}", part.text);
    }
    Ok(())
}
