//! One case of `memtest --verify`: predicted, run for real, and compared.

use burn::tensor::Device;
use plimsoll_core::{BatchShape, Bytes, Choice, HostBatch, Key, MemoryMeter};
use plimsoll_memory::{BackendRules, Life, StepMemory, Subject, TraceError, trace};
use plimsoll_speech::asr::{Recogniser, RecogniserConfig};
use plimsoll_speech::tts::{Synthesiser, SynthesiserConfig};
use plimsoll_train::{AdamWConfig, Governor, Schedule, Trainer, TrainerConfig};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Told};

/// Pieces of a step of a case: the second meets the gradients of the first.
pub(crate) const PIECES: u32 = 2;
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
}

/// A model that can be traced and trained.
pub(crate) trait Case: Subject {
    /// The same model with first values.
    fn trained(&self, device: &Device) -> Self::Task;
}

impl Case for RecogniserConfig {
    fn trained(&self, device: &Device) -> Recogniser {
        self.init(device, Key::new(1))
    }
}

impl Case for SynthesiserConfig {
    fn trained(&self, device: &Device) -> Synthesiser {
        self.init(device, Key::new(1))
    }
}

/// Predicts a step of pieces of `shape`, runs it, and says what both found.
pub(crate) fn found<S: Case>(
    subject: &S,
    shape: BatchShape,
    choice: Choice,
    pieces: u32,
    meter: &dyn MemoryMeter,
) -> Result<Found, Failure> {
    let life = predicted(subject, shape, choice, pieces).failed()?;
    let (predicted_bytes, fixed_bytes) = (life.peak().0, life.fixed.0);
    drop(life);
    let measured_bytes = measured(subject, shape, choice, pieces, meter).0;
    Ok(Found { predicted_bytes, measured_bytes, fixed_bytes })
}

/// What the trace says of a step of so many pieces of `shape`.
fn predicted<S: Subject>(subject: &S, shape: BatchShape, choice: Choice, pieces: u32) -> Result<Life, TraceError> {
    let piece = trace(subject, shape, choice, BackendRules::host())?;
    let host_batch = Bytes(host_bytes(&subject.batch(shape)).0 * u64::from(pieces));
    Ok(Life::of(&piece, None, StepMemory { pieces, host_batch, ..StepMemory::default() }))
}

/// What a batch takes on the host.
fn host_bytes(batch: &HostBatch) -> Bytes {
    let values = batch.features.len() + batch.tokens.len() + batch.references.len();
    Bytes::of::<f32>(values as u64)
}

/// Runs the steps for real, on the CPU, and gives the most that was in memory above what was there before.
fn measured<S: Case>(subject: &S, shape: BatchShape, choice: Choice, pieces: u32, meter: &dyn MemoryMeter) -> Bytes {
    let device = Device::flex().autodiff();
    rayon::broadcast(|_| warm());
    warm();
    let mut whole = subject.batch(shape.with_utterances(shape.utterances * pieces));
    // Silence has no variance, and norms would divide by it.
    whole
        .features
        .iter_mut()
        .enumerate()
        .for_each(|(place, value)| *value = Key::new(2).at(place as u64).unit() as f32);
    let before = meter.current();
    meter.reset_peak();
    let config = TrainerConfig {
        optimizer: AdamWConfig::default(),
        schedule: Schedule::constant(1e-6),
        clip_norm: 5.0,
        frame_grid: 1,
        choice,
        lanes: 1,
        key: Key::new(1),
    };
    let mut trainer = Trainer::new(subject.trained(&device), config, Governor::new(shape.utterances as usize, None));
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
