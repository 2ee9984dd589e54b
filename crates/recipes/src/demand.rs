//! Builds the request to the memory planner: the batch shapes, and the settings that the planner may change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_audio::LogMel;
use plimsoll_config::choices::TokenizerChoice;
use plimsoll_config::{ModelConfig, RunConfig, shipped_models};
use plimsoll_core::{BatchShape, Bytes, CountingAllocator, Grid, StateForm};
use plimsoll_data::SampleMeta;
use plimsoll_memory::{
    Demand, MemoryModel, Plan, PlanError, PlanOptions, Speed, StepMemory, TraceError, Traceable, Traces, does_not_fit,
    fastest_plan, fits_at_all, plan_with,
};
use plimsoll_speech::tts::LengthBounds;
use plimsoll_tape::lora::TrainedParts;

use crate::data::{Preparation, prepare_as};
use crate::error::{Failure, FailureExt};
use crate::families::{self, ModelPlan, family};
use crate::features::features;
use crate::mapping;
use crate::memory_plan::Shares;
use crate::process_memory::{InUse, outside_model, outside_model_of, waiting_batches};
use crate::reporter::Reporter;
use crate::resolve;
use crate::target::Target;
use crate::trained::trained_parts;
use crate::with_trained;

/// Vocabulary size of a character model, if neither the configuration nor a corpus gives it.
const CHARACTERS: usize = 64;
/// GPU memory that the driver and the kernels take before training starts. Not measured on a GPU yet.
const CONTEXT: Bytes = Bytes::mib(512);
/// Maximum number of batches that wait in GPU memory.
const PREFETCH: u32 = 1;
/// Most values of an utterance for which memory can be planned: nine minutes with 80 features in each 10 ms.
const UTTERANCE_MAX: u64 = 1 << 22;
/// Most utterances of a batch for which memory can be planned.
const BATCH_MAX: u32 = 1 << 16;

/// Share of a CPU budget that the plan does not use: for errors of the plan, and for short needs of the process.
const MARGIN: f64 = 0.04;

/// A configuration with its model and batch shapes. It builds the request to the memory planner, a [`Demand`], for any
/// target.
///
/// ```
/// use plimsoll_config::ConfigArgs;
/// use plimsoll_recipes::load;
/// use plimsoll_recipes::demand::DemandBuilder;
/// use plimsoll_recipes::target::targets;
///
/// let args = ConfigArgs { d_model: Some("144".into()), ..ConfigArgs::default() };
/// let config = load(&args, std::iter::empty())?.config;
/// let builder = DemandBuilder::from_config(config)?;
/// let gpu = &targets(&["T4".to_string()], &builder.config.device)?[0];
/// assert_eq!(builder.as_written(gpu).buckets.len(), 5);
/// # Ok::<(), plimsoll_recipes::Failure>(())
/// ```
#[derive(Clone, Debug)]
pub struct DemandBuilder {
    /// Configuration of the run.
    pub config: RunConfig,
    /// The model of the configuration, without attention chunks of its own: a plan chooses them.
    pub model: ModelPlan,
    /// Shapes of whole batches, one for each utterance length that is planned.
    pub shapes: Vec<BatchShape>,
    /// How the memory of the CPU is shared.
    host: Shares,
    /// Memory of a GPU in the place of its budget; `None` for the budget.
    on_gpu: Option<Bytes>,
    /// Traces of the models of shipped configurations, which a refusal tries for each budget.
    shipped: ShippedTraces,
}

/// Traces of models, by the model and the backend.
type ShippedTraces = Arc<Mutex<HashMap<String, Traces>>>;

/// Checks that memory can be planned for batches of `shapes` with `features` values in each frame: their traces hold the
/// batches of about a hundred utterances on the host.
///
/// # Errors
/// If an utterance or a batch is too large, with the key that decides it.
fn check_sizes(shapes: &[BatchShape], features: usize, config: &RunConfig) -> Result<(), Failure> {
    let is_cropped = family(config).crop(config).is_some();
    let features = if is_cropped { 1 } else { features as u64 };
    let frames = shapes.iter().map(|shape| u64::from(shape.frames.0)).max().unwrap_or(0);
    if frames * features > UTTERANCE_MAX {
        let data = &config.data;
        let key = match is_cropped {
            true => "data.crop_seconds",
            false if u64::from(data.frame_grid) * 2 > frames => "data.frame_grid",
            false => "data.max_seconds",
        };
        let message = format!("memory cannot be planned for utterances of {frames} frames of {features} values");
        return Err(Failure::invalid(
            message,
            format!("lower {key}: {} frames are possible", UTTERANCE_MAX / features),
        ));
    }
    let utterances = shapes.iter().map(|shape| shape.utterances).max().unwrap_or(0);
    if utterances > BATCH_MAX {
        let key = if config.data.batch_seconds.is_some() { "data.batch_seconds" } else { "data.batch_size" };
        let message = format!("memory cannot be planned for batches of {utterances} utterances");
        return Err(Failure::invalid(message, format!("lower {key}: {BATCH_MAX} utterances are possible")));
    }
    Ok(())
}

impl DemandBuilder {
    /// Makes the builder for a configuration without a corpus: the longest utterances and the vocabulary are the
    /// largest that `config` permits.
    ///
    /// # Errors
    /// If the feature settings of the configuration are impossible, or a prefix of `training.freeze` names no parameter.
    pub fn from_config(config: RunConfig) -> Result<Self, Failure> {
        let log_mel = LogMel::new(&features(&config.features)).invalid()?;
        let vocabulary = config.model.vocabulary.map_or_else(|| assumed_vocabulary(&config), |size| size as usize);
        let model = families::model(&config, log_mel.n_mels(), vocabulary);
        let shapes = mapping::expected_shapes(&config, &model);
        check_sizes(&shapes, log_mel.n_mels(), &config)?;
        model.trained_parameters(&trained_parts(&config.training))?;
        let bounds = length_bounds(&shapes);
        Ok(Self::of_replica(config, model.with_length_bounds(bounds), shapes))
    }

    /// Makes the builder for a configuration as a run of it is planned: with the vocabulary and the lengths of its corpus
    /// if it names one, or else as [`from_config`](Self::from_config) does.
    ///
    /// # Errors
    /// If the corpus cannot be read, or the configuration does not suit it.
    pub fn for_run(
        config: RunConfig,
        process: &'static CountingAllocator,
        reporter: &dyn Reporter,
    ) -> Result<Self, Failure> {
        if config.data.manifest.is_none() {
            let builder = Self::from_config(config)?;
            let longest = builder.longest().shapes[0];
            let waiting =
                waiting_batches(&builder.config, longest.utterances, longest.frames.0, builder.model.features());
            let in_use = InUse::read(process).with_tables_of(&builder.model);
            return Ok(builder.with_outside_model(outside_model(in_use, waiting)));
        }
        let prepared = prepare_as(&config, Preparation { is_dry: true, ..Preparation::default() }, reporter)?;
        let in_use = InUse::read(process);
        let vocabulary = resolve::vocabulary(&config, prepared.tokenizer.size())?;
        let model = families::model(&config, prepared.training.log_mel().n_mels(), vocabulary);
        let model = model.with_length_bounds(prepared.length_bounds());
        let metas = prepared.training.metas();
        let outside_model = outside_model_of(&config, &prepared, &metas, &model, in_use);
        Ok(Self::from_corpus(config, model, &prepared.grid, &metas)?.with_outside_model(outside_model))
    }

    /// Makes the builder for a configuration with a corpus: `metas` are the sizes of its training utterances, which are
    /// padded to `grid`. `metas` must not be empty.
    ///
    /// # Errors
    /// If batches or utterances are so large that a trace of them would exhaust the memory of the host, or a prefix of
    /// `training.freeze` names no parameter.
    pub fn from_corpus(
        config: RunConfig,
        model: ModelPlan,
        grid: &Grid,
        metas: &[SampleMeta],
    ) -> Result<Self, Failure> {
        let shapes = mapping::corpus_shapes(&config, grid, metas);
        check_sizes(&shapes, features(&config.features).n_mels, &config)?;
        model.trained_parameters(&trained_parts(&config.training))?;
        Ok(Self::of_replica(config, model, shapes))
    }

    /// Makes the builder for one replica, which has a part of every batch of `shapes`.
    fn of_replica(config: RunConfig, model: ModelPlan, shapes: Vec<BatchShape>) -> Self {
        let replicas = config.device.replicas.max(1);
        let part = |shape: BatchShape| shape.with_utterances(shape.utterances.div_ceil(replicas));
        Self::of_shapes(config, model, shapes.into_iter().map(part).collect())
    }

    /// Makes the builder for batches of `shapes`.
    pub(crate) fn of_shapes(config: RunConfig, model: ModelPlan, shapes: Vec<BatchShape>) -> Self {
        let host = Shares { replicas: u64::from(config.device.replicas.max(1)), ..Shares::ALONE };
        Self { config, model: model.for_planning(), shapes, host, on_gpu: None, shipped: ShippedTraces::default() }
    }

    /// Returns the same builder for a process on the CPU that shares its memory as `host` says.
    pub(crate) fn with_host(self, host: Shares) -> Self {
        Self { host, ..self }
    }

    /// Returns the same builder for plans that may use `available` of a GPU, whatever its budget is.
    pub(crate) fn with_available(self, available: Bytes) -> Self {
        Self { on_gpu: Some(available), ..self }
    }

    fn with_outside_model(self, outside_model: Bytes) -> Self {
        let host = Shares { outside_model, ..self.host };
        self.with_host(host)
    }

    /// Computes the size of a checkpoint: weights, state of the optimizer, and the averaged weights if there are any.
    pub fn checkpoint_bytes(&self) -> Bytes {
        let parameters = self.model.parameters();
        let form = match mapping::optimizer_state(&self.config) {
            StateForm::Host => StateForm::Full,
            form => form,
        };
        let copies = 1 + u64::from(self.config.training.ema_decay.is_some());
        let weights = copies * parameters * size_of::<f32>() as u64;
        let trained = self.model.trained_parameters(&trained_parts(&self.config.training)).unwrap_or(parameters);
        Bytes(weights) + mapping::optimizer(&self.config).state_bytes(form, trained)
    }

    /// Returns how a run on `target` shares the memory of its budget.
    pub fn shares(&self, target: &Target) -> Shares {
        match target {
            Target::Gpu { .. } => Shares::ALONE,
            Target::Host { .. } => self.host,
        }
    }

    /// Computes the memory that model and steps of one replica may use on `target`: its share of the budget of the
    /// configuration there. On the CPU a margin is left.
    pub fn available(&self, target: &Target) -> Bytes {
        let budget = target.budget(&self.config);
        match target {
            Target::Gpu { .. } => self.on_gpu.unwrap_or(budget),
            Target::Host { .. } => self.host.of_replica(Bytes((budget.0 as f64 * (1.0 - MARGIN)) as u64)),
        }
    }

    /// Returns the number of micro-batches that a replica computes at the same time on `target`.
    fn lanes(&self, target: &Target) -> usize {
        match target {
            Target::Gpu { .. } => 1,
            Target::Host { threads, .. } => mapping::lanes(&self.config, *threads, self.host.replicas as usize),
        }
    }

    /// Returns the speed by which the planner compares plans on `target`.
    pub fn speed(&self, target: &Target) -> Speed {
        match target {
            Target::Gpu { gpu, .. } => Speed::for_gpu(gpu),
            Target::Host { .. } => Speed::for_host(self.lanes(target)),
        }
    }

    /// Returns the options of a plan on the CPU without a memory limit: there is nothing to choose there. The run computes
    /// whole batches at once, unless its configuration says otherwise. `None` for any other plan.
    fn unlimited(&self, target: &Target) -> Option<PlanOptions> {
        if matches!(target, Target::Gpu { .. }) || self.config.limits_memory() {
            return None;
        }
        let largest = self.shapes.iter().map(|shape| shape.utterances).max().unwrap_or(1) as usize;
        let micro_batch = mapping::first_micro_batch(&self.config, largest).div_ceil(self.lanes(target)).max(1);
        Some(mapping::fixed(&self.config, &self.model, target.traits(), micro_batch as u32))
    }

    /// Returns the same builder with other settings of the same model.
    pub fn with_config(&self, config: RunConfig) -> Self {
        Self { config, ..self.clone() }
    }

    /// Computes the demand on `target` with the configuration as it is written: the planner may choose what is `auto`.
    pub fn as_written(&self, target: &Target) -> Demand {
        let device = target.traits();
        let workspace = if matches!(target, Target::Gpu { .. }) { CONTEXT } else { Bytes(0) };
        Demand {
            buckets: self.shapes.clone(),
            blocks: self.model.blocks(),
            options: mapping::as_written(&self.config, &self.model, device),
            remedies: mapping::remedies(&self.config, &self.model, device),
            rules: target.rules(),
            step: StepMemory {
                parallel_micro_batches: self.lanes(target) as u32,
                workspace,
                state_bits: 0,
                snapshot: matches!(target, Target::Host { .. }),
                ..StepMemory::default()
            },
            prefetch: if matches!(target, Target::Gpu { .. }) { PREFETCH } else { 0 },
        }
    }

    /// Returns the options on `target` if the planner may change every setting that does not change the result:
    /// micro-batch, rematerialization, attention chunk, and where the optimizer state is.
    pub fn at_best(&self, target: &Target) -> PlanOptions {
        mapping::at_best(&self.config, &self.model, target.traits())
    }

    /// Finds the fastest plan of the configuration on `target` as it is written; `None` if it does not fit. `model` has the
    /// traces of the builder's model for the demand of the target.
    ///
    /// # Errors
    /// If the model cannot be traced.
    pub fn plan_as_written<S: Traceable + Sync>(
        &self,
        model: &MemoryModel<'_, S>,
        target: &Target,
    ) -> Result<Option<Plan>, TraceError> {
        let available = self.available(target);
        if available.0 == 0 {
            return Ok(None);
        }
        let options = self.unlimited(target);
        let options = options.unwrap_or_else(|| mapping::as_written(&self.config, &self.model, target.traits()));
        fastest_plan(model, &options, target.limit(available), &self.speed(target))
    }

    /// Plans the configuration on `target` within the memory that is [available](Self::available): as it is written, and at
    /// best. Training, `memtest` and `optimize` all plan through this function. `model` has the traces of the builder's model
    /// for the demand of the target.
    ///
    /// # Errors
    /// If the model cannot be traced.
    pub fn plans<S: Traceable + Sync>(
        &self,
        model: &MemoryModel<'_, S>,
        target: &Target,
    ) -> Result<TargetPlans, TraceError> {
        let budget = self.available(target);
        let (speed, limit) = (self.speed(target), target.limit(budget));
        if let Some(options) = self.unlimited(target) {
            let found = match plan_with(model, &options, limit, &speed) {
                Err(PlanError::Trace(error)) => return Err(error),
                found => found,
            };
            return Ok(TargetPlans { as_written: found.clone(), at_best: found });
        }
        let written = mapping::as_written(&self.config, &self.model, target.traits());
        if budget.0 > 0 {
            let best = fastest_plan(model, &self.at_best(target), limit, &speed)?;
            if let Some(plan) = fastest_plan(model, &written, limit, &speed)? {
                // What can be chosen as written can be chosen at best, too.
                let at_best = Ok(best.unwrap_or_else(|| plan.clone()));
                return Ok(TargetPlans { as_written: Ok(plan), at_best });
            }
            if let Some(best) = best {
                return Ok(TargetPlans { as_written: Err(does_not_fit(model, &written, limit)?), at_best: Ok(best) });
            }
        }
        match plan_with(model, &written, limit, &speed) {
            Err(PlanError::Trace(error)) => Err(error),
            Err(mut error) => {
                if let PlanError::NothingFits { share: Some(_), smaller, .. } = &mut error {
                    *smaller = self.smaller_model(target, budget)?;
                }
                Ok(TargetPlans { as_written: Err(error.clone()), at_best: Err(error) })
            }
            found => Ok(TargetPlans { as_written: found.clone(), at_best: found }),
        }
    }

    /// Finds the shipped configuration with the largest model that fits `budget` on `target` with the data and the training
    /// of this configuration, and returns its name; `None` if none is smaller and fits.
    fn smaller_model(&self, target: &Target, budget: Bytes) -> Result<Option<String>, TraceError> {
        let with_model = |model: ModelConfig| {
            let mut config = RunConfig { model, ..self.config.clone() };
            let plan = families::model(&config, self.model.features(), self.model.vocabulary());
            let model = plan.with_length_bounds(self.model.length_bounds()).for_planning();
            // A smaller model may lack some of the parts.
            let has = |frozen: &str| {
                let parts = TrainedParts { frozen: vec![frozen.to_owned()], ..TrainedParts::default() };
                model.trained_parameters(&parts).is_ok()
            };
            config.training.freeze.retain(|part| has(part));
            // A rate changes nothing of what is planned.
            config.training.rates.clear();
            if model.trained_parameters(&trained_parts(&config.training)).is_err() {
                config.training.lora_targets.clear();
                config.training.lora_also.clear();
            }
            Self { config, model, ..self.clone() }
        };
        let parameters = self.model.parameters();
        let shipped = shipped_models(self.config.task).into_iter().map(|(name, model)| (name, with_model(model)));
        let mut smaller: Vec<(u64, String, Self)> =
            shipped.map(|(name, builder)| (builder.model.parameters(), name, builder)).collect();
        smaller.retain(|(count, ..)| *count < parameters);
        smaller.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
        // If the smallest does not fit, no other does.
        if smaller.last().is_some_and(|(.., least)| !least.longest().fits(target, budget).unwrap_or(true)) {
            return Ok(None);
        }
        for (_, name, builder) in smaller {
            if builder.longest().fits(target, budget)? && builder.fits(target, budget)? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns the same builder for the batch of the longest utterances alone.
    fn longest(&self) -> Self {
        let longest = self.shapes.iter().copied().max_by_key(|shape| shape.frames);
        Self { shapes: longest.into_iter().collect(), ..self.clone() }
    }

    /// Returns whether the configuration fits `budget` on `target` at best.
    fn fits(&self, target: &Target, budget: Bytes) -> Result<bool, TraceError> {
        with_trained!(self, model => self.traceable_fits(model, target, budget))
    }

    fn traceable_fits<S: Traceable + Sync>(
        &self,
        model: &S,
        target: &Target,
        budget: Bytes,
    ) -> Result<bool, TraceError> {
        let demand = self.as_written(target);
        let key = format!("{:?} {:?} {:?}", self.model, trained_parts(&self.config.training), demand.rules);
        let traces = self.shipped.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let model = MemoryModel::with_traces(model, demand, traces)?;
        fits_at_all(&model, &self.at_best(target), target.limit(budget))
    }
}

/// The plans of a configuration on one target.
#[derive(Clone, Debug)]
pub struct TargetPlans {
    /// The plan with the configuration as it is written, or the reason why it does not fit.
    pub as_written: Result<Plan, PlanError>,
    /// The fastest plan that gives the same result up to rounding, or the reason why there is none.
    pub at_best: Result<Plan, PlanError>,
}

impl TargetPlans {
    /// Returns the plan that a run follows: as written, or at best if the configuration as written does not fit. If
    /// neither fits, the error is that of the configuration as written.
    pub fn used(&self) -> Result<&Plan, &PlanError> {
        match (&self.as_written, &self.at_best) {
            (Ok(plan), _) | (Err(_), Ok(plan)) => Ok(plan),
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// Returns whether a run computes otherwise than the configuration says, because it does not fit as written.
    pub fn is_changed(&self) -> bool {
        self.as_written.is_err() && self.at_best.is_ok()
    }
}

/// Returns the limits on the length of synthesized speech if no corpus is known: the longest texts are spoken as fast as
/// the longest recordings.
fn length_bounds(shapes: &[BatchShape]) -> LengthBounds {
    let frames_per_token = shapes.iter().map(|shape| f64::from(shape.frames.0) / f64::from(shape.tokens.max(1)));
    LengthBounds { frames_per_token_max: frames_per_token.fold(0.0, f64::max), ..LengthBounds::default() }
}

/// Returns the vocabulary size of a model whose training texts are not known.
fn assumed_vocabulary(config: &RunConfig) -> usize {
    match config.data.tokenizer {
        TokenizerChoice::Bpe => config.data.bpe_size as usize,
        TokenizerChoice::Characters => CHARACTERS,
    }
}
