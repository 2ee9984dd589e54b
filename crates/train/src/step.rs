//! One step, as a transaction: it either happened or it did not.

use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Choice, HostBatch, Key};
use plimsoll_tape::{Noise, Task, TensorBatch, backward};

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
    /// Pieces of a batch are padded to a multiple of so many frames.
    pub frame_grid: usize,
    /// How pieces are computed.
    pub choice: Choice,
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
    /// The norm of the gradient before it was clipped.
    pub norm: f64,
    /// The learning rate.
    pub rate: f64,
    /// Pieces that the batch was cut into.
    pub pieces: usize,
    /// Samples that no loss could be computed for.
    pub left_out: Vec<String>,
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
    norm: f64,
    pieces: usize,
    left_out: Vec<String>,
}

impl<T: Task> Trainer<T> {
    /// A trainer of `task`, which is on an autodiff device.
    ///
    /// # Panics
    /// Where the model has no parameters.
    pub fn new(task: T, config: TrainerConfig, governor: Governor) -> Self {
        let device = task.devices().into_iter().next().expect("a model has parameters");
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
        let Computed { gradients, loss, norm, pieces, left_out } = computed;
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
        Ok(StepReport { step, loss, norm, rate, pieces, left_out })
    }

    /// The gradient of the whole batch, piece by piece, and its norm, read from the device.
    fn compute(&self, batch: &HostBatch, step: u64) -> Result<Computed, String> {
        let pieces = batch.split(self.governor.limit(), self.config.frame_grid);
        let weight = self.task.weight(batch).max(f64::MIN_POSITIVE);
        let key = self.config.key.with("step").at(step);
        let mut gathered = GradientsParams::new();
        let (mut losses, mut left_out) = (Vec::new(), Vec::new());
        for piece in &pieces {
            let tensors = TensorBatch::send(piece, &self.device);
            let noise = Noise::new(key, &piece.ids);
            let loss = self.task.loss(&tensors, &self.config.choice, &noise);
            left_out.extend(loss.left_out.iter().map(|&index| piece.names[index].clone()));
            losses.push(loss.sum.clone().without_autodiff());
            let gradients = backward(loss.sum * (1.0 / weight), &self.task);
            gathered = add(&self.task, gathered, gradients);
        }
        // Reading is where a device admits that it ran out of memory: nothing has been moved until here.
        let loss = read(Tensor::cat(losses, 0).sum())? / weight;
        let norm = read(square_sum(&self.task, &gathered, &self.device))?.sqrt();
        Ok(Computed { gradients: gathered, loss, norm, pieces: pieces.len(), left_out })
    }
}

fn read(value: Tensor<1>) -> Result<f64, String> {
    value.try_into_scalar::<f32>().map(f64::from).map_err(|error| error.to_string())
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
