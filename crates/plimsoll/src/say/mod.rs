//! `plimsoll say`: turns text into speech.

mod format;
mod stream;

use std::fs;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use burn::tensor::Device;
use clap::Args;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_audio::read_audio;
use plimsoll_config::ConfigError;
use plimsoll_core::{Samples, read_text_file};
use plimsoll_monitor::Picture;
use plimsoll_recipes::reader;
use plimsoll_recipes::reporter::{Level, Reporter};
use plimsoll_recipes::texts::{PHONEMES_HELP, normalizer_of};
use plimsoll_recipes::training::pictures;
use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_speech::ModelFolder;
use plimsoll_speech::tts::{Ending, SpeechOptions, SpeechPipeline, SynthesisError, SynthesizedSpeech, Voice};
use plimsoll_text::ssml::{self, Part, Speech};
use plimsoll_text::{Language, Normalizer};
use serde_json::{Value, json};

use crate::number::milliseconds;
use crate::output::{ForceFlag, OutputFile};
use crate::print::go_on_without_output;
use crate::run_flag::run_folder;
use crate::terminal::{ExitCodeExt, Terminal};
use format::SoundFormat;
use stream::stream;

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
    /// Text to speak, plain or SSML; `-` reads it from standard input.
    #[arg(required_unless_present = "file", conflicts_with = "file", value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Speak every line of this text file into its own file.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Run whose best checkpoint speaks (its folder, or its name in `runs`), or folder of an exported model.
    #[arg(long, value_name = "RUN", value_parser = run_folder())]
    pub(crate) run: PathBuf,
    /// Output file, as WAV, or as FLAC if its name ends with .flac; `-` is standard output. Default: said.wav.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) out: Option<PathBuf>,
    /// Format of the output. Default: by the name of --out, otherwise wav.
    #[arg(long, value_enum, value_name = "wav|flac", hide_possible_values = true)]
    pub(crate) format: Option<SoundFormat>,
    /// Write one WAV file of unknown length to standard output, part by part as they are spoken, for a player.
    #[arg(long, conflicts_with_all = ["file", "out", "picture", "json", "format"])]
    pub(crate) stream: bool,
    /// Output folder for --file; files are named after the line numbers: 0001.wav and so on. Default: said.
    #[arg(long, value_name = "DIR", requires = "file")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Run of a trained vocoder, or folder of an exported one, which makes the sound; it needs the features of the model.
    /// Default: the folder `vocoder` in that of the model, otherwise Griffin-Lim.
    #[arg(long, value_name = "RUN", value_parser = run_folder())]
    pub(crate) vocoder: Option<PathBuf>,
    /// Recording of the voice to speak with, a few seconds long. Default: a voice of the training data.
    #[arg(long, value_name = "FILE.wav")]
    pub(crate) speaker: Option<PathBuf>,
    /// Language of the text, for a model that was trained on several.
    #[arg(long, value_name = "NAME")]
    pub(crate) language: Option<String>,
    /// Steps that make words of the text before it is spoken: a language such as `en` for all steps that know it, or steps
    /// as in `data.normalize`, separated by commas. Default: those that the model was trained with.
    #[arg(long, value_name = "STEPS")]
    pub(crate) normalize: Option<String>,
    /// Seed of the random numbers; the same text, voice and seed give the same speech.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Speed of speech, from 0.25 to 4: at 2 the text lasts half as long. Needs a model of the parallel family.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(crate) rate: f64,
    /// Change of pitch in semitones, from -12 to 12. Needs a model that was trained with `model.pitch`.
    #[arg(long, value_name = "SEMITONES", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) pitch: f64,
    /// Change of energy in decibels, from -12 to 12: the voice speaks up, or softly. Needs a model that was trained with
    /// `model.pitch`.
    #[arg(long, value_name = "DECIBELS", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) energy: f64,
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
    let normalizer = args.normalize.as_deref().map(normalizer_of).transpose()?;
    let requests = requests(args)?;
    let picture =
        args.picture.as_deref().map(|path| OutputFile::new(path, "--picture", args.overwrite, &["svg"])).transpose()?;
    if args.file.is_some() {
        // The files are the result; the lines about them are not.
        go_on_without_output();
    }
    let device = reader::device(&args.backend)?;
    let pipeline = speech_pipeline(&args.run, args.vocoder.as_deref(), &device)?;
    let voice = voice(args, &pipeline)?;
    let words = |request: &SpeechRequest| spoken(args, &pipeline, normalizer.as_ref(), &request.text);
    if args.stream {
        return stream(args, &pipeline, &voice, &words(&requests[0])?);
    }
    let is_single = args.file.is_none();
    let bar = bar(&requests);
    let mut failed = 0;
    for request in &requests {
        let speech = words(request).and_then(|speech| synthesize(args, &pipeline, &voice, (request, &speech), &bar));
        let speech = speech.and_then(|speech| {
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

/// Loads the synthesizer in `folder`, with the trained vocoder in `vocoder` if it is given. Prints a warning if the weights
/// may not be the best of their runs.
pub(crate) fn speech_pipeline(
    folder: &Path,
    vocoder: Option<&Path>,
    device: &Device,
) -> Result<SpeechPipeline, Failure> {
    let mut pipeline = SpeechPipeline::load(folder, device).invalid()?;
    if let Some(vocoder) = vocoder {
        pipeline = pipeline.with_vocoder_in(vocoder).invalid()?;
    }
    pipeline.warnings().for_each(|text| Terminal.line(Level::Warning, text));
    Ok(pipeline)
}

/// Lists the texts to synthesize: the text of the command line, or the lines of a file that are not blank.
fn requests(args: &SayArgs) -> Result<Vec<SpeechRequest>, Failure> {
    let Some(file) = &args.file else {
        // clap lets it pass, because a text and a file exclude each other.
        if args.out_dir.is_some() {
            return Err(Failure::invalid("--out-dir is for the lines of --file", "a single text goes to --out FILE"));
        }
        let text = match args.text.as_deref() {
            Some("-") => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).invalid()?;
                text
            }
            text => text.unwrap_or_default().into(),
        };
        if args.stream {
            return Ok(vec![SpeechRequest {
                text,
                out: OutputFile::new(Path::new("-"), "--stream", args.overwrite, &[])?,
            }]);
        }
        let default = format!("said.{}", format_of(args).extension());
        let path = args.out.as_deref().unwrap_or(Path::new(&default));
        let endings = args.format.map_or(vec!["wav", "flac"], |format| vec![format.extension()]);
        let out = OutputFile::new(path, "--out", args.overwrite, &endings)?;
        return Ok(vec![SpeechRequest { text, out }]);
    };
    let text = read_text_file(file).map_err(|error| {
        Failure::invalid(
            format!("cannot read {}: {error}", file.display()),
            "`--file` takes a text file; each line becomes a file of sound",
        )
    })?;
    let folder = args.out_dir.clone().unwrap_or_else(|| "said".into());
    let lines: Vec<(usize, &str)> = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return Err(Failure::invalid(
            format!("{} has no line with text", file.display()),
            "each line with text becomes a file of sound",
        ));
    }
    fs::create_dir_all(&folder).map_err(|error| {
        Failure::invalid(format!("cannot make {}: {error}", folder.display()), "`--out-dir` takes a folder")
    })?;
    let request = |(number, line): (usize, &str)| {
        let name = format!("{:04}.{}", number + 1, format_of(args).extension());
        let out = OutputFile::new(&folder.join(name), "--out-dir", args.overwrite, &[format_of(args).extension()])?;
        Ok(SpeechRequest { text: line.into(), out })
    };
    lines.into_iter().map(request).collect()
}

/// Returns the format of the output: as asked for, or by the name of the file.
fn format_of(args: &SayArgs) -> SoundFormat {
    let by_name = || {
        let extension = args.out.as_deref()?.extension()?.to_str()?;
        extension.eq_ignore_ascii_case("flac").then_some(SoundFormat::Flac)
    };
    args.format.or_else(by_name).unwrap_or(SoundFormat::Wav)
}

/// Reads a text, plain or SSML, and makes words of it.
fn spoken(
    args: &SayArgs,
    pipeline: &SpeechPipeline,
    normalizer: Option<&Normalizer>,
    text: &str,
) -> Result<Speech, Failure> {
    let steps = normalizer.unwrap_or_else(|| pipeline.tokenizer().normalizer()).steps();
    let by_steps = steps.iter().find_map(|step| step.language());
    let language = args.language.as_deref().and_then(Language::from_code).or(by_steps);
    let mut speech = ssml::parse(text, language).invalid()?;
    if let Some(normalizer) = normalizer {
        for part in &mut speech.parts {
            if let Part::Span(span) = part {
                span.text = normalizer.apply(&span.text);
            }
        }
    }
    Ok(speech)
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
    (request, speech): (&SpeechRequest, &Speech),
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
    let speech = pipeline.speak(speech, voice, &options(args), &mut count);
    let speech = speech.map_err(|error| synthesis_failure(&error))?;
    if !is_single {
        bar.inc(1);
    }
    request.out.write(format_of(args).encode(&speech.samples, pipeline.sample_rate())?)?;
    Ok(speech)
}

fn options(args: &SayArgs) -> SpeechOptions<'_> {
    SpeechOptions {
        language: args.language.as_deref(),
        seed: args.seed,
        rate: args.rate,
        pitch: args.pitch,
        energy: args.energy,
    }
}

/// Makes the failure for `error`, with a hint how to correct the mistake.
fn synthesis_failure(error: &SynthesisError) -> Failure {
    let help = match error {
        SynthesisError::EmptyText => "give a text, or `-` to read it from standard input",
        SynthesisError::UnknownCharacters { .. } => "use letters of the script that the model was trained on",
        SynthesisError::UnknownLanguage { .. } => "leave out --language if the model knows only one",
        SynthesisError::Phonemes(_) => PHONEMES_HELP,
        SynthesisError::Rate { .. } => "`--rate 1.5` speaks faster, `--rate 0.8` slower",
        SynthesisError::Steering { .. } => "`--pitch 2` speaks two semitones higher, `--energy -6` softer",
        SynthesisError::FixedPitch => "leave it out, or train a model with `--set model.pitch=true`",
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
    for warning in &speech.warnings {
        eprintln!("warning: {file}: {warning}");
    }
    let frames = |mels: usize| mels / pipeline.log_mel().n_mels();
    for part in speech.cut_off_segments() {
        let samples = frames(part.generated.mels.len()) * pipeline.log_mel().config().hop_length;
        let (after, text) = (Samples(samples as u64).at(rate), excerpt(&part.text));
        eprintln!("warning: {file}: was cut off after {after}, because the model did not stop: {text}");
    }
    match args.json {
        true => println!("{}", report(pipeline, request, speech, &unknown)),
        false => println!("{file}: {}", length.of_speech()),
    }
}

/// Makes the JSON object that reports on one written file.
fn report(pipeline: &SpeechPipeline, request: &SpeechRequest, speech: &SynthesizedSpeech, unknown: &str) -> Value {
    let length = Samples(speech.samples.len() as u64).at(pipeline.sample_rate());
    let stopped = speech.cut_off_segments().next().is_none();
    json!({
        "file": request.out.path().display().to_string(),
        "text": request.text,
        "seconds": milliseconds(length.0),
        "parts": speech.segments.len(),
        "ending": if stopped { Ending::Stopped } else { Ending::CutOff },
        "unknown_letters": unknown,
        "warnings": pipeline.warnings().collect::<Vec<&str>>(),
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
