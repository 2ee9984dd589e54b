//! `plimsoll align`: finds when each word of a known text is said.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_audio::read_audio;
use plimsoll_core::{Seconds, read_text_file};
use plimsoll_recipes::reader::{self, Reader};
use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_speech::asr::Search;
use plimsoll_text::transcript::{Segment, Transcript, TranscriptFormat};

use crate::output::{ForceFlag, OutputFile};
use crate::run_flag::run_folder;
use crate::terminal::Terminal;
use crate::transcribe::within;

/// Longest recording: attention over all of it is computed at once.
const LONGEST: Seconds = Seconds(300.0);

/// Arguments of `align`.
#[derive(Debug, Args)]
pub(crate) struct AlignArgs {
    /// The recording, of at most 5 minutes.
    #[arg(value_name = "AUDIO")]
    audio: PathBuf,
    /// What is said in it; `-` reads standard input.
    #[arg(value_name = "TEXT", required_unless_present = "text_file")]
    text: Option<String>,
    /// File with what is said in it.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    text_file: Option<PathBuf>,
    /// Run of a recognizer (its folder, or its name in `runs`), or folder of an exported one.
    #[arg(long, value_name = "RUN", value_parser = run_folder())]
    run: PathBuf,
    /// Format of the result: text, json, srt, vtt, ctm or textgrid.
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    format: TranscriptFormat,
    /// File for the result. Default: standard output.
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// Whether the file may be overwritten.
    #[command(flatten)]
    overwrite: ForceFlag,
    /// Backend to compute with: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    backend: String,
}

/// Aligns the text and writes the words with their times.
pub(crate) fn align(args: &AlignArgs) -> Result<ExitCode, Failure> {
    let text = text(args)?;
    let output = OutputFile::new(&args.out, "--out", args.overwrite)?;
    let reader = Reader::load(&args.run, Search::Greedy, &reader::device(&args.backend)?, &Terminal)?;
    let audio = read_audio(&args.audio, reader.sample_rate()).invalid()?;
    if audio.duration() > LONGEST {
        let message = format!("{} lasts {}, and at most {LONGEST} are aligned", args.audio.display(), audio.duration());
        return Err(Failure::invalid(message, "cut it, and give each part its text"));
    }
    let words = reader.align(&audio.samples, &text).map_err(|error| {
        let message = format!("{}: {error}", args.audio.display());
        Failure::invalid(message, "the text must be what is said in the recording, in letters of the model")
    })?;
    if words.is_empty() {
        let message = "the model knows no character of the text";
        return Err(Failure::invalid(message, "use letters of the script that the model was trained on"));
    }
    let seconds = audio.duration().0;
    let segments = vec![Segment::new(words.into_iter().map(|word| within(word, seconds)).collect())];
    let transcript = Transcript { recording: args.audio.display().to_string(), seconds, language: None, segments };
    output.write(transcript.write(args.format))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the text of the command line, of standard input, or of a file.
fn text(args: &AlignArgs) -> Result<String, Failure> {
    let text = match (&args.text_file, args.text.as_deref()) {
        (Some(file), _) => read_text_file(file).map_err(|error| {
            Failure::invalid(format!("cannot read {}: {error}", file.display()), "`--text-file` takes a text file")
        })?,
        (None, Some("-")) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).invalid()?;
            text
        }
        (None, text) => text.unwrap_or_default().into(),
    };
    match text.trim().is_empty() {
        true => Err(Failure::invalid("the text is empty", "give what is said in the recording")),
        false => Ok(text.trim_start_matches('\u{feff}').into()),
    }
}
