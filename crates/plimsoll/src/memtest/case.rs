//! One case of `memtest --verify`: predicts its memory, runs it, and measures.

use burn::tensor::Device;
use plimsoll_core::{BatchShape, Bytes, Choice, HostBatch, Key, MemoryMeter};
use plimsoll_memory::{BackendRules, Phase, RunMemory, StepMemory, TraceError, Traceable, Trained, trace};
use plimsoll_speech::asr::{Recognizer, RecognizerConfig};
use plimsoll_speech::tts::{ParallelConfig, ParallelSynthesizer, Synthesizer, SynthesizerConfig};
use plimsoll_speech::vocoder::{VocoderTask, VocoderTaskConfig};
use plimsoll_speech::whisper::{Whisper, WhisperConfig};
use plimsoll_tape::backward;
use plimsoll_tape::gpu::CallCounter;
use plimsoll_tape::{Noise, Pass, Task};
use plimsoll_train::pools::preallocate_pages;
use plimsoll_train::{Governor, Schedule, Shape, Trainer, TrainerConfig};
use serde::{Deserialize, Serialize};

use plimsoll_recipes::device::TrainingDevice;
use plimsoll_recipes::target::Target;
use plimsoll_recipes::training::noisy_batch;
use plimsoll_recipes::{Failure, FailureExt};

/// Micro-batches per step of a case. There are two, so that the second runs while the gradients of the first are in
/// memory.
pub(crate) const MICRO_BATCHES: u32 = 2;
/// Learning-rate schedule with a rate so low that random weights hardly change.
const LOW_RATE: Schedule = Schedule { shape: Shape::Constant, peak: 1e-6, last: 1e-6, warmup: 0, total: u64::MAX };
/// Steps of a case. There are two, so that the second runs while the optimizer's state is in memory.
const STEPS: u32 = 2;

/// Predicted and measured memory of a training run with one case of `memtest --verify`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Predicted peak of memory in bytes.
    pub(crate) predicted_bytes: u64,
    /// Measured peak of memory in bytes.
    pub(crate) measured_bytes: u64,
    /// Bytes of weights, gradients and optimizer state.
    pub(crate) fixed_bytes: u64,
    /// Memory in use at the end of the forward pass, on a GPU; `None` on the CPU. The peak of a GPU counts reserved
    /// pages instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) in_use: Option<InUse>,
    /// Kernels of one micro-batch on a GPU; `None` on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) launches: Option<Launches>,
}

/// Number of kernels that the host launches for the loss and the gradients of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Launches {
    /// As the cost model counts them.
    pub(crate) predicted: u64,
    /// As counted once all kernels are tuned.
    pub(crate) measured: u64,
}

/// Memory in use at the end of the forward pass of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InUse {
    /// Bytes in use as predicted by the trace.
    pub(crate) predicted_bytes: u64,
    /// Bytes in use as measured in the memory pools of the device.
    pub(crate) measured_bytes: u64,
}

/// A model that can be traced, and trained for a measurement.
pub(crate) trait Case: Traceable<Task: Task<Batch = HostBatch>> {
    /// Makes the model with initial weights on `device`.
    fn init_task(&self, device: &Device) -> Self::Task;
}

impl Case for RecognizerConfig {
    fn init_task(&self, device: &Device) -> Recognizer {
        self.init(device, Key::new(1))
    }
}

impl Case for WhisperConfig {
    fn init_task(&self, device: &Device) -> Whisper {
        self.init(device, Key::new(1))
    }
}

impl Case for ParallelConfig {
    fn init_task(&self, device: &Device) -> ParallelSynthesizer {
        self.init(device, Key::new(1))
    }
}

impl Case for SynthesizerConfig {
    fn init_task(&self, device: &Device) -> Synthesizer {
        self.init(device, Key::new(1))
    }
}

impl Case for VocoderTaskConfig {
    fn init_task(&self, device: &Device) -> VocoderTask {
        self.init(device, Key::new(1))
    }
}

impl<S: Case> Case for Trained<'_, S> {
    fn init_task(&self, device: &Device) -> Self::Task {
        self.apply(self.whole().init_task(device)).expect("each name is that of a part")
    }
}

/// Predicts the memory of steps with micro-batches of `shape`, runs the steps on the device `chosen`, and returns
/// predicted and measured memory. A step has `micro_batches` micro-batches.
///
/// # Errors
/// If the model cannot be traced, or the device cannot hold one allocation of the case.
pub(crate) fn measure<S: Case>(
    subject: &S,
    shape: BatchShape,
    choice: Choice,
    (micro_batches, chosen): (u32, &TrainingDevice),
    meter: &dyn MemoryMeter,
) -> Result<Measurement, Failure> {
    let rules = chosen.rules;
    let life = predicted(subject, shape, choice, (micro_batches, rules)).failed()?;
    let fixed_bytes = life.fixed.0;
    if chosen.is_host {
        let predicted_bytes = life.peak().0;
        drop(life);
        let measured_bytes = measured(subject, shape, choice, (micro_batches, chosen), meter).0;
        return Ok(Measurement { predicted_bytes, measured_bytes, fixed_bytes, in_use: None, launches: None });
    }
    let traced = trace(subject, shape, choice, rules).failed()?;
    let forward = traced.timeline.at_start_of(Phase::Backward);
    let step = StepMemory { micro_batches, ..StepMemory::default() };
    let page = traced.page(step, largest_allocation(chosen));
    preallocate_pages(&chosen.device, page).map_err(|reason| Failure::invalid(reason, "choose a smaller case"))?;
    let predicted_bytes = traced.reserved_with_page(page, step).0;
    measured(subject, shape, choice, (micro_batches, chosen), meter);
    let measured_bytes = reserved(&chosen.device).0;
    let in_use = InUse {
        predicted_bytes: forward.map_or(0, |bytes| bytes.0),
        measured_bytes: after_forward(subject, shape, choice, chosen).0,
    };
    let counted = launches(subject, shape, choice, chosen);
    let launches = counted.map(|measured| Launches { predicted: traced.cost.launches as u64, measured });
    Ok(Measurement { predicted_bytes, measured_bytes, fixed_bytes, in_use: Some(in_use), launches })
}

/// Predicts the memory that the pools of a GPU reserve in steps with micro-batches of `shape`.
///
/// # Errors
/// If the model cannot be traced.
pub(crate) fn reserved_on_gpu<S: Case>(
    subject: &S,
    shape: BatchShape,
    choice: Choice,
    (micro_batches, chosen): (u32, &TrainingDevice),
) -> Result<Bytes, Failure> {
    let traced = trace(subject, shape, choice, chosen.rules).failed()?;
    let step = StepMemory { micro_batches, ..StepMemory::default() };
    Ok(traced.reserved_with_page(traced.page(step, largest_allocation(chosen)), step))
}

/// Returns the size of the largest allocation that a GPU allows.
fn largest_allocation(chosen: &TrainingDevice) -> Bytes {
    Target::local_gpu(chosen.index).map_or(Bytes(u64::MAX), |gpu| gpu.limit(Bytes(u64::MAX)).allocation)
}

/// Predicts the memory over time of a step with `micro_batches` micro-batches of `shape`, from the trace of the step.
fn predicted<S: Case>(
    subject: &S,
    shape: BatchShape,
    choice: Choice,
    (micro_batches, rules): (u32, BackendRules),
) -> Result<RunMemory, TraceError> {
    let traced = trace(subject, shape, choice, rules)?;
    let host_batch = match rules {
        // Micro-batches are copied out of the batch one at a time, so the whole batch is in memory too; a single micro-batch is
        // the batch itself.
        BackendRules::Flex { .. } if micro_batches > 1 => host_bytes(&subject.batch(shape)),
        BackendRules::Flex { .. } | BackendRules::Cube { .. } => Bytes(0),
    };
    Ok(RunMemory::new(&traced, None, StepMemory { micro_batches, host_batch, ..StepMemory::default() }))
}

/// Computes the bytes that a batch takes in host memory.
fn host_bytes(batch: &HostBatch) -> Bytes {
    let values = batch.features.len() + batch.tokens.len() + batch.references.len();
    Bytes::for_values::<f32>(values as u64)
}

/// Measures the memory that a model and the forward pass of a micro-batch of `shape` take on a GPU.
fn after_forward<S: Case>(subject: &S, shape: BatchShape, choice: Choice, chosen: &TrainingDevice) -> Bytes {
    let device = chosen.device.clone().autodiff();
    let used = || device.memory_pool_usage().map_or(0, |usage| usage.bytes_in_use);
    let before = used();
    let task = subject.init_task(&device);
    let batch = noisy_batch(subject, shape);
    let tensors = S::Task::send(&batch, &device);
    let _loss = task.loss(&tensors, &Pass::new(choice, Noise::new(Key::new(0), &batch.ids)));
    // Fusion holds the last operations back until they are asked for.
    let _ = device.flush();
    Bytes(used() - before)
}

/// Counts the kernels of a micro-batch of `shape` on a GPU. `None` without a GPU backend.
fn launches<S: Case>(subject: &S, shape: BatchShape, choice: Choice, chosen: &TrainingDevice) -> Option<u64> {
    let device = chosen.device.clone().autodiff();
    let (task, batch, counter) = (subject.init_task(&device), noisy_batch(subject, shape), CallCounter::new());
    let mut counted = None;
    // The first one may still tune kernels.
    for _ in 0..2 {
        let _ = device.flush();
        let before = counter.calls()?;
        let tensors = S::Task::send(&batch, &device);
        let loss = task.loss(&tensors, &Pass::new(choice, Noise::new(Key::new(0), &batch.ids)));
        let _gradients = backward(loss.sum, &task);
        let _ = device.flush();
        counted = Some(counter.calls()?.since(before).launches);
    }
    counted
}

/// Returns the peak of the memory that the pools of a GPU have reserved. In the pool of small allocations and in the
/// pool in use, freed pages count too; in the other pools, only the pages that are still reserved.
fn reserved(device: &Device) -> Bytes {
    let now = device.memory_pool_usage().map_or(0, |usage| usage.bytes_reserved);
    let pools = device.memory_pool_report().unwrap_or_default();
    // The first two are the pool of small allocations and the pool in use.
    Bytes(now + pools.iter().take(2).map(|pool| (pool.pages_peak - pool.pages) * pool.page_size).sum::<u64>())
}

/// Runs the steps of a case, and returns the peak of memory above the memory that was in use before.
fn measured<S: Case>(
    subject: &S,
    shape: BatchShape,
    choice: Choice,
    (micro_batches, chosen): (u32, &TrainingDevice),
    meter: &dyn MemoryMeter,
) -> Bytes {
    let device = chosen.device.clone().autodiff();
    if chosen.is_host {
        rayon::broadcast(|_| warm_up());
        warm_up();
    }
    let whole = noisy_batch(subject, shape.with_utterances(shape.utterances * micro_batches));
    let before = meter.current();
    meter.reset_peak();
    let config = TrainerConfig { choice, async_errors: !chosen.is_host, ..TrainerConfig::new(LOW_RATE, Key::new(1)) };
    let mut trainer = Trainer::new(subject.init_task(&device), config, Governor::new(shape.utterances as usize));
    for _ in 0..STEPS {
        trainer.step(&whole).expect("a step of random weights has a finite loss");
    }
    Bytes(meter.peak().0 - before.0)
}

/// Allocates the buffers that matrix products of this thread keep, so that the buffers do not count as memory of the
/// case.
fn warm_up() {
    use burn::tensor::{Distribution, Tensor};
    let device = Device::flex();
    // All orders and proportions: which operand has a buffer depends on layouts, sizes and the processor.
    for (rows, inner, width) in [(128, 64, 128), (20_000, 64, 5), (5, 64, 20_000), (700, 900, 800), (64, 20_000, 64)] {
        let random = |shape| Tensor::<2>::random(shape, Distribution::Default, &device);
        let (x, y) = (random([rows, inner]), random([inner, width]));
        let product = x.clone().matmul(y.clone());
        let _ = x.swap_dims(0, 1).matmul(product.clone()).into_data();
        let _ = product.matmul(y.swap_dims(0, 1)).into_data();
    }
}
