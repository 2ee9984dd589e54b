//! Training a recogniser: judged by the errors it makes on what was held out.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_core::Key;
use plimsoll_data::Shard;
use plimsoll_monitor::Example;
use plimsoll_speech::EvaluationError;
use plimsoll_speech::asr::{
    EvaluationOptions, RecognitionEvaluation, Recognizer, RecognizerConfig, RecognizerMetadata, Search, Transcription,
    evaluate_recognition,
};
use plimsoll_speech::score::ErrorCounts;
use plimsoll_train::{InferenceRunner, Score};

use super::RunContext;
use super::task::{TrainingTask, Verdict};
use crate::error::{Failure, FailureExt};

/// A recogniser in training.
pub(super) struct Recognition {
    config: RecognizerConfig,
}

impl Recognition {
    pub(super) fn new(config: RecognizerConfig) -> Self {
        Self { config }
    }

    fn bundle(&self, run: &RunContext<'_>) -> RecognizerMetadata {
        let (features, tokenizer) = (run.plan.features.clone(), run.prepared.tokenizer.clone());
        RecognizerMetadata::new(self.config, features, tokenizer)
    }

    fn evaluate(
        &self,
        model: &Recognizer,
        careful: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<RecognitionEvaluation, EvaluationError> {
        let prepared = &run.prepared;
        let others = careful.collective();
        let mut source =
            prepared.validation_source(&run.plan, Shard { rank: others.rank(), ranks: others.ranks() }, run.reporter);
        let options = EvaluationOptions {
            references: &prepared.validation_texts,
            tokenizer: &prepared.tokenizer,
            search: &Search::Greedy,
        };
        evaluate_recognition(model, &mut source, &options, careful)?.gather(others)
    }
}

impl TrainingTask for Recognition {
    type Model = Recognizer;

    fn model(&self, device: &Device, key: Key) -> Recognizer {
        self.config.init(device, key)
    }

    fn describe(&self, run: &RunContext<'_>) -> Result<(), Failure> {
        self.bundle(run).write(run.folder.path()).failed()
    }

    fn is_same(&self, run: &RunContext<'_>) -> Result<bool, Failure> {
        Ok(RecognizerMetadata::read(run.folder.path()).invalid()?.has_same_inputs(&self.bundle(run)))
    }

    fn validate(
        &self,
        model: &Recognizer,
        _: u64,
        careful: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Score, String> {
        let evaluation = self.evaluate(model, careful, run).map_err(|error| error.to_string())?;
        Ok(Score { value: evaluation.characters.rate(), all: evaluation.measures() })
    }

    fn finish(
        &self,
        model: Recognizer,
        careful: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Verdict, Failure> {
        let evaluation = self.evaluate(&model, careful, run).failed()?;
        let held_out = evaluation.utterances.len();
        Ok(Verdict { scores: evaluation.measures(), held_out, examples: examples(&evaluation) })
    }

    fn next_steps(&self, folder: &Path) -> String {
        format!("To read a recording with it: cargo xtask transcribe FILE.wav --run {}\n", folder.display())
    }
}

/// Three utterances: a good one, a middling one and the worst, by their error rates.
fn examples(evaluation: &RecognitionEvaluation) -> Vec<Example> {
    let rate = |heard: &&Transcription| ErrorCounts::characters(&heard.reference, &heard.hypothesis).rate();
    let mut sorted: Vec<&Transcription> = evaluation.utterances.iter().collect();
    sorted.sort_by(|a, b| rate(a).total_cmp(&rate(b)).then_with(|| a.name.cmp(&b.name)));
    let last = sorted.len().saturating_sub(1);
    let mut places = vec![0, last / 2, last];
    places.dedup();
    let example = |heard: &&Transcription| Example {
        name: heard.name.clone(),
        truth: heard.reference.clone(),
        output: heard.hypothesis.clone(),
    };
    places.into_iter().filter_map(|place| sorted.get(place)).map(example).collect()
}
