//! Trains a synthesizer. Its validation score comes from free synthesis of held-out texts, which is saved as sound and
//! pictures.

use std::path::Path;

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_audio::{AudioSegment, read_audio_segment, write_wav};
use plimsoll_config::invocation::command;
use plimsoll_core::{Key, Measure};
use plimsoll_data::Shard;
use plimsoll_monitor::Picture;
use plimsoll_speech::tts::{
    self, ParallelConfig, SpeechConfig, SpeechModel, SpeechPipeline, SynthesisEvaluation, SynthesizedUtterance,
    SynthesizerConfig,
};
use plimsoll_speech::{EvaluationError, ModelFolder, ModelMetadata};
use plimsoll_train::{InferenceRunner, Score};

use super::RunContext;
use super::folder::make_subfolder;
use super::mels_file;
use super::pictures::{self, AttentionPicture, Mels};
use super::task::{FinalScores, Trainable, TrainingTask, held_out};
use crate::error::{Failure, FailureExt};
use crate::plan::VALIDATION_UTTERANCES;

/// Maximum number of held-out texts that are synthesized at the end of a run.
const FINAL_UTTERANCES: usize = 200;
/// Number of texts that are synthesized at the same time.
const SYNTHESIS_BATCH: usize = 32;

/// The training of a synthesizer of either family, as a [`TrainingTask`].
pub(super) struct Synthesis<C> {
    config: C,
}

impl Trainable for SynthesizerConfig {
    type Training = Synthesis<Self>;

    fn training(&self, _: usize) -> Synthesis<Self> {
        Synthesis { config: *self }
    }
}

impl Trainable for ParallelConfig {
    type Training = Synthesis<Self>;

    fn training(&self, _: usize) -> Synthesis<Self> {
        Synthesis { config: *self }
    }
}

impl<C: SpeechConfig> Synthesis<C> {
    /// Returns the metadata of the model, for the model's folder.
    fn metadata(&self, run: &RunContext<'_>) -> ModelMetadata<C> {
        let (features, tokenizer) = (run.plan.features.clone(), run.prepared.tokenizer.clone());
        ModelMetadata::new(self.config, features, tokenizer).with_run(&run.id)
    }

    /// Synthesizes up to `count` held-out utterances freely, without their true frames.
    fn synthesize(
        &self,
        model: &C::Model,
        count: usize,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<SynthesisEvaluation, EvaluationError> {
        tts::evaluate_synthesis(&model.valid(), &held_out(run, count), SYNTHESIS_BATCH, runner)
    }

    /// Computes the measures of a validation: the measures of free synthesis in `synthesis`, and the loss with teacher
    /// forcing.
    fn scores(
        &self,
        model: &C::Model,
        synthesis: &SynthesisEvaluation,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Vec<Measure>, EvaluationError> {
        let mut source = run.prepared.validation_source(&run.plan, Shard::default(), run.reporter);
        let losses = tts::teacher_forced_losses(model, &mut source, runner)?;
        let mel = ["fine", "rough", "frames"].iter().find_map(|name| losses.get(name)).copied().unwrap_or(f64::NAN);
        let stopped = synthesis.stopped_share();
        // A model that predicts lengths always ends: its share says nothing, unless a length was cut.
        let is_news = model.decides_end() || stopped < 1.0;
        let stopped = is_news.then(|| Measure::share("stopped", "utterances that end by themselves", stopped));
        let measures = vec![
            Measure::number(
                "distance",
                "distance of free speech from the truth, warped in time",
                synthesis.mean_distance(),
            ),
            Measure::number(
                "mel",
                "distance of frames whose durations, or the frames before them, are the true ones",
                mel,
            ),
            Measure::share("off length", "difference of lengths from the truth", synthesis.length_error()),
        ];
        Ok(measures.into_iter().chain(stopped).collect())
    }

    /// Writes sound and picture of the first synthesized utterances into the folder of the run.
    fn write_samples(
        &self,
        model: &C::Model,
        synthesis: &SynthesisEvaluation,
        step: u64,
        run: &RunContext<'_>,
    ) -> Result<(), String> {
        let count = run.plan.config.training.samples as usize;
        let folder = run.folder.path().join("samples");
        make_subfolder(&folder)?;
        let pipeline = SpeechPipeline::new(model.clone(), &self.metadata(run)).map_err(|error| error.to_string())?;
        let rate = pipeline.sample_rate();
        for (number, spoken) in synthesis.utterances.iter().take(count).enumerate() {
            let path_of = |name: String| folder.join(name);
            let wav = |name: String, mels: &[f32]| {
                write_wav(&path_of(name), &pipeline.vocode([mels].into_iter()), rate).map_err(|error| error.to_string())
            };
            let number = number + 1;
            // The recording, through the same vocoder: the best that the model can reach.
            let truth = format!("truth-{number}.wav");
            if !path_of(truth.clone()).exists() {
                wav(truth, &spoken.target.features)?;
            }
            let recording = path_of(format!("recording-{number}.wav"));
            if !recording.exists() {
                write_recording(&spoken.target.name, &recording, run)?;
            }
            wav(format!("step-{step:06}-{number}.wav"), &spoken.generated.mels)?;
            let picture = path_of(format!("step-{step:06}-{number}.svg"));
            self.draw_sample(model, spoken, run, &picture)?;
        }
        Ok(())
    }

    /// Writes the picture of one synthesized utterance: attention, generated log-mels, and true log-mels.
    fn draw_sample(
        &self,
        model: &C::Model,
        spoken: &SynthesizedUtterance,
        run: &RunContext<'_>,
        path: &Path,
    ) -> Result<(), String> {
        let features = &run.plan.features;
        let text = run.prepared.validation_texts.get(&spoken.target.name).map_or("", String::as_str);
        let names = run.prepared.tokenizer.names();
        let alignment = spoken.alignment(&model.valid());
        let said = [("said", &spoken.generated.mels), ("true", &spoken.target.features)];
        let mels = said.map(|(title, features_of)| Mels::new(title, features_of, features.n_mels));
        let tokens = &spoken.target.tokens;
        let attention = AttentionPicture { text, alignment: &alignment, tokens, names: &names, features };
        let maps = [attention.heatmap()].into_iter().chain(pictures::mels(&mels, features)).collect();
        Picture { maps, shared: false }.write(path).map_err(|error| error.to_string())
    }
}

/// Writes the recording of a held-out utterance, as it is.
fn write_recording(name: &str, path: &Path, run: &RunContext<'_>) -> Result<(), String> {
    let held_out = &run.prepared.validation;
    let rate = run.plan.features.sample_rate;
    let Some(index) = (0..held_out.len()).find(|&index| held_out.utterance(index).id == name) else { return Ok(()) };
    let utterance = held_out.utterance(index);
    let segment = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
    let audio = read_audio_segment(utterance.audio, segment, rate).map_err(|error| error.to_string())?;
    write_wav(path, &audio.samples, rate).map_err(|error| error.to_string())
}

/// Writes what the best model says of the texts that the samples of a run have, as log-mels and as sound, beside the recordings and
/// what the same vocoder makes of their log-mels.
fn write_best(
    pipeline: &SpeechPipeline,
    model: &dyn SpeechModel,
    runner: &mut InferenceRunner<'_>,
    run: &RunContext<'_>,
) -> Result<(), Failure> {
    let folder = run.folder.path().join("samples");
    let missing = |error| Failure::failed(error, "the sound of the best model is missing");
    make_subfolder(&folder).map_err(missing)?;
    // Those of an earlier end of the run: another model said them.
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("best-") || name.ends_with("-vocoder.wav") {
            std::fs::remove_file(entry.path()).failed()?;
        }
    }
    // Those that a validation writes.
    let mut samples = held_out(run, VALIDATION_UTTERANCES);
    samples.truncate(run.plan.config.training.samples as usize);
    let spoken = tts::evaluate_synthesis(model, &samples, SYNTHESIS_BATCH, runner).failed()?.utterances;
    for (number, spoken) in (1..).zip(&spoken) {
        for (name, mels) in [("best", &spoken.generated.mels), ("truth", &spoken.target.features)] {
            let path = folder.join(format!("{name}-{number}.wav"));
            write_wav(&path, &pipeline.vocode([mels.as_slice()].into_iter()), pipeline.sample_rate()).failed()?;
        }
        mels_file::write(&folder.join(mels_file::name(number)), &spoken.generated.mels, model.features()).failed()?;
        write_recording(&spoken.target.name, &folder.join(format!("recording-{number}.wav")), run).map_err(missing)?;
    }
    Ok(())
}

impl<C: SpeechConfig + Sync> TrainingTask for Synthesis<C> {
    type Model = C::Model;

    fn model(&self, device: &Device, key: Key) -> C::Model {
        self.config.init_model(device, key)
    }

    fn write_metadata(&self, run: &RunContext<'_>) -> Result<(), Failure> {
        let folder = run.folder.path();
        self.metadata(run).write(folder).failed()?;
        // The default voice is a training recording, of about the length of the references in training.
        let training = &run.prepared.training;
        let wanted = run.plan.config.data.reference_seconds.0;
        let off = |index: &usize| (training.utterance(*index).duration.0 - wanted).abs();
        let mut nearest: Vec<usize> = (0..training.len()).collect();
        nearest.sort_by(|a, b| off(a).total_cmp(&off(b)));
        let rate = run.plan.features.sample_rate;
        let read = |index: usize| {
            let utterance = training.utterance(index);
            let segment = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
            // Training reports the files that cannot be read.
            read_audio_segment(utterance.audio, segment, rate).ok()
        };
        match nearest.into_iter().find_map(read) {
            Some(audio) => write_wav(&ModelFolder(folder).default_voice(), &audio.samples, rate).failed(),
            None => Ok(()),
        }
    }

    fn validate(
        &self,
        model: &C::Model,
        step: u64,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Score, String> {
        if runner.collective().rank() > 0 {
            // Only the first replica validates: there are few utterances, and their samples go into files.
            return Ok(Score { value: f64::NAN, tie: 0.0, all: Vec::new() });
        }
        let synthesis =
            self.synthesize(model, VALIDATION_UTTERANCES, runner, run).map_err(|error| error.to_string())?;
        self.write_samples(model, &synthesis, step, run)?;
        let all = self.scores(model, &synthesis, runner, run).map_err(|error| error.to_string())?;
        // An utterance that does not stop by itself continues with a hum, which is close to any speech. So each one adds
        // one nat to the score, about the distance between noise and speech.
        let value = synthesis.mean_distance() + (1.0 - synthesis.stopped_share());
        Ok(Score { value, tie: 0.0, all })
    }

    fn finish(
        &self,
        model: C::Model,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<FinalScores, Failure> {
        let synthesis = self.synthesize(&model, FINAL_UTTERANCES, runner, run).failed()?;
        let pipeline = SpeechPipeline::new(model.clone(), &self.metadata(run)).failed()?;
        write_best(&pipeline, &model.valid(), runner, run)?;
        let scores = self.scores(&model, &synthesis, runner, run).failed()?;
        Ok(FinalScores { scores, held_out: synthesis.utterances.len(), examples: Vec::new() })
    }

    fn next_steps(&self, folder: &Path) -> String {
        let folder = folder.display();
        let command = command(&format!("say \"TEXT\" --run {folder} --out said.wav"));
        format!(
            "Sound and attention pictures of held-out texts: {folder}/samples/\n\
             To synthesize a text: {command}\n"
        )
    }
}
