//! Trains a Whisper model. Its validation score is the character error rate on held-out utterances.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_config::invocation::command;
use plimsoll_core::Key;
use plimsoll_data::Shard;
use plimsoll_speech::EvaluationError;
use plimsoll_speech::asr::{EvaluationOptions, RecognitionEvaluation, Search};
use plimsoll_speech::whisper::{
    GENERATION_CONFIG, Generation, Whisper, WhisperConfig, WhisperMetadata, evaluate_whisper,
};
use plimsoll_train::{InferenceRunner, Score};

use super::RunContext;
use super::recognition::{final_scores, score_of};
use super::task::{FinalScores, Trainable, TrainingTask};
use crate::beginning::base_folder;
use crate::error::{Failure, FailureExt};

/// The training of a Whisper model, as a [`TrainingTask`].
pub(super) struct Whispering {
    config: WhisperConfig,
}

impl Trainable for WhisperConfig {
    type Training = Whispering;

    fn training(&self, _: usize) -> Whispering {
        Whispering { config: *self }
    }
}

impl Whispering {
    /// Transcribes all held-out utterances, with greedy search; replicas share the work.
    fn evaluate(
        &self,
        model: &Whisper,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<RecognitionEvaluation, EvaluationError> {
        let prepared = &run.prepared;
        let others = runner.collective();
        let shard = Shard { rank: others.rank(), ranks: others.ranks() };
        let mut source = prepared.validation_source(&run.plan, shard, run.reporter);
        let options = EvaluationOptions {
            references: &prepared.validation_texts,
            tokenizer: &prepared.tokenizer,
            search: &Search::Greedy,
        };
        let generation = Generation::new(&prepared.tokenizer, None, run.folder.path());
        let generation = generation.expect("the tokenizer of a run of this family is one of Whisper");
        evaluate_whisper(model, &mut source, &options, &generation, runner)?.gather(others)
    }
}

impl TrainingTask for Whispering {
    type Model = Whisper;

    fn model(&self, device: &Device, key: Key) -> Whisper {
        self.config.init(device, key)
    }

    fn write_metadata(&self, run: &RunContext<'_>) -> Result<(), Failure> {
        let (features, tokenizer) = (run.plan.features.clone(), run.prepared.tokenizer.clone());
        let folder = run.folder.path();
        WhisperMetadata::new(self.config, features, tokenizer).with_run(&run.id).write(folder).failed()?;
        // What the model may not say is in a file beside it.
        if let Some(base) = base_folder(&run.plan.config)? {
            let rules = base.join(GENERATION_CONFIG);
            if rules.is_file() {
                std::fs::copy(rules, folder.join(GENERATION_CONFIG)).failed()?;
            }
        }
        Ok(())
    }

    fn validate(
        &self,
        model: &Whisper,
        _: u64,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Score, String> {
        self.evaluate(model, runner, run).map(|evaluation| score_of(&evaluation)).map_err(|error| error.to_string())
    }

    fn finish(
        &self,
        model: Whisper,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<FinalScores, Failure> {
        final_scores(&self.evaluate(&model, runner, run).failed()?, run)
    }

    fn next_steps(&self, folder: &Path) -> String {
        let folder = folder.display();
        let (transcribe, export) = (
            command(&format!("transcribe FILE.wav --run {folder}")),
            command(&format!("export --run {folder} --out DIR")),
        );
        format!("To transcribe a recording: {transcribe}\nTo use it with other programs: {export}\n")
    }
}
