//! Trains a recognizer. Its validation score is the character error rate on held-out utterances.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_config::invocation::command;
use plimsoll_core::{Key, Measure, Seconds};
use plimsoll_data::Shard;
use plimsoll_monitor::Example;
use plimsoll_speech::EvaluationError;
use plimsoll_speech::asr::decode::CtcScores;
use plimsoll_speech::asr::{
    EvaluationOptions, RecognitionEvaluation, Recognizer, RecognizerConfig, RecognizerMetadata, Search, Transcription,
    evaluate_recognition, score_recognition,
};
use plimsoll_speech::score::ErrorCounts;
use plimsoll_train::{InferenceRunner, Score};

use super::task::{FinalScores, Trainable, TrainingTask};
use super::{RunContext, evaluation};
use crate::error::{Failure, FailureExt};
use crate::language::{CORPUS_SPELLING, TunedSearch, write_corpus_model};

/// The training of a recognizer, as a [`TrainingTask`].
pub(super) struct Recognition {
    config: RecognizerConfig,
    /// Number of tokens of the tokenizer; the vocabulary of the model can be wider.
    tokens: usize,
}

impl Trainable for RecognizerConfig {
    type Training = Recognition;

    fn training(&self, tokens: usize) -> Recognition {
        Recognition { config: *self, tokens }
    }
}

impl Recognition {
    /// Returns the metadata of the model, for the model's folder.
    fn metadata(&self, run: &RunContext<'_>) -> RecognizerMetadata {
        let (features, tokenizer) = (run.plan.features.clone(), run.prepared.tokenizer.clone());
        let longest = longest(run.prepared.training.metas().iter().map(|meta| meta.seconds));
        let metadata = RecognizerMetadata::new(self.config, features, tokenizer).with_run(&run.id);
        longest.into_iter().fold(metadata, RecognizerMetadata::with_longest)
    }

    /// Recognizes all held-out utterances, with greedy search; replicas share the work.
    fn evaluate(
        &self,
        model: &Recognizer,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<RecognitionEvaluation, EvaluationError> {
        let prepared = &run.prepared;
        let others = runner.collective();
        let mut source =
            prepared.validation_source(&run.plan, Shard { rank: others.rank(), ranks: others.ranks() }, run.reporter);
        let options = EvaluationOptions {
            references: &prepared.validation_texts,
            tokenizer: &prepared.tokenizer,
            search: &Search::Greedy,
        };
        evaluate_recognition(model, &mut source, &options, runner)?.gather(others)
    }

    /// Tunes the search with the language of the training texts on held-out utterances.
    fn tune(
        &self,
        model: &Recognizer,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Option<TunedSearch>, Failure> {
        let prepared = &run.prepared;
        let mut source = prepared.validation_source(&run.plan, Shard { rank: 0, ranks: 1 }, run.reporter);
        let scored = score_recognition(model, &mut source, usize::MAX, runner).failed()?;
        let with_text =
            |(name, scores): (String, CtcScores)| Some((scores, prepared.validation_texts.get(&name)?.as_str()));
        let scored: Vec<_> = scored.into_iter().filter_map(with_text).collect();
        // A run that an older version began has no model of the spelling.
        if !run.folder.path().join(CORPUS_SPELLING).is_file() {
            let texts: Vec<&str> = prepared.training.utterances().texts().collect();
            write_corpus_model(&texts, run.folder.path())?;
        }
        let progress = run.reporter.progress("trying weights of the language", None);
        TunedSearch::tune(run.folder.path(), &prepared.tokenizer, &scored, &*progress)
    }
}

impl TrainingTask for Recognition {
    type Model = Recognizer;

    fn model(&self, device: &Device, key: Key) -> Recognizer {
        self.config.init(device, key).with_outputs(self.tokens)
    }

    fn write_metadata(&self, run: &RunContext<'_>) -> Result<(), Failure> {
        self.metadata(run).write(run.folder.path()).failed()?;
        let training = &run.prepared.training;
        let texts: Vec<&str> = training.utterances().texts().collect();
        write_corpus_model(&texts, run.folder.path())
    }

    fn validate(
        &self,
        model: &Recognizer,
        _: u64,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Score, String> {
        self.evaluate(model, runner, run).map(|evaluation| score_of(&evaluation)).map_err(|error| error.to_string())
    }

    fn finish(
        &self,
        model: Recognizer,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<FinalScores, Failure> {
        let mut found = final_scores(&self.evaluate(&model, runner, run).failed()?, run)?;
        if let Some(tuned) = self.tune(&model, runner, run)? {
            tuned.write(run.folder.path())?;
            let [cer, wer] = tuned.with_language;
            if tuned.helps {
                let scores = &mut found.scores;
                scores.push(Measure::share("lm_cer", "character error rate with the language of the texts", cer));
                scores.push(Measure::share("lm_wer", "word error rate with the language of the texts", wer));
            }
        }
        Ok(found)
    }

    fn next_steps(&self, folder: &Path) -> String {
        let command = command(&format!("transcribe FILE.wav --run {}", folder.display()));
        format!("To transcribe a recording: {command}\n")
    }
}

/// Share of the utterances that a model learns from which long recordings are divided by: a few much longer ones teach it
/// nothing about their length.
const NEARLY_ALL: f64 = 0.99;

/// Computes the length that nearly all utterances of these lengths have; `None` without any.
fn longest(lengths: impl Iterator<Item = Seconds>) -> Option<Seconds> {
    let mut lengths: Vec<f64> = lengths.map(|length| length.0).collect();
    lengths.sort_by(f64::total_cmp);
    lengths.get((lengths.len() as f64 * NEARLY_ALL) as usize).copied().map(Seconds)
}

/// Returns the score of a validation: the error rate of characters, and of equal ones the loss.
pub(super) fn score_of(evaluation: &RecognitionEvaluation) -> Score {
    Score { value: evaluation.characters.rate(), tie: evaluation.mean_loss(), all: evaluation.measures() }
}

/// Writes what the best model recognized into the folder of the run, and returns its scores.
pub(super) fn final_scores(evaluation: &RecognitionEvaluation, run: &RunContext<'_>) -> Result<FinalScores, Failure> {
    evaluation::write(run.folder.path(), &evaluation.utterances, &run.prepared.validation).failed()?;
    let (scores, held_out) = (evaluation.measures(), evaluation.utterances.len());
    Ok(FinalScores { scores, held_out, examples: examples(evaluation) })
}

/// Returns up to three utterances: the utterances with the lowest, the median and the highest character error rate.
fn examples(evaluation: &RecognitionEvaluation) -> Vec<Example> {
    let rate = |result: &&Transcription| ErrorCounts::characters(&result.reference, &result.hypothesis).rate();
    let mut sorted: Vec<&Transcription> = evaluation.utterances.iter().collect();
    sorted.sort_by(|a, b| rate(a).total_cmp(&rate(b)).then_with(|| a.name.cmp(&b.name)));
    let last = sorted.len().saturating_sub(1);
    let mut ranks = vec![0, last / 2, last];
    ranks.dedup();
    let example = |result: &&Transcription| Example {
        name: result.name.clone(),
        truth: result.reference.clone(),
        output: result.hypothesis.clone(),
    };
    ranks.into_iter().filter_map(|rank| sorted.get(rank)).map(example).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_long_utterances_do_not_count() {
        let lengths = |count: usize| (1..=count).map(|n| Seconds(n as f64));
        assert_eq!(longest(lengths(0)), None);
        assert_eq!(longest(lengths(1)), Some(Seconds(1.0)));
        assert_eq!(longest(lengths(99)), Some(Seconds(99.0)));
        assert_eq!(longest(lengths(200).chain([Seconds(9e9)])), Some(Seconds(199.0)));
    }
}
