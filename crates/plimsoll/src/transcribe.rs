//! `plimsoll transcribe`: recordings in, text out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plimsoll_data::read_audio;
use plimsoll_speech::asr::{Search, Transcriber};

use crate::cli::TranscribeArgs;
use crate::config::{BackendChoice, DeviceConfig};
use crate::device;
use crate::failure::{Failure, Told};

/// Reads every recording that `args` name, in order.
pub(crate) fn transcribe(args: &TranscribeArgs) -> Result<ExitCode, Failure> {
    let files = files(&args.inputs)?;
    let device = device::choose(&DeviceConfig { backend: backend(&args.backend)?, index: 0 })?;
    let transcriber = Transcriber::load(&args.run, &device.device).wrong()?;
    for file in &files {
        let audio = read_audio(file, transcriber.sample_rate()).wrong()?;
        let text = transcriber.read(&audio.samples, &Search::Greedy);
        match (args.json, files.len()) {
            (true, _) => println!("{}", serde_json::json!({"file": file, "text": text})),
            (false, 1) => println!("{text}"),
            (false, _) => println!("{}\t{text}", file.display()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn backend(word: &str) -> Result<BackendChoice, Failure> {
    match word {
        "auto" => Ok(BackendChoice::Auto),
        "cpu" => Ok(BackendChoice::Cpu),
        "cuda" => Ok(BackendChoice::Cuda),
        "wgpu" => Ok(BackendChoice::Wgpu),
        other => Err(Failure::wrong(format!("there is no backend `{other}`"), "use auto, cpu, cuda or wgpu")),
    }
}

/// The files themselves, and the WAV files of folders by name.
fn files(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for input in inputs {
        if !input.is_dir() {
            files.push(input.clone());
            continue;
        }
        let entries = std::fs::read_dir(input).wrong()?;
        let is_wav = |path: &Path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("wav"));
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| is_wav(path)).collect();
        if found.is_empty() {
            let message = format!("{} holds no WAV files", input.display());
            return Err(Failure::wrong(message, "name a file, or a folder with .wav files directly in it"));
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}
