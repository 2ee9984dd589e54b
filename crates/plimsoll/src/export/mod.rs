//! `plimsoll export`: a trained model in a folder of its own, for other programs and for ours.

mod recogniser;
mod synthesiser;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use plimsoll_core::Bytes;
use plimsoll_speech::asr::RecognizerConfig;
use plimsoll_speech::tts::SynthesizerConfig;
use plimsoll_speech::{ModelFolder, ModelKind, ModelMetadata};
use plimsoll_tape::{NamedTensor, ParametersError};
use plimsoll_train::{Checkpoint, CheckpointSelection, CheckpointStore, write_weights};

use plimsoll_recipes::{Failure, FailureExt};

const VOCABULARY: &str = "vocabulary.json";
const README: &str = "README.md";

/// A kind of model that can be carried elsewhere.
trait Portable: ModelKind {
    /// How many parameters a model of these sizes has with `weights` in it: all of them, and no other.
    fn parameters(&self, weights: Vec<NamedTensor>) -> Result<u64, ParametersError>;

    /// The page that goes with the model called `name`.
    fn readme(bundle: &ModelMetadata<Self>, name: &str, checkpoint: &Checkpoint, parameters: u64) -> String
    where
        Self: Sized;
}

/// What `export` takes.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The run whose model is written.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// The folder to write it into.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Which checkpoint: that of the best score, or the newest.
    #[arg(long, value_parser = ["best", "newest"], default_value = "best")]
    pub(crate) step: String,
    /// The mean of several checkpoints instead, which is often better than any of them: last:N or best:N. A run keeps as
    /// many as training.keep_checkpoints and training.keep_best say.
    #[arg(long, value_name = "WHICH:N", conflicts_with = "step")]
    pub(crate) average: Option<PickArg>,
    /// Writes into the folder even if something is in it; files of the same names are replaced.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Checkpoints to average, as they are written: `last:5`, `best:3`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PickArg(pub(crate) CheckpointSelection);

impl std::str::FromStr for PickArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |count: &str| count.parse().ok().filter(|count| *count > 0);
        let pick = match text.split_once(':') {
            Some(("last", count)) => read(count).map(CheckpointSelection::Last),
            Some(("best", count)) => read(count).map(CheckpointSelection::Best),
            _ => None,
        };
        pick.map(Self).ok_or_else(|| "expected last:N or best:N, such as last:5".into())
    }
}

/// Writes the model that `args` ask for and says what was written.
pub(crate) fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    match ModelFolder(&args.run).kind().invalid()?.as_str() {
        SynthesizerConfig::KIND => write::<SynthesizerConfig>(args),
        _ => write::<RecognizerConfig>(args),
    }
}

fn write<M: Portable>(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let bundle = ModelMetadata::<M>::read(&args.run).invalid()?;
    let mut checkpoint = checkpoint(args)?;
    if let Some(mean) = checkpoint.ema.take() {
        checkpoint.weights = mean;
    }
    // Counted in a model: whoever reads the folder finds every parameter there, and no other.
    let parameters = bundle.model.parameters(checkpoint.weights.clone()).invalid()?;
    let name = args.run.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let readme = M::readme(&bundle, &name.unwrap_or_else(|| "model".into()), &checkpoint, parameters);
    prepare(&args.out, args.force)?;
    let weights = ModelFolder(&args.out).exported_weights();
    write_weights(&weights, &checkpoint.weights).failed()?;
    let vocabulary = args.out.join(VOCABULARY);
    let tokens = serde_json::to_string_pretty(&bundle.tokenizer.names()).expect("texts are plain data");
    fs::write(&vocabulary, tokens + "\n").failed()?;
    let about = args.out.join(README);
    fs::write(&about, readme).failed()?;
    let mut written = vec![weights, ModelFolder(&args.out).metadata_file(), vocabulary, about];
    let (voice, own) = (ModelFolder(&args.run).default_voice(), ModelFolder(&args.out).default_voice());
    if voice.is_file() {
        fs::copy(&voice, &own).failed()?;
        written.push(own);
    }
    // Last, because this is the file by which a folder counts as a model.
    bundle.write(&args.out).failed()?;
    for file in written {
        println!("{}  {}", file.display(), Bytes(fs::metadata(&file).failed()?.len()));
    }
    Ok(ExitCode::SUCCESS)
}

fn checkpoint(args: &ExportArgs) -> Result<Checkpoint, Failure> {
    let store = CheckpointStore::new(ModelFolder(&args.run).checkpoints(), 1);
    if let Some(pick) = args.average {
        let (mut newest, _) = store.newest().invalid()?;
        let (weights, steps) = store.average(pick.0).invalid()?;
        eprintln!("the mean of the checkpoints of steps {}", listed(&steps));
        (newest.weights, newest.ema) = (weights, None);
        return Ok(newest);
    }
    if args.step != "newest" {
        return store.best().invalid();
    }
    let (checkpoint, damaged) = store.newest().invalid()?;
    for error in damaged {
        eprintln!("warning: {error}; using the checkpoint before it");
    }
    Ok(checkpoint)
}

fn listed(steps: &[u64]) -> String {
    let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
    steps.join(", ")
}

/// Makes the folder, or finds it empty; with `force` whatever is in it.
fn prepare(out: &Path, force: bool) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        let message = format!("cannot make the folder {}: {error}", out.display());
        Failure::invalid(message, "`--out` takes a folder, which may be a new one")
    };
    fs::create_dir_all(out).map_err(cannot)?;
    if !force && fs::read_dir(out).map_err(cannot)?.next().is_some() {
        let message = format!("{} is not empty", out.display());
        return Err(Failure::invalid(message, "choose another --out, or write into it all the same: --force"));
    }
    Ok(())
}

/// What is said of every model: its size, what came of it, what goes in and out.
fn facts<M>(bundle: &ModelMetadata<M>, step: u64, score: &str, parameters: u64, vocabulary: usize) -> String {
    let (features, known) = (&bundle.features, bundle.tokenizer.size());
    let (rate, mels, hop) = (features.sample_rate, features.n_mels, features.hop_length);
    format!(
        "\
- parameters: {parameters}
- training step: {step}
- score: {score}
- sound: {rate} samples a second, {mels} mel bands every {hop} samples
- tokens: {vocabulary}, of which {known} are in use
"
    )
}

/// The part of a README that is the same for every model.
const LAYOUTS: &str = "\
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
