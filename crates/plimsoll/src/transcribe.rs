//! `plimsoll transcribe`: turns recordings into text.

mod live;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;

use plimsoll_audio::{AudioError, AudioStream};
use plimsoll_config::ConfigError;
use plimsoll_core::{Samples, error_chain};
use plimsoll_recipes::listener::Listener;
use plimsoll_recipes::reader::{self, Reader};
use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_text::transcript::{Segment, TranscriptFormat, TranscriptWriter, UnknownFormat, Word};
use serde_json::json;

use crate::number::milliseconds;
use crate::output::{ForceFlag, OutputFile};
use crate::run_flag::run_folder;
use crate::search::SearchArgs;
use crate::terminal::{Terminal, reading_bar};
use live::RawArgs;

/// Arguments of `transcribe`.
#[derive(Debug, Args)]
pub(crate) struct TranscribeArgs {
    /// Audio files (WAV, FLAC, MP3, Ogg, Opus, M4A, AAC), videos (MP4, MOV, MKV, WebM), or folders of them. `-` reads a stream
    /// from standard input, and prints words as they are spoken.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Run whose best checkpoint transcribes (its folder, or its name in `runs`), or folder of an exported model.
    #[arg(long, value_name = "RUN", value_parser = run_folder())]
    pub(crate) run: PathBuf,
    /// Print one JSON object per recording and line: `{"file": ..., "text": ..., "seconds": ...}` or `{"file": ..., "error": ...}`.
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Write the words with their times: text (no times), json, srt, vtt, ctm or textgrid. Several recordings need --out-dir. A
    /// stream also has jsonl: one event a line, with the words that are final and those that may change.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<OutputFormat>,
    /// Folder for one file per recording, named after it.
    #[arg(long, value_name = "DIR", requires = "format", conflicts_with = "json")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Whether the files may be overwritten.
    #[command(flatten)]
    pub(crate) overwrite: ForceFlag,
    /// Backend to compute with: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// Form of a stream without a header.
    #[command(flatten)]
    pub(crate) raw: RawArgs,
    /// How the recognizer searches the best text.
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

impl TranscribeArgs {
    /// Returns whether standard input is read, as a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.inputs.iter().any(|input| input.as_os_str() == "-")
    }
}

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// A file.
    File(TranscriptFormat),
    /// Events of a stream, one JSON object a line.
    Events,
}

impl FromStr for OutputFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "jsonl" => Ok(Self::Events),
            name => name.parse().map(Self::File),
        }
    }
}

/// Transcribes every recording in order, or a stream. A recording that cannot be read is reported, and the other recordings
/// continue; the exit code is then 2.
pub(crate) fn transcribe(args: &TranscribeArgs) -> Result<ExitCode, Failure> {
    if args.is_stream() {
        return live::transcribe(args);
    }
    args.raw.refuse()?;
    let format = match args.format {
        Some(OutputFormat::Events) => {
            let message = "`--format jsonl` has the events of a stream, and these are files";
            return Err(Failure::invalid(message, "use --format json, or transcribe standard input: `-`"));
        }
        Some(OutputFormat::File(format)) => Some(format),
        None => None,
    };
    let files = files(&args.inputs)?;
    let outputs = outputs(args, format, &files)?;
    let reader = load(args)?;
    let bar = reading_bar(files.len());
    let mut unreadable = 0;
    let mut without_words = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let has_words = match (format, outputs.get(index)) {
            (Some(format), Some(output)) => {
                // A recording that cannot be read leaves no file.
                let mut read = Ok(true);
                let written = output.write_with(|path| {
                    let mut to = BufWriter::new(File::create(path).failed()?);
                    read = write_transcript(file, &reader, format, &mut |text| to.write_all(text.as_bytes()));
                    to.flush().failed()?;
                    read.as_ref().map_err(|_| Failure::invalid("", "")).map(drop)
                });
                bar.suspend(|| report(file, read, written))?
            }
            (Some(format), None) => {
                let read = write_transcript(file, &reader, format, &mut |text| {
                    bar.suspend(|| print!("{text}"));
                    Ok(())
                });
                bar.suspend(|| report(file, read, Ok(())))?
            }
            // A line of text would otherwise break the bar on the same terminal.
            (None, _) => {
                let found = text_of(file, &reader);
                bar.suspend(|| print_result(file, &found, args.json, files.len() == 1));
                found.ok().map(|(text, _)| !text.trim().is_empty())
            }
        };
        match has_words {
            None => unreadable += 1,
            Some(false) => without_words.push(file),
            Some(true) => {}
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(first) = without_words.first() {
        let place = match files.len() {
            1 => first.display().to_string(),
            all => format!("{} of {all} recordings, such as {}", without_words.len(), first.display()),
        };
        note_no_words(&place, &args.run);
    }
    Ok(if unreadable == 0 { ExitCode::SUCCESS } else { ExitCode::from(ConfigError::EXIT_CODE) })
}

/// Loads the recognizer with its search.
fn load(args: &TranscribeArgs) -> Result<Listener, Failure> {
    let search = args.search.for_run(&args.run)?;
    args.search.refuse_idle_flags(&search)?;
    Listener::load(&args.run, &search.listening(&args.run)?, &reader::device(&args.backend)?, &Terminal)
}

/// Prints a note that no words were found in `place`, with what is known of the model in the folder `run`.
fn note_no_words(place: &str, run: &Path) {
    let known = Reader::held_out_error(run);
    let known = known.map(|error| format!("; of held-out utterances, this model has {:.0} % CER", error * 100.0));
    eprintln!("note: no words found in {place}{}", known.unwrap_or_default());
}

/// Returns whether words were found in a recording. Prints why it cannot be read; `None` then. An error of writing ends the
/// command.
fn report(file: &Path, read: Result<bool, ReadError>, written: Result<(), Failure>) -> Result<Option<bool>, Failure> {
    match read {
        Ok(has_words) => written.map(|()| Some(has_words)),
        Err(ReadError::Audio(error)) => {
            eprintln!("error: {}: {}", file.display(), error_chain(&error));
            Ok(None)
        }
        Err(ReadError::Written(error)) => Err(error),
    }
}

/// Checks the files for the transcripts, one for each recording; none without `--out-dir`.
fn outputs(
    args: &TranscribeArgs,
    format: Option<TranscriptFormat>,
    files: &[PathBuf],
) -> Result<Vec<OutputFile>, Failure> {
    let (Some(format), Some(folder)) = (format, &args.out_dir) else {
        return match format {
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
        let ending = format.extension();
        OutputFile::new(&folder.join(format!("{name}.{ending}")), "--out-dir", args.overwrite, &[ending])
    };
    files.iter().map(output).collect()
}

/// Error of transcribing a recording into a file.
enum ReadError {
    Audio(AudioError),
    Written(Failure),
}

/// Transcribes the recording in `file` in parts, and hands its segments to `each`, which asks for their times. Returns its length in
/// seconds.
fn segments(
    file: &Path,
    audio: AudioStream,
    (reader, with_times): (&Listener, bool),
    each: &mut dyn FnMut(&Segment) -> Result<(), ReadError>,
) -> Result<f64, ReadError> {
    let mut audio = audio;
    let mut long = reader.long(with_times);
    let (mut block, mut count) = (Vec::new(), 0);
    while audio.read(&mut block).map_err(ReadError::Audio)? {
        count += block.len() as u64;
        long.push(&block).iter().try_for_each(&mut *each)?;
        block.clear();
    }
    long.finish().iter().try_for_each(&mut *each)?;
    if let Some(channel) = audio.taken_channel() {
        eprintln!("note: {}: its channels cancel each other, so channel {channel} is heard alone", file.display());
    }
    Ok(Samples(count).at(reader.sample_rate()).0)
}

/// Transcribes a recording, and hands what can be written to `write` at once. Returns whether words were found.
fn write_transcript(
    file: &Path,
    reader: &Listener,
    format: TranscriptFormat,
    write: &mut dyn FnMut(&str) -> std::io::Result<()>,
) -> Result<bool, ReadError> {
    let audio = AudioStream::open(file, reader.sample_rate()).map_err(ReadError::Audio)?;
    let seconds = audio.length().map_or(0.0, |length| length.0);
    let mut writer = TranscriptWriter::new(format, file.display().to_string(), seconds);
    let mut write = |text: String| write(&text).failed().map_err(ReadError::Written);
    write(writer.begin())?;
    let mut has_words = false;
    segments(file, audio, (reader, format.has_times()), &mut |segment| {
        has_words |= !segment.text.trim().is_empty();
        write(writer.push(segment))
    })?;
    write(writer.finish())?;
    Ok(has_words)
}

/// Transcribes a recording into one line. Returns its length in seconds, too.
fn text_of(file: &Path, reader: &Listener) -> Result<(String, f64), AudioError> {
    let audio = AudioStream::open(file, reader.sample_rate())?;
    let mut texts = Vec::new();
    let read = segments(file, audio, (reader, false), &mut |segment| {
        texts.push(segment.text.clone());
        Ok(())
    });
    match read {
        Ok(seconds) => Ok((texts.join(" "), seconds)),
        Err(ReadError::Audio(error)) => Err(error),
        Err(ReadError::Written(_)) => unreachable!("nothing is written here"),
    }
}

/// Cuts the times of `word` at `end`: the last frame of a model can reach beyond the recording.
pub(crate) fn within(mut word: Word, end: f64) -> Word {
    let cut = |time: &mut f64| *time = time.min(end);
    [&mut word.start, &mut word.end].into_iter().for_each(cut);
    word.characters.iter_mut().flat_map(|character| [&mut character.start, &mut character.end]).for_each(cut);
    word
}

/// Prints the text of a recording, or the error of reading it; `is_only` leaves out the name of the file.
fn print_result(file: &Path, found: &Result<(String, f64), AudioError>, json: bool, is_only: bool) {
    let name = file.display().to_string();
    match found {
        Ok((text, seconds)) if json => {
            println!("{}", json!({"file": name, "text": text, "seconds": milliseconds(*seconds)}));
        }
        Ok((text, _)) if is_only => println!("{text}"),
        Ok((text, _)) => println!("{name}\t{text}"),
        Err(error) => {
            let reason = error_chain(error);
            if json {
                println!("{}", json!({"file": name, "error": reason}));
            }
            eprintln!("error: {name}: {reason}");
        }
    }
}

/// Lists the named files, and the audio files of named folders in the order of their names. A file that is named itself can
/// have any extension.
fn files(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for input in inputs {
        if !input.is_dir() {
            files.push(input.clone());
            continue;
        }
        let entries = std::fs::read_dir(input).invalid()?;
        let paths = entries.flatten().map(|entry| entry.path());
        let mut found: Vec<PathBuf> = paths.filter(|path| plimsoll_audio::is_audio_name(path)).collect();
        if found.is_empty() {
            let message = format!("{} holds no audio files", input.display());
            return Err(Failure::invalid(
                message,
                "name a file, or a folder with audio files or videos directly in it, such as .wav, .flac, .mp3, .opus, .m4a or .mp4",
            ));
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}
