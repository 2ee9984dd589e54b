//! Trains a vocoder. Its validation score is the distance between held-out recordings and the sound that it makes of their
//! log-mels, which is saved.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_audio::{LogMel, Vocoder, read_audio, write_wav};
use plimsoll_config::invocation::command;
use plimsoll_core::{HostSample, Key, Measure, error_chain};
use plimsoll_monitor::RunData;
use plimsoll_speech::tts::is_synthesizer;
use plimsoll_speech::vocoder::{
    NeuralVocoder, RefinedVocoder, VocodedUtterance, VocoderMetadata, VocoderTask, VocoderTaskConfig,
    evaluate_vocoding, log_mel_distance,
};
use plimsoll_speech::{EvaluationError, ModelFolder};
use plimsoll_train::{InferenceRunner, Score};

use super::RunContext;
use super::folder::make_subfolder;
use super::mels_file;
use super::summary::write_report;
use super::task::{FinalScores, Trainable, TrainingTask, held_out};
use crate::error::{Failure, FailureExt};
use crate::plan::VALIDATION_UTTERANCES;
use crate::reporter::Level;

/// Maximum number of held-out recordings at the end of a run.
const FINAL_UTTERANCES: usize = 64;
/// Number of frames that are turned into sound at once, which bounds the memory.
const CHUNK: usize = 512;

/// The training of a vocoder, as a [`TrainingTask`].
pub(super) struct Vocoding {
    config: VocoderTaskConfig,
}

impl Trainable for VocoderTaskConfig {
    type Training = Vocoding;

    fn training(&self, _: usize) -> Vocoding {
        Vocoding { config: self.clone() }
    }
}

impl Vocoding {
    /// Turns up to `count` held-out recordings into log-mels and back.
    fn evaluate(
        &self,
        model: &VocoderTask,
        count: usize,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Vec<VocodedUtterance>, EvaluationError> {
        evaluate_vocoding(model.valid().vocoder(), &held_out(run, count), self.config.chunk_frames(), runner)
    }

    /// Writes the sound of the first recordings into the folder of the run, and beside it, once, the recordings and what
    /// Griffin-Lim makes of their log-mels.
    fn write_samples(&self, evaluated: &[VocodedUtterance], step: u64, run: &RunContext<'_>) -> Result<(), String> {
        let count = run.plan.config.training.samples as usize;
        let folder = run.folder.path().join("samples");
        make_subfolder(&folder)?;
        let rate = run.plan.features.sample_rate;
        let write = |name: String, samples: &[f32]| {
            write_wav(&folder.join(name), samples, rate).map_err(|error| error.to_string())
        };
        for (number, one) in (1..).zip(evaluated.iter().take(count)) {
            let target = &one.target;
            let recording = format!("recording-{number}.wav");
            if !folder.join(&recording).exists() {
                write(recording, &target.features)?;
                write(format!("griffin-lim-{number}.wav"), &self.griffin_lim(target).0)?;
            }
            write(format!("step-{step:06}-{number}.wav"), &self.refined(one).0)?;
        }
        Ok(())
    }

    /// Computes the sound of the vocoder as `say` gives it, and its distance from the recording.
    fn refined(&self, evaluated: &VocodedUtterance) -> (Vec<f32>, f64) {
        let log_mel = LogMel::new(&self.config.vocoder.features).expect("the features were checked");
        evaluated.refined(&log_mel).expect("the features were checked")
    }

    /// Computes what Griffin-Lim makes of the log-mels of a recording, and its distance from the recording.
    fn griffin_lim(&self, target: &HostSample) -> (Vec<f32>, f64) {
        let features = &self.config.vocoder.features;
        let log_mel = LogMel::new(features).expect("the features were checked");
        let vocoder = Vocoder::new(features).expect("the features were checked");
        let sound = vocoder.waveform(&log_mel.extract(&target.features));
        let distance = log_mel_distance(&log_mel, &sound, &target.features);
        (sound, distance)
    }
}

/// Returns the folder of the voice that the vocoder in `folder` belongs to; `None` for a vocoder that is not in the folder of a voice.
fn voice_of(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let voice = folder.parent().filter(|voice| ModelFolder(voice).vocoder() == folder)?;
    let kind = ModelFolder(voice).kind().ok()?;
    is_synthesizer(&kind).then(|| voice.to_path_buf())
}

/// Writes sound by `vocoder` beside the samples of its `voice`: what the best model of the voice says, and the recordings through their
/// log-mels. A sample without its files is left out.
fn speak_for_voice(vocoder: &NeuralVocoder, voice: &Path) -> Result<(), Failure> {
    let (samples, features) = (voice.join("samples"), &vocoder.config().features);
    let log_mel = LogMel::new(features).failed()?;
    let sound = RefinedVocoder::new(vocoder.clone()).failed()?;
    let write = |name: String, mels: &[f32]| {
        let sound = sound.waveforms(&[mels], CHUNK).concat();
        write_wav(&samples.join(name), &sound, features.sample_rate).failed()
    };
    for number in 1.. {
        let said = samples.join(mels_file::name(number));
        if !said.exists() {
            break;
        }
        write(format!("best-{number}-vocoder.wav"), &mels_file::read(&said, features.n_mels).failed()?)?;
        let recording = samples.join(format!("recording-{number}.wav"));
        if recording.exists() {
            let recording = read_audio(recording, features.sample_rate).failed()?;
            write(format!("truth-{number}-vocoder.wav"), &log_mel.extract(&recording.samples))?;
        }
    }
    let status = RunData::read(voice).map(|run| run.report.status);
    status.map_or(Ok(()), |status| write_report(voice, status))
}

/// Computes the measure of the distance of `evaluated`.
fn distance(evaluated: &[VocodedUtterance]) -> Measure {
    Measure::number(
        "distance",
        "difference of log-mels from those of the recordings",
        mean(evaluated.iter().map(|one| one.distance)),
    )
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

impl TrainingTask for Vocoding {
    type Model = VocoderTask;

    fn model(&self, device: &Device, key: Key) -> VocoderTask {
        self.config.init(device, key)
    }

    fn write_metadata(&self, run: &RunContext<'_>) -> Result<(), Failure> {
        VocoderMetadata::new(self.config.clone()).with_run(&run.id).write(run.folder.path()).failed()
    }

    fn validate(
        &self,
        model: &VocoderTask,
        step: u64,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Score, String> {
        if runner.collective().rank() > 0 {
            // Only the first replica validates: there are few recordings, and their sound goes into files.
            return Ok(Score { value: f64::NAN, tie: 0.0, all: Vec::new() });
        }
        let evaluated = self.evaluate(model, VALIDATION_UTTERANCES, runner, run).map_err(|error| error.to_string())?;
        self.write_samples(&evaluated, step, run)?;
        let measure = distance(&evaluated);
        Ok(Score { value: measure.value, tie: 0.0, all: vec![measure] })
    }

    fn finish(
        &self,
        model: VocoderTask,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<FinalScores, Failure> {
        let evaluated = self.evaluate(&model, FINAL_UTTERANCES, runner, run).failed()?;
        let iterated = mean(evaluated.iter().map(|one| self.griffin_lim(&one.target).1));
        let refined = mean(evaluated.iter().map(|one| self.refined(one).1));
        let voice = voice_of(run.folder.path());
        // The vocoder is trained all the same.
        if let Some(Err(failure)) = voice.map(|voice| speak_for_voice(model.valid().vocoder(), &voice)) {
            let text = format!("no sound was written beside the samples of the voice: {}", error_chain(&failure));
            run.reporter.line(Level::Warning, &text);
        }
        let scores = vec![
            distance(&evaluated),
            Measure::number("refined", "the same difference after rounds of Griffin-Lim from that sound", refined),
            Measure::number("griffin-lim", "the same difference for Griffin-Lim, which learns nothing", iterated),
        ];
        Ok(FinalScores { scores, held_out: evaluated.len(), examples: Vec::new() })
    }

    fn next_steps(&self, folder: &Path) -> String {
        if voice_of(folder).is_some()
            && let Some(voice) = folder.parent()
        {
            let command = command(&format!("say \"TEXT\" --run {} --out said.wav", voice.display()));
            return format!("The voice beside it speaks with this vocoder from now on: {command}\n");
        }
        let folder = folder.display();
        let command = command(&format!("say \"TEXT\" --run SYNTHESIZER --vocoder {folder} --out said.wav"));
        format!(
            "Sound of held-out recordings, beside that of Griffin-Lim: {folder}/samples/\n\
             To let a synthesizer with the same features speak with it: {command}\n"
        )
    }
}
