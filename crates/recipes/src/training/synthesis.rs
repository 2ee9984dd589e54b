//! Training a synthesiser: judged by what it says of held-out texts by itself, which can be listened to and looked at.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use plimsoll_audio::{AudioSegment, read_audio_segment, write_wav};
use plimsoll_core::{HostSample, Key, Measure};
use plimsoll_data::Shard;
use plimsoll_monitor::Picture;
use plimsoll_speech::tts::{
    self, SpeechPipeline, SynthesisEvaluation, SynthesizedUtterance, Synthesizer, SynthesizerConfig,
    SynthesizerMetadata,
};
use plimsoll_speech::{EvaluationError, ModelFolder};
use plimsoll_train::{InferenceRunner, Score};

use super::RunContext;
use super::pictures::{self, Mels};
use super::task::{TrainingTask, Verdict};
use crate::error::{Failure, FailureExt};

/// Held-out texts that are said at each validation.
const SAID: usize = 16;
/// Held-out texts that are said at the end, at most.
const SAID_AT_THE_END: usize = 200;
/// Texts that are said at the same time.
const TOGETHER: usize = 32;

/// A synthesiser in training.
pub(super) struct Synthesis {
    config: SynthesizerConfig,
}

impl Synthesis {
    pub(super) fn new(config: SynthesizerConfig) -> Self {
        Self { config }
    }

    fn bundle(&self, run: &RunContext<'_>) -> SynthesizerMetadata {
        SynthesizerMetadata::new(self.config, run.plan.features.clone(), run.prepared.tokenizer.clone())
    }

    /// What it says by itself of up to `count` held-out utterances, evenly spread over their lengths.
    fn deliver(
        &self,
        model: &Synthesizer,
        count: usize,
        careful: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<SynthesisEvaluation, EvaluationError> {
        tts::evaluate_synthesis(model, &held_out(run, count), TOGETHER, careful)
    }

    /// What was measured.
    fn scores(
        &self,
        model: &Synthesizer,
        delivery: &SynthesisEvaluation,
        careful: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Vec<Measure>, EvaluationError> {
        let mut source = run.prepared.validation_source(&run.plan, Shard::default(), run.reporter);
        let losses = tts::teacher_forced_losses(model, &mut source, careful)?;
        let told = losses.get("fine").or(losses.get("rough")).copied().unwrap_or(f64::NAN);
        Ok(vec![
            Measure::number(
                "distance",
                "distance of free speech from the truth, warped in time",
                delivery.mean_distance(),
            ),
            Measure::number("mel", "distance of a frame that is told all before it", told),
            Measure::share("stopped", "utterances that end by themselves", delivery.stopped_share()),
            Measure::share("off length", "difference of lengths from the truth", delivery.length_error()),
        ])
    }

    /// Writes sound and picture of the first few that were said into the run's folder.
    fn show(
        &self,
        model: &Synthesizer,
        delivery: &SynthesisEvaluation,
        step: u64,
        run: &RunContext<'_>,
    ) -> Result<(), String> {
        let count = run.plan.config.training.samples as usize;
        let folder = run.folder.path().join("samples");
        fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let narrator = SpeechPipeline::new(model.clone(), &self.bundle(run)).map_err(|error| error.to_string())?;
        let rate = narrator.sample_rate();
        for (number, spoke) in delivery.utterances.iter().take(count).enumerate() {
            let place = |name: String| folder.join(name);
            let wav = |name: String, mels: &[f32]| {
                write_wav(&place(name), &narrator.vocode([mels].into_iter()), rate).map_err(|error| error.to_string())
            };
            let number = number + 1;
            // The truth as the vocoder has it: the model can come no closer.
            let truth = format!("truth-{number}.wav");
            if !place(truth.clone()).exists() {
                wav(truth, &spoke.target.features)?;
            }
            wav(format!("step-{step:06}-{number}.wav"), &spoke.generated.mels)?;
            let picture = place(format!("step-{step:06}-{number}.svg"));
            self.draw(model, spoke, run, &picture)?;
        }
        Ok(())
    }

    fn draw(
        &self,
        model: &Synthesizer,
        spoke: &SynthesizedUtterance,
        run: &RunContext<'_>,
        path: &Path,
    ) -> Result<(), String> {
        let features = &run.plan.features;
        let text = run.prepared.validation_texts.get(&spoke.target.name).map_or("", String::as_str);
        let names = run.prepared.tokenizer.names();
        let alignment = spoke.alignment(model);
        let said = [("said", &spoke.generated.mels), ("true", &spoke.target.features)];
        let mels = said.map(|(title, features_of)| Mels::new(title, features_of, features.n_mels));
        let looked = pictures::alignment(text, &alignment, &spoke.target.tokens, &names, features);
        let maps = [looked].into_iter().chain(pictures::mels(&mels, features)).collect();
        Picture { maps, shared: false }.write(path).map_err(|error| error.to_string())
    }
}

/// Up to `count` held-out utterances, evenly spread over their lengths; what cannot be read is told in training.
fn held_out(run: &RunContext<'_>, count: usize) -> Vec<HostSample> {
    let all = run.prepared.validation.len();
    let step = all.div_ceil(count.max(1)).max(1);
    let load = |index| run.prepared.validation.load(index, None).ok();
    // From the longest down: a listener learns more from a long one.
    (0..all).rev().step_by(step).filter_map(load).collect()
}

impl TrainingTask for Synthesis {
    type Model = Synthesizer;

    fn model(&self, device: &Device, key: Key) -> Synthesizer {
        self.config.init(device, key)
    }

    fn describe(&self, run: &RunContext<'_>) -> Result<(), Failure> {
        let folder = run.folder.path();
        self.bundle(run).write(folder).failed()?;
        // The voice that it speaks in where no other is named: one of those that it learns from.
        let training = &run.prepared.training;
        let wanted = run.plan.config.data.reference_seconds.0;
        let off = |index: &usize| (training.utterance(*index).duration.0 - wanted).abs();
        let mut nearest: Vec<usize> = (0..training.len()).collect();
        nearest.sort_by(|a, b| off(a).total_cmp(&off(b)));
        let rate = run.plan.features.sample_rate;
        let read = |index: usize| {
            let utterance = training.utterance(index);
            let stretch = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
            // What cannot be read is told when its turn comes in training.
            read_audio_segment(&utterance.audio, stretch, rate).ok()
        };
        match nearest.into_iter().find_map(read) {
            Some(audio) => write_wav(&ModelFolder(folder).default_voice(), &audio.samples, rate).failed(),
            None => Ok(()),
        }
    }

    fn is_same(&self, run: &RunContext<'_>) -> Result<bool, Failure> {
        Ok(SynthesizerMetadata::read(run.folder.path()).invalid()?.has_same_inputs(&self.bundle(run)))
    }

    fn validate(
        &self,
        model: &Synthesizer,
        step: u64,
        careful: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Score, String> {
        if careful.collective().rank() > 0 {
            // The first replica judges alone: what it hears is a few utterances, and goes into files.
            return Ok(Score { value: f64::NAN, all: Vec::new() });
        }
        let delivery = self.deliver(model, SAID, careful, run).map_err(|error| error.to_string())?;
        self.show(model, &delivery, step, run)?;
        let all = self.scores(model, &delivery, careful, run).map_err(|error| error.to_string())?;
        // What does not stop drones on in sounds that are near to anything: an utterance that is cut off counts as one
        // nat more, which is about what separates noise from speech.
        let value = delivery.mean_distance() + (1.0 - delivery.stopped_share());
        Ok(Score { value, all })
    }

    fn finish(
        &self,
        model: Synthesizer,
        careful: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Verdict, Failure> {
        let delivery = self.deliver(&model, SAID_AT_THE_END, careful, run).failed()?;
        let scores = self.scores(&model, &delivery, careful, run).failed()?;
        Ok(Verdict { scores, held_out: delivery.utterances.len(), examples: Vec::new() })
    }

    fn next_steps(&self, folder: &Path) -> String {
        let folder = folder.display();
        format!(
            "To listen to it and to see where it looked: {folder}/samples/\n\
             To say something with it: cargo xtask say \"TEXT\" --run {folder} --out said.wav\n"
        )
    }
}
