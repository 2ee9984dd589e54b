//! `plimsoll transcribe`: recordings in, text out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use plimsoll_audio::{AudioError, read_audio};
use plimsoll_core::{Seconds, error_chain};
use plimsoll_data::cuts_at_silence;
use serde_json::json;

use crate::search::SearchArgs;
use crate::terminal::{Terminal, reading_bar};
use plimsoll_recipes::config::ConfigError;
use plimsoll_recipes::reader::{self, Reader};
use plimsoll_recipes::{Failure, FailureExt};

/// The longest stretch: what `data.max_seconds` lets a model hear in training when nobody says otherwise.
///
/// Attention over two hours at once would take hundreds of gigabytes, and no model has learned from the like.
const LONGEST: Seconds = Seconds(30.0);

/// What was read of one recording.
struct Transcript {
    text: String,
    seconds: Seconds,
}

/// What `transcribe` takes.
#[derive(Debug, Args)]
pub(crate) struct TranscribeArgs {
    /// WAV, FLAC, MP3 or Ogg files, or folders of them.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// The run whose best checkpoint reads, or the folder of an exported model.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Prints one JSON object a line, `{"file": ..., "text": ..., "seconds": ...}` or `{"file": ..., "error": ...}`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Kind of device: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// How the best text is looked for.
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

/// Reads every recording that `args` name, in order; one that cannot be read is told and stops no other.
pub(crate) fn transcribe(args: &TranscribeArgs) -> Result<ExitCode, Failure> {
    let files = files(&args.inputs)?;
    let reader = Reader::load(&args.run, args.search.settle()?, &reader::device(&args.backend)?)?;
    let bar = reading_bar(files.len());
    let mut unreadable = 0;
    for file in &files {
        let read = read(file, &reader);
        unreadable += usize::from(read.is_err());
        // A line of text and a bar on the same terminal would run into each other.
        bar.suspend(|| tell(file, &read, args.json, files.len() == 1));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(if unreadable == 0 { ExitCode::SUCCESS } else { ExitCode::from(ConfigError::EXIT_CODE) })
}

fn read(file: &Path, reader: &Reader) -> Result<Transcript, AudioError> {
    let audio = read_audio(file, reader.sample_rate())?;
    let cuts = cuts_at_silence(&audio.samples, audio.rate, LONGEST);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let texts = starts.zip(&cuts).map(|(start, &end)| reader.text(&audio.samples[start..end], &Terminal));
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    Ok(Transcript { text: texts.join(" "), seconds: audio.duration() })
}

fn tell(file: &Path, read: &Result<Transcript, AudioError>, json: bool, alone: bool) {
    let name = file.display().to_string();
    match read {
        Ok(Transcript { text, seconds }) if json => {
            println!("{}", json!({"file": name, "text": text, "seconds": seconds}));
        }
        Ok(Transcript { text, .. }) if alone => println!("{text}"),
        Ok(Transcript { text, .. }) => println!("{name}\t{text}"),
        Err(error) => {
            let reason = error_chain(error);
            if json {
                println!("{}", json!({"file": name, "error": reason}));
            }
            eprintln!("error: {name}: {reason}");
        }
    }
}

/// What the files of a folder are called that are read; a file that is named itself may be called anything.
const EXTENSIONS: [&str; 6] = ["wav", "flac", "mp3", "ogg", "oga", "opus"];

/// The files themselves, and the sound files of folders by name.
fn files(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for input in inputs {
        if !input.is_dir() {
            files.push(input.clone());
            continue;
        }
        let entries = std::fs::read_dir(input).invalid()?;
        let is_sound = |path: &Path| {
            path.extension().is_some_and(|found| EXTENSIONS.iter().any(|known| found.eq_ignore_ascii_case(known)))
        };
        let mut found: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_sound(path)).collect();
        if found.is_empty() {
            let message = format!("{} holds no sound files", input.display());
            return Err(Failure::invalid(
                message,
                "name a file, or a folder with .wav, .flac, .mp3 or .ogg files directly in it",
            ));
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}
