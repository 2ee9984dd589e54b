//! Transcribes a recording with a trained run: `... --example transcribe -- RUN RECORDING.wav`.

use burn::tensor::Device;
use plimsoll_speech::asr::{Search, Transcriber};
use plimsoll_speech::audio::read_audio;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [run, recording] = args.as_slice() else {
        println!("usage: transcribe RUN RECORDING.wav");
        return Ok(());
    };
    let transcriber = Transcriber::load(run.as_ref(), &Device::flex())?;
    let audio = read_audio(recording, transcriber.sample_rate())?;
    println!("{}", transcriber.transcribe(&audio.samples, &Search::Greedy));
    Ok(())
}
