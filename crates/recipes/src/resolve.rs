//! Turns a configuration into a plan: checks it, and fills in what depends on data and device.

use std::collections::HashSet;

use plimsoll_config::choices::{ScheduleChoice, UnfitChoice};
use plimsoll_config::{RunConfig, TrainingConfig};
use plimsoll_core::{Bytes, Key, Seconds};
use plimsoll_data::SampleMeta;
use plimsoll_speech::tts::MelNormalization;
use plimsoll_tape::on_capture_device;
use plimsoll_train::{PlateauConfig, RunState, Schedule, Shape, Unfit};
use rayon::prelude::*;

use crate::beginning::{base_facts, begun};
use crate::data::PreparedData;
use crate::device::TrainingDevice;
use crate::earlier::EarlierRun;
use crate::error::Failure;
use crate::families::{self, ModelPlan, family};
use crate::features::features;
use crate::mapping;
use crate::plan::{DataPlan, RunPlan, TrainingPlan};
use crate::reporter::{Level, Reporter, long_work};
use crate::target::Target;
use crate::trained::trained_parts;
use crate::voice_vocoder::own_time;
use crate::with_model;

/// Checks `config` for requests that are impossible on every machine, before any work starts.
///
/// # Errors
/// If the features of a synthesizer cannot become sound, if nothing ends the run, or a vocoder cannot be made.
pub(crate) fn check(config: &RunConfig) -> Result<(), Failure> {
    family(config).check(config)?;
    let training = &config.training;
    if training.epochs.is_none() && training.steps.is_none() && training.max_time.is_none() {
        let message = "the run has no end";
        return Err(Failure::invalid(message, "give training.epochs, training.steps or training.max_time"));
    }
    Ok(())
}

/// What a resumed run takes from its checkpoint into its plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumed<'a> {
    /// The run as it is in its folder.
    pub(crate) earlier: &'a EarlierRun,
    /// Whether the current epoch begins again.
    pub(crate) restarts_epoch: bool,
}

impl Resumed<'_> {
    /// Returns the steps beyond the batches of the epochs that are done, for epochs of `batches` batches.
    fn extra_steps(&self, batches: u64) -> i64 {
        extra_steps(&self.earlier.state, self.restarts_epoch, batches)
    }
}

/// Returns the steps of a run beyond the batches of the epochs that are done, for epochs of `batches` batches.
pub(crate) fn extra_steps(state: &RunState, restarts_epoch: bool, batches: u64) -> i64 {
    match restarts_epoch {
        true => state.step as i64 - (state.position.epoch * batches) as i64,
        false => state.extra_steps,
    }
}

/// Makes the plan of a run, except for its memory. `resumed` is its checkpoint if it has one.
///
/// # Errors
/// If the vocabulary is too small for the texts, if a prefix of `training.freeze` names no parameter or nothing is left to train, if no utterance
/// can be read, or if the device cannot train several replicas.
pub(crate) fn resolve(
    config: &RunConfig,
    prepared: &PreparedData,
    device: &TrainingDevice,
    target: Option<&Target>,
    resumed: Option<Resumed<'_>>,
    reporter: &dyn Reporter,
) -> Result<RunPlan, Failure> {
    let vocabulary = vocabulary(config, prepared.tokenizer.size())?;
    let bands = prepared.training.log_mel().n_mels();
    let mut model = families::model(config, bands, vocabulary);
    if model.has_statistics() {
        // The weights of a resumed run were trained with its statistics.
        let (normalization, length_bounds) = match resumed.and_then(|resumed| resumed.earlier.statistics) {
            Some(statistics) => statistics,
            None => (normalization(config, prepared)?, prepared.length_bounds()),
        };
        model = model.with_statistics(normalization, length_bounds);
    }
    let parameters = model.trained_parameters(&trained_parts(&config.training))?;
    let begins = match resumed {
        Some(_) => None,
        None => on_capture_device(|device| {
            with_model!(&model, described => {
                begun(&described.init_unseeded(device), &model, &prepared.tokenizer, config)
            })
        })?,
    };
    let (begins, doubts) = begins.unzip();
    doubts.into_iter().flatten().for_each(|doubt| reporter.line(Level::Warning, &doubt));
    let work = long_work(reporter, "dealing the first epoch", prepared.training.len());
    let data = data(config, prepared);
    drop(work);
    let extra_steps = resumed.map_or(0, |resumed| resumed.extra_steps(data.batches_in_epoch));
    let training = training(config, &model, &data, (device, target), extra_steps)?;
    Ok(RunPlan {
        name: config.name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("PLIMSOLL_COMMIT"),
        seed: config.seed,
        device: device.name.clone(),
        parameters,
        data,
        training,
        model,
        memory: None,
        features: features(&config.features),
        recipe: Vec::new(),
        begins,
        config: config.clone(),
    })
}

/// Computes the vocabulary size: the tokens of the texts, or more if the configuration asks for more.
///
/// # Errors
/// If the configuration asks for less than the texts need.
pub(crate) fn vocabulary(config: &RunConfig, needed: usize) -> Result<usize, Failure> {
    match config.model.vocabulary {
        None => Ok(needed),
        Some(wanted) if wanted as usize >= needed => Ok(wanted as usize),
        Some(wanted) => {
            let message = format!("`model.vocabulary` is {wanted}, and the training texts need {needed}");
            Err(Failure::invalid(message, format!("write `--set model.vocabulary={needed}`, or leave it out")))
        }
    }
}

/// Returns the normalization of log-mels for a new model: that of the model that the run begins with, or else that of its data.
fn normalization(config: &RunConfig, prepared: &PreparedData) -> Result<MelNormalization, Failure> {
    match base_facts(config)?.and_then(|facts| facts.statistics) {
        Some((known, _)) => Ok(known),
        None if prepared.has_audio => prepared.mel_normalization(),
        None => Ok(MelNormalization::default()),
    }
}

/// Makes the data part of the plan.
fn data(config: &RunConfig, prepared: &PreparedData) -> DataPlan {
    let metas = prepared.training.metas();
    let batches =
        plimsoll_data::epoch_batches(&metas, &mapping::batching(config), Key::new(config.seed).with("data"), 0);
    let padded = |batch: &Vec<usize>| {
        let longest =
            |length: fn(&SampleMeta) -> u32| batch.iter().map(|&index| length(&metas[index])).max().unwrap_or(0);
        let frames = prepared.grid.frames(longest(|meta| meta.frames.0));
        (frames, prepared.grid.tokens(frames, longest(|meta| meta.tokens)))
    };
    let add = |(mut shapes, cells): (HashSet<(u32, u32)>, u64), batch: &Vec<usize>| {
        let shape = padded(batch);
        shapes.insert(shape);
        (shapes, cells + u64::from(shape.0) * batch.len() as u64)
    };
    let join = |(mut shapes, cells): (HashSet<(u32, u32)>, u64), (others, more): (HashSet<(u32, u32)>, u64)| {
        shapes.extend(others);
        (shapes, cells + more)
    };
    // On all threads: the samples of a batch are anywhere in memory, and a list may have millions.
    let (shapes, cells) = batches.par_iter().fold(Default::default, add).reduce(Default::default, join);
    let frames: u64 = metas.iter().map(|meta| u64::from(meta.frames.0)).sum();
    DataPlan {
        padded_shapes: shapes.len(),
        padding: 1.0 - frames as f64 / cells.max(1) as f64,
        training_utterances: metas.len(),
        training_seconds: prepared.training.utterances().iter().map(|utterance| utterance.duration).sum::<Seconds>(),
        validation_utterances: prepared.validation.len(),
        held_out: prepared.held_out,
        left_out: prepared.left_out.clone(),
        batches_in_epoch: batches.len() as u64,
    }
}

/// Makes the training part of the plan.
fn training(
    config: &RunConfig,
    model: &ModelPlan,
    data: &DataPlan,
    (device, target): (&TrainingDevice, Option<&Target>),
    extra_steps: i64,
) -> Result<TrainingPlan, Failure> {
    let training = &config.training;
    let replicas = config.device.replicas as usize;
    if device.replicas > 1 && !device.is_host && !cfg!(feature = "cuda") {
        let message = "only CUDA GPUs and the CPU can train several replicas";
        return Err(Failure::invalid(message, "leave device.replicas out"));
    }
    let epochs = epochs(training, data.batches_in_epoch);
    let by_epochs = epochs.map(|epochs| (epochs * data.batches_in_epoch).saturating_add_signed(extra_steps));
    let total_steps = [by_epochs, training.steps].into_iter().flatten().min();
    let shape = match (training.schedule, total_steps) {
        (ScheduleChoice::InverseSqrt, _) => Shape::InverseSqrt,
        (ScheduleChoice::Noam, _) => Shape::Noam,
        (ScheduleChoice::Plateau, _) => Shape::Plateau,
        // A limit in hours becomes a number of steps when the first steps are measured.
        (ScheduleChoice::Cosine, _) => Shape::Cosine,
        (ScheduleChoice::Constant, _) => Shape::Constant,
    };
    Ok(TrainingPlan {
        total_steps,
        extra_steps,
        epochs,
        max_seconds: own_time(config).map(|time| time.0),
        micro_batch: mapping::first_micro_batch(config, data.training_utterances),
        unplanned_micro_batch: mapping::first_micro_batch(config, data.training_utterances),
        budget: limit(config, target),
        validation_interval: training.validation_interval,
        checkpoint_interval: training.checkpoint_interval,
        keep_checkpoints: training.keep_checkpoints as usize,
        keep_best: training.keep_best as usize,
        early_stopping: training.early_stopping,
        ema_decay: training.ema_decay,
        freeze: training.freeze.clone(),
        rates: trained_parts(training).rates,
        does_not_fit: match training.does_not_fit {
            UnfitChoice::Skip => Unfit::Skip,
            UnfitChoice::Stop => Unfit::Stop,
        },
        async_errors: !device.is_host,
        clip_norm: training.clip_norm,
        choice: mapping::choice(config, model, device.precision),
        lanes: mapping::lanes(config, device.lanes, device.replicas),
        replicas,
        own_replicas: device.replicas,
        optimizer: mapping::optimizer(config),
        optimizer_state: mapping::optimizer_state(config),
        schedule: Schedule {
            shape,
            peak: training.learning_rate,
            last: training.final_learning_rate,
            warmup: warm_up(training, total_steps),
            total: total_steps.unwrap_or(u64::MAX),
        },
        plateau: (training.schedule == ScheduleChoice::Plateau).then(|| PlateauConfig {
            patience: training.plateau_patience,
            factor: training.plateau_factor,
            least: (training.final_learning_rate / training.learning_rate).min(1.0),
        }),
    })
}

/// Returns the number of steps of the warm-up in a run of `total` steps, if that is known.
fn warm_up(training: &TrainingConfig, total: Option<u64>) -> u64 {
    let steps = training.warmup_steps;
    training.warmup_share.zip(total).map_or(steps, |(share, total)| Schedule::warmup_within(steps, share, total))
}

/// Returns the number of passes over the data, of `batches` batches each; `None` if passes do not end the run.
fn epochs(training: &TrainingConfig, batches: u64) -> Option<u64> {
    let least = training.min_steps.map_or(0, |steps| steps.div_ceil(batches.max(1)));
    training.epochs.map(|epochs| u64::from(epochs).max(least))
}

/// Computes the memory limit of the configuration on `target`, but not more than other processes leave; `None` if it
/// sets no limit.
fn limit(config: &RunConfig, target: Option<&Target>) -> Option<Bytes> {
    match target {
        Some(target) => config.limits_memory().then(|| target.budget(config)),
        None => config.training.max_memory,
    }
}
