//! How well a recogniser reads a set of utterances.

use std::collections::HashMap;

use plimsoll_core::{BatchSource, Collective, HostBatch, Measure, Skipped};
use plimsoll_tape::{Task, TensorBatch};
use plimsoll_text::Tokenizer;
use plimsoll_train::Careful;
use serde::{Deserialize, Serialize};

use super::{Recogniser, Search};
use crate::JudgeError;
use crate::score::ErrorCounts;
use burn::module::Module;

/// What was said and what was heard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    /// The utterance's name in the manifest.
    pub name: String,
    /// Its text.
    pub truth: String,
    /// What the recogniser read.
    pub heard: String,
}

/// The result of an evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Characters, over all utterances.
    pub characters: ErrorCounts,
    /// Words, over all utterances.
    pub words: ErrorCounts,
    /// The sum of the losses, where the texts came with their tokens, and the tokens that it is divided by.
    #[serde(skip)]
    pub loss: (f64, f64),
    /// Every utterance.
    pub utterances: Vec<Heard>,
    /// Utterances that could not be read from disk.
    pub skipped: Vec<Skipped>,
}

impl Evaluation {
    /// Adds one utterance.
    pub fn add(&mut self, heard: Heard) {
        self.characters = self.characters + ErrorCounts::characters(&heard.truth, &heard.heard);
        self.words = self.words + ErrorCounts::words(&heard.truth, &heard.heard);
        self.utterances.push(heard);
    }

    /// What all replicas have found together, where each has read a part.
    ///
    /// # Errors
    /// Where another one is gone.
    pub fn of_all(self, others: &dyn Collective) -> Result<Self, JudgeError> {
        if others.ranks() == 1 {
            return Ok(self);
        }
        let own = serde_json::to_vec(&self).expect("an evaluation is plain data");
        // By its bits, as JSON has no number for what is none.
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

    /// Its error rates, and its loss where that is known.
    pub fn scores(&self) -> Vec<Measure> {
        let rates = [
            Measure::share("cer", "character error rate", self.characters.rate()),
            Measure::share("wer", "word error rate", self.words.rate()),
        ];
        let (loss, weight) = self.loss;
        let loss =
            (weight > 0.0 && loss.is_finite()).then(|| Measure::number("loss", "loss for each token", loss / weight));
        rates.into_iter().chain(loss).collect()
    }
}

/// Reads every utterance of `source` with `model`, as `search` finds, as many at once as `careful` finds to fit; `texts` has
/// the truth by name.
pub fn evaluate(
    model: &Recogniser,
    source: &mut dyn BatchSource<Batch = HostBatch>,
    texts: &HashMap<String, String>,
    tokenizer: &Tokenizer,
    search: &Search,
    careful: &mut Careful<'_>,
) -> Result<Evaluation, JudgeError> {
    // Off the tape: nothing is kept for a backward pass.
    let model = model.valid();
    let device = model.devices().into_iter().next().expect("a model has parameters");
    let mut evaluation = Evaluation::default();
    while let Some(delivered) = source.next_batch() {
        let delivered = delivered?;
        let batch = delivered.batch;
        let judged = careful.over(&batch, |piece| {
            let (read, loss) = model.judge(&TensorBatch::send(piece, &device), search);
            (read, f64::from(loss.sum.into_scalar::<f32>()))
        })?;
        let (read, losses): (Vec<_>, Vec<f64>) = judged.into_iter().unzip();
        evaluation.loss.0 += losses.iter().sum::<f64>();
        evaluation.loss.1 += model.weight(&batch);
        for (name, tokens) in batch.names.iter().zip(read.into_iter().flatten()) {
            let truth = texts.get(name).cloned().unwrap_or_default();
            evaluation.add(Heard { name: name.clone(), truth, heard: tokenizer.decode(&tokens) });
        }
        evaluation.skipped.extend(delivered.skipped);
    }
    Ok(evaluation)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use plimsoll_core::{Batch, Grid, HostSample, Key, SampleId};

    use super::super::RecogniserConfig;
    use super::*;

    /// Judging gives what reading and what training give, each alone.
    #[test]
    fn one_pass_gives_what_is_read_and_how_far_it_is_off() {
        let model = RecogniserConfig { features: 20, dropout: 0.2, ..RecogniserConfig::recommended(16, 2, 1, 9) }
            .init(&Device::flex().autodiff(), Key::new(3));
        let sample = |name: &str, frames: usize, tokens: &[u32]| {
            let key = Key::new(1).with(name);
            let features = (0..frames * 20).map(|i| key.at(i as u64).unit() as f32 - 0.5).collect();
            let (id, tokens) = (SampleId::of(name), tokens.to_vec());
            HostSample { id, name: name.into(), features, tokens, reference: Vec::new() }
        };
        // The last has too few frames for its text.
        let samples = [sample("a", 60, &[5, 6, 7]), sample("b", 41, &[8, 8]), sample("c", 5, &[4, 4, 4, 4])];
        let batch = HostBatch::collate(&samples, 20, &Grid::default()).unwrap();
        let model = model.valid();
        let tensors = TensorBatch::send(&batch, &Device::flex());
        let (read, loss) = model.judge(&tensors, &Search::Greedy);
        assert_eq!(read, model.read(tensors.features.clone(), &tensors.frame_lengths, &Search::Greedy));
        assert_eq!(loss.left_out, [2]);
        let alone = |index: usize| {
            let part = TensorBatch::send(&batch.part(index..index + 1), &Device::flex());
            f64::from(model.loss(&part, &plimsoll_tape::Pass::plain()).sum.into_scalar::<f32>())
        };
        let (whole, parts) = (f64::from(loss.sum.into_scalar::<f32>()), alone(0) + alone(1));
        assert!((whole - parts).abs() < 1e-4 * parts, "{whole} and {parts}");
    }

    #[test]
    fn a_loss_that_is_no_number_is_no_reason_to_end_a_shared_validation() {
        let evaluations: Vec<Evaluation> = std::thread::scope(|scope| {
            let join = |(way, loss)| {
                let own = Evaluation { loss: (loss, 2.0), ..Evaluation::default() };
                scope.spawn(move || own.of_all(&way).unwrap())
            };
            let ways = plimsoll_train::Threads::of(2).into_iter().zip([f64::NAN, 1.0]);
            let threads: Vec<_> = ways.map(join).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for whole in evaluations {
            assert!(whole.loss.0.is_nan() && whole.loss.1 == 4.0);
            assert_eq!(whole.scores().len(), 2, "only what is known is told");
        }
    }
}
