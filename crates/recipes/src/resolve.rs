//! The only road from a configuration to a plan.

use burn::module::Module;
use plimsoll_audio::Vocoder;
use plimsoll_core::{Bytes, Key, Seconds};
use plimsoll_monitor::host_memory;
use plimsoll_speech::tts::SynthesizerConfig;
use plimsoll_tape::{count, freeze, on_capture_device};
use plimsoll_train::{PlateauConfig, Schedule, Shape, Unfit};

use crate::config::{self, NormChoice, RunConfig, Task, TrainingConfig, UnfitChoice};
use crate::data::Prepared;
use crate::device::TrainingDevice;
use crate::error::{Failure, FailureExt};
use crate::mapping::{self, ModelPlan};
use crate::plan::{DataPlan, RunPlan, TrainingPlan};

/// Refuses, before any work, what this version cannot do.
pub fn check(config: &RunConfig) -> Result<(), Failure> {
    if config.task == Task::Tts {
        // What it says must become sound again.
        let features = mapping::features(&config.features);
        Vocoder::new(&features).map_err(|error| {
            Failure::invalid(
                error.to_string(),
                "`--set features.preset=myxtts` has features that a synthesiser can say",
            )
        })?;
    }
    let training = &config.training;
    if training.epochs.is_none() && training.steps.is_none() && training.max_time.is_none() {
        let message = "nothing says when the run ends";
        return Err(Failure::invalid(message, "give training.epochs, training.steps or training.max_time"));
    }
    if config.data.batch_seconds.is_some() && training.gradient_accumulation_steps.is_some() {
        let message = "a batch counted in seconds cannot be cut into a fixed number of micro-batches";
        return Err(Failure::invalid(message, "give training.micro_batch, in utterances"));
    }
    Ok(())
}

/// Settles everything that `config` leaves open.
pub fn resolve(config: &RunConfig, prepared: &Prepared, device: &TrainingDevice) -> Result<RunPlan, Failure> {
    let vocabulary = vocabulary(config, prepared.tokenizer.size())?;
    let features = prepared.training.log_mel().n_mels();
    let model = match mapping::model(config, features, vocabulary) {
        ModelPlan::Synthesiser(model) => ModelPlan::Synthesiser(SynthesizerConfig {
            normalization: prepared.scale()?,
            length_bounds: prepared.pace(),
            ..model
        }),
        model => model,
    };
    let parameters = on_capture_device(|paper| match &model {
        ModelPlan::Recogniser(model) => trained(model.init_unseeded(paper), config),
        ModelPlan::Synthesiser(model) => trained(model.init_unseeded(paper), config),
    });
    let parameters = parameters?;
    let data = data(config, prepared);
    let training = training(config, &model, &data, device)?;
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
        features: mapping::features(&config.features),
        config: config.clone(),
    })
}

/// The parameters of `model` that are trained.
fn trained<M: Module>(model: M, config: &RunConfig) -> Result<u64, Failure> {
    Ok(count(&freeze(model, &config.training.freeze).invalid()?))
}

/// The width of the outputs: the letters of the texts, or more where the configuration says so.
fn vocabulary(config: &RunConfig, letters: usize) -> Result<usize, Failure> {
    match config.model.vocabulary {
        None => Ok(letters),
        Some(wanted) if wanted as usize >= letters => Ok(wanted as usize),
        Some(wanted) => {
            let message = format!("`model.vocabulary` is {wanted}, and the training texts need {letters}");
            Err(Failure::invalid(message, format!("write `--set model.vocabulary={letters}`, or leave it out")))
        }
    }
}

fn data(config: &RunConfig, prepared: &Prepared) -> DataPlan {
    let metas = prepared.training.metas();
    let batches =
        plimsoll_data::epoch_batches(&metas, &mapping::batching(&config.data), Key::new(config.seed).with("data"), 0);
    DataPlan {
        training_utterances: metas.len(),
        training_seconds: metas.iter().map(|meta| meta.seconds).sum::<Seconds>(),
        validation_utterances: prepared.validation.len(),
        held_out: prepared.held_out,
        left_out: prepared.left_out.clone(),
        batches_in_epoch: batches.len() as u64,
    }
}

fn training(
    config: &RunConfig,
    model: &ModelPlan,
    data: &DataPlan,
    device: &TrainingDevice,
) -> Result<TrainingPlan, Failure> {
    let training = &config.training;
    let replicas = config.device.replicas as usize;
    if replicas > 1 && !device.is_host && !cfg!(feature = "cuda") {
        let message = "only CUDA's cards and the CPU train together";
        return Err(Failure::invalid(message, "leave device.replicas out"));
    }
    let by_epochs = training.epochs.map(|epochs| u64::from(epochs) * data.batches_in_epoch);
    let total_steps = [by_epochs, training.steps].into_iter().flatten().min();
    let shape = match (training.schedule, total_steps) {
        (config::ScheduleChoice::InverseSqrt, _) => Shape::InverseSqrt,
        (config::ScheduleChoice::Noam, _) => Shape::Noam,
        (config::ScheduleChoice::Plateau, _) => Shape::Plateau,
        (config::ScheduleChoice::Cosine, Some(_)) => Shape::Cosine,
        // A cosine needs an end that does not depend on how fast the machine is today.
        (config::ScheduleChoice::Cosine, None) | (config::ScheduleChoice::Constant, _) => Shape::Constant,
    };
    Ok(TrainingPlan {
        total_steps,
        epochs: training.epochs.map(u64::from),
        max_seconds: training.max_time.map(|time| time.0),
        micro_batch: mapping::first_micro_batch(config, data.training_utterances),
        budget: budget(training, device),
        validation_interval: training.validation_interval,
        checkpoint_interval: training.checkpoint_interval,
        keep_checkpoints: training.keep_checkpoints as usize,
        keep_best: training.keep_best as usize,
        early_stopping: training.early_stopping,
        ema_decay: training.ema_decay,
        freeze: training.freeze.clone(),
        does_not_fit: match training.does_not_fit {
            UnfitChoice::Skip => Unfit::Skip,
            UnfitChoice::Stop => Unfit::Stop,
        },
        tells_late: !device.is_host,
        clip_norm: training.clip_norm,
        choice: mapping::choice(config, model, device.precision),
        // A batch norm's statistics would depend on which thread comes first.
        lanes: match config.task == Task::Asr && config.model.conv_norm == NormChoice::Batch {
            true => 1,
            false => (device.lanes / replicas).max(1),
        },
        replicas,
        optimizer: mapping::optimizer(config),
        optimizer_state: mapping::optimizer_state(config),
        schedule: Schedule {
            shape,
            peak: training.learning_rate,
            last: training.final_learning_rate,
            warmup: training.warmup_steps,
            total: total_steps.unwrap_or(u64::MAX),
        },
        plateau: (training.schedule == config::ScheduleChoice::Plateau).then(|| PlateauConfig {
            patience: training.plateau_patience,
            factor: training.plateau_factor,
            least: (training.final_learning_rate / training.learning_rate).min(1.0),
        }),
    })
}

/// The memory that the configuration allows on `device`, where it sets a limit.
fn budget(training: &TrainingConfig, device: &TrainingDevice) -> Option<Bytes> {
    // Only a share needs to know what is there.
    let all = match training.max_memory_fraction {
        Some(_) if device.is_host => host_memory(),
        Some(_) => crate::target::memory_here(),
        None => Bytes(0),
    };
    mapping::budget(training, all)
}
