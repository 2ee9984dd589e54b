//! `plimsoll transcribe`: turns recordings into text.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use plimsoll_audio::{AudioError, read_audio};
use plimsoll_core::{Seconds, error_chain};
use plimsoll_data::cuts_at_silence;
use plimsoll_text::transcript::{Segment, Transcript, TranscriptFormat, Word};
use serde_json::json;

use crate::output::{ForceFlag, OutputFile};
use crate::run_flag::run_folder;
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

/// Arguments of `transcribe`.
#[derive(Debug, Args)]
pub(crate) struct TranscribeArgs {
    /// Audio files (WAV, FLAC, MP3 or Ogg), or folders of them.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Run whose best checkpoint transcribes (its folder, or its name in `runs`), or folder of an exported model.
    #[arg(long, value_name = "RUN", value_parser = run_folder())]
    pub(crate) run: PathBuf,
    /// Print one JSON object per recording and line: `{"file": ..., "text": ..., "seconds": ...}` or `{"file": ..., "error": ...}`.
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Write the words with their times: text (no times), json, srt, vtt, ctm or textgrid. Several recordings need --out-dir.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<TranscriptFormat>,
    /// Folder for one file per recording, named after it.
    #[arg(long, value_name = "DIR", requires = "format", conflicts_with = "json")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Whether the files may be overwritten.
    #[command(flatten)]
    pub(crate) overwrite: ForceFlag,
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
    let outputs = outputs(args, &files)?;
    args.search.note_idle_flags();
    let reader = Reader::load(&args.run, args.search.resolve()?, &reader::device(&args.backend)?)?;
    let reader = reader.with_language(&args.search.language(&args.run))?;
    let bar = reading_bar(files.len());
    let mut unreadable = 0;
    for (index, file) in files.iter().enumerate() {
        let transcript = transcribe_file(file, &reader, args.format.is_some());
        unreadable += usize::from(transcript.is_err());
        match (&transcript, args.format) {
            (Ok(transcript), Some(format)) => match outputs.get(index) {
                Some(output) => output.write(transcript.write(format))?,
                None => bar.suspend(|| print!("{}", transcript.write(format))),
            },
            // A line of text would otherwise break the bar on the same terminal.
            _ => bar.suspend(|| print_result(file, &transcript, args.json, files.len() == 1)),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(if unreadable == 0 { ExitCode::SUCCESS } else { ExitCode::from(ConfigError::EXIT_CODE) })
}

/// Checks the files for the transcripts, one for each recording; none without `--out-dir`.
fn outputs(args: &TranscribeArgs, files: &[PathBuf]) -> Result<Vec<OutputFile>, Failure> {
    let (Some(format), Some(folder)) = (args.format, &args.out_dir) else {
        return match args.format {
            Some(_) if files.len() > 1 => {
                let message = format!("there are {} recordings, and one standard output", files.len());
                Err(Failure::invalid(message, "give --out-dir DIR, or one recording"))
            }
            _ => Ok(Vec::new()),
        };
    };
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::invalid(format!("cannot make {}: {error}", folder.display()), "`--out-dir` takes a folder")
    })?;
    let mut names = HashSet::new();
    let output = |file: &PathBuf| {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !names.insert(name.clone()) {
            let message = format!("two recordings are named `{name}`");
            return Err(Failure::invalid(message, "transcribe them into different folders"));
        }
        OutputFile::new(&folder.join(format!("{name}.{}", format.extension())), "--out-dir", args.overwrite)
    };
    files.iter().map(output).collect()
}

/// Transcribes one recording, with the times of its words if `is_timed`. A long recording is transcribed in segments.
fn transcribe_file(file: &Path, reader: &Reader, is_timed: bool) -> Result<Transcript, AudioError> {
    let audio = read_audio(file, reader.sample_rate())?;
    let rate = f64::from(audio.rate);
    let cuts = cuts_at_silence(&audio.samples, audio.rate, MAX_SEGMENT);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let segment = |(start, &end): (usize, &usize)| {
        let samples = &audio.samples[start..end];
        let (from, to) = (start as f64 / rate, end as f64 / rate);
        if !is_timed {
            return Segment { text: reader.text(samples, &Terminal), start: from, end: to, ..Segment::default() };
        }
        let found = reader.timed(samples, &Terminal);
        match found.words.is_empty() {
            // Without times of words, those of the segment.
            true => Segment { text: found.text, start: from, end: to, ..Segment::default() },
            false => Segment::new(found.words.into_iter().map(|word| within(shifted(word, from), to)).collect()),
        }
    };
    let segments = starts.zip(&cuts).map(segment).filter(|segment| !segment.text.is_empty()).collect();
    let seconds = audio.duration().0;
    Ok(Transcript { recording: file.display().to_string(), seconds, language: None, segments })
}

/// Cuts the times of `word` at `end`: the last frame of a model can reach beyond the recording.
pub(crate) fn within(mut word: Word, end: f64) -> Word {
    let cut = |time: &mut f64| *time = time.min(end);
    [&mut word.start, &mut word.end].into_iter().for_each(cut);
    word.characters.iter_mut().flat_map(|character| [&mut character.start, &mut character.end]).for_each(cut);
    word
}

/// Moves the times of `word` by `seconds`.
fn shifted(mut word: Word, seconds: f64) -> Word {
    (word.start, word.end) = (word.start + seconds, word.end + seconds);
    for character in &mut word.characters {
        (character.start, character.end) = (character.start + seconds, character.end + seconds);
    }
    word
}

/// Prints the text of a recording, or the error of reading it; `is_only` leaves out the name of the file.
fn print_result(file: &Path, transcript: &Result<Transcript, AudioError>, json: bool, is_only: bool) {
    let name = file.display().to_string();
    match transcript {
        Ok(transcript) if json => {
            println!("{}", json!({"file": name, "text": text_of(transcript), "seconds": transcript.seconds}));
        }
        Ok(transcript) if is_only => println!("{}", text_of(transcript)),
        Ok(transcript) => println!("{name}\t{}", text_of(transcript)),
        Err(error) => {
            let reason = error_chain(error);
            if json {
                println!("{}", json!({"file": name, "error": reason}));
            }
            eprintln!("error: {name}: {reason}");
        }
    }
}

/// Returns the text of all segments in one line.
fn text_of(transcript: &Transcript) -> String {
    transcript.segments.iter().map(|segment| segment.text.as_str()).collect::<Vec<_>>().join(" ")
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
