//! The README of an exported synthesizer, and the check of its weights.

use plimsoll_core::counted;
use plimsoll_speech::ModelMetadata;
use plimsoll_speech::tts::{ParallelConfig, SynthesizerConfig};
use plimsoll_tape::{NamedTensor, ParametersError, check_shapes, count, on_capture_device};
use plimsoll_train::Checkpoint;

use super::{Exportable, LAYOUTS, facts};

impl Exportable for SynthesizerConfig {
    fn parameters(&self, weights: &[NamedTensor]) -> Result<u64, ParametersError> {
        on_capture_device(|device| {
            let model = self.init_unseeded(device);
            check_shapes(&model, weights)?;
            Ok(count(&model))
        })
    }

    fn readme(metadata: &ModelMetadata<Self>, name: &str, checkpoint: &Checkpoint, parameters: u64) -> String {
        let (model, state) = (&metadata.model, &checkpoint.state);
        let score = score(checkpoint);
        format!(
            "\
# {name}

A speech synthesizer, exported by Plimsoll {version}: a text encoder with {text_layers} of width {text_dim}, and a
decoder with {decoder_layers} of width {decoder_dim} that predicts {reduction} per step.

{facts}
Use it like a run: `plimsoll say \"TEXT\" --run FOLDER --out said.wav`.

{LAYOUTS}{PARTS}",
            version = env!("CARGO_PKG_VERSION"),
            text_layers = counted(model.text_layers, "block"),
            text_dim = model.text_dim,
            decoder_layers = counted(model.decoder_layers, "block"),
            decoder_dim = model.decoder_dim,
            reduction = counted(model.reduction, "frame"),
            facts = facts(metadata, state.step, &score, parameters, model.vocabulary),
        )
    }
}

impl Exportable for ParallelConfig {
    fn parameters(&self, weights: &[NamedTensor]) -> Result<u64, ParametersError> {
        on_capture_device(|device| {
            let model = self.init_unseeded(device);
            check_shapes(&model, weights)?;
            Ok(count(&model))
        })
    }

    fn readme(metadata: &ModelMetadata<Self>, name: &str, checkpoint: &Checkpoint, parameters: u64) -> String {
        let model = &metadata.model;
        format!(
            "\
# {name}

A parallel speech synthesizer, exported by Plimsoll {version}: a text encoder with {text_layers} of width {text_dim}, a
predictor of durations, and a frame decoder with {decoder_layers} of width {decoder_dim}.

{facts}
Use it like a run: `plimsoll say \"TEXT\" --run FOLDER --out said.wav`.

{LAYOUTS}{PARALLEL_PARTS}",
            version = env!("CARGO_PKG_VERSION"),
            text_layers = counted(model.text_layers, "block"),
            text_dim = model.text_dim,
            decoder_layers = counted(model.decoder_layers, "block"),
            decoder_dim = model.decoder_dim,
            facts = facts(metadata, checkpoint.state.step, &score(checkpoint), parameters, model.vocabulary),
        )
    }
}

/// Describes the score of a checkpoint.
fn score(checkpoint: &Checkpoint) -> String {
    let state = &checkpoint.state;
    match (state.best, state.best_step) {
        (Some(best), Some(step)) if step == state.step => {
            format!(
                "{best:.4}, the distance of its speech from the true log-mels on the held-out utterances of its run"
            )
        }
        (Some(best), Some(step)) => format!("not the best of its run; the best was {best:.4} after step {step}"),
        _ => "not validated".into(),
    }
}

/// Parts of a parallel synthesizer, by the beginnings of parameter names, for its README.
const PARALLEL_PARTS: &str = "\
## Parts

- `embedding`, `text_blocks.N`, `text_norm`: the text encoder; a start token goes before each text
- `voice.encoder`, `voice.speaker`, `voice.style`, `voice_to_text`: the reference voice, which is added to each token
- `voice_links`: the voice on its way to durations and prosody, and as scale and shift of the input of each block of the frame decoder, in a
  model of many voices
- `prior`: the log-mels that a token expects, from which the alignment was learned
- `duration_block`, `duration`: the logarithm of the frames of each token
- `prosody`: pitch, energy and learned values of each token, found in recordings and predicted from the text
- `text_to_frames`, `place_to_frames`: a token at each of its frames, and the place of the frame in the token
- `frame_blocks.N`, `frame_norm`, `output`: the frame decoder

`voice.wav` is a recording of the default voice.

Log-mels are scaled by `normalization` of `model.json`: the model computes with `(x - centre) / spread`.
";

/// Parts of an autoregressive synthesizer, by the beginnings of parameter names, for its README.
const PARTS: &str = "\
## Parts

- `text.embedding`, `text.blocks.N`, `text.norm`: the text encoder
- `voice.encoder`, `voice.speaker`, `voice.style`: the encoder of the reference voice, and style tokens if there are any
- `decoder.prenet`, `decoder.input`, `decoder.condition`: layers that bring the last frame and the voice into the decoder
- `decoder.blocks.N`, `decoder.norm`: the decoder; `cross` is attention over the text
- `decoder.frames`, `decoder.stop`: the frames of a step, and the score that it is the last
- `postnet.layers.N`, `postnet.norms.N`: the correction of the frames, if there is one

`voice.wav` is a recording of the default voice.

Log-mels are scaled by `scale` of `model.json`: the model computes with `(x - centre) / spread`.
";
