//! `plimsoll eval`: the errors of a recognizer on a corpus with known texts, or the quality of a synthesizer on them.

mod comparison;
mod details;
mod judge;
mod report;
mod synthesis;
mod table;
mod utterances;
mod vocoding;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;

use plimsoll_audio::{AudioError, AudioSegment, read_audio_segment};
use plimsoll_core::Skipped;
use plimsoll_core::error_chain;
use plimsoll_data::Utterance;
use plimsoll_recipes::Failure;
use plimsoll_recipes::families::family_of;
use plimsoll_recipes::listener::{self, Listener};
use plimsoll_recipes::reader;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::ModelKind;
use plimsoll_speech::asr::Transcription;
use plimsoll_speech::tts::is_synthesizer;
use plimsoll_speech::vocoder::VocoderMetadata;
use plimsoll_speech::whisper::WhisperConfig;

use crate::number::number_above_0;
use crate::output::{ForceFlag, OutputFile};
use crate::run_flag::{ModelArg, run_folder};
use crate::search::SearchArgs;
use crate::terminal::{Terminal, reading_bar};
use comparison::{Beside, Writes};
use report::{Report, ScoredUtterance};
use utterances::Chosen;

/// Arguments of `eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// The run, whose best checkpoint is evaluated.
    #[command(flatten)]
    pub(crate) run: ModelArg,
    /// List of the utterances to evaluate on. Default: those that the run held out of its training.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Change where the sound is, or how much of it may be missing, as KEY=VALUE: data.audio_root, data.unpack_dir,
    /// data.unpack_size or data.unusable_share; can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Number of the worst utterances to show.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) worst: usize,
    /// Expected task: asr, tts or vocoder; another one is an error. Default: the task of the run.
    #[arg(long, value_parser = ["asr", "tts", "vocoder"])]
    pub(crate) task: Option<String>,
    /// Run or exported folder of a recognizer, or folder of a Whisper model of Hugging Face, that transcribes the speech of a
    /// synthesizer or vocoder, for its CER and WER. Case and punctuation do not count.
    #[arg(long, value_name = "RUN", value_parser = run_folder())]
    pub(crate) judge: Option<PathBuf>,
    /// Run of a trained vocoder, or folder of an exported one, which makes the sound of a synthesizer.
    #[arg(long, value_name = "RUN", value_parser = run_folder())]
    pub(crate) vocoder: Option<PathBuf>,
    /// Write the speech of a synthesizer, or the sound of a vocoder, into this folder, one WAV file per utterance.
    #[arg(long, value_name = "DIR")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Evaluate only the first N utterances.
    #[arg(long, value_name = "N", value_parser = number_above_0)]
    pub(crate) limit: Option<std::num::NonZeroUsize>,
    /// Write one line per utterance into this file, tab-separated, with a header.
    #[arg(long, value_name = "FILE.tsv")]
    pub(crate) table: Option<PathBuf>,
    /// Whether the files may be overwritten.
    #[command(flatten)]
    pub(crate) overwrite: ForceFlag,
    /// Also show confidence intervals, errors by speaker and length, and the most confused words (recognizers).
    #[arg(long)]
    pub(crate) details: bool,
    /// Run or exported folder of a second recognizer: transcribe the same utterances with it too, and show which of the two
    /// has fewer errors, with a confidence interval.
    #[arg(long, value_name = "RUN", value_parser = run_folder())]
    pub(crate) compare: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Backend to compute with: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// How the recognizer searches the best text.
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

impl EvalArgs {
    /// Checks the file for the table, if there is to be one.
    fn table_file(&self) -> Result<Option<OutputFile>, Failure> {
        self.table.as_deref().map(|path| OutputFile::new(path, "--table", self.overwrite, &["tsv", "txt"])).transpose()
    }
}

/// Evaluates the model of a run and prints the report.
pub(crate) fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    let kind = family_of(ModelFolder(&args.run))?.kind();
    let found = match kind {
        WhisperConfig::KIND => "asr",
        _ if is_synthesizer(kind) => "tts",
        _ => kind,
    };
    if let Some(task) = args.task.as_deref().filter(|task| *task != found) {
        let kind = |task: &str| match task {
            "asr" => "a recognizer",
            "vocoder" => "a vocoder",
            _ => "a synthesizer",
        };
        let message = format!("{} holds {}, and not {}", args.run.display(), kind(found), kind(task));
        return Err(Failure::invalid(message, "leave out --task: the run records it"));
    }
    match kind {
        VocoderMetadata::KIND => vocoding::eval(args),
        _ if is_synthesizer(kind) => synthesis::eval(args),
        _ => recognition(args),
    }
}

/// Returns the name of the file for the sound of the utterance `id`, which can hold any character.
fn sound_file(id: &str) -> String {
    let name: String = id.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    name + ".wav"
}

/// Checks the folder for the sound of the utterances `ids`, and creates it: no file in it may be overwritten unless `args` say
/// so.
fn prepare_folder<'a>(args: &EvalArgs, ids: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    let Some(folder) = &args.out_dir else { return Ok(()) };
    fs::create_dir_all(folder).map_err(|error| {
        Failure::invalid(format!("cannot make {}: {error}", folder.display()), "`--out-dir` takes a folder")
    })?;
    for id in ids {
        OutputFile::new(&folder.join(sound_file(id)), "--out-dir", args.overwrite, &["wav"])?;
    }
    Ok(())
}

fn recognition(args: &EvalArgs) -> Result<ExitCode, Failure> {
    if args.judge.is_some() || args.out_dir.is_some() || args.vocoder.is_some() {
        let message =
            format!("{} is a recognizer: --judge, --out-dir and --vocoder do not apply to it", args.run.display());
        return Err(Failure::invalid(message, "leave out --judge, --out-dir and --vocoder"));
    }
    let search = args.search.for_run(&args.run)?;
    args.search.refuse_idle_flags(&search)?;
    let open = |run: &Path| -> Result<(String, Listener), Failure> {
        let search = args.search.for_run(run)?;
        let how = search.listening(run)?;
        Ok((search.name(), Listener::load(run, &how, &reader::device(&args.backend)?, &Terminal)?))
    };
    let reader = open(&args.run)?;
    let other = args.compare.as_deref().map(|run| open(run).map(|reader| (run, reader))).transpose()?;
    let chosen = Chosen::read(args, Some(&listener::tokenizer(&args.run)?))?;
    let table = args.table_file()?;
    let report = score(&args.run, &reader, &chosen)?;
    let other = match other {
        Some((run, reader)) => {
            let other = score(run, &reader, &chosen)?;
            Some(comparison::beside(&report, other, &Writes::of(&args.run)?, &Writes::of(run)?)?)
        }
        None => None,
    };
    if let Some(table) = table {
        table.write(table::table(&report.scored))?;
    }
    match args.json {
        true => {
            let mut json = chosen.with_missing(report.json(args.worst));
            if let Some(Beside { other, comparison, is_bare, .. }) = &other {
                json["other"] = other.json(args.worst);
                json["comparison"] = serde_json::to_value(comparison).expect("numbers and texts are plain data");
                json["comparison"]["without_capitals_and_punctuation"] = (*is_bare).into();
            }
            println!("{json:#}");
        }
        false => print!("{}", report.summary(args.worst)),
    }
    if let (Some(run), Some(beside), false) = (&args.compare, &other, args.json) {
        print!("{}", comparison::summary(beside, &args.run, run, args.worst));
    }
    if args.details && !args.json {
        print!("{}", details::summary(&report.errors()));
    }
    chosen.verdict(&report.skipped)
}

/// Transcribes the utterances and counts their errors; the report lists unreadable utterances.
fn score(run: &Path, (search, reader): &(String, Listener), chosen: &Chosen) -> Result<Report, Failure> {
    let mut report = Report::new(run, search, reader.search());
    report.warnings = reader.warnings().to_vec();
    let bar = reading_bar(chosen.utterances.len());
    for utterance in &chosen.utterances {
        if let Err(error) = read(utterance, reader, &mut report) {
            report.skipped.push(Skipped { name: utterance.id.clone(), reason: error_chain(&error) });
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    chosen.refuse_if_none_is_read(&report.skipped)?;
    Ok(report)
}

fn read(utterance: &Utterance, reader: &Listener, report: &mut Report) -> Result<(), AudioError> {
    let Utterance { id, audio, offset, duration, text, speaker, .. } = utterance;
    let segment = AudioSegment { offset: *offset, duration: Some(*duration) };
    let audio = read_audio_segment(audio, segment, reader.sample_rate())?;
    let start = Instant::now();
    let hypothesis = reader.text(&audio.samples, &Terminal);
    report.decode_seconds += start.elapsed().as_secs_f64();
    let transcription = Transcription { name: id.clone(), reference: text.clone(), hypothesis };
    report.scored.push(ScoredUtterance::new(transcription, audio.duration()).with_speaker(speaker.clone()));
    Ok(())
}
