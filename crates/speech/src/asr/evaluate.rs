//! How well a recogniser reads a set of utterances.

use std::collections::HashMap;

use plimsoll_core::{BatchSource, Collective, Measure, Skipped};
use plimsoll_data::Tokenizer;
use plimsoll_tape::TensorBatch;
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
        let mut whole = Self::default();
        for part in others.gather(own)?.iter() {
            let part: Self = serde_json::from_slice(part).expect("every replica brings an evaluation");
            whole.characters = whole.characters + part.characters;
            whole.words = whole.words + part.words;
            whole.utterances.extend(part.utterances);
            whole.skipped.extend(part.skipped);
        }
        Ok(whole)
    }

    /// Its error rates.
    pub fn scores(&self) -> Vec<Measure> {
        vec![
            Measure::share("cer", "character error rate", self.characters.rate()),
            Measure::share("wer", "word error rate", self.words.rate()),
        ]
    }
}

/// Reads every utterance of `source` with `model`, as `search` finds, as many at once as `careful` finds to fit; `texts` has
/// the truth by name.
pub fn evaluate(
    model: &Recogniser,
    source: &mut dyn BatchSource,
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
        let read = careful.over(&batch, |piece| {
            let tensors = TensorBatch::send(piece, &device);
            model.read(tensors.features, &tensors.frame_lengths, search)
        })?;
        for (name, tokens) in batch.names.iter().zip(read.into_iter().flatten()) {
            let truth = texts.get(name).cloned().unwrap_or_default();
            evaluation.add(Heard { name: name.clone(), truth, heard: tokenizer.decode(&tokens) });
        }
        evaluation.skipped.extend(delivered.skipped);
    }
    Ok(evaluation)
}
