//! Reads the utterances of a run, checks them, and divides them into training and validation.

mod selection;
mod source;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use plimsoll_audio::LogMel;
use plimsoll_core::{Bytes, Grid, Key};
use plimsoll_data::{Dataset, SplitBy, Store, StoreConfig, StorePrecision, Utterance, hold_out};
use plimsoll_monitor::host_memory;
use plimsoll_speech::tts::{LengthBounds, MelNormalization};
use plimsoll_text::Tokenizer;

use crate::config::{BackendChoice, DataConfig, RunConfig, Task};
use crate::corpus;
use crate::error::{Failure, FailureExt};
use crate::invocation::command;
use crate::mapping;
use crate::reporter::{Level, Reporter};
use crate::texts::tokenizer;
use selection::select;

pub use selection::{CtcFrames, limits, report_flaws};

/// Maximum number of training utterances that [`PreparedData::mel_normalization`] reads.
const SCALE_UTTERANCES: usize = 200;

/// Number of utterances that are not used, by reason.
type LeftOut = BTreeMap<&'static str, usize>;

/// The data of a run: utterances with their tokenizer, ready to be loaded.
pub struct PreparedData {
    /// Training utterances of the run.
    pub training: Arc<Dataset>,
    /// Validation utterances of the run, shortest first.
    pub validation: Arc<Dataset>,
    /// Reference text of each validation utterance, by its id.
    pub validation_texts: HashMap<String, String>,
    /// Lengths that batches are padded to.
    pub grid: Grid,
    /// The tokenizer of the texts.
    pub tokenizer: Tokenizer,
    /// Method by which validation utterances were chosen: `voices`, `utterances` or `another manifest`.
    pub held_out: &'static str,
    /// Number of utterances that are not used, by reason.
    pub left_out: LeftOut,
}

/// Reads the utterances of `config`, and divides them into training and validation. Makes the built-in corpus first if
/// `config` names no manifest and it does not exist.
///
/// # Errors
/// If a manifest, the tokenizer file or the feature store cannot be read, if too many utterances cannot be used or none
/// is left, if the settings of features or tokenizer are impossible, or if the utterances cannot be divided.
pub fn prepare(config: &RunConfig, reporter: &dyn Reporter) -> Result<PreparedData, Failure> {
    let data = &config.data;
    let manifest = match &data.manifest {
        Some(path) => path.clone(),
        None => corpus::make_built_in(data, reporter)?,
    };
    let features = mapping::features(&config.features);
    let log_mel = LogMel::new(&features).invalid()?;
    let (selection, mut left_out) = select(&manifest, config, &log_mel, reporter)?;
    let (training, validation, held_out) = match &data.validation_manifest {
        Some(path) => {
            let (validation, more) = select(path, config, &log_mel, reporter)?;
            for (reason, count) in more {
                *left_out.entry(reason).or_default() += count;
            }
            (selection.kept, validation.kept, "another manifest")
        }
        None => {
            let key = Key::new(config.seed).with("hold out");
            let split = hold_out(&selection.kept, data.validation_share, key).invalid()?;
            let by = match split.by {
                SplitBy::Speaker => "voices",
                SplitBy::Utterance => "utterances",
            };
            (split.train, split.validation, by)
        }
    };
    let tokenizer = tokenizer(config, &training)?;
    let texts = validation.iter().map(|utterance| (utterance.id.clone(), utterance.text.clone())).collect();
    let store = store(data)?;
    let [training_cache, validation_cache] = cache_shares(config);
    let dataset = |utterances, augment, cache| {
        let dataset = Dataset::new(utterances, log_mel.clone(), tokenizer.clone()).with_memory_cache(cache);
        let dataset = match augment {
            Some(augment) => dataset.with_augment(augment).invalid()?,
            None => dataset,
        };
        let dataset = match &store {
            Some(store) => dataset.with_store(store.clone()),
            None => dataset,
        };
        let dataset = match config.task {
            Task::Asr => dataset,
            Task::Tts => dataset.for_synthesis(mapping::reference_frames(config)),
        };
        Ok::<_, Failure>(dataset)
    };
    let training = dataset(training, mapping::augment(config), training_cache)?;
    let validation = dataset(by_length(validation), None, validation_cache)?;
    if validation.unknown_characters() > 0 {
        let count = validation.unknown_characters();
        reporter.line(
            Level::Warning,
            &format!(
                "{count} characters of the validation texts are in no training text, so no model can get them right"
            ),
        );
    }
    Ok(PreparedData {
        grid: mapping::batching(data).grid(&training.metas()),
        training: Arc::new(training),
        validation: Arc::new(validation),
        validation_texts: texts,
        tokenizer: tokenizer.clone(),
        held_out,
        left_out,
    })
}

/// Share of a CPU memory budget that cached features may take. Cached features only save time; steps need the memory.
const CACHE_SHARE: f64 = 0.25;
/// Share of the feature cache that is for validation utterances.
const VALIDATION_SHARE: f64 = 0.2;

/// Computes the memory for cached features: of training utterances, and of validation utterances.
pub(crate) fn cache_shares(config: &RunConfig) -> [Bytes; 2] {
    let is_host = match config.device.backend {
        BackendChoice::Cpu => true,
        BackendChoice::Auto => !cfg!(feature = "cuda"),
        BackendChoice::Cuda | BackendChoice::Wgpu => false,
    };
    let budget = mapping::budget(&config.training, host_memory());
    let Some(budget) = budget.filter(|_| is_host) else { return [config.data.cache_memory; 2] };
    let most = config.data.cache_memory.min(Bytes((budget.0 as f64 * CACHE_SHARE) as u64));
    let held_out = (most.0 as f64 * VALIDATION_SHARE) as u64;
    [Bytes(most.0 - held_out), Bytes(held_out)]
}

/// Opens the feature store on disk, if `data.cache_dir` names its folder.
///
/// # Errors
/// If the folder cannot be made or read.
pub fn store(data: &DataConfig) -> Result<Option<Arc<Store>>, Failure> {
    let precision = if data.cache_half { StorePrecision::F16 } else { StorePrecision::F32 };
    let config = StoreConfig { limit: data.cache_size, precision };
    let open = |folder| Store::open(folder, &config).map(Arc::new).invalid();
    data.cache_dir.as_ref().map(open).transpose()
}

/// Sorts utterances by duration. Evaluation keeps the order of its data, and batches of similar lengths need little
/// padding.
fn by_length(mut utterances: Vec<Utterance>) -> Vec<Utterance> {
    utterances.sort_by(|a, b| a.duration.0.total_cmp(&b.duration.0));
    utterances
}

impl PreparedData {
    /// Computes mean and standard deviation of the log-mel features, from up to 200 training utterances. Utterances
    /// that cannot be read are skipped.
    ///
    /// # Errors
    /// If none of these utterances can be read.
    pub fn mel_normalization(&self) -> Result<MelNormalization, Failure> {
        let all = self.training.len();
        // Evenly spaced over the list: a few hundred utterances give the same numbers as thousands.
        let step = all.div_ceil(SCALE_UTTERANCES).max(1);
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for index in (0..all).step_by(step) {
            // Training reports the files that cannot be read.
            let Ok(sample) = self.training.load(index, None) else { continue };
            for value in sample.features.into_iter().map(f64::from) {
                count += 1.0;
                sum += value;
                squares += value * value;
            }
        }
        if count == 0.0 {
            let message = "none of the training utterances that were tried can be read";
            return Err(Failure::invalid(
                message,
                format!("`{}` names the reason for each file", command("data check")),
            ));
        }
        let mean: f64 = sum / count;
        let spread = (squares / count - mean * mean).max(0.0).sqrt().max(1e-3);
        Ok(MelNormalization { mean: mean as f32, std: spread as f32 })
    }

    /// Computes limits on the length of synthesized speech: the range of frames per token in the training utterances,
    /// and the number of tokens of the longest training utterance.
    pub fn length_bounds(&self) -> LengthBounds {
        let metas = self.training.metas();
        let ratios = metas.iter().map(|meta| f64::from(meta.frames.0) / f64::from(meta.tokens.max(1)));
        let longest = metas.iter().map(|meta| meta.tokens as usize).max().unwrap_or(1);
        let (fewest, most) =
            ratios.fold((f64::INFINITY, 0.0), |(least, most), r| (f64::min(least, r), f64::max(most, r)));
        LengthBounds {
            frames_per_token_min: if fewest.is_finite() { fewest } else { 0.0 },
            frames_per_token_max: most,
            tokens_max: longest,
        }
    }
}
