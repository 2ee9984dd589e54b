//! Writes a trained vocoder, without the discriminators that trained it.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use plimsoll_core::counted;
use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_speech::ModelFolder;
use plimsoll_speech::vocoder::{VocoderConfig, VocoderMetadata, vocoder_weights};
use plimsoll_tape::{check_shapes, count, on_capture_device};
use plimsoll_train::{Checkpoint, write_weights};

use super::{DraftFolder, ExportArgs, README, checkpoint, name, publish, warn};

/// Writes the vocoder of a run.
pub(super) fn write(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let metadata = described(&args.run)?;
    let mut checkpoint = checkpoint(args)?;
    checkpoint.weights = vocoder_weights(checkpoint.weights);
    let config = &metadata.model.vocoder;
    let parameters = on_capture_device(|device| {
        let vocoder = config.init_unseeded(device);
        check_shapes(&vocoder, &checkpoint.weights).map(|()| count(&vocoder))
    });
    let readme = readme(config, &name(args), &checkpoint, parameters.invalid()?);
    let draft = DraftFolder::create(&args.out, args.force)?;
    let folder = draft.path.as_path();
    write_weights(&ModelFolder(folder).exported_weights(), &checkpoint.weights).failed()?;
    fs::write(folder.join(README), readme).failed()?;
    metadata.write(folder).failed()?;
    publish(draft, &args.out)
}

/// Reads the description of the vocoder in `folder`, for an export, which has no checkpoints that belong to a run.
fn described(folder: &Path) -> Result<VocoderMetadata, Failure> {
    let mut metadata = VocoderMetadata::read(folder).invalid()?;
    (metadata.run, metadata.lora_scale) = (None, None);
    Ok(metadata)
}

/// Copies the vocoder in the folder `from` to the folder `to`, which is made; nothing if `from` has none.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    if !ModelFolder(from).metadata_file().exists() {
        return Ok(());
    }
    if !ModelFolder(from).has_weights() {
        warn(&format!("the vocoder in {} has no weights yet: the model goes without", from.display()));
        return Ok(());
    }
    let metadata = described(from)?;
    let (weights, warnings) = ModelFolder(from).weights().invalid()?;
    warnings.iter().for_each(|text| warn(text));
    let weights = vocoder_weights(weights);
    fs::create_dir(to).failed()?;
    write_weights(&ModelFolder(to).exported_weights(), &weights).failed()?;
    metadata.write(to).failed()
}

fn readme(config: &VocoderConfig, name: &str, checkpoint: &Checkpoint, parameters: u64) -> String {
    let (state, features) = (&checkpoint.state, &config.features);
    let score = match (state.best, state.best_step) {
        (Some(best), Some(step)) if step == state.step => {
            format!("{best:.4} nats from the log-mels of held-out recordings")
        }
        (Some(best), Some(step)) => format!("not the best of its run; the best was {best:.4} nats after step {step}"),
        _ => "not validated".into(),
    };
    format!(
        "\
# {name}

A vocoder, exported by Plimsoll {version}: {layers} of width {width} that turn log-mels into sound.

- parameters: {parameters}
- training step: {step}
- score: {score}
- audio: {rate} samples per second, {mels} mel bands every {hop} samples

Use it with a synthesizer of the same features: `plimsoll say \"TEXT\" --run SYNTHESIZER --vocoder FOLDER --out said.wav`. As the
folder `vocoder` in the folder of a synthesizer, it is used without `--vocoder`.

## Files

- `model.safetensors`: the weights, in fp32
- `model.json`: the sizes of the model and the settings of its features

## Parts

- `embedding`, `embedding_norm`: a convolution over the log-mels of neighboring frames, and its norm
- `blocks.N`: ConvNeXt blocks: a depthwise convolution, a norm, and two linear layers
- `norm`, `magnitude`, `phase`: the spectrum of each frame; an inverse Fourier transform makes sound of it
\n",
        version = env!("CARGO_PKG_VERSION"),
        layers = counted(config.layers, "block"),
        width = config.dim,
        step = state.step,
        rate = features.sample_rate,
        mels = features.n_mels,
        hop = features.hop_length,
    )
}
