//! One step, as a transaction: it either happened or it did not.

use std::any::Any;
use std::collections::BTreeMap;

use burn::module::{ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Choice, HostBatch, Key};
use plimsoll_tape::{Noise, Pass, StepLoss, Task, TensorBatch, backward};

use crate::{AdamW, AdamWConfig, Governor, Schedule};

/// What a [`Trainer`] is built from.
#[derive(Clone, Copy, Debug)]
pub struct TrainerConfig {
    /// The optimizer's numbers.
    pub optimizer: AdamWConfig,
    /// The learning rate over the run.
    pub schedule: Schedule,
    /// The norm that the whole gradient is clipped to.
    pub clip_norm: f64,
    /// How pieces are computed.
    pub choice: Choice,
    /// Pieces computed at the same time, each on a thread of its own: the cores of a CPU, one for a GPU.
    ///
    /// Most of Burn's operations on the CPU use one core; pieces are what can be given to the others. The result does
    /// not depend on the threads' luck, as gradients are added in the order of the pieces.
    pub lanes: usize,
    /// The root of the run's randomness.
    pub key: Key,
}

/// A model in training.
#[derive(Debug)]
pub struct Trainer<T> {
    /// The model.
    pub task: T,
    /// Its optimizer.
    pub optimizer: AdamW,
    /// Who cuts the steps.
    pub governor: Governor,
    config: TrainerConfig,
    device: Device,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// The step's number, the first being 1.
    pub step: u64,
    /// The loss, per unit of weight.
    pub loss: f64,
    /// What the loss is made of, by name, per unit of weight.
    pub parts: BTreeMap<&'static str, f64>,
    /// The norm of the gradient before it was clipped.
    pub norm: f64,
    /// The learning rate.
    pub rate: f64,
    /// Pieces that the batch was cut into.
    pub pieces: usize,
    /// Samples that no loss could be computed for.
    pub left_out: Vec<String>,
    /// Samples that the model's length policy cut short.
    pub cut: Vec<String>,
}

/// Why a step did not happen. Parameters and optimizer are as they were.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The loss or the gradient is not a number.
    #[error("the {what} of step {step} is {value}, in a batch that starts with `{name}`")]
    NotFinite {
        /// The step's number.
        step: u64,
        /// Loss or gradient norm.
        what: &'static str,
        /// What it was.
        value: f64,
        /// The first sample of the batch.
        name: String,
    },
    /// The device could not compute it, even one sample at a time.
    #[error("the device failed in step {step}, with one utterance at a time (`{name}` first): {reason}")]
    Device {
        /// The step's number.
        step: u64,
        /// The first sample of the batch.
        name: String,
        /// What the device said.
        reason: String,
    },
}

/// A gradient that has been computed and read, and not yet applied.
struct Computed {
    gradients: GradientsParams,
    loss: f64,
    parts: BTreeMap<&'static str, f64>,
    norm: f64,
    pieces: usize,
    left_out: Vec<String>,
    cut: Vec<String>,
}

impl<T: Task> Trainer<T> {
    /// A trainer of `task`, which is on an autodiff device.
    ///
    /// # Panics
    /// Where the model has no parameters.
    pub fn new(task: T, config: TrainerConfig, governor: Governor) -> Self {
        let device = task.devices().into_iter().next().expect("a model has parameters");
        // Burn makes a parameter when it is first read, which is amid what the first pieces need. Made at once they lie
        // together, and the pages around them are free again when a piece is done.
        task.visit(&mut Made);
        Self { task, optimizer: AdamW::new(config.optimizer), governor, config, device }
    }

    /// The device that the model is on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The learning rate over the run.
    pub fn schedule(&self) -> &Schedule {
        &self.config.schedule
    }

    /// One step on one effective batch: compute, read, and only then move.
    pub fn step(&mut self, batch: &HostBatch) -> Result<StepReport, StepError> {
        let step = self.optimizer.steps() + 1;
        let computed = loop {
            match self.compute(batch, step) {
                Ok(computed) => break computed,
                Err(_) if self.governor.ran_out(batch.len()) => {}
                Err(reason) => return Err(StepError::Device { step, name: batch.names[0].clone(), reason }),
            }
        };
        let Computed { gradients, loss, parts, norm, pieces, left_out, cut } = computed;
        for (what, value) in [("loss", loss), ("gradient norm", norm)] {
            if !value.is_finite() {
                return Err(StepError::NotFinite { step, what, value, name: batch.names[0].clone() });
            }
        }
        let rate = self.config.schedule.rate(step);
        // PyTorch's clip_grad_norm_, its small number included.
        let scale = (self.config.clip_norm / (norm + 1e-6)).min(1.0);
        let task = self.task.clone();
        self.task = self.optimizer.step(rate, task, gradients, scale);
        Ok(StepReport { step, loss, parts, norm, rate, pieces, left_out, cut })
    }

    /// The gradient of the whole batch, piece by piece, and its norm, read from the device.
    fn compute(&self, batch: &HostBatch, step: u64) -> Result<Computed, String> {
        let lanes = self.config.lanes.clamp(1, batch.len());
        let together = self.governor.limit().min(batch.len());
        let pieces = batch.split(together.div_ceil(lanes));
        let job = Job {
            scale: 1.0 / self.task.weight(batch).max(f64::MIN_POSITIVE),
            key: self.config.key.with("step").at(step),
            choice: self.config.choice,
            device: &self.device,
        };
        let mut gathered = GradientsParams::new();
        let (mut losses, mut left_out, mut cut) = (Vec::new(), Vec::new(), Vec::new());
        for wave in pieces.chunks(lanes) {
            for (piece, done) in wave.iter().zip(job.wave(&self.task, wave)?) {
                left_out.extend(done.left_out.iter().map(|&index| piece.names[index].clone()));
                cut.extend(done.cut.iter().map(|&index| piece.names[index].clone()));
                losses.push((None, done.loss));
                losses.extend(done.parts.into_iter().map(|(name, part)| (Some(name), part)));
                gathered = add(&self.task, gathered, done.gradients);
            }
        }
        // Reading is where a device admits that it ran out of memory: nothing has been moved until here.
        let (loss, parts) = read_losses(losses, job.scale)?;
        let norm = read(square_sum(&self.task, &gathered, &self.device))?.sqrt();
        Ok(Computed { gradients: gathered, loss, parts, norm, pieces: pieces.len(), left_out, cut })
    }
}

/// What the pieces of a step share.
struct Job<'a> {
    scale: f64,
    key: Key,
    choice: Choice,
    device: &'a Device,
}

/// What a piece gives.
struct Done {
    loss: Tensor<1>,
    parts: Vec<(&'static str, Tensor<1>)>,
    left_out: Vec<usize>,
    cut: Vec<usize>,
    gradients: GradientsParams,
}

impl Job<'_> {
    /// Computes the pieces of `wave` at the same time.
    fn wave<T: Task>(&self, task: &T, wave: &[HostBatch]) -> Result<Vec<Done>, String> {
        if let [piece] = wave {
            return Ok(vec![self.piece(task, piece)]);
        }
        // Leaves of their own keep the tapes of the threads apart: a shared one has a lock that they would wait for.
        let lanes: Vec<T> = wave.iter().map(|_| task.clone().map(&mut FreshLeaves)).collect();
        std::thread::scope(|scope| {
            let start = |(lane, piece): (T, _)| scope.spawn(move || self.piece(&lane, piece));
            let threads: Vec<_> = lanes.into_iter().zip(wave).map(start).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|panic| told(&*panic))).collect()
        })
    }

    fn piece<T: Task>(&self, task: &T, piece: &HostBatch) -> Done {
        let tensors = TensorBatch::send(piece, self.device);
        let pass = Pass::new(self.choice, Noise::new(self.key, &piece.ids));
        let StepLoss { sum, parts, left_out, cut } = task.loss(&tensors, &pass);
        let loss = sum.clone().without_autodiff();
        let parts = parts.into_iter().map(|(name, part)| (name, part.without_autodiff())).collect();
        Done { loss, parts, left_out, cut, gradients: backward(sum * self.scale, task) }
    }
}

/// Reads every parameter once, so that it is there.
struct Made;

impl ModuleVisitor for Made {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let _ = param.val();
    }
}

/// The same parameters, as leaves of another tape.
struct FreshLeaves;

impl ModuleMapper for FreshLeaves {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|value| {
            let required = value.is_require_grad();
            value.detach().set_require_grad(required)
        })
    }
}

/// What a panic said.
fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a thread of the step failed").to_string()
}

fn read(value: Tensor<1>) -> Result<f64, String> {
    value.try_into_scalar::<f32>().map(f64::from).map_err(|error| error.to_string())
}

/// The sum of what has no name, and the sums by name, all read at once.
fn read_losses(
    losses: Vec<(Option<&'static str>, Tensor<1>)>,
    scale: f64,
) -> Result<(f64, BTreeMap<&'static str, f64>), String> {
    let (names, values): (Vec<_>, Vec<_>) = losses.into_iter().unzip();
    let data = Tensor::cat(values, 0).try_into_data().map_err(|error| error.to_string())?;
    let values = data.try_into_vec::<f32>().map_err(|error| format!("a loss is not in fp32: {error:?}"))?;
    let (mut whole, mut parts) = (0.0, BTreeMap::new());
    for (name, value) in names.into_iter().zip(values) {
        let sum = name.map_or(&mut whole, |name| parts.entry(name).or_default());
        *sum += f64::from(value) * scale;
    }
    Ok((whole, parts))
}

/// The sum of two sets of gradients of `module`.
fn add<T: Task>(module: &T, mut into: GradientsParams, mut from: GradientsParams) -> GradientsParams {
    struct Add<'a>(&'a mut GradientsParams, &'a mut GradientsParams);
    impl ModuleVisitor for Add<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(new) = self.1.remove::<D>(param.id) {
                let sum = match self.0.remove::<D>(param.id) {
                    Some(old) => old + new,
                    None => new,
                };
                self.0.register(param.id, sum);
            }
        }
    }
    if into.is_empty() {
        return from;
    }
    module.visit(&mut Add(&mut into, &mut from));
    into
}

/// The sum of the squares of all gradients of `module`.
fn square_sum<T: Task>(module: &T, gradients: &GradientsParams, device: &Device) -> Tensor<1> {
    struct Squares<'a>(&'a GradientsParams, Vec<Tensor<1>>);
    impl ModuleVisitor for Squares<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.get::<D>(param.id) {
                self.1.push(gradient.square().sum());
            }
        }
    }
    let mut squares = Squares(gradients, Vec::new());
    module.visit(&mut squares);
    match squares.1.is_empty() {
        true => Tensor::zeros([1], &device.clone().inner()),
        false => Tensor::cat(squares.1, 0).sum(),
    }
}
