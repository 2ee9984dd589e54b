//! `plimsoll align`: finds when each word of a known text is said.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_audio::quick_audio_info;
use plimsoll_core::{counted, read_text_file};
use plimsoll_recipes::reader::{self, Reader};
use plimsoll_recipes::reporter::Reporter;
use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_speech::asr::{SEGMENT_PAUSE, Search, SpokenWord};
use plimsoll_text::transcript::{Segment, Transcript, TranscriptFormat, Word};

use crate::number::finite_number;
use crate::output::{ForceFlag, OutputFile};
use crate::run_flag::run_folder;
use crate::terminal::Terminal;
use crate::transcribe::within;

/// Score below which a word cannot be where it was placed.
const IMPOSSIBLE: f64 = -1e3;
/// Number of words that are not said which are shown.
const SHOWN: usize = 8;

/// Arguments of `align`.
#[derive(Debug, Args)]
pub(crate) struct AlignArgs {
    /// The recording, of any length.
    #[arg(value_name = "AUDIO")]
    audio: PathBuf,
    /// What is said in it, from its start to its end; `-` reads standard input. The recording may say more: that gets no words.
    #[arg(value_name = "TEXT", required_unless_present = "text_file")]
    text: Option<String>,
    /// File with what is said in it.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    text_file: Option<PathBuf>,
    /// Run of a recognizer (its folder, or its name in `runs`), or folder of an exported one.
    #[arg(long, value_name = "RUN", value_parser = run_folder())]
    run: PathBuf,
    /// Least score of a word: the mean log-probability of it in its worst second. A word below it is not said: it is left out, and
    /// named on standard error. A model that has learned little needs a lower one.
    #[arg(long, value_name = "SCORE", default_value_t = -4.0, value_parser = finite_number, allow_negative_numbers = true)]
    min_score: f64,
    /// Format of the result: text, json, srt, vtt, ctm or textgrid. Default: by the name of --out, otherwise json.
    #[arg(long, value_name = "FORMAT")]
    format: Option<TranscriptFormat>,
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
    let format = format_of(args);
    let output = OutputFile::new(&args.out, "--out", args.overwrite, &[format.extension()])?;
    let reader = Reader::load(&args.run, Search::Greedy, &reader::device(&args.backend)?, &Terminal)?;
    let seconds = quick_audio_info(&args.audio).invalid()?.duration.0;
    let progress = Terminal.progress("listening", seconds.is_finite().then_some(seconds as u64));
    let (scores, seconds) = reader.listen(&args.audio, &*progress)?;
    drop(progress);
    let progress = Terminal.progress("finding the words", None);
    let words = reader.transcriber().find_words(&scores, &text).map_err(|error| {
        let message = format!("{}: {error}", args.audio.display());
        Failure::invalid(message, "the text must be what is said in the recording, in letters of the model")
    })?;
    drop(progress);
    if words.is_empty() {
        let message = "the model knows no character of the text";
        return Err(Failure::invalid(message, "use letters of the script that the model was trained on"));
    }
    let (said, not_said): (Vec<SpokenWord>, Vec<SpokenWord>) =
        words.into_iter().partition(|found| found.score >= args.min_score);
    report(&not_said, said.len());
    if said.is_empty() {
        let message = format!("{} says none of these words clearly", args.audio.display());
        return Err(Failure::invalid(message, "check the text, or accept lower scores: --min-score"));
    }
    let words: Vec<Word> = said.into_iter().map(|found| within(found.word, seconds)).collect();
    let is_near = |a: &Word, b: &Word| b.start - a.end < SEGMENT_PAUSE.0;
    let segments = words.chunk_by(is_near).map(|words| Segment::new(words.to_vec())).collect();
    let transcript = Transcript { recording: args.audio.display().to_string(), seconds, language: None, segments };
    output.write(transcript.write(format))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the format of the result: as asked for, or by the name of the file.
fn format_of(args: &AlignArgs) -> TranscriptFormat {
    let is_named = |format: &TranscriptFormat| {
        args.out.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(format.extension()))
    };
    args.format.or_else(|| TranscriptFormat::ALL.into_iter().find(is_named)).unwrap_or(TranscriptFormat::Json)
}

/// Names the words that the recording does not say.
fn report(not_said: &[SpokenWord], said: usize) {
    if not_said.is_empty() {
        return;
    }
    let count = counted(not_said.len(), "word");
    eprintln!("warning: not said, and left out: {count} of {}", said + not_said.len());
    for SpokenWord { word, score } in not_said.iter().take(SHOWN) {
        // Silence is certain: nothing else is possible in it.
        let score = if *score < IMPOSSIBLE { "impossible there".into() } else { format!("score {score:.2}") };
        eprintln!("  {} ({score}), near {:.1} s", word.text, word.start);
    }
    if not_said.len() > SHOWN {
        eprintln!("  and {} more", not_said.len() - SHOWN);
    }
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
