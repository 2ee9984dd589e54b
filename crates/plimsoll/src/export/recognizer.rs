//! The README of an exported recognizer, and the check of its weights.

use plimsoll_core::counted;
use plimsoll_speech::ModelMetadata;
use plimsoll_speech::asr::RecognizerConfig;
use plimsoll_tape::{NamedTensor, ParametersError, check_shapes, count, on_capture_device};
use plimsoll_train::Checkpoint;

use super::{Exportable, LAYOUTS, facts};

impl Exportable for RecognizerConfig {
    fn parameters(&self, weights: &[NamedTensor]) -> Result<u64, ParametersError> {
        on_capture_device(|device| {
            let model = self.init_unseeded(device);
            check_shapes(&model, weights)?;
            Ok(count(&model))
        })
    }

    fn readme(metadata: &ModelMetadata<Self>, name: &str, checkpoint: &Checkpoint, parameters: u64) -> String {
        let state = &checkpoint.state;
        let percent = |score: f64| format!("{:.2} %", score * 100.0);
        let score = match (state.best, state.best_step) {
            (Some(best), Some(step)) if step == state.step => {
                format!("character error rate {} on the held-out utterances of its run", percent(best))
            }
            (Some(best), Some(step)) => {
                format!("not the best of its run; the best was {} after step {step}", percent(best))
            }
            _ => "not validated".into(),
        };
        let model = &metadata.model;
        let decoder = match &model.decoder {
            Some(decoder) => format!("an attention decoder with {}", counted(decoder.layers, "block")),
            None => "no attention decoder".into(),
        };
        format!(
            "\
# {name}

A speech recognizer, exported by Plimsoll {version}: a Conformer with {layers} of width {width}, CTC and {decoder}.

{facts}
Use it like a run: `plimsoll transcribe FILE.wav --run FOLDER`.

{LAYOUTS}{PARTS}",
            version = env!("CARGO_PKG_VERSION"),
            layers = counted(model.layers, "block"),
            width = model.d_model,
            facts = facts(metadata, state.step, &score, parameters, model.vocabulary),
        )
    }
}

/// Parts of a recognizer, by the beginnings of parameter names, for its README.
const PARTS: &str = "\
## Parts

- `subsampling`: convolutions of stride 2 over time and frequency, then a linear layer; or `input`, a linear layer for each
  frame
- `blocks.N`: the Conformer blocks: half a feed-forward layer (`first`), `attention`, `convolution`, the other half
  (`second`), each behind its norm, and `norm_last` at the end
- `output`: the CTC scores of the tokens
- `decoder.embedding`, `decoder.blocks.N`, `decoder.norm`, `decoder.output`: the attention decoder, if there is one
";
