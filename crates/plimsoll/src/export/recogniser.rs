//! A recogniser that is carried elsewhere.

use burn::tensor::Device;
use plimsoll_speech::ModelMetadata;
use plimsoll_speech::asr::RecognizerConfig;
use plimsoll_tape::{NamedTensor, ParametersError, apply, count};
use plimsoll_train::Checkpoint;

use super::{LAYOUTS, Portable, facts};

impl Portable for RecognizerConfig {
    fn parameters(&self, weights: Vec<NamedTensor>) -> Result<u64, ParametersError> {
        Ok(count(&apply(self.init_unseeded(&Device::flex()), weights)?))
    }

    fn readme(bundle: &ModelMetadata<Self>, name: &str, checkpoint: &Checkpoint, parameters: u64) -> String {
        let state = &checkpoint.state;
        let percent = |score: f64| format!("{:.2} %", score * 100.0);
        let score = match (state.best, state.best_step) {
            (Some(best), Some(step)) if step == state.step => {
                format!("character error rate {} on the held-out utterances of its run", percent(best))
            }
            (Some(best), Some(step)) => {
                format!("not the best of its run, which was {} after step {step}", percent(best))
            }
            _ => "not validated".into(),
        };
        let model = &bundle.model;
        let decoder = match &model.decoder {
            Some(decoder) => format!("an attention decoder of {} blocks", decoder.layers),
            None => "no attention decoder".into(),
        };
        format!(
            "\
# {name}

A speech recogniser, exported by Plimsoll {version}: a Conformer of {layers} blocks, {width} wide, with CTC and {decoder}.

{facts}
`cargo xtask transcribe FILE.wav --run FOLDER` reads with this folder as it does with a run's.

{LAYOUTS}{PARTS}",
            version = env!("CARGO_PKG_VERSION"),
            layers = model.layers,
            width = model.d_model,
            facts = facts(bundle, state.step, &score, parameters, model.vocabulary),
        )
    }
}

/// What the names of its parameters begin with.
const PARTS: &str = "\
## Parts

- `subsampling`: convolutions of stride 2 over time and frequency, then a linear layer; or `input`, a linear layer over every
  frame
- `blocks.N`: the Conformer blocks: half a feed-forward layer (`first`), `attention`, `convolution`, the other half
  (`second`), each behind its norm, and `norm_last` at the end
- `output`: the scores of CTC
- `decoder.embedding`, `decoder.blocks.N`, `decoder.norm`, `decoder.output`: the attention decoder, if there is one
";
