//! One case of `memtest --verify`: predicted, run for real, and compared.

use burn::tensor::Device;
use plimsoll_core::{BatchShape, Bytes, Choice, HostBatch, Key, MemoryMeter};
use plimsoll_memory::{BackendRules, Phase, RunMemory, StepMemory, TraceError, Traceable, trace};
use plimsoll_speech::asr::{Recognizer, RecognizerConfig};
use plimsoll_speech::tts::{Synthesizer, SynthesizerConfig};
use plimsoll_tape::{Noise, Pass, Task};
use plimsoll_train::{Governor, Schedule, Shape, Trainer, TrainerConfig, lay_out};
use serde::{Deserialize, Serialize};

use plimsoll_recipes::device::TrainingDevice;
use plimsoll_recipes::{Failure, FailureExt};

/// Pieces of a step of a case: the second meets the gradients of the first.
pub(crate) const PIECES: u32 = 2;
/// So slow that random weights stay what they are.
const SLOW: Schedule = Schedule { shape: Shape::Constant, peak: 1e-6, last: 1e-6, warmup: 0, total: u64::MAX };
/// Steps of a case: the second meets the optimizer's state.
const STEPS: u32 = 2;

/// What a case found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// The most that is in memory at once, by the trace.
    pub(crate) predicted_bytes: u64,
    /// The most that was.
    pub(crate) measured_bytes: u64,
    /// Weights, gradients and optimizer state.
    pub(crate) fixed_bytes: u64,
    /// On a card, which keeps what it once reserved: what is in use when the forward pass ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) in_use: Option<InUse>,
}

/// What is in use when the forward pass of a piece ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InUse {
    /// By the trace.
    pub(crate) predicted_bytes: u64,
    /// By the pools.
    pub(crate) measured_bytes: u64,
}

/// A model that can be traced and trained.
pub(crate) trait Case: Traceable<Task: Task<Batch = HostBatch>> {
    /// The same model with first values.
    fn trained(&self, device: &Device) -> Self::Task;
}

impl Case for RecognizerConfig {
    fn trained(&self, device: &Device) -> Recognizer {
        self.init(device, Key::new(1))
    }
}

impl Case for SynthesizerConfig {
    fn trained(&self, device: &Device) -> Synthesizer {
        self.init(device, Key::new(1))
    }
}

/// Predicts a step of pieces of `shape`, runs it, and says what both found.
pub(crate) fn found<S: Case>(
    subject: &S,
    shape: BatchShape,
    choice: Choice,
    (pieces, chosen): (u32, &TrainingDevice),
    meter: &dyn MemoryMeter,
) -> Result<Found, Failure> {
    let rules = if chosen.is_host { BackendRules::host() } else { BackendRules::gpu() };
    let life = predicted(subject, shape, choice, (pieces, rules)).failed()?;
    let fixed_bytes = life.fixed.0;
    if chosen.is_host {
        let predicted_bytes = life.peak().0;
        drop(life);
        let measured_bytes = measured(subject, shape, choice, (pieces, chosen), meter).0;
        return Ok(Found { predicted_bytes, measured_bytes, fixed_bytes, in_use: None });
    }
    let piece = trace(subject, shape, choice, rules).failed()?;
    let forward = piece.timeline.at_start_of(Phase::Backward);
    lay_out(&chosen.device, piece.largest()).map_err(|reason| Failure::invalid(reason, "take a smaller case"))?;
    let predicted_bytes = piece.reserved(StepMemory { micro_batches: pieces, ..StepMemory::default() }).0;
    measured(subject, shape, choice, (pieces, chosen), meter);
    let measured_bytes = reserved(&chosen.device).0;
    let in_use = InUse {
        predicted_bytes: forward.map_or(0, |bytes| bytes.0),
        measured_bytes: after_forward(subject, shape, choice, chosen).0,
    };
    Ok(Found { predicted_bytes, measured_bytes, fixed_bytes, in_use: Some(in_use) })
}

/// What the trace says of a step of so many pieces of `shape`.
fn predicted<S: Case>(
    subject: &S,
    shape: BatchShape,
    choice: Choice,
    (pieces, rules): (u32, BackendRules),
) -> Result<RunMemory, TraceError> {
    let piece = trace(subject, shape, choice, rules)?;
    let host_batch = match rules {
        // Pieces are cut when their turn comes; the whole batch was there before, and is a piece itself where it fits.
        BackendRules::Flex { .. } if pieces > 1 => host_bytes(&subject.batch(shape)),
        BackendRules::Flex { .. } | BackendRules::Cube { .. } => Bytes(0),
    };
    Ok(RunMemory::new(&piece, None, StepMemory { micro_batches: pieces, host_batch, ..StepMemory::default() }))
}

/// What a batch takes on the host.
fn host_bytes(batch: &HostBatch) -> Bytes {
    let values = batch.features.len() + batch.tokens.len() + batch.references.len();
    Bytes::for_values::<f32>(values as u64)
}

/// What a card has in use when the forward pass has ended.
fn after_forward<S: Case>(subject: &S, shape: BatchShape, choice: Choice, chosen: &TrainingDevice) -> Bytes {
    let device = chosen.device.clone().autodiff();
    let used = || device.memory_pool_usage().map_or(0, |usage| usage.bytes_in_use);
    let before = used();
    let task = subject.trained(&device);
    let batch = audible(subject.batch(shape));
    let tensors = S::Task::send(&batch, &device);
    let _loss = task.loss(&tensors, &Pass::new(choice, Noise::new(Key::new(0), &batch.ids)));
    Bytes(used() - before)
}

/// The most that the pools of a card have reserved. Pages of an older size went back when they were empty; those are not
/// counted.
fn reserved(device: &Device) -> Bytes {
    let now = device.memory_pool_usage().map_or(0, |usage| usage.bytes_reserved);
    let pools = device.memory_pool_report().unwrap_or_default();
    // The pool of small things and the one that is used now come first.
    Bytes(now + pools.iter().take(2).map(|pool| (pool.pages_peak - pool.pages) * pool.page_size).sum::<u64>())
}

/// The batch with noise in it: silence has no variance, and norms would divide by it.
fn audible(mut batch: HostBatch) -> HostBatch {
    let values = batch.features.iter_mut().enumerate();
    values.for_each(|(place, value)| *value = Key::new(2).at(place as u64).unit() as f32);
    batch
}

/// Runs the steps for real and gives the most that was in memory above what was there before.
fn measured<S: Case>(
    subject: &S,
    shape: BatchShape,
    choice: Choice,
    (pieces, chosen): (u32, &TrainingDevice),
    meter: &dyn MemoryMeter,
) -> Bytes {
    let device = chosen.device.clone().autodiff();
    if chosen.is_host {
        rayon::broadcast(|_| warm());
        warm();
    }
    let whole = audible(subject.batch(shape.with_utterances(shape.utterances * pieces)));
    let before = meter.current();
    meter.reset_peak();
    let config = TrainerConfig { choice, tells_late: !chosen.is_host, ..TrainerConfig::new(SLOW, Key::new(1)) };
    let mut trainer = Trainer::new(subject.trained(&device), config, Governor::new(shape.utterances as usize));
    for _ in 0..STEPS {
        trainer.step(&whole).expect("a step of random weights has a finite loss");
    }
    Bytes(meter.peak().0 - before.0)
}

/// Makes what the matrix products of this thread keep for good.
fn warm() {
    use burn::tensor::{Distribution, Tensor};
    let device = Device::flex();
    // From both sides: what the left operand needs depends on how it lies.
    for (rows, width) in [(128, 128), (20_000, 5)] {
        let random = |shape| Tensor::<2>::random(shape, Distribution::Default, &device);
        let (x, y) = (random([rows, 64]), random([64, width]));
        let product = x.clone().matmul(y);
        let _ = x.swap_dims(0, 1).matmul(product).into_data();
    }
}
