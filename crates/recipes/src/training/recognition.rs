//! Training a recogniser: judged by the errors it makes on what was held out.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_core::Key;
use plimsoll_data::Shard;
use plimsoll_monitor::Example;
use plimsoll_speech::JudgeError;
use plimsoll_speech::asr::{Bundle, Evaluation, Heard, Recogniser, RecogniserConfig, Search, evaluate};
use plimsoll_speech::score::ErrorCounts;
use plimsoll_train::{Careful, Score};

use super::RunContext;
use super::task::{TrainingTask, Verdict};
use crate::error::{Failure, FailureExt};

/// A recogniser in training.
pub(super) struct Recognition {
    config: RecogniserConfig,
}

impl Recognition {
    pub(super) fn new(config: RecogniserConfig) -> Self {
        Self { config }
    }

    fn bundle(&self, run: &RunContext<'_>) -> Bundle {
        let (features, tokenizer) = (run.plan.features.clone(), run.prepared.tokenizer.clone());
        Bundle::new(self.config, features, tokenizer)
    }

    fn evaluate(
        &self,
        model: &Recogniser,
        careful: &mut Careful<'_>,
        run: &RunContext<'_>,
    ) -> Result<Evaluation, JudgeError> {
        let prepared = &run.prepared;
        let others = careful.others();
        let mut source =
            prepared.validation_source(&run.plan, Shard { rank: others.rank(), ranks: others.ranks() }, run.reporter);
        let texts = &prepared.validation_texts;
        evaluate(model, &mut source, texts, &prepared.tokenizer, &Search::Greedy, careful)?.of_all(others)
    }
}

impl TrainingTask for Recognition {
    type Model = Recogniser;

    fn model(&self, device: &Device, key: Key) -> Recogniser {
        self.config.init(device, key)
    }

    fn describe(&self, run: &RunContext<'_>) -> Result<(), Failure> {
        self.bundle(run).write(run.folder.path()).failed()
    }

    fn is_same(&self, run: &RunContext<'_>) -> Result<bool, Failure> {
        Ok(Bundle::read(run.folder.path()).invalid()?.reads_as(&self.bundle(run)))
    }

    fn validate(
        &self,
        model: &Recogniser,
        _: u64,
        careful: &mut Careful<'_>,
        run: &RunContext<'_>,
    ) -> Result<Score, String> {
        let evaluation = self.evaluate(model, careful, run).map_err(|error| error.to_string())?;
        Ok(Score { value: evaluation.characters.rate(), all: evaluation.scores() })
    }

    fn finish(&self, model: Recogniser, careful: &mut Careful<'_>, run: &RunContext<'_>) -> Result<Verdict, Failure> {
        let evaluation = self.evaluate(&model, careful, run).failed()?;
        let held_out = evaluation.utterances.len();
        Ok(Verdict { scores: evaluation.scores(), held_out, examples: examples(&evaluation) })
    }

    fn next_steps(&self, folder: &Path) -> String {
        format!("To read a recording with it: cargo xtask transcribe FILE.wav --run {}\n", folder.display())
    }
}

/// Three utterances: a good one, a middling one and the worst, by their error rates.
fn examples(evaluation: &Evaluation) -> Vec<Example> {
    let rate = |heard: &&Heard| ErrorCounts::characters(&heard.truth, &heard.heard).rate();
    let mut sorted: Vec<&Heard> = evaluation.utterances.iter().collect();
    sorted.sort_by(|a, b| rate(a).total_cmp(&rate(b)).then_with(|| a.name.cmp(&b.name)));
    let last = sorted.len().saturating_sub(1);
    let mut places = vec![0, last / 2, last];
    places.dedup();
    let example =
        |heard: &&Heard| Example { name: heard.name.clone(), truth: heard.truth.clone(), output: heard.heard.clone() };
    places.into_iter().filter_map(|place| sorted.get(place)).map(example).collect()
}
