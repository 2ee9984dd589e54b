//! `plimsoll data segment`: cuts a long recording with its text into utterances.

use std::path::Path;
use std::process::ExitCode;

use plimsoll_audio::quick_audio_info;
use plimsoll_config::invocation::command;
use plimsoll_core::{Seconds, counted};
use plimsoll_recipes::cutting::{CutRecording, CutSettings, cut};
use plimsoll_recipes::reader::{self, Reader};
use plimsoll_recipes::reporter::Reporter;
use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_speech::asr::Search;

use super::args::SegmentArgs;
use crate::terminal::Terminal;

/// Number of lines left out that are shown.
const SHOWN: usize = 5;

/// Cuts the recording, and prints what was found and what was left out.
pub(super) fn run(args: &SegmentArgs) -> Result<ExitCode, Failure> {
    let text = std::fs::read_to_string(&args.text).map_err(|error| {
        let message = format!("cannot read {}: {error}", args.text.display());
        Failure::invalid(message, "give a text file with one utterance a line")
    })?;
    let lines: Vec<&str> =
        text.trim_start_matches('\u{feff}').lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        let message = format!("{} has no text", args.text.display());
        return Err(Failure::invalid(message, "give a text file with one utterance a line"));
    }
    check_folder(&args.out)?;
    let info = quick_audio_info(&args.audio).invalid()?;
    let reader = Reader::load(&args.run, Search::Greedy, &reader::device(&args.backend)?, &Terminal)?;
    let settings =
        CutSettings { least_score: args.min_score, is_flac: args.to == "flac", speaker: args.speaker.clone() };
    std::fs::create_dir_all(&args.out).invalid()?;
    let seconds = info.duration.0.is_finite().then_some(info.duration.0 as u64);
    let progress = Terminal.progress("listening", seconds);
    let result = cut(&reader, &args.audio, &lines, &settings, &args.out, &*progress)?;
    drop(progress);
    print_result(args, &result);
    if result.utterances.is_empty() {
        let message = "the recording says none of the lines clearly";
        return Err(Failure::invalid(message, "check the text, or accept lower scores: --min-score"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails if the folder has files already.
fn check_folder(folder: &Path) -> Result<(), Failure> {
    let has_files = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    match has_files || folder.is_file() {
        true => Err(Failure::invalid(format!("{} exists already", folder.display()), "choose another --out")),
        false => Ok(()),
    }
}

fn print_result(args: &SegmentArgs, result: &CutRecording) {
    if args.json {
        println!("{}", serde_json::to_string(result).expect("a result is plain data"));
        return;
    }
    let manifest = args.out.join("manifest.jsonl");
    let kept: f64 = result.utterances.iter().map(|utterance| utterance.duration).sum();
    println!(
        "{}: {}, {} of {}",
        manifest.display(),
        counted(result.utterances.len(), "utterance"),
        Seconds(kept),
        Seconds(result.seconds)
    );
    if !result.left_out.is_empty() {
        println!("left out: {}", counted(result.left_out.len(), "line"));
    }
    for line in result.left_out.iter().take(SHOWN) {
        let score = line.score.map_or_else(|| "no known character".into(), |score| format!("score {score:.2}"));
        println!("  line {} ({score}): {}", line.line, line.text);
    }
    if result.left_out.len() > SHOWN {
        println!("  and {} more; --json has all", result.left_out.len() - SHOWN);
    }
    println!("To train on it: {} --manifest {}", command("train"), manifest.display());
}
