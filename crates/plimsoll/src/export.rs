//! `plimsoll export`: a trained recogniser in a folder of its own, for other programs and for ours.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use burn::tensor::Device;
use plimsoll_core::Bytes;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::asr::Bundle;
use plimsoll_tape::{apply, count};
use plimsoll_train::{Checkpoint, CheckpointStore, write_weights};

use crate::cli::ExportArgs;
use crate::failure::{Failure, Told};

const VOCABULARY: &str = "vocabulary.json";
const README: &str = "README.md";

/// Writes the model that `args` ask for and says what was written.
pub(crate) fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let bundle = Bundle::read(&args.run).wrong()?;
    let checkpoint = checkpoint(args)?;
    // Put into the model first: whoever reads the folder finds every parameter there, and no other.
    let model = apply(bundle.model.bare(&Device::flex()), checkpoint.weights.clone()).wrong()?;
    let readme = readme(&args.run, &bundle, &checkpoint, count(&model));
    prepare(&args.out, args.force)?;
    let weights = ModelFolder(&args.out).exported();
    write_weights(&weights, &checkpoint.weights).failed()?;
    let vocabulary = args.out.join(VOCABULARY);
    let tokens = serde_json::to_string_pretty(&bundle.tokenizer.names()).expect("texts are plain data");
    fs::write(&vocabulary, tokens + "\n").failed()?;
    let about = args.out.join(README);
    fs::write(&about, readme).failed()?;
    // Last, because this is the file by which a folder counts as a model.
    bundle.write(&args.out).failed()?;
    for file in [weights, ModelFolder(&args.out).description(), vocabulary, about] {
        println!("{}  {}", file.display(), Bytes(fs::metadata(&file).failed()?.len()));
    }
    Ok(ExitCode::SUCCESS)
}

fn checkpoint(args: &ExportArgs) -> Result<Checkpoint, Failure> {
    let store = CheckpointStore::new(ModelFolder(&args.run).checkpoints(), 1);
    if args.step != "newest" {
        return store.best().wrong();
    }
    let (checkpoint, damaged) = store.newest().wrong()?;
    for error in damaged {
        eprintln!("warning: {error}; using the checkpoint before it");
    }
    Ok(checkpoint)
}

/// Makes the folder, or finds it empty; with `force` whatever is in it.
fn prepare(out: &Path, force: bool) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        let message = format!("cannot make the folder {}: {error}", out.display());
        Failure::wrong(message, "`--out` takes a folder, which may be a new one")
    };
    fs::create_dir_all(out).map_err(cannot)?;
    if !force && fs::read_dir(out).map_err(cannot)?.next().is_some() {
        let message = format!("{} is not empty", out.display());
        return Err(Failure::wrong(message, "choose another --out, or write into it all the same: --force"));
    }
    Ok(())
}

fn readme(run: &Path, bundle: &Bundle, checkpoint: &Checkpoint, parameters: u64) -> String {
    let state = &checkpoint.state;
    let percent = |score: f64| format!("{:.2} %", score * 100.0);
    let score = match (state.best, state.best_step) {
        (Some(best), Some(step)) if step == state.step => {
            format!("character error rate {} on the held-out utterances of its run", percent(best))
        }
        (Some(best), Some(step)) => format!("not the best of its run, which was {} after step {step}", percent(best)),
        _ => "not validated".into(),
    };
    let (model, features) = (&bundle.model, &bundle.features);
    let decoder = match &model.decoder {
        Some(decoder) => format!("an attention decoder of {} blocks", decoder.layers),
        None => "no attention decoder".into(),
    };
    let name = run.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let name = name.unwrap_or_else(|| "model".into());
    format!(
        "\
# {name}

A speech recogniser, exported by Plimsoll {version}: a Conformer of {layers} blocks, {width} wide, with CTC and {decoder}.

- parameters: {parameters}
- training step: {step}
- score: {score}
- sound: {rate} samples a second, {mels} mel bands every {hop} samples
- tokens: {vocabulary}, of which {known} are in use

`cargo xtask transcribe FILE.wav --run FOLDER` reads with this folder as it does with a run's.

{FILES}",
        version = env!("CARGO_PKG_VERSION"),
        layers = model.layers,
        width = model.d_model,
        step = state.step,
        rate = features.sample_rate,
        mels = features.n_mels,
        hop = features.hop_length,
        vocabulary = model.vocabulary,
        known = bundle.tokenizer.size(),
    )
}

/// The part of the README that is the same for every model.
const FILES: &str = "\
## Files

- `model.safetensors`: the weights, all in fp32
- `model.json`: every size of the model, and every number of its features
- `vocabulary.json`: what each token stands for, at the place of its id; ids beyond the list are not in use

## Names and layouts

A name is the path of fields that leads to a parameter, such as `blocks.0.first.widen.weight`.

- The weight of a linear layer is `[in, out]`: PyTorch's, transposed.
- Kernels are PyTorch's: `[out, in of the group, width]`, and `[out, in, height, width]` in the subsampling.
- An embedding is `[token, width]`.
- `gamma` and `beta` are the scale and the shift of a norm. `norm.mean` and `norm.variance`, where they are, are the running
  statistics of a batch norm and are not counted as parameters.
- `attention.project` gives queries, keys and values side by side, each with one head after the other; `cross.memory` gives
  keys and values in the same way.

## Parts

- `subsampling`: convolutions of stride 2 over time and frequency, then a linear layer; or `input`, a linear layer over every
  frame
- `blocks.N`: the Conformer blocks: half a feed-forward layer (`first`), `attention`, `convolution`, the other half
  (`second`), each behind its norm, and `norm_last` at the end
- `output`: the scores of CTC
- `decoder.embedding`, `decoder.blocks.N`, `decoder.norm`, `decoder.output`: the attention decoder, if there is one
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_folder_is_filled_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        assert!(prepare(&out, false).is_ok() && prepare(&out, false).is_ok());
        fs::write(out.join("mine"), "").unwrap();
        assert!(prepare(&out, false).is_err() && prepare(&out, true).is_ok());
        assert!(prepare(&out.join("mine"), true).is_err());
    }
}
