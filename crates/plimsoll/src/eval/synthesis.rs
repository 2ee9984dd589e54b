//! Judging a synthesiser: it says texts by itself, and a recogniser reads what it said.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use burn::module::Module;
use plimsoll_audio::{LogMel, resample, write_wav};
use plimsoll_core::{Bytes, Frames, HostSample, OpenGate, Samples, Seconds, Skipped, error_chain};
use plimsoll_data::Dataset;
use plimsoll_speech::asr::{Search, Transcriber, Transcription};
use plimsoll_speech::score::ErrorCounts;
use plimsoll_speech::tts::{
    Ending, SpeechPipeline, SynthesisEvaluation, SynthesizedUtterance, SynthesizerMetadata, evaluate_synthesis,
};
use plimsoll_train::InferenceRunner;
use serde_json::{Value, json};

use super::EvalArgs;
use super::report::{Judged, worst};
use super::{table, utterances};
use crate::terminal::reading_bar;
use plimsoll_recipes::reader;
use plimsoll_recipes::{Failure, FailureExt};

/// Texts that are said at the same time.
const TOGETHER: usize = 32;

/// What came of it.
struct Report {
    run: PathBuf,
    judge: Option<PathBuf>,
    /// What was read of what was said.
    judged: Vec<Judged>,
    said: usize,
    stopped: f64,
    off_length: f64,
    distance: f64,
    cut_off: Vec<String>,
    skipped: Vec<Skipped>,
    audio: Seconds,
    speak_seconds: f64,
}

/// Has the run say the utterances that `args` ask for, and says how well.
pub(super) fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    let device = reader::device(&args.backend)?;
    let narrator = SpeechPipeline::load(&args.run, &device).invalid()?;
    let judge = args.judge.as_deref().map(|run| Transcriber::load(run, &device)).transpose().invalid()?;
    let dataset = dataset(args, &narrator)?;
    // Opened first: nobody wants to learn at the end of an hour that a file cannot be written.
    let table = args.table.as_deref().map(table::create).transpose()?;
    if let Some(folder) = &args.out_dir {
        fs::create_dir_all(folder).map_err(|error| {
            Failure::invalid(format!("cannot make {}: {error}", folder.display()), "`--out-dir` takes a folder")
        })?;
    }
    let report = speak(args, &narrator, judge.as_ref(), &dataset)?;
    if let Some(table) = table {
        table::write(table, &report.judged)?;
    }
    match args.json {
        true => println!("{:#}", report.json(args.worst)),
        false => print!("{}", report.told(args.worst)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The utterances as the model reads them, each with a reference of its voice.
fn dataset(args: &EvalArgs, narrator: &SpeechPipeline) -> Result<Dataset, Failure> {
    let bundle = SynthesizerMetadata::read(&args.run).invalid()?;
    let mut utterances = utterances::chosen(args, &bundle.tokenizer)?;
    if let Some(limit) = args.limit {
        utterances.truncate(limit.get());
    }
    let log_mel: LogMel = narrator.log_mel().clone();
    let reference = Frames(bundle.model.voice.reference_frames as u32);
    Ok(Dataset::new(utterances, log_mel, bundle.tokenizer).with_memory_cache(Bytes::gib(1)).for_synthesis(reference))
}

fn speak(
    args: &EvalArgs,
    narrator: &SpeechPipeline,
    judge: Option<&Transcriber>,
    dataset: &Dataset,
) -> Result<Report, Failure> {
    let mut report = Report::new(args);
    let (mut all, mut delivery) = (Vec::new(), SynthesisEvaluation::default());
    for index in 0..dataset.len() {
        match dataset.load(index, None) {
            Ok(sample) => all.push((index, sample)),
            Err(error) => {
                let name = dataset.utterance(index).id.clone();
                report.skipped.push(Skipped { name, reason: error_chain(&error) });
            }
        }
    }
    if let (true, Some(Skipped { name, reason })) = (all.is_empty(), report.skipped.first()) {
        let message = format!("none of {} utterances can be read; the first, `{name}`: {reason}", dataset.len());
        return Err(Failure::invalid(message, "a list of utterances says which stretch of which file is read"));
    }
    let device = narrator.model().devices().into_iter().next().expect("a model has parameters");
    let mut careful = InferenceRunner::new(&device, &OpenGate, TOGETHER);
    let bar = reading_bar(all.len());
    for together in all.chunks(TOGETHER) {
        let samples: Vec<HostSample> = together.iter().map(|(_, sample)| sample.clone()).collect();
        let start = Instant::now();
        let said = evaluate_synthesis(narrator.model(), &samples, TOGETHER, &mut careful).failed()?.utterances;
        report.speak_seconds += start.elapsed().as_secs_f64();
        for ((index, _), spoke) in together.iter().zip(said) {
            report.add(args, narrator, judge, &dataset.utterance(*index).text, &spoke)?;
            delivery.utterances.push(spoke);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    report.said = delivery.utterances.len();
    (report.stopped, report.off_length, report.distance) =
        (delivery.stopped_share(), delivery.length_error(), delivery.mean_distance());
    Ok(report)
}

impl Report {
    fn new(args: &EvalArgs) -> Self {
        Self {
            run: args.run.clone(),
            judge: args.judge.clone(),
            judged: Vec::new(),
            said: 0,
            stopped: 0.0,
            off_length: 0.0,
            distance: 0.0,
            cut_off: Vec::new(),
            skipped: Vec::new(),
            audio: Seconds(0.0),
            speak_seconds: 0.0,
        }
    }

    /// Makes sound of what was said, keeps it where that was asked for, and has it read.
    fn add(
        &mut self,
        args: &EvalArgs,
        narrator: &SpeechPipeline,
        judge: Option<&Transcriber>,
        text: &str,
        spoke: &SynthesizedUtterance,
    ) -> Result<(), Failure> {
        let name = spoke.target.name.clone();
        let start = Instant::now();
        let samples = narrator.vocode([spoke.generated.mels.as_slice()].into_iter());
        self.speak_seconds += start.elapsed().as_secs_f64();
        let length = Samples(samples.len() as u64).at(narrator.sample_rate());
        self.audio = Seconds(self.audio.0 + length.0);
        if spoke.generated.ending == Ending::CutOff {
            self.cut_off.push(name.clone());
        }
        if let Some(folder) = &args.out_dir {
            // An id may hold whatever a manifest does.
            let file: String =
                name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
            write_wav(&folder.join(format!("{file}.wav")), &samples, narrator.sample_rate()).invalid()?;
        }
        if let Some(judge) = judge {
            let hypothesis =
                judge.transcribe(&resample(samples, narrator.sample_rate(), judge.sample_rate()), &Search::Greedy);
            self.judged.push(Judged::new(Transcription { name, reference: text.into(), hypothesis }, length));
        }
        Ok(())
    }

    fn errors(&self) -> (ErrorCounts, ErrorCounts) {
        let characters = self.judged.iter().map(|judged| judged.characters).sum();
        (characters, self.judged.iter().map(|judged| judged.words).sum())
    }

    /// Seconds of speaking for each second of sound.
    fn real_time_factor(&self) -> f64 {
        self.speak_seconds / self.audio.0.max(f64::MIN_POSITIVE)
    }

    fn json(&self, count: usize) -> Value {
        let mut json = json!({
            "run": self.run.display().to_string(),
            "utterances": self.said,
            "stopped": self.stopped,
            "off_length": self.off_length,
            "distance": self.distance,
            "cut_off": self.cut_off,
            "audio_seconds": self.audio,
            "speak_seconds": self.speak_seconds,
            "rtf": self.real_time_factor(),
            "skipped": self.skipped,
        });
        if let Some(judge) = &self.judge {
            let (characters, words) = self.errors();
            let shown = |judged: &&Judged| {
                let Transcription { name, reference: truth, hypothesis: heard } = &judged.heard;
                json!({"name": name, "truth": truth, "heard": heard, "cer": judged.characters.rate()})
            };
            json["judge"] = judge.display().to_string().into();
            json["cer"] = characters.rate().into();
            json["wer"] = words.rate().into();
            json["worst"] = worst(&self.judged, count).iter().map(shown).collect();
        }
        json
    }

    fn told(&self, count: usize) -> String {
        let mut text = format!("{} on {} utterances, {} of speech\n", self.run.display(), self.said, self.audio);
        if let Some(judge) = &self.judge {
            let (characters, words) = self.errors();
            let judge = judge.display();
            let _ = writeln!(text, "  CER        {:>6.2} % as {judge} reads it", characters.rate() * 100.0);
            let _ = writeln!(text, "  WER        {:>6.2} %", words.rate() * 100.0);
        } else {
            let _ = writeln!(text, "  what is understood of it was not asked: --judge RUN names a recogniser");
        }
        let _ = writeln!(text, "  stopped    {:>6.2} % by themselves", self.stopped * 100.0);
        let _ = writeln!(text, "  length     {:>6.2} % off, on average", self.off_length * 100.0);
        let _ = writeln!(text, "  distance   {:.4} from the truth, log-mels warped in time", self.distance);
        let _ = writeln!(text, "  speed      real-time factor {:.4}, vocoder included", self.real_time_factor());
        for Judged { heard, characters, .. } in worst(&self.judged, count) {
            let Transcription { name, reference: truth, hypothesis: heard } = heard;
            let _ = writeln!(text, "  {name}: CER {:.2} %", characters.rate() * 100.0);
            let _ = writeln!(text, "    said     {truth}\n    heard    {heard}");
        }
        if !self.cut_off.is_empty() {
            let _ = writeln!(text, "  did not stop by themselves: {}", self.cut_off.join(", "));
        }
        for Skipped { name, reason } in &self.skipped {
            let _ = writeln!(text, "  could not be read: {name}: {reason}");
        }
        text
    }
}
