//! Error rates and loss of a Whisper model over a set of utterances.

use burn::module::Module;
use burn::tensor::Tensor;
use plimsoll_core::{BatchSource, HostBatch};
use plimsoll_tape::{Pass, TensorBatch};
use plimsoll_train::InferenceRunner;

use super::{Generation, Whisper};
use crate::EvaluationError;
use crate::asr::evaluate::evaluate_texts;
use crate::asr::{EvaluationOptions, RecognitionEvaluation, Search};

/// Transcribes every utterance of `source` with `model` and counts the errors, and computes the loss with the true text of each.
///
/// `runner` splits a batch that does not fit into memory. Utterances that cannot be read are listed in the result.
///
/// # Errors
/// [`EvaluationError::Source`] when the source fails as a whole, [`EvaluationError::Device`] when the device fails.
pub fn evaluate_whisper(
    model: &Whisper,
    source: &mut dyn BatchSource<Batch = HostBatch>,
    options: &EvaluationOptions<'_>,
    generation: &Generation,
    runner: &mut InferenceRunner<'_>,
) -> Result<RecognitionEvaluation, EvaluationError> {
    // Without autodiff: nothing is kept for a backward pass.
    let model = model.valid();
    let device = model.devices().into_iter().next().expect("a model has parameters");
    evaluate_texts(source, options, runner, &model, |micro_batch| {
        let batch = TensorBatch::send(micro_batch, &device);
        let (texts, loss) = model.generate_with_loss(&batch, generation, options.search);
        (texts, f64::from(loss.into_scalar::<f32>()))
    })
}

impl Whisper {
    /// Does what memory an evaluation takes: the loss, and a text with as many tokens as the decoder has positions.
    pub(crate) fn trace_generation(&self, batch: &TensorBatch) {
        let pass = Pass::inference();
        let encoded = self.encode(self.windows(batch), &pass);
        let _ = self.text_loss(encoded.clone(), batch, &pass);
        self.trace_steps(encoded);
    }

    /// Generates the texts of `batch`, and computes the loss of its true texts, with a single pass through the encoder.
    fn generate_with_loss(
        &self,
        batch: &TensorBatch,
        generation: &Generation,
        search: &Search,
    ) -> (Vec<Vec<u32>>, Tensor<1>) {
        let pass = Pass::inference();
        let encoded = self.encode(self.windows(batch), &pass);
        let loss = self.text_loss(encoded.clone(), batch, &pass).sum;
        // Each utterance is heard in its own language: its true text begins with it.
        let begin = generation.prompt.len();
        let prompt = |text: &Vec<u32>| text.get(..begin).map_or_else(|| generation.prompt.clone(), <[u32]>::to_vec);
        let prompts: Vec<Vec<u32>> = batch.tokens.iter().map(prompt).collect();
        (self.generate_after(encoded, &prompts, generation, search), loss)
    }
}
