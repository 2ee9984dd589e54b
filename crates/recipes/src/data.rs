//! Reads the utterances of a run, checks them, and divides them into training and validation.

mod selection;
mod source;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_audio::{LogMel, MelAxis};
use plimsoll_config::choices::{TextChoice, TokenizerChoice};
use plimsoll_config::invocation::command;
use plimsoll_config::{DataConfig, RunConfig};
use plimsoll_core::{Bytes, Grid, Key, counted};
use plimsoll_data::dropped::Dropped;
use plimsoll_data::store::{Store, StoreConfig, StorePrecision};
use plimsoll_data::utterances::Utterances;
use plimsoll_data::{CorpusFingerprint, Dataset, Limits, Manifest, Selection, SplitBy, hold_out};
use plimsoll_monitor::host_memory;
use plimsoll_speech::tts::{LengthBounds, MelNormalization};
use plimsoll_text::{Tokenizer, unheard_characters};

use crate::corpus;
use crate::device::is_host;
use crate::earlier::EarlierRun;
use crate::error::{Failure, FailureExt};
use crate::families::family;
use crate::features::features;
use crate::fingerprint::{CORPUS, Fingerprint, fingerprint};
use crate::mapping;
use crate::reporter::{Level, Reporter, long_work};
use crate::texts::check_phonemes;
use crate::texts::tokenizer;
use selection::{Selected, TokenCount, accept, nothing_left, read, select};

pub use selection::{CtcFrames, ctc_tokenizer, limits, report_flaws};

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
    /// Fingerprint of the utterances.
    pub(crate) corpus: CorpusFingerprint,
    /// Values that decide the batches, by name.
    pub(crate) fingerprint: Fingerprint,
    /// Whether the audio files exist; those of a built-in corpus that is only listed do not.
    pub(crate) has_audio: bool,
}

/// How the data of a run is prepared.
#[derive(Clone, Copy, Default)]
pub(crate) struct Preparation<'a> {
    /// Run that began earlier, whose tokens and unit of validation are kept.
    pub(crate) earlier: Option<&'a EarlierRun>,
    /// Whether nothing may be written: the built-in corpus is listed and not made, and no feature store is opened.
    pub(crate) is_dry: bool,
    /// Whether the fingerprint has the content of the audio files, which a resumed run compares.
    pub(crate) reads_audio: bool,
}

impl<'a> Preparation<'a> {
    /// Returns the tokenizer of the model of the earlier run, if there is one and its model reads texts.
    fn tokenizer(&self) -> Option<&'a Tokenizer> {
        self.earlier.and_then(|earlier| earlier.tokenizer.as_ref())
    }
}

/// Reads the utterances of `config`, and divides them into training and validation. Makes the built-in corpus first if
/// `config` names no manifest and it does not exist.
///
/// # Errors
/// If a manifest, the tokenizer file or the feature store cannot be read, if too many utterances cannot be used or none
/// is left, if the settings of features or tokenizer are impossible, or if the utterances cannot be divided.
pub fn prepare(config: &RunConfig, reporter: &dyn Reporter) -> Result<PreparedData, Failure> {
    prepare_as(config, Preparation::default(), reporter)
}

/// Prepares the data of `config`, the configuration of a run that began `earlier`: with the tokens of its model, and
/// with its unit of validation.
///
/// # Errors
/// As for [`prepare`].
pub fn prepare_again(
    config: &RunConfig,
    earlier: &EarlierRun,
    reporter: &dyn Reporter,
) -> Result<PreparedData, Failure> {
    prepare_as(config, Preparation { earlier: Some(earlier), ..Preparation::default() }, reporter)
}

/// Prepares data as `preparation` asks.
pub(crate) fn prepare_as(
    config: &RunConfig,
    preparation: Preparation<'_>,
    reporter: &dyn Reporter,
) -> Result<PreparedData, Failure> {
    let data = &config.data;
    let log_mel = LogMel::new(&features(&config.features)).invalid()?;
    let mut divided = divide(config, &log_mel, preparation, reporter)?;
    // Making phonemes has a bar of its own.
    let is_quiet = data.text == TextChoice::Characters;
    let work = is_quiet.then(|| long_work(reporter, "reading the tokens", divided.training.len()));
    let tokenizer = match preparation.tokenizer() {
        Some(known) => known.clone(),
        None => tokenizer(config, &divided.training, reporter)?,
    };
    check_phonemes(&tokenizer)?;
    drop(work);
    let _work = long_work(reporter, "looking at the utterances", divided.training.len());
    if preparation.earlier.is_none() && learns_tokens(config) {
        divided.leave_out_infeasible(config, &log_mel, &tokenizer)?;
    }
    for (path, dropped) in &divided.lists {
        match accept(path, dropped, config) {
            // The run was begun with them, under the rule of its day.
            Err(failure) if preparation.earlier.is_some() => reporter.line(Level::Warning, &failure.to_string()),
            accepted => accepted?,
        }
    }
    let Divided { training, validation, held_out, left_out, .. } = divided;
    let has_audio = !preparation.is_dry || data.manifest.is_some() || corpus::exists(data);
    let corpus = CorpusFingerprint::new(&training, &validation);
    let corpus = if preparation.reads_audio && has_audio { corpus.with_audio() } else { corpus };
    let fingerprint = fingerprint(config, &corpus, held_out)?;
    let texts = validation.iter().map(|utterance| (utterance.id.to_owned(), utterance.text.to_owned())).collect();
    let store = if preparation.is_dry { None } else { store(data)? };
    let [training_cache, validation_cache] = cache_shares(config);
    let dataset = |utterances: Utterances, augment, cache| {
        let dataset = Dataset::new(utterances, log_mel.clone(), tokenizer.clone()).with_memory_cache(cache);
        let dataset = match augment {
            Some(augment) => dataset.with_augment(augment).invalid()?,
            None => dataset,
        };
        let dataset = match &store {
            Some(store) => dataset.with_store(store.clone()),
            None => dataset,
        };
        Ok::<_, Failure>(family(config).samples(dataset, config))
    };
    let training = dataset(training, family(config).augment(config), training_cache)?;
    // Evaluation keeps the order of its data, and batches of similar lengths need little padding.
    let validation = dataset(validation.sorted_by_duration(), None, validation_cache)?;
    if family(config).reads_text() {
        report_unknown(&training, (&validation, &texts), &tokenizer, reporter);
    }
    Ok(PreparedData {
        grid: mapping::batching(config).grid(&training.metas()),
        training: Arc::new(training),
        validation: Arc::new(validation),
        validation_texts: texts,
        tokenizer: tokenizer.clone(),
        held_out,
        left_out,
        corpus,
        fingerprint,
        has_audio,
    })
}

/// Usable utterances of a run, divided into training and validation.
struct Divided {
    training: Utterances,
    validation: Utterances,
    held_out: &'static str,
    left_out: LeftOut,
    /// Each list with what is left out of it: that of training, and that of validation if there is one.
    lists: Vec<(PathBuf, Dropped)>,
}

/// Reads the utterances of `config` and divides them into training and validation.
fn divide(
    config: &RunConfig,
    log_mel: &LogMel,
    preparation: Preparation<'_>,
    reporter: &dyn Reporter,
) -> Result<Divided, Failure> {
    let data = &config.data;
    // A tokenizer that is still to be learned counts later.
    let known = match preparation.tokenizer() {
        Some(known) => Some(known.clone()),
        None => data.tokenizer_file.as_ref().map(Tokenizer::from_file).transpose().invalid()?,
    };
    let count = match &known {
        Some(tokenizer) => TokenCount::Of(tokenizer),
        None if learns_tokens(config) => TokenCount::Unknown,
        None => TokenCount::Characters,
    };
    let choose = |manifest: Manifest| {
        let _work = long_work(reporter, "choosing the utterances", manifest.utterances.len());
        select(manifest, config, log_mel, count, reporter)
    };
    let all = match &data.manifest {
        Some(path) => choose(read(path, config, preparation.is_dry, reporter)?)?,
        None if preparation.is_dry => choose(corpus::list_built_in(config, reporter)?)?,
        None => choose(read(&corpus::make_built_in(data, reporter)?, config, false, reporter)?)?,
    };
    let Selected { kept, mut left_out, list } = all;
    if let Some(path) = &data.validation_manifest {
        let validation = choose(read(path, config, preparation.is_dry, reporter)?)?;
        add_counts(&mut left_out, validation.left_out);
        let (held_out, lists) = ("another manifest", vec![list, validation.list]);
        return Ok(Divided { training: kept, validation: validation.kept, held_out, left_out, lists });
    }
    let (key, unit) = (Key::new(config.seed).with("hold out"), preparation.earlier.and_then(EarlierRun::held_out_by));
    let split = hold_out(&kept, data.validation_share, key, unit).invalid()?;
    let held_out = match split.by {
        SplitBy::Speaker => "voices",
        SplitBy::Utterance => "utterances",
    };
    Ok(Divided { training: split.train, validation: split.validation, held_out, left_out, lists: vec![list] })
}

impl Divided {
    /// Leaves out the utterances that are too short for a CTC loss with the tokens of `tokenizer`, and counts them.
    ///
    /// # Errors
    /// If no training or no validation utterance is left.
    fn leave_out_infeasible(
        &mut self,
        config: &RunConfig,
        log_mel: &LogMel,
        tokenizer: &Tokenizer,
    ) -> Result<(), Failure> {
        let frames = CtcFrames::new(config, log_mel);
        let output_frames = |length| frames.count(length);
        let limits = Limits { tokenizer: Some(tokenizer), ..limits(config, &output_frames) };
        let last = self.lists.len() - 1;
        for (index, side) in [&mut self.training, &mut self.validation].into_iter().enumerate() {
            let selection = Selection::new(std::mem::take(side), &limits);
            add_counts(&mut self.left_out, selection.counts());
            let (_, dropped) = &mut self.lists[index.min(last)];
            dropped.kept -= selection.excluded.len();
            dropped.add(&selection.dropped());
            *side = selection.kept;
        }
        if self.training.is_empty() || self.validation.is_empty() {
            return Err(nothing_left(&self.lists[0].0.display().to_string(), &self.left_out));
        }
        Ok(())
    }
}

/// Returns whether the tokens of a text are not its characters, and follow from the training texts.
fn learns_tokens(config: &RunConfig) -> bool {
    let data = &config.data;
    let are_characters = data.tokenizer == TokenizerChoice::Characters && data.text == TextChoice::Characters;
    data.tokenizer_file.is_none() && !are_characters
}

fn add_counts(all: &mut LeftOut, more: LeftOut) {
    for (reason, count) in more {
        *all.entry(reason).or_default() += count;
    }
}

/// Warns about characters that the tokenizer does not know.
fn report_unknown(
    training: &Dataset,
    (validation, texts): (&Dataset, &HashMap<String, String>),
    tokenizer: &Tokenizer,
    reporter: &dyn Reporter,
) {
    // Only a tokenizer from a file or of an earlier run does not know all of them.
    let count = training.unknown_characters();
    if count > 0 {
        let text = format!("{count} characters of the training texts are not in the vocabulary, and become one token");
        reporter.line(Level::Warning, &text);
    }
    if validation.unknown_characters() > 0 {
        reporter.line(Level::Warning, &unheard(texts, tokenizer));
    }
}

/// Names the characters of held-out `texts` that the tokenizer does not know, and utterances that have them.
fn unheard(texts: &HashMap<String, String>, tokenizer: &Tokenizer) -> String {
    let mut unknown: Vec<(&str, String)> = texts
        .iter()
        .map(|(id, text)| {
            let unknown = tokenizer.unknown_characters(text);
            let read = tokenizer.phonemes().and_then(|phonemes| phonemes.apply(&tokenizer.normalized(text)).ok());
            let read = read.as_deref().unwrap_or(text);
            (id.as_str(), read.chars().filter(|character| unknown.contains(character)).collect())
        })
        .filter(|(_, characters): &(_, String)| !characters.is_empty())
        .collect();
    unknown.sort_unstable();
    let found = unheard_characters([], unknown.iter().map(|(id, characters)| (*id, characters.as_str())));
    let shown: Vec<String> = found.iter().take(UNHEARD_SHOWN).map(ToString::to_string).collect();
    let more = match found.len().saturating_sub(UNHEARD_SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let unit = if tokenizer.phonemes().is_some() { "phoneme" } else { "character" };
    let (count, are, them) = match found.len() {
        1 => (format!("a {unit}"), "is", "it"),
        count => (counted(count, unit), "are", "them"),
    };
    format!(
        "{count} of the validation texts {are} in no training text, so no model can get {them} right: {}{more}",
        shown.join("; ")
    )
}

/// Number of characters that a warning names.
const UNHEARD_SHOWN: usize = 5;

/// Share of a CPU memory budget that cached features may take. Cached features only save time; steps need the memory.
const CACHE_SHARE: f64 = 0.25;
/// Share of the feature cache that is for validation utterances.
const VALIDATION_SHARE: f64 = 0.2;

/// Computes the memory for cached features: first of training utterances, then of validation utterances.
pub(crate) fn cache_shares(config: &RunConfig) -> [Bytes; 2] {
    let budget = mapping::budget(&config.training, host_memory());
    let Some(budget) = budget.filter(|_| is_host(&config.device)) else { return [config.data.cache_memory; 2] };
    let most = config.data.cache_memory.min(Bytes((budget.0 as f64 * CACHE_SHARE) as u64));
    let held_out = (most.0 as f64 * VALIDATION_SHARE) as u64;
    [Bytes(most.0 - held_out), Bytes(held_out)]
}

/// Opens the feature store on disk in the folder that `data.cache_dir` names; `None` if it names no folder.
///
/// # Errors
/// If the folder cannot be made or read.
pub fn store(data: &DataConfig) -> Result<Option<Arc<Store>>, Failure> {
    let precision = if data.cache_half { StorePrecision::F16 } else { StorePrecision::F32 };
    let config = StoreConfig { limit: data.cache_size, precision };
    let open = |folder| Store::open(folder, &config).map(Arc::new).invalid();
    data.cache_dir.as_ref().map(open).transpose()
}

impl PreparedData {
    /// Returns whether the utterances and their division are those of the newest checkpoint of `earlier`. True for a run of
    /// an older version, which recorded no data.
    pub fn has_data_of(&self, earlier: &EarlierRun) -> bool {
        let recorded = |name: &str| earlier.state.fingerprint.get(name);
        recorded(CORPUS).is_none_or(|corpus| *corpus == self.corpus.summary())
    }

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
        let tables = MelAxis::of(self.training.log_mel().config()).pitch_tables();
        let mut harmonics = Vec::new();
        for index in (0..all).step_by(step) {
            // Training reports the files that cannot be read.
            let Ok(sample) = self.training.load(index, None) else { continue };
            let mels = match self.training.frame_width() {
                1 => self.training.log_mel().extract(&sample.features),
                _ => sample.features,
            };
            harmonics.extend(tables.as_ref().map(|tables| tables.harmonics(&mels)));
            for value in mels.into_iter().map(f64::from) {
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
        let harmonics = (!harmonics.is_empty()).then(|| harmonics.iter().sum::<f32>() / harmonics.len() as f32);
        Ok(MelNormalization { mean: mean as f32, std: spread as f32, harmonics })
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
