//! Evaluates a vocoder: recordings become log-mels and sound again, beside what Griffin-Lim makes of the same log-mels.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use plimsoll_audio::{AudioSegment, LogMel, Vocoder, read_audio_segment, wav_bytes};
use plimsoll_core::{Samples, Seconds, Skipped, counted, error_chain};
use plimsoll_recipes::reader;
use plimsoll_recipes::reporter::{Level, Reporter};
use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_speech::score::ErrorCounts;
use plimsoll_speech::vocoder::{NeuralVocoder, RefinedVocoder, log_mel_distance};
use serde_json::{Value, json};

use super::judge::Judge;
use super::report::ScoredUtterance;
use super::utterances::Chosen;
use super::{EvalArgs, prepare_folder, sound_file};
use crate::number::milliseconds;
use crate::output::{ForceFlag, OutputFile};
use crate::terminal::{Terminal, reading_bar};

/// Frames that the vocoder computes at once.
const CHUNK: usize = 512;

/// One way from log-mels to sound, with what was measured of it.
#[derive(Default)]
struct Way {
    /// Sum of the distances of all utterances.
    distance: f64,
    /// Seconds of computation.
    seconds: f64,
    /// Errors of the recognizer that transcribes the sound, in characters.
    errors: ErrorCounts,
}

/// The result of evaluating a vocoder.
struct Report {
    run: PathBuf,
    judge: Option<PathBuf>,
    utterances: usize,
    audio: Seconds,
    /// The network with rounds of Griffin-Lim behind it, as `say` uses it.
    vocoder: Way,
    /// The network alone.
    network: Way,
    griffin_lim: Way,
    /// Errors of the recognizer in the recordings themselves, in characters.
    recordings: ErrorCounts,
    skipped: Vec<Skipped>,
    /// Reasons why the weights of the models may not be the best of their runs.
    warnings: Vec<String>,
}

/// Turns the utterances that `args` choose into log-mels and back, and prints the report.
pub(super) fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    refuse_other_flags(args)?;
    let device = reader::device(&args.backend)?;
    let (vocoder, mut warnings) = NeuralVocoder::load(&args.run, &device).invalid()?;
    warnings.iter().for_each(|text| Terminal.line(Level::Warning, text));
    let vocoder = RefinedVocoder::new(vocoder).invalid()?;
    let judge = args.judge.as_deref().map(|run| Judge::load(run, None, &device)).transpose()?;
    warnings.extend(judge.iter().flat_map(Judge::warnings).cloned());
    let chosen = Chosen::read(args, None)?;
    let utterances = &chosen.utterances;
    prepare_folder(args, utterances.iter().map(|utterance| utterance.id.as_str()))?;
    let features = vocoder.network().config().features.clone();
    let log_mel = LogMel::new(&features).invalid()?;
    let griffin_lim = Vocoder::new(&features).invalid()?;
    let mut report = Report { warnings, ..Report::new(args) };
    let bar = reading_bar(utterances.len());
    for utterance in utterances {
        bar.inc(1);
        let segment = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
        let recording = match read_audio_segment(&utterance.audio, segment, features.sample_rate) {
            Ok(audio) => audio.samples,
            Err(error) => {
                report.skipped.push(Skipped { name: utterance.id.clone(), reason: error_chain(&error) });
                continue;
            }
        };
        let mels = log_mel.extract(&recording);
        let errors = |sound: &[f32]| {
            let Some(judge) = &judge else { return ErrorCounts::default() };
            let (name, rate) = (utterance.id.clone(), features.sample_rate);
            let transcription = judge.transcription(name, &utterance.text, sound.to_vec(), rate);
            ScoredUtterance::new(transcription, utterance.duration).characters
        };
        let sound = report.vocoder.add(|| vocoder.waveform(&mels, CHUNK), &recording, &log_mel, &errors);
        report.network.add(|| vocoder.network().waveform(&mels, CHUNK), &recording, &log_mel, &errors);
        report.griffin_lim.add(|| griffin_lim.waveform(&mels), &recording, &log_mel, &errors);
        report.recordings = report.recordings + errors(&recording);
        report.utterances += 1;
        report.audio = Seconds(report.audio.0 + Samples(recording.len() as u64).at(features.sample_rate).0);
        if let Some(folder) = &args.out_dir {
            let file = OutputFile::new(
                &folder.join(sound_file(&utterance.id)),
                "--out-dir",
                ForceFlag { force: true },
                &["wav"],
            )?;
            file.write(wav_bytes(&sound, features.sample_rate))?;
        }
    }
    bar.finish_and_clear();
    chosen.refuse_if_none_is_read(&report.skipped)?;
    match args.json {
        true => println!("{:#}", chosen.with_missing(report.json())),
        false => print!("{}", report.summary()),
    }
    chosen.verdict(&report.skipped)
}

/// Refuses flags that have no meaning for a vocoder.
fn refuse_other_flags(args: &EvalArgs) -> Result<(), Failure> {
    args.search.refuse_all_flags(&args.run)?;
    let given = [
        ("--compare", args.compare.is_some()),
        ("--vocoder", args.vocoder.is_some()),
        ("--table", args.table.is_some()),
        ("--details", args.details),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            let message = format!("{} is a vocoder: {flag} does not apply to it", args.run.display());
            Err(Failure::invalid(message, format!("leave out {flag}")))
        }
        None => Ok(()),
    }
}

impl Way {
    /// Makes sound by `generate`, adds its measures, and returns it.
    fn add(
        &mut self,
        generate: impl FnOnce() -> Vec<f32>,
        recording: &[f32],
        log_mel: &LogMel,
        errors: &dyn Fn(&[f32]) -> ErrorCounts,
    ) -> Vec<f32> {
        let start = Instant::now();
        let sound = generate();
        self.seconds += start.elapsed().as_secs_f64();
        self.distance += log_mel_distance(log_mel, &sound, recording);
        self.errors = self.errors + errors(&sound);
        sound
    }
}

impl Report {
    fn new(args: &EvalArgs) -> Self {
        Self {
            run: args.run.to_path_buf(),
            judge: args.judge.clone(),
            utterances: 0,
            audio: Seconds(0.0),
            vocoder: Way::default(),
            network: Way::default(),
            griffin_lim: Way::default(),
            recordings: ErrorCounts::default(),
            skipped: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn distance(&self, way: &Way) -> f64 {
        way.distance / self.utterances.max(1) as f64
    }

    fn real_time_factor(&self, way: &Way) -> f64 {
        way.seconds / self.audio.0.max(f64::MIN_POSITIVE)
    }

    fn json(&self) -> Value {
        let way = |way: &Way| {
            let mut json = json!({"distance": self.distance(way), "rtf": self.real_time_factor(way)});
            if self.judge.is_some() {
                json["cer"] = way.errors.rate().into();
            }
            json
        };
        let mut json = json!({
            "run": self.run.display().to_string(),
            "utterances": self.utterances,
            "audio_seconds": milliseconds(self.audio.0),
            "vocoder": way(&self.vocoder),
            "network": way(&self.network),
            "griffin_lim": way(&self.griffin_lim),
            "skipped": self.skipped,
            "warnings": self.warnings,
        });
        if let Some(judge) = &self.judge {
            json["judge"] = judge.display().to_string().into();
            json["recordings"] = json!({"cer": self.recordings.rate()});
        }
        json
    }

    fn summary(&self) -> String {
        let ways = [&self.vocoder, &self.network, &self.griffin_lim];
        let utterances = counted(self.utterances, "utterance");
        let mut text = format!("{} on {utterances}, {} of sound\n", self.run.display(), self.audio);
        let names = ["vocoder", "unrefined", "Griffin-Lim", "recordings"].map(|name| format!(" {name:>11}")).concat();
        let _ = writeln!(text, "  {:<10}{names}", "");
        let row = |value: &dyn Fn(&Way) -> f64| ways.map(|way| format!(" {:>11.4}", value(way))).concat();
        let distances = row(&|way| self.distance(way));
        let _ = writeln!(text, "  {:<10}{distances}   difference of log-mels, in nats", "distance");
        if let Some(judge) = &self.judge {
            let percent = |errors: &ErrorCounts| format!(" {:>9.2} %", errors.rate() * 100.0);
            let rates = ways.map(|way| percent(&way.errors)).concat() + &percent(&self.recordings);
            let _ = writeln!(text, "  {:<10}{rates} as {} transcribes it", "CER", judge.display());
        }
        let speeds = row(&|way| self.real_time_factor(way));
        let _ = writeln!(text, "  {:<10}{speeds}   seconds for a second of sound", "speed");
        for Skipped { name, reason } in &self.skipped {
            let _ = writeln!(text, "  could not be read: {name}: {reason}");
        }
        text
    }
}
