//! `plimsoll say`: text in, sound out.

use std::fs;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_audio::{read_audio, write_wav};
use plimsoll_core::{Samples, Seconds};
use plimsoll_monitor::Picture;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::tts::{Ending, SpeechOptions, SpeechPipeline, SynthesisError, SynthesizedSpeech, Voice};
use serde_json::{Value, json};

use crate::terminal::ExitCodeExt;
use plimsoll_recipes::config::ConfigError;
use plimsoll_recipes::reader;
use plimsoll_recipes::training::pictures;
use plimsoll_recipes::{Failure, FailureExt};

/// The most characters of a text that a message repeats.
const SHOWN: usize = 60;

/// A text and the file that its sound goes into.
struct Wish {
    text: String,
    out: PathBuf,
}

/// What `say` takes.
#[derive(Debug, Args)]
pub(crate) struct SayArgs {
    /// The text; `-` reads it from standard input.
    #[arg(required_unless_present = "file", conflicts_with = "file", value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Says every line of this file into a WAV file of its own.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The run whose best checkpoint speaks, or the folder of an exported model.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// The WAV file to write; said.wav where it is not named.
    #[arg(long, value_name = "FILE.wav", conflicts_with = "file")]
    pub(crate) out: Option<PathBuf>,
    /// The folder for the lines of --file, called by their numbers: 0001.wav and so on; said where it is not named.
    #[arg(long, value_name = "DIR", requires = "file")]
    pub(crate) out_dir: Option<PathBuf>,
    /// A recording of the voice to speak in; without one, a voice that the model learned from.
    #[arg(long, value_name = "FILE.wav")]
    pub(crate) speaker: Option<PathBuf>,
    /// The language of the text, for a model that was taught several.
    #[arg(long, value_name = "NAME")]
    pub(crate) language: Option<String>,
    /// Decides what is random in speaking: the same text with the same seed sounds the same.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Draws where the model looked in the text while it spoke, into this SVG file.
    #[arg(long, value_name = "FILE.svg", conflicts_with = "file")]
    pub(crate) picture: Option<PathBuf>,
    /// Prints one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Kind of device: auto, cpu, cuda or wgpu.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
}

/// Says what `args` ask for; of several texts one that cannot be said is told and stops no other.
pub(crate) fn say(args: &SayArgs) -> Result<ExitCode, Failure> {
    let wishes = wishes(args)?;
    let device = reader::device(&args.backend)?;
    let narrator = SpeechPipeline::load(&args.run, &device).invalid()?;
    let voice = voice(args, &narrator)?;
    let alone = args.file.is_none();
    let bar = bar(&wishes);
    let mut unsaid = 0;
    for wish in &wishes {
        match narrate(args, &narrator, &voice, wish, &bar) {
            Ok(narration) => bar.suspend(|| tell(args, &narrator, wish, &narration)),
            Err(failure) if alone => return Err(failure),
            Err(failure) => {
                unsaid += 1;
                bar.suspend(|| {
                    eprintln!("error: {}: not said", wish.out.display());
                    failure.print()
                });
            }
        }
    }
    bar.finish_and_clear();
    Ok(if unsaid == 0 { ExitCode::SUCCESS } else { ExitCode::from(ConfigError::EXIT_CODE) })
}

/// The text of the command line, or the lines of a file that say anything.
fn wishes(args: &SayArgs) -> Result<Vec<Wish>, Failure> {
    let Some(file) = &args.file else {
        let text = match args.text.as_deref() {
            Some("-") => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).invalid()?;
                text
            }
            text => text.unwrap_or_default().into(),
        };
        let out = args.out.clone().unwrap_or_else(|| "said.wav".into());
        return Ok(vec![Wish { text, out }]);
    };
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::invalid(format!("cannot read {}: {error}", file.display()), "`--file` takes lines of text")
    })?;
    let folder = args.out_dir.clone().unwrap_or_else(|| "said".into());
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let wish = |(number, line): (usize, &str)| {
        let out = folder.join(format!("{:04}.wav", number + 1));
        Wish { text: line.into(), out }
    };
    let wishes: Vec<Wish> = lines.map(wish).collect();
    if wishes.is_empty() {
        return Err(Failure::invalid(
            format!("{} has no line with text", file.display()),
            "every line is said into a file",
        ));
    }
    fs::create_dir_all(&folder).map_err(|error| {
        Failure::invalid(format!("cannot make {}: {error}", folder.display()), "`--out-dir` takes a folder")
    })?;
    Ok(wishes)
}

/// The voice of the reference that was named, or that of the run.
fn voice(args: &SayArgs, narrator: &SpeechPipeline) -> Result<Voice, Failure> {
    let own = ModelFolder(&args.run).default_voice();
    let path = args.speaker.as_deref().unwrap_or(&own);
    if args.speaker.is_none() && !own.is_file() {
        let message = format!("{} has no voice of its own: there is no voice.wav in it", args.run.display());
        return Err(Failure::invalid(message, "name a recording of the voice: --speaker FILE.wav"));
    }
    let audio = read_audio(path, narrator.sample_rate()).invalid()?;
    narrator.encode_voice(&audio.samples).map_err(|error| {
        Failure::invalid(format!("{}: {error}", path.display()), "a few seconds of one person speaking are best")
    })
}

fn narrate(
    args: &SayArgs,
    narrator: &SpeechPipeline,
    voice: &Voice,
    wish: &Wish,
    bar: &ProgressBar,
) -> Result<SynthesizedSpeech, Failure> {
    // Of a text alone the bar counts its parts, and of many lines the lines.
    let alone = args.file.is_none();
    let mut count = |done: usize, all: usize| {
        if alone {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        }
    };
    let options = SpeechOptions { language: args.language.as_deref(), seed: args.seed };
    let narration = narrator.synthesize(&wish.text, voice, &options, &mut count);
    let narration = narration.map_err(|error| unsayable(&error))?;
    if !alone {
        bar.inc(1);
    }
    write_wav(&wish.out, &narration.samples, narrator.sample_rate()).invalid()?;
    if let Some(picture) = &args.picture {
        draw(picture, &narration, narrator, voice, args.seed)
            .map_err(|message| Failure::invalid(message, "`--picture` takes the name of an SVG file to write"))?;
    }
    Ok(narration)
}

fn unsayable(error: &SynthesisError) -> Failure {
    let help = match error {
        SynthesisError::EmptyText => "give a text, or `-` to read it from standard input",
        SynthesisError::UnknownCharacters { .. } => {
            "a model says what it was trained on, letters and digits in the same script"
        }
        SynthesisError::UnknownLanguage { .. } => "leave --language out where the model knows only one",
        SynthesisError::ShortReference { .. } | SynthesisError::SilentReference => {
            "a few seconds of one person speaking are best"
        }
    };
    Failure::invalid(error.to_string(), help)
}

/// Where it looked while it said the first part, and what it said.
fn draw(
    path: &Path,
    narration: &SynthesizedSpeech,
    narrator: &SpeechPipeline,
    voice: &Voice,
    seed: u64,
) -> Result<(), String> {
    let Some(passage) = narration.segments.first() else { return Ok(()) };
    let features = narrator.log_mel().config();
    let alignment = narrator.alignment(passage, 0, voice, seed);
    let mels = [pictures::Mels::new("said", &passage.generated.mels, features.n_mels)];
    let names = narrator.token_names();
    let (text, tokens) = (&passage.text, &passage.tokens);
    let attention = pictures::AttentionPicture { text, alignment: &alignment, tokens, names: &names, features };
    let maps = [attention.heatmap()].into_iter().chain(pictures::mels(&mels, features)).collect();
    Picture { maps, shared: false }.write(path).map_err(|error| error.to_string())
}

fn tell(args: &SayArgs, narrator: &SpeechPipeline, wish: &Wish, narration: &SynthesizedSpeech) {
    let rate = narrator.sample_rate();
    let length = Samples(narration.samples.len() as u64).at(rate);
    let file = wish.out.display();
    let unknown: String = narration.unknown_characters.iter().filter(|letter| !letter.is_whitespace()).collect();
    if !unknown.is_empty() {
        eprintln!("warning: {file}: letters that the model does not know were left out: {unknown}");
    }
    let frames = |mels: usize| mels / narrator.log_mel().n_mels();
    for part in narration.cut_off_segments() {
        let samples = frames(part.generated.mels.len()) * narrator.log_mel().config().hop_length;
        let (after, text) = (Samples(samples as u64).at(rate), shown(&part.text));
        eprintln!("warning: {file}: did not stop by itself, and was cut off after {after}: {text}");
    }
    match args.json {
        true => println!("{}", report(wish, narration, length, &unknown)),
        false => println!("{file}  {length}"),
    }
}

fn report(wish: &Wish, narration: &SynthesizedSpeech, length: Seconds, unknown: &str) -> Value {
    let stopped = narration.cut_off_segments().next().is_none();
    json!({
        "file": wish.out.display().to_string(),
        "text": wish.text,
        "seconds": length,
        "parts": narration.segments.len(),
        "ending": if stopped { Ending::Stopped } else { Ending::CutOff },
        "unknown_letters": unknown,
    })
}

/// A text as a message repeats it.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("\"{}…\"", &text[..end]),
        None => format!("\"{text}\""),
    }
}

/// A bar over lines, or over the parts of one long text; away from a terminal it is not seen.
fn bar(wishes: &[Wish]) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("speaking {bar:40} {pos}/{len}, {eta} left");
    ProgressBar::new(wishes.len() as u64).with_style(style.expect("the template is valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_shown_by_its_beginning() {
        assert_eq!(shown("शुभ"), "\"शुभ\"");
        assert_eq!(shown(&"é".repeat(70)), format!("\"{}…\"", "é".repeat(60)));
    }
}
