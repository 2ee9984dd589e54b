//! Evaluates a synthesizer: it speaks texts by itself, and a recognizer can transcribe its speech.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use plimsoll_audio::{LogMel, wav_bytes};
use plimsoll_core::{Bytes, Frames, HostSample, OpenGate, Samples, Seconds, Skipped, counted, error_chain};
use plimsoll_data::{Dataset, Utterance};
use plimsoll_recipes::reader;
use plimsoll_recipes::texts::check_phonemes;
use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_speech::asr::Transcription;
use plimsoll_speech::score::ErrorCounts;
use plimsoll_speech::tts::{Ending, SpeechPipeline, SynthesisEvaluation, SynthesizedUtterance, evaluate_synthesis};
use plimsoll_text::Phonemizer;
use plimsoll_train::InferenceRunner;
use serde_json::{Value, json};

use super::EvalArgs;
use super::judge::Judge;
use super::report::{ScoredUtterance, worst};
use super::utterances::Chosen;
use super::{prepare_folder, sound_file, table};
use crate::number::milliseconds;
use crate::output::{ForceFlag, OutputFile};
use crate::say::speech_pipeline;
use crate::terminal::reading_bar;

/// Number of utterances that are synthesized together.
const BATCH_SIZE: usize = 32;

/// The result of evaluating a synthesizer.
struct Report {
    run: PathBuf,
    /// Run of the recognizer that transcribed the synthesized speech (the judge); `None` if there is no judge.
    judge: Option<PathBuf>,
    /// Transcriptions of the synthesized speech by the judge, with their errors.
    scored: Vec<ScoredUtterance>,
    /// Number of utterances that were synthesized.
    utterances: usize,
    /// Share of utterances at which the synthesizer predicted a stop, from 0 to 1.
    stopped: f64,
    /// Whether the synthesizer decides when speech ends; another one always stops.
    decides_end: bool,
    /// Mean relative error of the length of the synthesized speech.
    off_length: f64,
    /// Mean distance of the synthesized from the true log-mels, after warping in time.
    distance: f64,
    /// Names of the utterances at which the synthesizer predicted no stop.
    cut_off: Vec<String>,
    skipped: Vec<Skipped>,
    /// Reasons why the weights of the models may not be the best of their runs.
    warnings: Vec<String>,
    audio: Seconds,
    /// Seconds of synthesis, vocoder included.
    speak_seconds: f64,
}

/// Synthesizes the utterances that `args` choose, and prints the report.
pub(super) fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    args.search.refuse_all_flags(&args.run)?;
    let device = reader::device(&args.backend)?;
    let pipeline = speech_pipeline(&args.run, args.vocoder.as_deref(), &device)?;
    if args.compare.is_some() {
        let message = format!("{} is a synthesizer: --compare applies to recognizers only", args.run.display());
        return Err(Failure::invalid(message, "leave out --compare"));
    }
    check_phonemes(pipeline.tokenizer())?;
    let language = pipeline.tokenizer().phonemes().map(Phonemizer::voice);
    let judge = args.judge.as_deref().map(|run| Judge::load(run, language, &device)).transpose()?;
    let chosen = Chosen::read(args, Some(pipeline.tokenizer()))?;
    let table = args.table_file()?;
    prepare_folder(args, chosen.utterances.iter().map(|utterance| utterance.id.as_str()))?;
    let report = synthesize(args, &pipeline, judge.as_ref(), &chosen)?;
    if let Some(table) = table {
        table.write(table::table(&report.scored))?;
    }
    match args.json {
        true => println!("{:#}", chosen.with_missing(report.json(args.worst))),
        false => print!("{}", report.summary(args.worst)),
    }
    chosen.verdict(&report.skipped)
}

/// Loads the utterances as the model needs them, each with reference audio of its voice.
fn dataset(utterances: Vec<Utterance>, pipeline: &SpeechPipeline) -> Dataset {
    let log_mel: LogMel = pipeline.log_mel().clone();
    let reference = Frames(pipeline.model().reference_frames() as u32);
    Dataset::new(utterances, log_mel, pipeline.tokenizer().clone())
        .with_memory_cache(Bytes::gib(1))
        .for_synthesis(reference)
}

/// Synthesizes the readable ones of the utterances in batches and measures them.
fn synthesize(
    args: &EvalArgs,
    pipeline: &SpeechPipeline,
    judge: Option<&Judge>,
    chosen: &Chosen,
) -> Result<Report, Failure> {
    let dataset = dataset(chosen.utterances.clone(), pipeline);
    let mut report = Report::new(args);
    let of_judge = judge.iter().flat_map(|judge| judge.warnings()).map(String::as_str);
    report.warnings = pipeline.warnings().chain(of_judge).map(String::from).collect();
    let (mut readable, mut evaluation) = (Vec::new(), SynthesisEvaluation::default());
    for index in 0..dataset.len() {
        match dataset.load(index, None) {
            Ok(sample) => readable.push((index, sample)),
            Err(error) => {
                let name = dataset.utterance(index).id.to_owned();
                report.skipped.push(Skipped { name, reason: error_chain(&error) });
            }
        }
    }
    chosen.refuse_if_none_is_read(&report.skipped)?;
    let device = pipeline.model().device();
    let mut runner = InferenceRunner::new(&device, &OpenGate, BATCH_SIZE);
    let bar = reading_bar(readable.len());
    for chunk in readable.chunks(BATCH_SIZE) {
        let samples: Vec<HostSample> = chunk.iter().map(|(_, sample)| sample.clone()).collect();
        let start = Instant::now();
        let spoken = evaluate_synthesis(pipeline.model(), &samples, BATCH_SIZE, &mut runner).failed()?.utterances;
        report.speak_seconds += start.elapsed().as_secs_f64();
        for ((index, _), utterance) in chunk.iter().zip(spoken) {
            report.add(args, pipeline, judge, dataset.utterance(*index).text, &utterance)?;
            evaluation.utterances.push(utterance);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    report.utterances = evaluation.utterances.len();
    report.decides_end = pipeline.model().decides_end();
    (report.stopped, report.off_length, report.distance) =
        (evaluation.stopped_share(), evaluation.length_error(), evaluation.mean_distance());
    Ok(report)
}

impl Report {
    fn new(args: &EvalArgs) -> Self {
        Self {
            run: args.run.to_path_buf(),
            judge: args.judge.clone(),
            scored: Vec::new(),
            utterances: 0,
            stopped: 0.0,
            decides_end: true,
            off_length: 0.0,
            distance: 0.0,
            cut_off: Vec::new(),
            skipped: Vec::new(),
            warnings: Vec::new(),
            audio: Seconds(0.0),
            speak_seconds: 0.0,
        }
    }

    /// Adds one synthesized utterance, whose true text is `text`: vocodes it, writes it if `args` ask for it, and
    /// transcribes it if there is a judge.
    fn add(
        &mut self,
        args: &EvalArgs,
        pipeline: &SpeechPipeline,
        judge: Option<&Judge>,
        text: &str,
        spoken: &SynthesizedUtterance,
    ) -> Result<(), Failure> {
        let name = spoken.target.name.clone();
        let start = Instant::now();
        let samples = pipeline.vocode([spoken.generated.mels.as_slice()].into_iter());
        self.speak_seconds += start.elapsed().as_secs_f64();
        let length = Samples(samples.len() as u64).at(pipeline.sample_rate());
        self.audio = Seconds(self.audio.0 + length.0);
        if spoken.generated.ending == Ending::CutOff {
            self.cut_off.push(name.clone());
        }
        if let Some(folder) = &args.out_dir {
            let file =
                OutputFile::new(&folder.join(sound_file(&name)), "--out-dir", ForceFlag { force: true }, &["wav"])?;
            file.write(wav_bytes(&samples, pipeline.sample_rate()))?;
        }
        if let Some(judge) = judge {
            let transcription = judge.transcription(name, text, samples, pipeline.sample_rate());
            self.scored.push(ScoredUtterance::new(transcription, length));
        }
        Ok(())
    }

    /// Adds up the errors of all transcriptions: first in characters, then in words.
    fn errors(&self) -> (ErrorCounts, ErrorCounts) {
        let characters = self.scored.iter().map(|scored| scored.characters).sum();
        (characters, self.scored.iter().map(|scored| scored.words).sum())
    }

    /// Computes the seconds of synthesis per second of audio.
    fn real_time_factor(&self) -> f64 {
        self.speak_seconds / self.audio.0.max(f64::MIN_POSITIVE)
    }

    fn json(&self, count: usize) -> Value {
        let mut json = json!({
            "run": self.run.display().to_string(),
            "utterances": self.utterances,
            "stopped": self.stopped,
            "off_length": self.off_length,
            "distance": self.distance,
            "cut_off": self.cut_off,
            "audio_seconds": milliseconds(self.audio.0),
            "speak_seconds": milliseconds(self.speak_seconds),
            "rtf": self.real_time_factor(),
            "skipped": self.skipped,
            "warnings": self.warnings,
        });
        if let Some(judge) = &self.judge {
            let (characters, words) = self.errors();
            let worst_json = |scored: &&ScoredUtterance| {
                let Transcription { name, reference: truth, hypothesis: heard } = &scored.transcription;
                json!({"name": name, "truth": truth, "heard": heard, "cer": scored.characters.rate()})
            };
            json["judge"] = judge.display().to_string().into();
            json["cer"] = characters.rate().into();
            json["wer"] = words.rate().into();
            json["worst"] = worst(&self.scored, count).iter().map(worst_json).collect();
        }
        json
    }

    fn summary(&self, count: usize) -> String {
        let mut text = format!(
            "{} on {}, {}\n",
            self.run.display(),
            counted(self.utterances, "utterance"),
            self.audio.of_speech()
        );
        if let Some(judge) = &self.judge {
            let (characters, words) = self.errors();
            let judge = judge.display();
            let _ = writeln!(text, "  CER        {:>6.2} % as {judge} transcribes it", characters.rate() * 100.0);
            let _ = writeln!(text, "  WER        {:>6.2} %", words.rate() * 100.0);
        } else {
            let _ =
                writeln!(text, "  CER, WER   not measured: --judge RUN names a recognizer that transcribes the speech");
        }
        if self.decides_end || self.stopped < 1.0 {
            let _ = writeln!(text, "  stopped    {:>6.2} % without being cut off", self.stopped * 100.0);
        }
        let _ = writeln!(text, "  length     {:>6.2} % off on average", self.off_length * 100.0);
        let _ = writeln!(text, "  distance   {:.4} from the true log-mels, warped in time", self.distance);
        let _ = writeln!(text, "  speed      real-time factor {:.4}, vocoder included", self.real_time_factor());
        for ScoredUtterance { transcription, characters, .. } in worst(&self.scored, count) {
            let Transcription { name, reference: truth, hypothesis: heard } = transcription;
            let _ = writeln!(text, "  {name}: CER {:.2} %", characters.rate() * 100.0);
            let _ = writeln!(text, "    text     {truth}\n    heard    {heard}");
        }
        if !self.cut_off.is_empty() {
            let _ = writeln!(text, "  cut off, because the model did not stop: {}", self.cut_off.join(", "));
        }
        for Skipped { name, reason } in &self.skipped {
            let _ = writeln!(text, "  could not be read: {name}: {reason}");
        }
        text
    }
}
