//! The data of a run: read, checked and divided.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use plimsoll_audio::LogMel;
use plimsoll_core::{
    BatchSource, Bytes, DeliveredBatch, Grid, HostBatch, Key, Position, Seconds, Skipped, SourceError,
};
use plimsoll_data::{
    Dataset, Limits, LoadError, Loader, LoaderConfig, Manifest, Mode, Selection, Shard, SplitBy, Store, StoreConfig,
    StoreNumbers, TooLong, Utterance, hold_out,
};
use plimsoll_monitor::host_memory;
use plimsoll_speech::asr::RecognizerConfig;
use plimsoll_speech::tts::{LengthBounds, MelNormalization};
use plimsoll_text::Tokenizer;

use crate::config::{BackendChoice, DataConfig, RunConfig, Task, TooLongChoice};
use crate::corpus;
use crate::error::{Failure, FailureExt, error_chain};
use crate::mapping;
use crate::plan::RunPlan;
use crate::reporter::{Level, Reporter};
use crate::texts::{read_manifest, tokenizer};

/// Training utterances that say where the features lie.
const SCALE_UTTERANCES: usize = 200;

/// Utterances that are not used, by reason.
type LeftOut = BTreeMap<&'static str, usize>;

/// The utterances of a run, ready to be loaded.
pub struct Prepared {
    /// What is trained on.
    pub training: Arc<Dataset>,
    /// What is validated on.
    pub validation: Arc<Dataset>,
    /// The true texts of the validation, by name.
    pub validation_texts: HashMap<String, String>,
    /// What batches are padded to.
    pub grid: Grid,
    /// The letters.
    pub tokenizer: Tokenizer,
    /// How the validation was chosen.
    pub held_out: &'static str,
    /// Utterances left out, by reason.
    pub left_out: LeftOut,
}

/// Reads and divides the utterances that `config` names.
pub fn prepare(config: &RunConfig, reporter: &dyn Reporter) -> Result<Prepared, Failure> {
    let data = &config.data;
    let manifest = match &data.manifest {
        Some(path) => path.clone(),
        None => corpus::built_in(data, reporter)?,
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
    let texts = validation.iter().map(|u| (u.id.clone(), u.text.clone())).collect();
    let store = store(data)?;
    let [kept, kept_held_out] = cache_shares(config);
    let dataset = |utterances, augment, kept| {
        let dataset = Dataset::new(utterances, log_mel.clone(), tokenizer.clone(), augment, kept).invalid()?;
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
    let training = dataset(training, mapping::augment(config), kept)?;
    let validation = dataset(by_length(validation), None, kept_held_out)?;
    if validation.unknown_letters() > 0 {
        let count = validation.unknown_letters();
        reporter.line(
            Level::Warning,
            &format!("{count} letters of the held-out texts are in no training text, and can never be read right"),
        );
    }
    Ok(Prepared {
        grid: mapping::batching(data).grid(&training.metas()),
        training: Arc::new(training),
        validation: Arc::new(validation),
        validation_texts: texts,
        tokenizer: tokenizer.clone(),
        held_out,
        left_out,
    })
}

/// Share of a budget on the CPU that kept features may take: they save work, and steps need the memory.
const KEPT: f64 = 0.25;
/// Share of kept features that is for those of the validation.
const KEPT_HELD_OUT: f64 = 0.2;

/// The memory for features that are kept: those to train on, and those held out.
pub fn cache_shares(config: &RunConfig) -> [Bytes; 2] {
    let is_host = match config.device.backend {
        BackendChoice::Cpu => true,
        BackendChoice::Auto => !cfg!(feature = "cuda"),
        BackendChoice::Cuda | BackendChoice::Wgpu => false,
    };
    let share = |share: f64| Bytes((host_memory().0 as f64 * share) as u64);
    let budget = config.training.max_memory.or(config.training.max_memory_fraction.map(share));
    let Some(budget) = budget.filter(|_| is_host) else { return [config.data.cache_memory; 2] };
    let most = config.data.cache_memory.min(Bytes((budget.0 as f64 * KEPT) as u64));
    let held_out = (most.0 as f64 * KEPT_HELD_OUT) as u64;
    [Bytes(most.0 - held_out), Bytes(held_out)]
}

/// The features that are kept on disk, where `data` names a folder for them.
pub fn store(data: &DataConfig) -> Result<Option<Arc<Store>>, Failure> {
    let numbers = if data.cache_half { StoreNumbers::F16 } else { StoreNumbers::F32 };
    let config = StoreConfig { limit: data.cache_size, numbers };
    let open = |folder| Store::open(folder, &config).map(Arc::new).invalid();
    data.cache_dir.as_ref().map(open).transpose()
}

/// Says what of a corpus cannot be used, where that does not stop anything.
pub fn report_flaws(manifest: &Manifest, reporter: &dyn Reporter) {
    let flawed = manifest.flaws.len() + manifest.more_flaws;
    if let Some(first) = manifest.flaws.first() {
        let (path, all) = (manifest.path.display(), manifest.utterances.len() + flawed);
        reporter.line(
            Level::Warning,
            &format!("{flawed} of {all} utterances of {path} cannot be used (plimsoll data check {path} says which)\n  the first: {first}"),
        );
    }
}

/// Cuts utterances that are too long as `data` has it, and says which; one that cannot be read stays as it is.
fn fit_long(manifest: &mut Manifest, data: &DataConfig, reporter: &dyn Reporter) {
    let policy = match data.too_long {
        // Left out by the limits, which count it.
        TooLongChoice::Refuse => return,
        TooLongChoice::Split => TooLong::Split,
        TooLongChoice::Chunk => TooLong::Chunk,
        TooLongChoice::Truncate => TooLong::Truncate,
    };
    let (mut cut, mut parts, before) = (Vec::new(), 0, std::mem::take(&mut manifest.utterances));
    for utterance in before {
        if utterance.duration <= data.max_seconds {
            manifest.utterances.push(utterance);
            continue;
        }
        let fitted = match policy.fit(&utterance, data.max_seconds) {
            Ok(fitted) => fitted,
            Err(error) => {
                let reason = error_chain(&error);
                let text = format!("`{}` is too long and cannot be cut: {reason}", utterance.id);
                reporter.line(Level::Warning, &text);
                // The limits leave it out, and count it.
                manifest.utterances.push(utterance);
                continue;
            }
        };
        parts += fitted.len();
        cut.push(format!("{} ({})", utterance.id, utterance.duration));
        manifest.utterances.extend(fitted);
    }
    if !cut.is_empty() {
        let (count, policy, longest) = (cut.len(), data.too_long, data.max_seconds);
        reporter.line(
            Level::Note,
            &format!(
                "{count} utterances are longer than {longest}; by `{policy}` they became {parts}: {}",
                cut.join(", ")
            ),
        );
    }
}

/// How many frames of sound a CTC loss sees.
pub struct CtcFrames {
    model: RecognizerConfig,
    log_mel: LogMel,
}

impl CtcFrames {
    /// Those of the model that `config` describes.
    pub fn of(config: &RunConfig, log_mel: &LogMel) -> Self {
        Self { model: mapping::recogniser(config, log_mel.n_mels(), 1), log_mel: log_mel.clone() }
    }

    /// After all subsampling.
    pub fn after(&self, length: Seconds) -> u64 {
        u64::from(self.model.frames_after(self.log_mel.frames_in(length).0))
    }
}

/// What an utterance must be for a run of `config`.
pub fn limits<'a>(config: &RunConfig, output_frames: &'a dyn Fn(Seconds) -> u64) -> Limits<'a> {
    Limits {
        shortest: config.data.min_seconds,
        longest: config.data.max_seconds,
        // Only a recogniser learns by CTC.
        output_frames: (config.task == Task::Asr).then_some(output_frames),
        longest_text: config.data.max_text_length.map(|longest| longest as usize),
    }
}

/// The usable utterances of the corpus at `path`, and how many are not, by reason.
fn select(
    path: &Path,
    config: &RunConfig,
    log_mel: &LogMel,
    reporter: &dyn Reporter,
) -> Result<(Selection, LeftOut), Failure> {
    let mut manifest = read_manifest(path, &config.data)?;
    let most = config.data.unusable_share;
    if manifest.flawed_share() > most {
        let (share, most) = (manifest.flawed_share() * 100.0, most * 100.0);
        let first = manifest.flaws.first().map(ToString::to_string).unwrap_or_default();
        let path = path.display();
        let message = format!(
            "{share:.1} % of the utterances of {path} cannot be used, and {most:.1} % may be; the first: {first}"
        );
        return Err(Failure::invalid(
            message,
            format!("`plimsoll data check {path} --all` names them; data.unusable_share allows more"),
        ));
    }
    report_flaws(&manifest, reporter);
    fit_long(&mut manifest, &config.data, reporter);
    let frames = CtcFrames::of(config, log_mel);
    let selection = manifest.select(&limits(config, &|length| frames.after(length)));
    let mut left_out = selection.counts();
    for flaw in &manifest.flaws {
        *left_out.entry(flaw.fault.kind()).or_default() += 1;
    }
    if selection.kept.is_empty() {
        let reasons: Vec<String> = left_out.iter().map(|(why, n)| format!("{n} {why}")).collect();
        let message = format!("none of the utterances of {} can be used: {}", path.display(), reasons.join(", "));
        return Err(Failure::invalid(message, "data.min_seconds and data.max_seconds set the limits of length"));
    }
    Ok((selection, left_out))
}

/// Evaluation reads in the order of its data: by length there is little padding.
fn by_length(mut utterances: Vec<Utterance>) -> Vec<Utterance> {
    utterances.sort_by(|a, b| a.duration.0.total_cmp(&b.duration.0));
    utterances
}

impl Prepared {
    /// Where the log-mels of the training utterances lie: their mean, and their deviation from it.
    pub fn scale(&self) -> Result<MelNormalization, Failure> {
        let all = self.training.len();
        // Evenly over the whole list: a hundred say what thousands would.
        let step = all.div_ceil(SCALE_UTTERANCES).max(1);
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for index in (0..all).step_by(step) {
            // What cannot be read is told when its turn comes in training.
            let Ok(sample) = self.training.load(index, None) else { continue };
            for value in sample.features.into_iter().map(f64::from) {
                count += 1.0;
                sum += value;
                squares += value * value;
            }
        }
        if count == 0.0 {
            let message = "none of the training utterances that were looked at can be read";
            return Err(Failure::invalid(message, "the list of utterances says which file is which"));
        }
        let mean: f64 = sum / count;
        let spread = (squares / count - mean * mean).max(0.0).sqrt().max(1e-3);
        Ok(MelNormalization { mean: mean as f32, std: spread as f32 })
    }

    /// How many frames the tokens of the training utterances take.
    pub fn pace(&self) -> LengthBounds {
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

    /// The batches of training, from `position` on.
    pub fn training_source(&self, plan: &RunPlan, position: Position, shard: Shard) -> Source<'static> {
        let config = loader_config(plan, &self.grid, Mode::Train { epochs: None }, shard);
        let key = Key::new(plan.seed).with("data");
        Source { loader: Loader::start(self.training.clone(), &config, key, position), reporter: None }
    }

    /// The batches of a validation, or a replica's part of them.
    pub fn validation_source<'a>(&self, plan: &RunPlan, shard: Shard, reporter: &'a dyn Reporter) -> Source<'a> {
        let config = loader_config(plan, &self.grid, Mode::Evaluate, shard);
        let key = Key::new(plan.seed);
        Source {
            loader: Loader::start(self.validation.clone(), &config, key, Position::default()),
            reporter: Some(reporter),
        }
    }
}

/// A loader that says which key allows more, where too many files cannot be read.
pub struct Source<'a> {
    loader: Loader,
    /// Hears of what was skipped; in training the trainer records that.
    reporter: Option<&'a dyn Reporter>,
}

impl BatchSource for Source<'_> {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        let next = self.loader.next()?;
        if let (Some(reporter), Ok(delivered)) = (self.reporter, &next) {
            for Skipped { name, reason } in &delivered.skipped {
                reporter.line(Level::Warning, &format!("`{name}` left out of the validation: {reason}"));
            }
        }
        Some(next.map_err(|error| match error {
            LoadError::TooManyUnreadable { .. } => SourceError(format!("{error} (data.unusable_share allows more)")),
            error => error.into(),
        }))
    }

    fn batches_in_epoch(&self) -> u64 {
        self.loader.batches_in_epoch()
    }

    fn recycle(&mut self, batch: HostBatch) {
        self.loader.recycle(batch);
    }
}

fn loader_config(plan: &RunPlan, grid: &Grid, mode: Mode, shard: Shard) -> LoaderConfig {
    let data = &plan.config.data;
    let number = |number: Option<u32>| number.and_then(|number| NonZeroUsize::new(number as usize));
    LoaderConfig {
        batching: mapping::batching(data),
        grid: Some(grid.clone()),
        workers: number(data.num_workers),
        prefetch: number(data.prefetch_buffer_size),
        unreadable_share: data.unusable_share,
        mode,
        shard,
    }
}
