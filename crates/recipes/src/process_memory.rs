//! The memory that a process on the CPU needs beside model and steps.

use plimsoll_config::RunConfig;
use plimsoll_core::{Bytes, CountingAllocator, MemoryMeter};
use plimsoll_data::SampleMeta;
use plimsoll_layers::Stft;

use crate::data::{PreparedData, cache_shares};
use crate::families::ModelPlan;
use crate::mapping;

/// Maximum number of batches that a loader holds if the configuration does not set it, including the batch of the
/// current step.
const LOADED_BATCHES: u64 = 18;
/// Memory for the buffers that hold the audio of a few files while they are read and decoded at once.
const DECODE_BUFFERS: Bytes = Bytes::mib(2);

/// Computes the memory for matrix products that threads keep: each that computes one packs its operands into a buffer of the size
/// of its second-level cache, and frees it when the thread ends. A lane has a thread of its own, and products of a lane are shared
/// with the threads of the pool.
fn product_buffers() -> Bytes {
    let threads = rayon::current_num_threads() as u64;
    let each = gemm_common::cache::CACHE_INFO[1].cache_bytes as u64;
    Bytes(2 * threads * each)
}

/// Computes the memory that a process needs beside model and steps, with `held` bytes of cached features and waiting batches
/// and `in_use` bytes that it has in use. Whole MiB: the same command needs a little more or less each time.
pub(crate) fn outside_model(in_use: Bytes, held: Bytes) -> Bytes {
    Bytes::mib((in_use.0 + held.0 + product_buffers().0 + DECODE_BUFFERS.0).div_ceil(Bytes::mib(1).0))
}

/// Computes the memory of the batches that wait for their step, if the longest have `utterances` of `frames` of `width`
/// values.
pub(crate) fn waiting_batches(config: &RunConfig, utterances: u32, frames: u32, width: usize) -> Bytes {
    let batches = config.data.prefetch_buffer_size.map_or(LOADED_BATCHES, |ready| u64::from(ready) + 2);
    let frame = (width * size_of::<f32>()) as u64;
    // Batches have all lengths; half the longest is above their average.
    Bytes(batches * u64::from(utterances) * u64::from(frames) * frame / 2)
}

/// Memory of a process that has read its corpus and made no model yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InUse {
    all: Bytes,
    /// Part of it for the tables of Fourier transforms.
    tables: Bytes,
}

impl InUse {
    /// Reads the memory of the process now.
    pub(crate) fn read(process: &CountingAllocator) -> Self {
        Self { all: process.current(), tables: Stft::tables() }
    }

    /// Returns the memory with the tables that `model` makes. Only vocoders have some; one that cannot be built is refused
    /// elsewhere.
    pub(crate) fn with_tables_of(self, model: &ModelPlan) -> Bytes {
        if model.keeps_tables() {
            model.parameters();
        }
        Bytes(self.all.0 + Stft::tables().0.saturating_sub(self.tables.0))
    }
}

/// Computes the memory that a process needs beside model and steps for the corpus `prepared`, whose training utterances have
/// the sizes `metas`: `in_use` with the corpus, the tables of `model`, cached features, and waiting batches.
pub(crate) fn outside_model_of(
    config: &RunConfig,
    prepared: &PreparedData,
    metas: &[SampleMeta],
    model: &ModelPlan,
    in_use: InUse,
) -> Bytes {
    let [training_cache, validation_cache] = cache_shares(config);
    let cached = prepared.training.whole_size().0.min(training_cache.0)
        + prepared.validation.whole_size().0.min(validation_cache.0);
    let longest = metas.iter().map(|meta| meta.frames.0).max().unwrap_or(0);
    let utterances = mapping::utterances_at_length(config, metas, longest);
    let waiting = waiting_batches(config, utterances, longest, prepared.training.frame_width());
    outside_model(in_use.with_tables_of(model), Bytes(cached + waiting.0))
}
