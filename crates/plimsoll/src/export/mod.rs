//! `plimsoll export`: writes a trained model into a folder that can be used without its run.

mod recognizer;
mod synthesizer;
mod vocoder;
mod whisper;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use plimsoll_core::{Bytes, Draft, counted, error_chain};
use plimsoll_speech::asr::RecognizerConfig;
use plimsoll_speech::tts::{ParallelConfig, SynthesizerConfig};
use plimsoll_speech::vocoder::VocoderMetadata;
use plimsoll_speech::whisper::WhisperConfig;
use plimsoll_speech::{ModelFolder, ModelKind, ModelMetadata};
use plimsoll_tape::{NamedTensor, ParametersError};
use plimsoll_train::{Checkpoint, CheckpointSelection, write_weights};

use plimsoll_recipes::families::family_of;
use plimsoll_recipes::language::{CORPUS_MODEL, CORPUS_SPELLING, TUNED_SEARCH};
use plimsoll_recipes::reporter::{Level, Reporter};
use plimsoll_recipes::{Failure, FailureExt};

use crate::backend_flag::BackendFlag;
use crate::run_flag::ModelArg;
use crate::terminal::Terminal;

/// Name of the file that lists the tokens.
const VOCABULARY: &str = "vocabulary.json";
/// Name of the page that describes the model.
const README: &str = "README.md";

/// A kind of model that can be exported.
trait Exportable: ModelKind {
    /// Loads `weights` into a model with this configuration and counts its parameters. Fails if a parameter is missing
    /// or unknown.
    fn parameters(&self, weights: &[NamedTensor]) -> Result<u64, ParametersError>;

    /// Formats the README of the exported model with the name `name`.
    fn readme(metadata: &ModelMetadata<Self>, name: &str, checkpoint: &Checkpoint, parameters: u64) -> String
    where
        Self: Sized;
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The run whose model is exported.
    #[command(flatten)]
    pub(crate) run: ModelArg,
    /// Output folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Checkpoint to export: `best` (the best validation score) or `newest`.
    #[arg(long, value_parser = ["best", "newest"], default_value = "best")]
    pub(crate) step: String,
    /// Export the mean of N checkpoints instead: last:N or best:N. It is often better than each of them. A run keeps
    /// `training.keep_checkpoints` newest and `training.keep_best` best checkpoints.
    #[arg(long, value_name = "WHICH:N", conflicts_with = "step")]
    pub(crate) average: Option<PickArg>,
    /// Write into a folder that is not empty; files of the same names are replaced.
    #[arg(long)]
    pub(crate) force: bool,
    /// Accepted everywhere.
    #[command(flatten)]
    pub(crate) _backend: BackendFlag,
}

/// Selection of the checkpoints to average, as the flag names it: `last:5` or `best:3`.
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

/// Exports the model of a run and prints the files.
pub(crate) fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let run = ModelFolder(&args.run);
    if run.exported_weights().is_file() && !run.checkpoints().exists() {
        let message = format!("{} is an exported model already", args.run.display());
        return Err(Failure::invalid(message, "copy the folder, or give the run that it came from"));
    }
    match family_of(run)?.kind() {
        SynthesizerConfig::KIND => write::<SynthesizerConfig>(args),
        ParallelConfig::KIND => write::<ParallelConfig>(args),
        VocoderMetadata::KIND => vocoder::write(args),
        WhisperConfig::KIND => whisper::write(args),
        _ => write::<RecognizerConfig>(args),
    }
}

fn write<M: Exportable>(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let mut metadata = ModelMetadata::<M>::read(&args.run).invalid()?;
    // An exported model has no checkpoints that belong to a run, and its adapters are merged.
    (metadata.run, metadata.lora_scale) = (None, None);
    let checkpoint = checkpoint(args)?;
    // Loading them into a model checks that the folder will hold every parameter and no other.
    let parameters = metadata.model.parameters(&checkpoint.weights).invalid()?;
    let readme = M::readme(&metadata, &name(args), &checkpoint, parameters);
    let draft = DraftFolder::create(&args.out, args.force)?;
    let folder = draft.path.as_path();
    write_weights(&ModelFolder(folder).exported_weights(), &checkpoint.weights).failed()?;
    let tokens = serde_json::to_string_pretty(&metadata.tokenizer.names()).expect("texts are plain data");
    fs::write(folder.join(VOCABULARY), tokens + "\n").failed()?;
    fs::write(folder.join(README), readme).failed()?;
    // The voice of a synthesizer, and the language model of a recognizer's training texts.
    let voice = ModelFolder(folder).default_voice();
    for (from, to) in [
        (ModelFolder(&args.run).default_voice(), voice),
        (args.run.join(CORPUS_MODEL), folder.join(CORPUS_MODEL)),
        (args.run.join(CORPUS_SPELLING), folder.join(CORPUS_SPELLING)),
        (args.run.join(TUNED_SEARCH), folder.join(TUNED_SEARCH)),
    ] {
        if from.is_file() {
            fs::copy(&from, to).failed()?;
        }
    }
    vocoder::copy(&ModelFolder(&args.run).vocoder(), &ModelFolder(folder).vocoder())?;
    metadata.write(folder).failed()?;
    publish(draft, &args.out)
}

/// Moves the files of `draft` to the folder `out` and prints them.
fn publish(draft: DraftFolder, out: &Path) -> Result<ExitCode, Failure> {
    for path in draft.finish(&ModelFolder(out).metadata_file()).failed()? {
        let is_folder = path.is_dir();
        let files = if is_folder { entries(&path).failed()? } else { vec![path] };
        for file in files {
            println!("{}  {}", file.display(), Bytes(fs::metadata(&file).failed()?.len()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the paths in `folder`, by name.
fn entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Returns the name of the run, which its exported model keeps.
fn name(args: &ExportArgs) -> String {
    let name = args.run.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| "model".into())
}

/// Returns the checkpoint that `args` choose, or the mean of several checkpoints. Its weights are those for use: the moving
/// average, if it has one.
fn checkpoint(args: &ExportArgs) -> Result<Checkpoint, Failure> {
    let mut checkpoint = read_checkpoint(args)?;
    if let Some(mean) = checkpoint.ema.take() {
        checkpoint.weights = mean;
    }
    checkpoint.weights = ModelFolder(&args.run).merged(checkpoint.weights).invalid()?;
    Ok(checkpoint)
}

/// Reads the checkpoint that `args` choose, or computes the mean of several checkpoints.
fn read_checkpoint(args: &ExportArgs) -> Result<Checkpoint, Failure> {
    let store = ModelFolder(&args.run).checkpoint_store().invalid()?;
    if let Some(pick) = args.average {
        let (mut newest, damaged) = store.newest().invalid()?;
        damaged.iter().for_each(|error| warn(&format!("{}; its scores are not known", error_chain(error))));
        let (weights, steps) = store.average(pick.0).invalid()?;
        let (CheckpointSelection::Last(asked) | CheckpointSelection::Best(asked)) = pick.0;
        if steps.len() < asked {
            let message = format!("the run has {}, and not {asked}", counted(steps.len(), "checkpoint to average"));
            let help = "average fewer; `training.keep_checkpoints` and `training.keep_best` say how many a run keeps";
            return Err(Failure::invalid(message, help));
        }
        eprintln!("the mean of the checkpoints of steps {}", listed(&steps));
        (newest.weights, newest.ema) = (weights, None);
        return Ok(newest);
    }
    if args.step != "newest" {
        let (best, doubts) = store.best().invalid()?;
        doubts.iter().for_each(|doubt| warn(&error_chain(doubt)));
        return Ok(best);
    }
    let (checkpoint, damaged) = store.newest().invalid()?;
    for error in damaged {
        warn(&format!("{}; using the checkpoint before it", error_chain(&error)));
    }
    Ok(checkpoint)
}

fn warn(text: &str) {
    Terminal.line(Level::Warning, text);
}

fn listed(steps: &[u64]) -> String {
    let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
    steps.join(", ")
}

/// Creates the folder `out` if it is missing. Fails if it is not empty, unless `force` is set.
fn prepare(out: &Path, force: bool) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        let message = format!("cannot make the folder {}: {error}", out.display());
        Failure::invalid(message, "`--out` takes a folder, which may be a new one")
    };
    fs::create_dir_all(out).map_err(cannot)?;
    if !force && fs::read_dir(out).map_err(cannot)?.next().is_some() {
        let message = format!("{} is not empty", out.display());
        return Err(Failure::invalid(message, "choose another --out, or write into it anyway: --force"));
    }
    Ok(())
}

/// A folder in the output folder, in which the files are written before they are moved to their places. It is removed
/// when dropped, with the folders that were made for it.
struct DraftFolder {
    path: PathBuf,
    /// Removes the folder at `path`. Always there, except while this value is dropped.
    draft: Option<Draft>,
    out: PathBuf,
    /// Folders that did not exist before, the innermost first.
    made: Vec<PathBuf>,
}

impl DraftFolder {
    /// Creates the output folder and the draft in it. Fails if the output folder is not empty, unless `force` is set.
    fn create(out: &Path, force: bool) -> Result<Self, Failure> {
        let made = out.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let made = made.map(Path::to_path_buf).collect();
        prepare(out, force)?;
        let path = out.join(format!(".export-{}.partial", std::process::id()));
        let draft = Self { draft: Some(Draft::of(&path)), path, out: out.into(), made };
        fs::create_dir_all(&draft.path).failed()?;
        Ok(draft)
    }

    /// Moves the files to their places, `last` after all others, and returns their paths.
    fn finish(mut self, last: &Path) -> std::io::Result<Vec<PathBuf>> {
        let drafts = entries(&self.path)?;
        let place = |draft: &PathBuf| self.out.join(draft.file_name().expect("it comes from a listing"));
        let mut files: Vec<PathBuf> = drafts.iter().map(place).collect();
        // A folder with this file counts as a complete model.
        files.sort_by_key(|file| (file == last, file.clone()));
        self.made.clear();
        for file in &files {
            if file.is_dir() {
                // A folder cannot be replaced as a file can.
                fs::remove_dir_all(file)?;
            }
            fs::rename(self.path.join(file.file_name().expect("it comes from a listing")), file)?;
        }
        Ok(files)
    }
}

impl Drop for DraftFolder {
    fn drop(&mut self) {
        // Before the folders around it.
        drop(self.draft.take());
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Lists the facts of every kind of model for its README: size, training, score, audio and tokens.
fn facts<M>(metadata: &ModelMetadata<M>, step: u64, score: &str, parameters: u64, vocabulary: usize) -> String {
    let (features, known) = (&metadata.features, metadata.tokenizer.size());
    let (rate, mels, hop) = (features.sample_rate, features.n_mels, features.hop_length);
    format!(
        "\
- parameters: {parameters}
- training step: {step}
- score: {score}
- audio: {rate} samples per second, {mels} mel bands every {hop} samples
- tokens: {vocabulary}, {known} of them in use
"
    )
}

/// Part of the README that is equal for every kind of model: the files in the folder, and the names and layouts of the
/// parameters.
const LAYOUTS: &str = "\
## Files

- `model.safetensors`: the weights, in fp32
- `model.json`: the sizes of the model and the settings of its features
- `vocabulary.json`: the text of each token, in the order of their ids; higher ids are not in use

## Names and layouts

The name of a parameter is its path of fields, such as `blocks.0.first.widen.weight`.

- The weight of a linear layer is `[in, out]`: the transpose of PyTorch's.
- Convolution kernels are as in PyTorch: `[out, in of the group, width]`, and `[out, in, height, width]` in the subsampling.
- An embedding is `[token, width]`.
- `gamma` and `beta` are the scale and the shift of a norm. `norm.mean` and `norm.variance` are the running statistics of a
  batch norm, if the model has one; they are not counted as parameters.
- `attention.project` computes queries, keys and values in this order, each with its heads in order; `cross.memory`
  computes keys and values in the same way.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_export_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let (out, names) = (folder.path().join("a/b"), |path: &Path| fs::read_dir(path).unwrap().count());
        let draft = DraftFolder::create(&out, false).unwrap();
        fs::write(draft.path.join("model.json"), "half").unwrap();
        drop(draft);
        assert_eq!(names(folder.path()), 0);
        fs::create_dir_all(&out).unwrap();
        fs::write(out.join("mine"), "").unwrap();
        let draft = DraftFolder::create(&out, true).unwrap();
        fs::write(draft.path.join("mine"), "new").unwrap();
        drop(draft);
        assert_eq!((names(&out), fs::read(out.join("mine")).unwrap().len()), (1, 0));
        let draft = DraftFolder::create(&out, true).unwrap();
        fs::write(draft.path.join("mine"), "new").unwrap();
        assert_eq!(draft.finish(&out.join("mine")).unwrap(), [out.join("mine")]);
        assert_eq!((names(&out), fs::read(out.join("mine")).unwrap().len()), (1, 3));
    }

    #[test]
    fn prepare_refuses_full_folder_without_force() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        assert!(prepare(&out, false).is_ok() && prepare(&out, false).is_ok());
        fs::write(out.join("mine"), "").unwrap();
        assert!(prepare(&out, false).is_err() && prepare(&out, true).is_ok());
        assert!(prepare(&out.join("mine"), true).is_err());
    }
}
