//! `plimsoll transcribe`: turns recordings into text.

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

/// Longest segment that is transcribed at once, the default of `data.max_seconds` in training.
///
/// Longer recordings are cut at silence. Attention over two hours at once would take hundreds of gigabytes, and no model
/// is trained on such lengths.
const MAX_SEGMENT: Seconds = Seconds(30.0);

/// The text of one recording, and its length.
struct Transcript {
    text: String,
    seconds: Seconds,
}

/// Arguments of `transcribe`.
#[derive(Debug, Args)]
pub(crate) struct TranscribeArgs {
    /// Audio files (WAV, FLAC, MP3 or Ogg), or folders of them.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Run whose best checkpoint transcribes, or folder of an exported model.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Print one JSON object per recording and line: `{"file": ..., "text": ..., "seconds": ...}` or `{"file": ..., "error": ...}`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Backend to compute with: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// How the recognizer searches the best text.
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

/// Transcribes every recording in order. A recording that cannot be read is reported, and the other recordings
/// continue; the exit code is then 2.
pub(crate) fn transcribe(args: &TranscribeArgs) -> Result<ExitCode, Failure> {
    let files = files(&args.inputs)?;
    let reader = Reader::load(&args.run, args.search.resolve()?, &reader::device(&args.backend)?)?;
    let bar = reading_bar(files.len());
    let mut unreadable = 0;
    for file in &files {
        let transcript = transcribe_file(file, &reader);
        unreadable += usize::from(transcript.is_err());
        // A line of text would otherwise break the bar on the same terminal.
        bar.suspend(|| print_result(file, &transcript, args.json, files.len() == 1));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(if unreadable == 0 { ExitCode::SUCCESS } else { ExitCode::from(ConfigError::EXIT_CODE) })
}

/// Transcribes one recording. A long recording is transcribed in segments.
fn transcribe_file(file: &Path, reader: &Reader) -> Result<Transcript, AudioError> {
    let audio = read_audio(file, reader.sample_rate())?;
    let cuts = cuts_at_silence(&audio.samples, audio.rate, MAX_SEGMENT);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let texts = starts.zip(&cuts).map(|(start, &end)| reader.text(&audio.samples[start..end], &Terminal));
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    Ok(Transcript { text: texts.join(" "), seconds: audio.duration() })
}

/// Prints the text of a recording, or the error of reading it; `is_only` leaves out the name of the file.
fn print_result(file: &Path, transcript: &Result<Transcript, AudioError>, json: bool, is_only: bool) {
    let name = file.display().to_string();
    match transcript {
        Ok(Transcript { text, seconds }) if json => {
            println!("{}", json!({"file": name, "text": text, "seconds": seconds}));
        }
        Ok(Transcript { text, .. }) if is_only => println!("{text}"),
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

/// Extensions of the files that are read from a folder. A file that is named itself can have any extension.
const EXTENSIONS: [&str; 6] = ["wav", "flac", "mp3", "ogg", "oga", "opus"];

/// Lists the named files, and the audio files of named folders in the order of their names.
fn files(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for input in inputs {
        if !input.is_dir() {
            files.push(input.clone());
            continue;
        }
        let entries = std::fs::read_dir(input).invalid()?;
        let is_audio = |path: &Path| {
            path.extension().is_some_and(|found| EXTENSIONS.iter().any(|known| found.eq_ignore_ascii_case(known)))
        };
        let mut found: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_audio(path)).collect();
        if found.is_empty() {
            let message = format!("{} holds no audio files", input.display());
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
