//! `plimsoll eval`: how well a recogniser reads a corpus whose texts are known, or how well a synthesiser says them.

mod report;
mod synthesis;
mod table;
mod utterances;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;

use plimsoll_audio::{AudioError, AudioSegment, read_audio_segment};
use plimsoll_core::Skipped;
use plimsoll_data::Utterance;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::asr::{RecognizerMetadata, Transcription};

use crate::search::SearchArgs;
use crate::terminal::{Terminal, reading_bar};
use plimsoll_core::error_chain;
use plimsoll_recipes::reader::{self, Reader};
use plimsoll_recipes::{Failure, FailureExt};
use report::{Judged, Report};

/// What `eval` takes.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// The run whose best checkpoint is judged, or the folder of an exported model.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// List of the utterances to read; without one, those that the run held out of its training.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// How many of the worst utterances are shown.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) worst: usize,
    /// What the run learned, asr or tts; the run says so itself.
    #[arg(long, value_parser = ["asr", "tts"])]
    pub(crate) task: Option<String>,
    /// The run of a recogniser that reads what a synthesiser says.
    #[arg(long, value_name = "RUN")]
    pub(crate) judge: Option<PathBuf>,
    /// Keeps what a synthesiser says in this folder, a WAV file for each utterance.
    #[arg(long, value_name = "DIR")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Only the first so many utterances.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<std::num::NonZeroUsize>,
    /// Writes a line for every utterance into this file, tab-separated under a header.
    #[arg(long, value_name = "FILE.tsv")]
    pub(crate) table: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Kind of device: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// How the best text is looked for.
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

/// Reads the utterances that `args` ask for, one by one, and says how many errors there were.
pub(crate) fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    let kind = ModelFolder(&args.run).kind().invalid()?;
    if let Some(task) = args.task.as_deref().filter(|task| *task != kind) {
        let message = format!("{} holds a model of the kind `{kind}`, and not `{task}`", args.run.display());
        return Err(Failure::invalid(message, "leave --task out: the run says what it is"));
    }
    match kind.as_str() {
        "tts" => synthesis::eval(args),
        _ => recognition(args),
    }
}

fn recognition(args: &EvalArgs) -> Result<ExitCode, Failure> {
    if args.judge.is_some() || args.out_dir.is_some() {
        let message = format!("{} is a recogniser, which is judged by what it reads", args.run.display());
        return Err(Failure::invalid(message, "--judge and --out-dir are for synthesisers"));
    }
    let reader = Reader::load(&args.run, args.search.settle()?, &reader::device(&args.backend)?)?;
    let mut utterances = utterances::chosen(args, &RecognizerMetadata::read(&args.run).invalid()?.tokenizer)?;
    if let Some(limit) = args.limit {
        utterances.truncate(limit.get());
    }
    // Opened first: nobody wants to learn at the end of an hour that a file cannot be written.
    let table = args.table.as_deref().map(table::create).transpose()?;
    let report = judge(args, &reader, &utterances)?;
    if let Some(table) = table {
        table::write(table, &report.judged)?;
    }
    match args.json {
        true => println!("{:#}", report.json(args.worst)),
        false => print!("{}", report.told(args.worst)),
    }
    Ok(ExitCode::SUCCESS)
}

fn judge(args: &EvalArgs, reader: &Reader, utterances: &[Utterance]) -> Result<Report, Failure> {
    let mut report = Report::new(&args.run, &args.search.search, reader.search);
    let bar = reading_bar(utterances.len());
    for utterance in utterances {
        if let Err(error) = read(utterance, reader, &mut report) {
            report.skipped.push(Skipped { name: utterance.id.clone(), reason: error_chain(&error) });
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let (true, Some(Skipped { name, reason })) = (report.judged.is_empty(), report.skipped.first()) {
        let message = format!("none of {} utterances can be read; the first, `{name}`: {reason}", utterances.len());
        return Err(Failure::invalid(message, "a list of utterances says which stretch of which file is read"));
    }
    Ok(report)
}

fn read(utterance: &Utterance, reader: &Reader, report: &mut Report) -> Result<(), AudioError> {
    let Utterance { id, audio, offset, duration, text, .. } = utterance;
    let stretch = AudioSegment { offset: *offset, duration: Some(*duration) };
    let audio = read_audio_segment(audio, stretch, reader.sample_rate())?;
    let start = Instant::now();
    let heard = reader.text(&audio.samples, &Terminal);
    report.decode_seconds += start.elapsed().as_secs_f64();
    let heard = Transcription { name: id.clone(), reference: text.clone(), hypothesis: heard };
    report.judged.push(Judged::new(heard, audio.duration()));
    Ok(())
}
