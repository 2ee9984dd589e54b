//! `plimsoll eval`: how well a recogniser reads a corpus whose texts are known, or how well a synthesiser says them.

mod report;
mod synthesis;
mod table;
mod utterances;

use std::process::ExitCode;
use std::time::Instant;

use plimsoll_audio::{AudioError, Stretch, read_audio_stretch};
use plimsoll_core::{Skipped, error_chain};
use plimsoll_data::Utterance;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::asr::{Bundle, Heard};

use crate::cli::EvalArgs;
use crate::failure::{Failure, Told};
use crate::reading::{self, Reader};
use report::{Judged, Report};

/// Reads the utterances that `args` ask for, one by one, and says how many errors there were.
pub(crate) fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    let kind = ModelFolder(&args.run).kind().wrong()?;
    if let Some(task) = args.task.as_deref().filter(|task| *task != kind) {
        let message = format!("{} holds a model of the kind `{kind}`, and not `{task}`", args.run.display());
        return Err(Failure::wrong(message, "leave --task out: the run says what it is"));
    }
    match kind.as_str() {
        "tts" => synthesis::eval(args),
        _ => recognition(args),
    }
}

fn recognition(args: &EvalArgs) -> Result<ExitCode, Failure> {
    if args.judge.is_some() || args.out_dir.is_some() {
        let message = format!("{} is a recogniser, which is judged by what it reads", args.run.display());
        return Err(Failure::wrong(message, "--judge and --out-dir are for synthesisers"));
    }
    let reader = Reader::load(&args.run, &args.search, &args.backend)?;
    let mut utterances = utterances::chosen(args, &Bundle::read(&args.run).wrong()?.tokenizer)?;
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
    let bar = reading::bar(utterances.len());
    for utterance in utterances {
        if let Err(error) = read(utterance, reader, &mut report) {
            report.skipped.push(Skipped { name: utterance.id.clone(), reason: error_chain(&error) });
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let (true, Some(Skipped { name, reason })) = (report.judged.is_empty(), report.skipped.first()) {
        let message = format!("none of {} utterances can be read; the first, `{name}`: {reason}", utterances.len());
        return Err(Failure::wrong(message, "a list of utterances says which stretch of which file is read"));
    }
    Ok(report)
}

fn read(utterance: &Utterance, reader: &Reader, report: &mut Report) -> Result<(), AudioError> {
    let Utterance { id, audio, offset, duration, text, .. } = utterance;
    let stretch = Stretch { offset: *offset, duration: Some(*duration) };
    let audio = read_audio_stretch(audio, stretch, reader.sample_rate())?;
    let start = Instant::now();
    let heard = reader.text(&audio.samples);
    report.decode_seconds += start.elapsed().as_secs_f64();
    let heard = Heard { name: id.clone(), truth: text.clone(), heard };
    report.judged.push(Judged::new(heard, audio.duration()));
    Ok(())
}
