//! The only road from a configuration to a plan.

use std::num::NonZeroU32;

use burn::module::Module;
use plimsoll_audio::Vocoder;
use plimsoll_core::{Bytes, Choice, Key, Precision, Remat, Seconds};
use plimsoll_data::BatchSize;
use plimsoll_layers::{Distance, HeadPositions, LengthPolicy, NormKind};
use plimsoll_monitor::host_memory;
use plimsoll_speech::asr::{DecoderConfig, RecognizerConfig};
use plimsoll_speech::tts::{LengthBounds, LossConfig, MelNormalization, SynthesizerConfig, VoiceConfig};
use plimsoll_tape::{count, freeze, on_paper};
use plimsoll_train::{
    AdamWConfig, LionConfig, OptimizerConfig, PlateauConfig, Schedule, SgdConfig, Shape, StateForm, Unfit,
};

use super::data::{Prepared, batching, reference_frames};
use super::plan::{DataPlan, ModelPlan, RunPlan, TrainingPlan};
use crate::config::{
    self, AttentionChoice, DecoderNormChoice, MelLossChoice, ModelConfig, NormChoice, OptimizerChoice, PositionsChoice,
    PrecisionChoice, RematChoice, RunConfig, StateChoice, Task, UnfitChoice,
};
use crate::device::Chosen;
use crate::failure::{Failure, Told};

/// Refuses, before any work, what this version cannot do.
pub(crate) fn check(config: &RunConfig) -> Result<(), Failure> {
    if config.task == Task::Tts {
        // What it says must become sound again.
        let features = super::data::features(&config.features);
        Vocoder::new(&features).map_err(|error| {
            Failure::wrong(error.to_string(), "`--set features.preset=myxtts` has features that a synthesiser can say")
        })?;
    }
    let training = &config.training;
    if training.epochs.is_none() && training.steps.is_none() && training.max_time.is_none() {
        let message = "nothing says when the run ends";
        return Err(Failure::wrong(message, "give training.epochs, training.steps or training.max_time"));
    }
    if config.data.batch_seconds.is_some() && training.gradient_accumulation_steps.is_some() {
        let message = "a batch counted in seconds cannot be cut into a fixed number of micro-batches";
        return Err(Failure::wrong(message, "give training.micro_batch, in utterances"));
    }
    Ok(())
}

/// Settles everything that `config` leaves open.
pub(crate) fn resolve(config: &RunConfig, prepared: &Prepared, device: &Chosen) -> Result<RunPlan, Failure> {
    let vocabulary = vocabulary(config, prepared.tokenizer.size())?;
    let features = prepared.training.log_mel().n_mels();
    let (model, parameters) = match config.task {
        Task::Asr => {
            let model = recogniser(config, features, vocabulary);
            (ModelPlan::Recogniser(model), on_paper(|paper| trained(model.init_unseeded(paper), config)))
        }
        Task::Tts => {
            let model = SynthesizerConfig {
                normalization: prepared.scale()?,
                length_bounds: prepared.pace(),
                ..synthesiser(config, features, vocabulary)
            };
            (ModelPlan::Synthesiser(model), on_paper(|paper| trained(model.init_unseeded(paper), config)))
        }
    };
    let parameters = parameters?;
    let data = data(config, prepared);
    let training = training(config, &data, device)?;
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
        features: super::data::features(&config.features),
        config: config.clone(),
    })
}

/// The parameters of `model` that are trained.
fn trained<M: Module>(model: M, config: &RunConfig) -> Result<u64, Failure> {
    Ok(count(&freeze(model, &config.training.freeze).wrong()?))
}

/// The recogniser that `config` describes, over so many features and tokens.
pub(crate) fn recogniser(config: &RunConfig, features: usize, vocabulary: usize) -> RecognizerConfig {
    let model = &config.model;
    let decoder_layers = model.decoder_layers.unwrap_or(0);
    RecognizerConfig {
        features,
        vocabulary,
        d_model: model.d_model as usize,
        layers: model.encoder_layers as usize,
        heads: model.attention_heads as usize,
        kernel: model.conv_kernel as usize,
        feed_forward_multiplier: model.feed_forward_multiplier as usize,
        subsampling: model.subsampling as usize,
        subsampling_channels: model.subsampling_channels as usize,
        positions: match model.positions {
            PositionsChoice::Absolute => HeadPositions::Absolute,
            PositionsChoice::Relative => HeadPositions::Relative,
            PositionsChoice::Rotary => HeadPositions::Rotary,
        },
        norm: match model.conv_norm {
            NormChoice::Layer => NormKind::Layer,
            NormChoice::Group => NormKind::Group(model.conv_norm_groups as usize),
            NormChoice::Batch => NormKind::Batch,
        },
        scale_input: model.scale_input,
        length: length(model),
        dropout: model.dropout,
        decoder: (decoder_layers > 0).then(|| DecoderConfig {
            layers: decoder_layers as usize,
            feed_forward_multiplier: model.decoder_feed_forward_multiplier as usize,
            norm_first: model.decoder_norm == DecoderNormChoice::Pre,
            ctc_weight: model.ctc_weight,
            label_smoothing: model.label_smoothing,
        }),
    }
}

fn length(model: &ModelConfig) -> LengthPolicy {
    let number = |n: u32| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
    match (model.attention, model.max_attention_sequence_length) {
        (AttentionChoice::Truncate, Some(most)) => LengthPolicy::Truncate(number(most)),
        (AttentionChoice::Chunked, _) => LengthPolicy::Chunked(number(model.attention_chunk)),
        (AttentionChoice::Exact | AttentionChoice::Truncate, _) => LengthPolicy::Exact,
    }
}

/// Blocks of a synthesiser's decoder where nothing is said of them.
const DECODER_LAYERS: u32 = 3;

/// The synthesiser that `config` describes, over so many features and tokens; its scale and its pace come from data.
pub(crate) fn synthesiser(config: &RunConfig, features: usize, vocabulary: usize) -> SynthesizerConfig {
    let model = &config.model;
    let or = |given: Option<u32>, otherwise: u32| given.unwrap_or(otherwise) as usize;
    let decoder_dim = model.decoder_dim.unwrap_or(model.d_model);
    SynthesizerConfig {
        features,
        vocabulary,
        text_dim: or(model.text_encoder_dim, model.d_model),
        text_layers: model.text_encoder_layers as usize,
        text_heads: or(model.text_encoder_heads, model.attention_heads),
        voice: VoiceConfig {
            layers: model.audio_encoder_layers as usize,
            channels: or(model.audio_encoder_dim, model.d_model),
            speaker_dim: model.speaker_dim as usize,
            style_tokens: model.style_tokens as usize,
            style_dim: model.speaker_dim as usize,
            style_heads: if model.speaker_dim.is_multiple_of(4) { 4 } else { 1 },
            reference_frames: reference_frames(config).0 as usize,
        },
        decoder_dim: decoder_dim as usize,
        decoder_layers: or(model.decoder_layers, DECODER_LAYERS),
        decoder_heads: or(model.decoder_heads, model.attention_heads),
        feed_forward_multiplier: model.feed_forward_multiplier as usize,
        prenet_dim: or(model.prenet_dim, decoder_dim),
        prenet_dropout: model.prenet_dropout,
        postnet_layers: model.postnet_layers as usize,
        postnet_channels: or(model.postnet_channels, decoder_dim),
        reduction: model.reduction_factor as usize,
        length: length(model),
        dropout: model.dropout,
        loss: LossConfig {
            distance: match model.mel_loss {
                MelLossChoice::L1 => Distance::L1,
                MelLossChoice::Huber => Distance::Huber,
            },
            stop_weight: model.stop_loss_weight,
            stop_positive: model.stop_positive_weight,
            guide_weight: model.guided_attention_weight,
            guide_sigma: model.guided_attention_sigma,
        },
        normalization: MelNormalization::default(),
        length_bounds: LengthBounds::default(),
    }
}

/// The width of the outputs: the letters of the texts, or more where the configuration says so.
fn vocabulary(config: &RunConfig, letters: usize) -> Result<usize, Failure> {
    match config.model.vocabulary {
        None => Ok(letters),
        Some(wanted) if wanted as usize >= letters => Ok(wanted as usize),
        Some(wanted) => {
            let message = format!("`model.vocabulary` is {wanted}, and the training texts need {letters}");
            Err(Failure::wrong(message, format!("write `--set model.vocabulary={letters}`, or leave it out")))
        }
    }
}

fn data(config: &RunConfig, prepared: &Prepared) -> DataPlan {
    let metas = prepared.training.metas();
    let batches = plimsoll_data::epoch_batches(&metas, &batching(&config.data), Key::new(config.seed).with("data"), 0);
    DataPlan {
        training_utterances: metas.len(),
        training_seconds: metas.iter().map(|meta| meta.seconds).sum::<Seconds>(),
        validation_utterances: prepared.validation.len(),
        held_out: prepared.held_out,
        left_out: prepared.left_out.clone(),
        batches_in_epoch: batches.len() as u64,
    }
}

fn training(config: &RunConfig, data: &DataPlan, device: &Chosen) -> Result<TrainingPlan, Failure> {
    let training = &config.training;
    let replicas = config.device.replicas as usize;
    if replicas > 1 && !device.is_host && !cfg!(feature = "cuda") {
        let message = "only CUDA's cards and the CPU train together";
        return Err(Failure::wrong(message, "leave device.replicas out"));
    }
    let by_epochs = training.epochs.map(|epochs| u64::from(epochs) * data.batches_in_epoch);
    let total_steps = [by_epochs, training.steps].into_iter().flatten().min();
    let shape = match (training.schedule, total_steps) {
        (config::Schedule::InverseSqrt, _) => Shape::InverseSqrt,
        (config::Schedule::Noam, _) => Shape::Noam,
        (config::Schedule::Plateau, _) => Shape::Plateau,
        (config::Schedule::Cosine, Some(_)) => Shape::Cosine,
        // A cosine needs an end that does not depend on how fast the machine is today.
        (config::Schedule::Cosine, None) | (config::Schedule::Constant, _) => Shape::Constant,
    };
    Ok(TrainingPlan {
        total_steps,
        epochs: training.epochs.map(u64::from),
        max_seconds: training.max_time.map(|time| time.0),
        micro_batch: micro_batch(config, data),
        budget: budget(config, device)?,
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
        choice: Choice {
            precision: precision(training.precision, device),
            remat: remat(training.remat),
            ..Choice::default()
        },
        // A batch norm's statistics would depend on which thread comes first.
        lanes: match config.task == Task::Asr && config.model.conv_norm == NormChoice::Batch {
            true => 1,
            false => (device.lanes / replicas).max(1),
        },
        replicas,
        optimizer: optimizer(config),
        optimizer_state: optimizer_state(config),
        schedule: Schedule {
            shape,
            peak: training.learning_rate,
            last: training.final_learning_rate,
            warmup: training.warmup_steps,
            total: total_steps.unwrap_or(u64::MAX),
        },
        plateau: (training.schedule == config::Schedule::Plateau).then(|| PlateauConfig {
            patience: training.plateau_patience,
            factor: training.plateau_factor,
            least: (training.final_learning_rate / training.learning_rate).min(1.0),
        }),
    })
}

/// The optimizer that `config` describes.
pub(crate) fn optimizer(config: &RunConfig) -> OptimizerConfig {
    let &config::TrainingConfig { beta_1, beta_2, epsilon, weight_decay, momentum, optimizer, .. } = &config.training;
    match optimizer {
        OptimizerChoice::AdamW => AdamWConfig { beta_1, beta_2, epsilon, weight_decay }.into(),
        OptimizerChoice::Lion => LionConfig { beta_1, beta_2, weight_decay }.into(),
        OptimizerChoice::Sgd => SgdConfig { momentum, nesterov: false, weight_decay }.into(),
    }
}

/// Where it keeps its state.
pub(crate) fn optimizer_state(config: &RunConfig) -> StateForm {
    match config.training.optimizer_state {
        StateChoice::Full => StateForm::Full,
        StateChoice::Eight => StateForm::Eight,
        StateChoice::Host => StateForm::Host,
    }
}

/// The numbers to compute in: what was asked for, or the fastest that the device computes safely.
fn precision(choice: PrecisionChoice, device: &Chosen) -> Precision {
    match choice {
        PrecisionChoice::Auto => device.precision,
        PrecisionChoice::Fp32 => Precision::Fp32,
        PrecisionChoice::Bf16 => Precision::Bf16,
        PrecisionChoice::Fp16 => Precision::Fp16,
    }
}

fn remat(choice: RematChoice) -> Remat {
    match choice {
        RematChoice::None => Remat::None,
        RematChoice::Half => Remat::Half,
        RematChoice::All => Remat::All,
    }
}

/// Utterances computed at once: as given, or what the wanted number of pieces makes of a batch, or all.
fn micro_batch(config: &RunConfig, data: &DataPlan) -> usize {
    let training = &config.training;
    let whole = match batching(&config.data).size {
        BatchSize::Utterances(utterances) => utterances.get(),
        // As many as there are: the governor cuts by what the batch holds.
        BatchSize::Seconds(_) => data.training_utterances as u32,
    };
    let micro = match (training.micro_batch, training.gradient_accumulation_steps) {
        (Some(micro), _) => micro.min(whole),
        (None, Some(steps)) => whole.div_ceil(steps),
        (None, None) => whole,
    };
    micro.max(1) as usize
}

fn budget(config: &RunConfig, device: &Chosen) -> Result<Option<Bytes>, Failure> {
    let training = &config.training;
    match (training.max_memory, training.max_memory_fraction) {
        (None, None) => Ok(None),
        (Some(bytes), _) => Ok(Some(bytes)),
        (None, Some(share)) => {
            let all = if device.is_host { host_memory() } else { crate::memtest::memory_here() };
            Ok(Some(Bytes((all.0 as f64 * share) as u64)))
        }
    }
}
