//! Maps a configuration to batching settings, and to the batch shapes that memory is planned for.

use std::num::NonZeroU32;

use plimsoll_config::RunConfig;
use plimsoll_config::choices::BackendChoice;
use plimsoll_core::{BatchShape, Frames, Grid};
use plimsoll_data::{BatchSize, BatchingConfig, SampleMeta};

use crate::families::{ModelPlan, family};
use crate::features::features;

/// Largest number of padded lengths on a GPU, if the configuration gives none: each takes seconds to compile and tune.
const GPU_SHAPES: u32 = 72;

/// Returns whether a run of `config` computes on a GPU.
fn computes_on_gpu(config: &RunConfig) -> bool {
    match config.device.backend {
        BackendChoice::Auto => cfg!(feature = "cuda"),
        BackendChoice::Cpu => false,
        BackendChoice::Cuda | BackendChoice::Wgpu => true,
    }
}

/// Returns the batching settings of `config`.
pub fn batching(config: &RunConfig) -> BatchingConfig {
    let data = &config.data;
    let one = NonZeroU32::MIN;
    let size = match config.effective_utterances() {
        Some(utterances) => BatchSize::Utterances(NonZeroU32::new(utterances).unwrap_or(one)),
        None => BatchSize::Seconds(data.batch_seconds.unwrap_or_default()),
    };
    let mut batching = BatchingConfig::new(size);
    batching.window = data.shuffle_window.and_then(NonZeroU32::new);
    if family(config).crop(config).is_some() {
        // All crops have one length, which needs no padding.
        batching.frame_grid = one;
        return batching;
    }
    let shapes = data.shapes.or_else(|| computes_on_gpu(config).then_some(GPU_SHAPES));
    batching.shapes = shapes.and_then(NonZeroU32::new);
    batching.frame_grid = NonZeroU32::new(data.frame_grid).unwrap_or(one);
    batching
}

/// Number of utterance lengths that memory is planned for if no corpus is known: evenly spaced, up to the longest
/// utterance that the configuration permits.
const LENGTHS: u32 = 5;

/// Text tokens per second of audio that memory is planned for if no corpus is known: those of fast speech, 1.5 times
/// the usual rate. A limit on texts in the configuration can lower the number of tokens.
const TOKENS_PER_SECOND: f64 = 20.0;

/// Quantiles of the utterance lengths of a corpus that memory is planned for.
const QUANTILES: [f64; 4] = [0.5, 0.8, 0.95, 1.0];

/// Returns the slowest speed that augmentation may give an utterance, at most 1. Slower speech has more frames.
fn slowest_speed(config: &RunConfig) -> f64 {
    let is_augmented = family(config).augment(config).is_some();
    let speeds = if is_augmented { &config.augment.speeds[..] } else { &[] };
    speeds.iter().copied().fold(1.0, f64::min)
}

/// Computes the batch shapes that memory is planned for if no corpus is known: a whole batch at each of five evenly
/// spaced utterance lengths, up to the longest that `config` permits, with the texts of fast speech. For a vocoder it is one
/// batch of crops.
pub fn expected_shapes(config: &RunConfig, model: &ModelPlan) -> Vec<BatchShape> {
    let features = features(&config.features);
    if let Some(samples) = family(config).crop(config) {
        let seconds = f64::from(samples) / f64::from(features.sample_rate);
        return vec![BatchShape { utterances: whole_batch(config, seconds), frames: Frames(samples), tokens: 1 }];
    }
    let slowest = slowest_speed(config);
    let grid = config.data.frame_grid.max(1);
    let shape = |part: u32| {
        let seconds = config.data.max_seconds.0 * f64::from(part) / f64::from(LENGTHS);
        let frames = seconds / slowest * f64::from(features.sample_rate) / features.hop_length as f64;
        let spoken = (seconds * TOKENS_PER_SECOND).ceil() as u32;
        let tokens = config.data.max_text_length.map_or(spoken, |most| spoken.min(most)).max(1);
        BatchShape {
            utterances: whole_batch(config, seconds),
            frames: Frames((frames.ceil() as u32).saturating_add(1).checked_next_multiple_of(grid).unwrap_or(u32::MAX)),
            tokens: tokens.min(model.tokens_max(frames as u32)),
        }
    };
    (1..=LENGTHS).map(shape).collect()
}

/// Computes the number of utterances in a batch of utterances of `seconds` each.
fn whole_batch(config: &RunConfig, seconds: f64) -> u32 {
    match batching(config).size {
        BatchSize::Utterances(utterances) => utterances.get(),
        BatchSize::Seconds(whole) => ((whole.0 / seconds) as u32).max(1),
    }
}

/// Computes the batch shapes to plan for with a corpus: at some quantiles of its lengths, a whole batch of utterances
/// up to that length. Frames and tokens are padded to `grid`. `metas` must not be empty.
pub fn corpus_shapes(config: &RunConfig, grid: &Grid, metas: &[SampleMeta]) -> Vec<BatchShape> {
    let mut lengths: Vec<u32> = metas.iter().map(|meta| meta.frames.0).collect();
    lengths.sort_unstable();
    let slowest = slowest_speed(config);
    let shape = |share: f64| {
        let place = ((lengths.len() as f64 * share).ceil() as usize).clamp(1, lengths.len()) - 1;
        let longest = lengths[place];
        let texts = metas.iter().filter(|meta| meta.frames.0 <= longest).map(|meta| meta.tokens);
        let frames = grid.frames((f64::from(longest) / slowest).ceil() as u32);
        let tokens = grid.tokens(frames, texts.max().unwrap_or(1)).max(1);
        BatchShape { utterances: utterances_at_length(config, metas, longest), frames: Frames(frames), tokens }
    };
    let mut shapes: Vec<BatchShape> = QUANTILES.into_iter().map(shape).collect();
    shapes.dedup_by_key(|shape| shape.frames);
    shapes
}

/// Computes the number of utterances in a batch whose longest utterance has `frames` frames; at most the size of the
/// corpus.
pub fn utterances_at_length(config: &RunConfig, metas: &[SampleMeta], frames: u32) -> u32 {
    let most = metas.len().max(1) as u32;
    match batching(config).size {
        BatchSize::Utterances(utterances) => utterances.get().min(most),
        BatchSize::Seconds(seconds) => {
            let of_length = metas.iter().filter(|meta| meta.frames.0 >= frames);
            let shortest = of_length.map(|meta| meta.seconds.0).fold(f64::INFINITY, f64::min);
            ((seconds.0 / shortest) as u32).clamp(1, most)
        }
    }
}
