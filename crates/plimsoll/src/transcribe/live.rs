//! `plimsoll transcribe -`: prints the words of a stream while they are spoken.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use clap::Args;
use plimsoll_audio::{AudioError, AudioStream, RawAudio, RawEncoding};
use plimsoll_core::error_chain;
use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_speech::asr::{LiveOptions, LiveUpdate};
use plimsoll_text::transcript::{Segment, Transcript, TranscriptFormat, Word};
use serde_json::json;

use super::{OutputFormat, TranscribeArgs, load, note_no_words};
use crate::print::flush_out;
use crate::signals::Signals;

/// Blocks that are read before they are transcribed. A block is at most 64 KiB of the stream.
const BLOCKS: usize = 4;
/// Time after which a signal is noticed although nothing is read.
const PATIENCE: Duration = Duration::from_millis(100);

const LINE_END: char = '\n';

/// Arguments for a stream without a header.
#[derive(Debug, Args)]
#[command(next_help_heading = "Standard input")]
pub(crate) struct RawArgs {
    /// Sample rate of a stream of samples without a header, in hertz. Without it the stream is a WAV file, whose size may be
    /// unknown.
    #[arg(long, value_name = "HZ")]
    raw_rate: Option<u32>,
    /// Form of its samples: u8, s16le, s24le, s32le or f32le. Default: s16le.
    #[arg(long, value_name = "FORM", value_parser = RawEncoding::ALL.map(RawEncoding::name), requires = "raw_rate")]
    raw_format: Option<String>,
    /// Number of its channels. Default: 1.
    #[arg(long, value_name = "N", requires = "raw_rate", value_parser = clap::value_parser!(u16).range(1..=64))]
    raw_channels: Option<u16>,
}

impl RawArgs {
    /// Fails if a form is given, for files.
    pub(super) fn refuse(&self) -> Result<(), Failure> {
        match self.raw_rate {
            Some(_) => Err(Failure::invalid("`--raw-rate` describes a stream, and these are files", "give `-`")),
            None => Ok(()),
        }
    }

    fn form(&self) -> Option<RawAudio> {
        let encoding = self.raw_format.as_deref().and_then(RawEncoding::from_name).unwrap_or_default();
        self.raw_rate.map(|rate| RawAudio { rate, channels: self.raw_channels.unwrap_or(1), encoding })
    }
}

/// Transcribes standard input until it ends, or until a signal.
pub(super) fn transcribe(args: &TranscribeArgs) -> Result<ExitCode, Failure> {
    if args.inputs.len() > 1 || args.out_dir.is_some() {
        return Err(Failure::invalid("`-` is a stream, which is transcribed alone", "leave out files and --out-dir"));
    }
    let reader = load(args)?.with_ctc("transcribe a stream")?;
    let mut live = reader.live(LiveOptions::default())?;
    let signals = Signals::listen().failed()?;
    let (rate, form) = (reader.sample_rate(), args.raw.form());
    let (sender, blocks) = mpsc::sync_channel(BLOCKS);
    // The thread is left where it waits for input when a signal ends the command.
    std::thread::spawn(move || read(std::io::stdin(), form, rate, &sender));
    let mut output = Output::new(args);
    let mut failure = None;
    while !signals.stop.load(Ordering::Relaxed) {
        match blocks.recv_timeout(PATIENCE) {
            Ok(Ok(block)) => output.update(&live.push(&waiting(block, &blocks, &mut failure))),
            Ok(Err(error)) => failure = Some(error),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if failure.is_some() {
            break;
        }
    }
    let seconds = live.length().0;
    output.update(&live.finish());
    let has_found = output.has_found;
    output.finish(seconds);
    let is_stopped = signals.stop.load(Ordering::Relaxed);
    match failure {
        None if seconds == 0.0 && !is_stopped => {
            let message = "standard input is empty: it has no sound";
            Err(Failure::failed(message, "look at the program that writes into it"))
        }
        Some(error) => {
            let message = format!("standard input: {}", error_chain(&error));
            Err(Failure::invalid(message, "give a WAV file, or samples with --raw-rate HZ; ffmpeg makes both"))
        }
        None if is_stopped => Ok(ExitCode::from(signals.exit_code())),
        None => {
            if !has_found {
                note_no_words("standard input", &args.run);
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Adds the blocks that wait to `block`.
fn waiting(
    mut block: Vec<f32>,
    blocks: &Receiver<Result<Vec<f32>, AudioError>>,
    failure: &mut Option<AudioError>,
) -> Vec<f32> {
    while let Ok(next) = blocks.try_recv() {
        match next {
            Ok(samples) => block.extend(samples),
            Err(error) => {
                *failure = Some(error);
                break;
            }
        }
    }
    block
}

/// Reads a stream block by block, until it ends or the blocks are no longer taken.
fn read(
    input: impl Read + 'static,
    form: Option<RawAudio>,
    rate: u32,
    sender: &SyncSender<Result<Vec<f32>, AudioError>>,
) {
    let stream = match form {
        Some(form) => AudioStream::from_raw(input, form, rate),
        None => AudioStream::from_wav(input, rate),
    };
    let mut stream = match stream {
        Ok(stream) => stream,
        // Nothing was said.
        Err(AudioError::Empty(_)) => return,
        Err(error) => return drop(sender.send(Err(error))),
    };
    loop {
        let mut block = Vec::new();
        let sent = match stream.read(&mut block) {
            Ok(true) => sender.send(Ok(block)),
            Ok(false) => return,
            Err(error) => return drop(sender.send(Err(error))),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// What is printed of a stream.
struct Output {
    form: Form,
    /// Whether words were found.
    has_found: bool,
    /// Whether words of this line were printed.
    has_words: bool,
    /// Number of columns of the tentative words on the terminal.
    shown: usize,
    is_terminal: bool,
    last_tentative: String,
}

enum Form {
    /// Words as they come, a line for each pause.
    Words,
    /// One JSON object for each event.
    Events,
    /// A file at the end.
    File(TranscriptFormat, Vec<Word>),
    /// One JSON object at the end.
    Object(Vec<Word>),
}

impl Output {
    fn new(args: &TranscribeArgs) -> Self {
        let form = match args.format {
            None if args.json => Form::Object(Vec::new()),
            None | Some(OutputFormat::File(TranscriptFormat::Text)) => Form::Words,
            Some(OutputFormat::Events) => Form::Events,
            Some(OutputFormat::File(format)) => Form::File(format, Vec::new()),
        };
        let is_terminal = std::io::stderr().is_terminal();
        Self { form, has_found: false, has_words: false, shown: 0, is_terminal, last_tentative: String::new() }
    }

    /// Prints what is new.
    fn update(&mut self, update: &LiveUpdate) {
        let texts = |words: &[Word]| words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        let tentative = texts(&update.tentative);
        self.has_found |= !update.words.is_empty();
        match &mut self.form {
            Form::Words => {
                self.hide();
                if !update.words.is_empty() {
                    print!("{}{}", if self.has_words { " " } else { "" }, texts(&update.words));
                    self.has_words = true;
                }
                if update.is_pause && self.has_words {
                    print!("{LINE_END}");
                    self.has_words = false;
                }
            }
            Form::Events => {
                if !update.words.is_empty() {
                    println!("{}", json!({"event": "words", "words": update.words, "pause": update.is_pause}));
                }
                if tentative != self.last_tentative {
                    println!("{}", json!({"event": "tentative", "text": tentative}));
                }
            }
            Form::File(_, words) | Form::Object(words) => words.extend(update.words.iter().cloned()),
        }
        flush_out();
        if !matches!(self.form, Form::Events) {
            self.show(&tentative);
        }
        self.last_tentative = tentative;
    }

    /// Shows words that may change, on a terminal.
    fn show(&mut self, tentative: &str) {
        self.hide();
        if self.is_terminal && !tentative.is_empty() {
            self.shown = tentative.chars().count() + 1;
            eprint!(" {tentative}");
        }
    }

    /// Removes the words that may change from the terminal.
    fn hide(&mut self) {
        if self.shown > 0 {
            eprint!("{}{}{}", "\u{8}".repeat(self.shown), " ".repeat(self.shown), "\u{8}".repeat(self.shown));
            self.shown = 0;
        }
    }

    /// Prints the end of a stream of `seconds`.
    fn finish(self, seconds: f64) {
        let segment = |words: Vec<Word>| if words.is_empty() { Vec::new() } else { vec![Segment::new(words)] };
        match self.form {
            Form::Words => {
                if self.has_words {
                    print!("{LINE_END}");
                }
            }
            Form::Events => println!("{}", json!({"event": "end", "seconds": seconds})),
            Form::File(format, words) => {
                let segments = segment(words);
                let transcript = Transcript { recording: "-".into(), seconds, language: None, segments };
                print!("{}", transcript.write(format));
            }
            Form::Object(words) => {
                let text = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
                println!("{}", json!({"file": "-", "text": text, "seconds": seconds}));
            }
        }
        flush_out();
    }
}
