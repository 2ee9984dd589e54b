//! A synthesiser that is carried elsewhere.

use burn::tensor::Device;
use plimsoll_speech::ModelMetadata;
use plimsoll_speech::tts::SynthesizerConfig;
use plimsoll_tape::{NamedTensor, ParametersError, apply, count};
use plimsoll_train::Checkpoint;

use super::{LAYOUTS, Portable, facts};

impl Portable for SynthesizerConfig {
    fn parameters(&self, weights: Vec<NamedTensor>) -> Result<u64, ParametersError> {
        Ok(count(&apply(self.init_unseeded(&Device::flex()), weights)?))
    }

    fn readme(bundle: &ModelMetadata<Self>, name: &str, checkpoint: &Checkpoint, parameters: u64) -> String {
        let (model, state) = (&bundle.model, &checkpoint.state);
        let score = match (state.best, state.best_step) {
            (Some(best), Some(step)) if step == state.step => {
                format!("{best:.4}, the distance of free speech from the truth on held-out utterances of its run")
            }
            (Some(best), Some(step)) => format!("not the best of its run, which was {best:.4} after step {step}"),
            _ => "not validated".into(),
        };
        format!(
            "\
# {name}

A synthesiser, exported by Plimsoll {version}: a text encoder of {text_layers} blocks, {text_dim} wide, and a decoder of
{decoder_layers} blocks, {decoder_dim} wide, which says {reduction} frames a step.

{facts}
`cargo xtask say \"TEXT\" --run FOLDER --out said.wav` speaks with this folder as it does with a run's.

{LAYOUTS}{PARTS}",
            version = env!("CARGO_PKG_VERSION"),
            text_layers = model.text_layers,
            text_dim = model.text_dim,
            decoder_layers = model.decoder_layers,
            decoder_dim = model.decoder_dim,
            reduction = model.reduction,
            facts = facts(bundle, state.step, &score, parameters, model.vocabulary),
        )
    }
}

/// What the names of its parameters begin with.
const PARTS: &str = "\
## Parts

- `text.embedding`, `text.blocks.N`, `text.norm`: the text encoder
- `voice.encoder`, `voice.speaker`, `voice.style`: what is heard of a reference, and styles if there are any
- `decoder.prenet`, `decoder.input`, `decoder.condition`: the last frame, and the voice, on their way into the decoder
- `decoder.blocks.N`, `decoder.norm`: the decoder; `cross` looks at the text
- `decoder.frames`, `decoder.stop`: the frames of a step, and the odds that it is the last
- `postnet.layers.N`, `postnet.norms.N`: the correction of the frames, if there is one

`voice.wav` is a recording of the voice that it speaks in where no other is named.

Log-mels enter and leave by `scale` of `model.json`: the model computes with `(x - centre) / spread`.
";
