//! `plimsoll say`: turns text into speech.

use std::fs;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_audio::{read_audio, wav_bytes};
use plimsoll_core::{Samples, Seconds};
use plimsoll_monitor::Picture;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::tts::{Ending, SpeechOptions, SpeechPipeline, SynthesisError, SynthesizedSpeech, Voice};
use serde_json::{Value, json};

use crate::output::{ForceFlag, OutputFile};
use crate::print::go_on_without_output;
use crate::terminal::ExitCodeExt;
use plimsoll_recipes::config::ConfigError;
use plimsoll_recipes::reader;
use plimsoll_recipes::training::pictures;
use plimsoll_recipes::{Failure, FailureExt};

/// Maximum number of characters of a text that a message quotes.
const EXCERPT_CHARS: usize = 60;

/// Number of parts above which a text takes so long that a message says so, where no bar shows the progress.
const LONG_PARTS: usize = 100;

/// A text and the file for its speech.
struct SpeechRequest {
    text: String,
    out: OutputFile,
}

/// Arguments of `say`.
#[derive(Debug, Args)]
pub(crate) struct SayArgs {
    /// Text to speak; `-` reads it from standard input.
    #[arg(required_unless_present = "file", conflicts_with = "file", value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Speak every line of this text file into its own WAV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Run whose best checkpoint speaks, or folder of an exported model.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Output file; `-` is standard output. Default: said.wav.
    #[arg(long, value_name = "FILE.wav", conflicts_with = "file")]
    pub(crate) out: Option<PathBuf>,
    /// Output folder for --file; files are named after the line numbers: 0001.wav and so on. Default: said.
    #[arg(long, value_name = "DIR", requires = "file")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Recording of the voice to speak with, a few seconds long. Default: a voice of the training data.
    #[arg(long, value_name = "FILE.wav")]
    pub(crate) speaker: Option<PathBuf>,
    /// Language of the text, for a model that was trained on several.
    #[arg(long, value_name = "NAME")]
    pub(crate) language: Option<String>,
    /// Seed of the random numbers; the same text, voice and seed give the same speech.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Speed of speech, from 0.25 to 4: at 2 the text lasts half as long. Needs a model of the parallel family.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(crate) rate: f64,
    /// Draw the attention over the text and the log-mels into this SVG file; of a long text, its first part.
    #[arg(long, value_name = "FILE.svg", conflicts_with = "file")]
    pub(crate) picture: Option<PathBuf>,
    /// Whether the files may be overwritten.
    #[command(flatten)]
    pub(crate) overwrite: ForceFlag,
    /// Print one JSON object per file and line instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Backend to compute with: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
}

/// Synthesizes one text, or every line of a file. A line that fails is reported, and the other lines continue; the exit
/// code is then 2.
pub(crate) fn say(args: &SayArgs) -> Result<ExitCode, Failure> {
    let requests = requests(args)?;
    let picture = args.picture.as_deref().map(|path| OutputFile::new(path, "--picture", args.overwrite)).transpose()?;
    if args.file.is_some() {
        // The files are the result; the lines about them are not.
        go_on_without_output();
    }
    let device = reader::device(&args.backend)?;
    let pipeline = SpeechPipeline::load(&args.run, &device).invalid()?;
    let voice = voice(args, &pipeline)?;
    let is_single = args.file.is_none();
    let bar = bar(&requests);
    let mut failed = 0;
    for request in &requests {
        let speech = synthesize(args, &pipeline, &voice, request, &bar).and_then(|speech| {
            picture.as_ref().map(|file| draw(file, &speech, &pipeline, &voice, &options(args))).transpose()?;
            Ok(speech)
        });
        match speech {
            Ok(speech) => bar.suspend(|| print_result(args, &pipeline, request, &speech)),
            Err(failure) if is_single => return Err(failure),
            Err(failure) => {
                failed += 1;
                bar.suspend(|| {
                    eprintln!("error: {}: not written", request.out.path().display());
                    failure.print()
                });
            }
        }
    }
    bar.finish_and_clear();
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(ConfigError::EXIT_CODE) })
}

/// Lists the texts to synthesize: the text of the command line, or the lines of a file that are not blank.
fn requests(args: &SayArgs) -> Result<Vec<SpeechRequest>, Failure> {
    let Some(file) = &args.file else {
        let text = match args.text.as_deref() {
            Some("-") => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).invalid()?;
                text
            }
            text => text.unwrap_or_default().into(),
        };
        let out = OutputFile::new(args.out.as_deref().unwrap_or(Path::new("said.wav")), "--out", args.overwrite)?;
        return Ok(vec![SpeechRequest { text, out }]);
    };
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::invalid(
            format!("cannot read {}: {error}", file.display()),
            "`--file` takes a text file; each line becomes a WAV file",
        )
    })?;
    let folder = args.out_dir.clone().unwrap_or_else(|| "said".into());
    let lines: Vec<(usize, &str)> = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return Err(Failure::invalid(
            format!("{} has no line with text", file.display()),
            "each line with text becomes a WAV file",
        ));
    }
    fs::create_dir_all(&folder).map_err(|error| {
        Failure::invalid(format!("cannot make {}: {error}", folder.display()), "`--out-dir` takes a folder")
    })?;
    let request = |(number, line): (usize, &str)| {
        let out = OutputFile::new(&folder.join(format!("{:04}.wav", number + 1)), "--out-dir", args.overwrite)?;
        Ok(SpeechRequest { text: line.into(), out })
    };
    lines.into_iter().map(request).collect()
}

/// Encodes the voice of the recording that `args` name, or else the default voice of the run.
fn voice(args: &SayArgs, pipeline: &SpeechPipeline) -> Result<Voice, Failure> {
    let default_voice = ModelFolder(&args.run).default_voice();
    let path = args.speaker.as_deref().unwrap_or(&default_voice);
    if args.speaker.is_none() && !default_voice.is_file() {
        let message = format!("{} has no default voice: it has no voice.wav", args.run.display());
        return Err(Failure::invalid(message, "give a recording of the voice: --speaker FILE.wav"));
    }
    let audio = read_audio(path, pipeline.sample_rate()).invalid()?;
    pipeline.encode_voice(&audio.samples).map_err(|error| {
        Failure::invalid(format!("{}: {error}", path.display()), "use a recording of one speaker, a few seconds long")
    })
}

/// Synthesizes one text and writes its sound.
fn synthesize(
    args: &SayArgs,
    pipeline: &SpeechPipeline,
    voice: &Voice,
    request: &SpeechRequest,
    bar: &ProgressBar,
) -> Result<SynthesizedSpeech, Failure> {
    // For a single text the bar counts its parts, for a file its lines.
    let is_single = args.file.is_none();
    let mut count = |done: usize, all: usize| {
        if !is_single {
            return;
        }
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        if done == 0 && all > LONG_PARTS && bar.is_hidden() {
            eprintln!("note: the text has {all} parts; the time grows with their number");
        }
    };
    let speech = pipeline.synthesize(&request.text, voice, &options(args), &mut count);
    let speech = speech.map_err(|error| synthesis_failure(&error))?;
    if !is_single {
        bar.inc(1);
    }
    request.out.write(wav_bytes(&speech.samples, pipeline.sample_rate()))?;
    Ok(speech)
}

fn options(args: &SayArgs) -> SpeechOptions<'_> {
    SpeechOptions { language: args.language.as_deref(), seed: args.seed, rate: args.rate }
}

/// Makes the failure for `error`, with a hint how to correct the mistake.
fn synthesis_failure(error: &SynthesisError) -> Failure {
    let help = match error {
        SynthesisError::EmptyText => "give a text, or `-` to read it from standard input",
        SynthesisError::UnknownCharacters { .. } => "use letters of the script that the model was trained on",
        SynthesisError::UnknownLanguage { .. } => "leave out --language if the model knows only one",
        SynthesisError::Rate { .. } => "`--rate 1.5` speaks faster, `--rate 0.8` slower",
        SynthesisError::FixedRate => "leave out --rate, or train a model with `model.family` = \"parallel\"",
        SynthesisError::ShortReference { .. } | SynthesisError::SilentReference => {
            "use a recording of one speaker, a few seconds long"
        }
    };
    Failure::invalid(error.to_string(), help)
}

/// Draws the attention over the first part of the text, and the log-mels of this part, to the file at `path`.
fn draw(
    file: &OutputFile,
    speech: &SynthesizedSpeech,
    pipeline: &SpeechPipeline,
    voice: &Voice,
    options: &SpeechOptions<'_>,
) -> Result<(), Failure> {
    let Some(segment) = speech.segments.first() else { return Ok(()) };
    let features = pipeline.log_mel().config();
    let alignment = pipeline.alignment(segment, 0, voice, options);
    let mels = [pictures::Mels::new("said", &segment.generated.mels, features.n_mels)];
    let names = pipeline.token_names();
    let (text, tokens) = (&segment.text, &segment.tokens);
    let attention = pictures::AttentionPicture { text, alignment: &alignment, tokens, names: &names, features };
    let maps = [attention.heatmap()].into_iter().chain(pictures::mels(&mels, features)).collect();
    file.write(Picture { maps, shared: false }.to_svg())
}

/// Prints the name of the written file, the length of the speech, and warnings.
fn print_result(args: &SayArgs, pipeline: &SpeechPipeline, request: &SpeechRequest, speech: &SynthesizedSpeech) {
    let rate = pipeline.sample_rate();
    let length = Samples(speech.samples.len() as u64).at(rate);
    let file = request.out.path().display();
    let unknown: String = speech.unknown_characters.iter().filter(|character| !character.is_whitespace()).collect();
    if !unknown.is_empty() {
        eprintln!("warning: {file}: characters that the model does not know were left out: {unknown}");
    }
    let frames = |mels: usize| mels / pipeline.log_mel().n_mels();
    for part in speech.cut_off_segments() {
        let samples = frames(part.generated.mels.len()) * pipeline.log_mel().config().hop_length;
        let (after, text) = (Samples(samples as u64).at(rate), excerpt(&part.text));
        eprintln!("warning: {file}: was cut off after {after}, because the model did not stop: {text}");
    }
    match args.json {
        true => println!("{}", report(request, speech, length, &unknown)),
        false => println!("{file}  {length}"),
    }
}

/// Makes the JSON object that reports on one written file.
fn report(request: &SpeechRequest, speech: &SynthesizedSpeech, length: Seconds, unknown: &str) -> Value {
    let stopped = speech.cut_off_segments().next().is_none();
    json!({
        "file": request.out.path().display().to_string(),
        "text": request.text,
        "seconds": length,
        "parts": speech.segments.len(),
        "ending": if stopped { Ending::Stopped } else { Ending::CutOff },
        "unknown_letters": unknown,
    })
}

/// Returns the beginning of `text` in quotes, for a message.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS) {
        Some((end, _)) => format!("\"{}…\"", &text[..end]),
        None => format!("\"{text}\""),
    }
}

/// Makes a progress bar over lines, or over the parts of one long text; hidden if standard error is not a terminal.
fn bar(requests: &[SpeechRequest]) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("speaking {bar:40} {pos}/{len}, {eta} left");
    ProgressBar::new(requests.len() as u64).with_style(style.expect("the template is valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_is_beginning_of_long_text() {
        assert_eq!(excerpt("शुभ"), "\"शुभ\"");
        assert_eq!(excerpt(&"é".repeat(70)), format!("\"{}…\"", "é".repeat(60)));
    }
}
