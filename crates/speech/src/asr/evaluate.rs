//! Error rates and loss of a recognizer over a set of utterances.

use std::collections::HashMap;

use plimsoll_core::{BatchSource, Collective, HostBatch, Measure, Skipped};
use plimsoll_tape::{Task, TensorBatch};
use plimsoll_text::Tokenizer;
use plimsoll_train::InferenceRunner;
use serde::{Deserialize, Serialize};

use super::decode::CtcScores;
use super::{Recognizer, Search};
use crate::EvaluationError;
use crate::score::ErrorCounts;
use burn::module::Module;

/// An utterance's true text and its recognized text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transcription {
    /// Name of the utterance in the manifest.
    pub name: String,
    /// True text of the utterance.
    pub reference: String,
    /// Recognized text of the utterance.
    pub hypothesis: String,
}

/// Result of evaluating a recognizer: error counts, loss, and the texts of each utterance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecognitionEvaluation {
    /// Character errors of all utterances together.
    pub characters: ErrorCounts,
    /// Word errors of all utterances together.
    pub words: ErrorCounts,
    /// Sum of the losses, and the number of tokens by which that sum is divided (0 when the utterances came without
    /// tokens).
    #[serde(skip)]
    pub loss: (f64, f64),
    /// Utterances that were read, with their texts, in order.
    pub utterances: Vec<Transcription>,
    /// Utterances that could not be read from disk.
    pub skipped: Vec<Skipped>,
}

impl RecognitionEvaluation {
    /// Adds one utterance and counts its errors.
    pub fn add(&mut self, transcription: Transcription) {
        self.characters =
            self.characters + ErrorCounts::characters(&transcription.reference, &transcription.hypothesis);
        self.words = self.words + ErrorCounts::words(&transcription.reference, &transcription.hypothesis);
        self.utterances.push(transcription);
    }

    /// Combines the evaluations of all replicas, each of which read a share of the utterances. Every replica gets the
    /// combined evaluation.
    ///
    /// # Errors
    /// [`EvaluationError::Replica`] when another replica has stopped.
    pub fn gather(self, others: &dyn Collective) -> Result<Self, EvaluationError> {
        if others.ranks() == 1 {
            return Ok(self);
        }
        let own = serde_json::to_vec(&self).expect("an evaluation is plain data");
        // Not as JSON, which cannot hold NaN.
        let mut loss = [self.loss.0, self.loss.1];
        others.sum(&mut loss)?;
        let mut whole = Self { loss: loss.into(), ..Self::default() };
        for part in others.gather(own)?.iter() {
            let part: Self = serde_json::from_slice(part).expect("every replica brings an evaluation");
            whole.characters = whole.characters + part.characters;
            whole.words = whole.words + part.words;
            whole.utterances.extend(part.utterances);
            whole.skipped.extend(part.skipped);
        }
        Ok(whole)
    }

    /// Returns the error rates, and the loss per token when it is known and finite.
    pub fn measures(&self) -> Vec<Measure> {
        let rates = [
            Measure::share("cer", "character error rate", self.characters.rate()),
            Measure::share("wer", "word error rate", self.words.rate()),
        ];
        let loss = self.mean_loss();
        let loss = loss.is_finite().then(|| Measure::number("loss", "loss for each token", loss));
        rates.into_iter().chain(loss).collect()
    }

    /// Returns the loss for each token; NaN when it is not known.
    pub fn mean_loss(&self) -> f64 {
        let (loss, weight) = self.loss;
        if weight > 0.0 { loss / weight } else { f64::NAN }
    }
}

/// True texts, tokenizer and search with which a recognizer is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationOptions<'a> {
    /// True text of each utterance, by the utterance's name. An utterance that is missing here has an empty text.
    pub references: &'a HashMap<String, String>,
    /// Tokenizer that turns the recognized tokens into a text.
    pub tokenizer: &'a Tokenizer,
    /// Search for the best text.
    pub search: &'a Search,
}

/// Recognizes every utterance of `source` with `model` and counts the errors.
///
/// `runner` splits a batch that does not fit into memory. Utterances that cannot be read are listed in the result.
///
/// # Errors
/// [`EvaluationError::Source`] when the source fails as a whole, [`EvaluationError::Device`] when the device fails.
pub fn evaluate_recognition(
    model: &Recognizer,
    source: &mut dyn BatchSource<Batch = HostBatch>,
    options: &EvaluationOptions<'_>,
    runner: &mut InferenceRunner<'_>,
) -> Result<RecognitionEvaluation, EvaluationError> {
    // Without autodiff: nothing is kept for a backward pass.
    let model = model.valid();
    let device = model.devices().into_iter().next().expect("a model has parameters");
    evaluate_texts(source, options, runner, &model, |micro_batch| {
        let (tokens, loss) = model.recognize_with_loss(&TensorBatch::send(micro_batch, &device), options.search);
        (tokens, f64::from(loss.sum.into_scalar::<f32>()))
    })
}

/// Counts the errors of the texts of all utterances of `source`; `recognize` finds the tokens of a micro-batch, and its loss.
pub(crate) fn evaluate_texts<T: Task<Batch = HostBatch>>(
    source: &mut dyn BatchSource<Batch = HostBatch>,
    options: &EvaluationOptions<'_>,
    runner: &mut InferenceRunner<'_>,
    model: &T,
    recognize: impl Fn(&HostBatch) -> (Vec<Vec<u32>>, f64),
) -> Result<RecognitionEvaluation, EvaluationError> {
    let mut evaluation = RecognitionEvaluation::default();
    while let Some(delivered) = source.next_batch() {
        let delivered = delivered?;
        let batch = delivered.batch;
        let (tokens, losses): (Vec<_>, Vec<f64>) = runner.run(&batch, &recognize)?.into_iter().unzip();
        evaluation.loss.0 += losses.iter().sum::<f64>();
        evaluation.loss.1 += model.weight(&batch);
        for (name, tokens) in batch.names.iter().zip(tokens.into_iter().flatten()) {
            let reference = options.references.get(name).cloned().unwrap_or_default();
            let hypothesis = options.tokenizer.decode(&tokens);
            evaluation.add(Transcription { name: name.clone(), reference, hypothesis });
        }
        evaluation.skipped.extend(delivered.skipped);
    }
    Ok(evaluation)
}

/// Computes the CTC scores of the utterances of `source`, with their names, until there are `most`.
///
/// # Errors
/// As for [`evaluate_recognition`].
pub fn score_recognition(
    model: &Recognizer,
    source: &mut dyn BatchSource<Batch = HostBatch>,
    most: usize,
    runner: &mut InferenceRunner<'_>,
) -> Result<Vec<(String, CtcScores)>, EvaluationError> {
    let model = model.valid();
    let device = model.devices().into_iter().next().expect("a model has parameters");
    let mut scored = Vec::new();
    while scored.len() < most
        && let Some(delivered) = source.next_batch()
    {
        let batch = delivered?.batch;
        let scores = runner.run(&batch, |part| model.ctc_scores(&TensorBatch::send(part, &device)))?;
        scored.extend(batch.names.iter().cloned().zip(scores.into_iter().flatten()));
    }
    Ok(scored)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use plimsoll_core::{Batch, Grid, HostSample, Key, SampleId};

    use super::super::RecognizerConfig;
    use super::*;

    /// One pass gives the same tokens as `recognize`, and the same loss as training.
    #[test]
    fn one_pass_gives_the_tokens_and_the_loss() {
        let model = RecognizerConfig { features: 20, dropout: 0.2, ..RecognizerConfig::recommended(16, 2, 1, 9) }
            .init(&Device::flex().autodiff(), Key::new(3));
        let sample = |name: &str, frames: usize, tokens: &[u32]| {
            let key = Key::new(1).with(name);
            let features = (0..frames * 20).map(|i| key.at(i as u64).unit() as f32 - 0.5).collect();
            let (id, tokens) = (SampleId::from_name(name), tokens.to_vec());
            HostSample { id, name: name.into(), features, tokens, reference: Vec::new() }
        };
        // "c" has too few frames for its text.
        let samples = [sample("a", 60, &[5, 6, 7]), sample("b", 41, &[8, 8]), sample("c", 5, &[4, 4, 4, 4])];
        let batch = HostBatch::collate(&samples, 20, &Grid::default()).unwrap();
        let model = model.valid();
        let tensors = TensorBatch::send(&batch, &Device::flex());
        let (tokens, loss) = model.recognize_with_loss(&tensors, &Search::Greedy);
        assert_eq!(tokens, model.recognize(tensors.features.clone(), &tensors.frame_lengths, &Search::Greedy));
        assert_eq!(loss.left_out, [2]);
        let alone = |index: usize| {
            let part = TensorBatch::send(&batch.part(index..index + 1), &Device::flex());
            f64::from(model.loss(&part, &plimsoll_tape::Pass::plain()).sum.into_scalar::<f32>())
        };
        let (whole, parts) = (f64::from(loss.sum.into_scalar::<f32>()), alone(0) + alone(1));
        assert!((whole - parts).abs() < 1e-4 * parts, "{whole} and {parts}");
    }

    #[test]
    fn nan_loss_of_one_replica_does_not_end_the_validation() {
        let evaluations: Vec<RecognitionEvaluation> = std::thread::scope(|scope| {
            let join = |(way, loss)| {
                let own = RecognitionEvaluation { loss: (loss, 2.0), ..RecognitionEvaluation::default() };
                scope.spawn(move || own.gather(&way).unwrap())
            };
            let ways = plimsoll_train::ThreadReplica::for_ranks(2).into_iter().zip([f64::NAN, 1.0]);
            let threads: Vec<_> = ways.map(join).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for whole in evaluations {
            assert!(whole.loss.0.is_nan() && whole.loss.1 == 4.0);
            assert_eq!(whole.measures().len(), 2, "a NaN loss is not reported");
        }
    }
}
