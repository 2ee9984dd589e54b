//! One step, as a transaction: it either happened or it did not.

mod cut;
mod gather;
mod piece;
mod scale;
mod watch;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Bytes, Choice, HostBatch, Key, MemoryGate, MemoryMeter, OutOfMemory, Stage};
use plimsoll_tape::{Task, sweep};
use serde::{Deserialize, Serialize};

use crate::{AdamW, AdamWConfig, Ema, Governor, Schedule};
use cut::Queue;
pub use cut::{Cut, ways};
use gather::Gathered;
use piece::Job;
pub(crate) use piece::{Fault, told};
pub use scale::LossScale;
pub(crate) use watch::Watch;

/// What a [`Trainer`] is built from.
#[derive(Clone, Copy, Debug)]
pub struct TrainerConfig {
    /// The optimizer's numbers.
    pub optimizer: AdamWConfig,
    /// The learning rate over the run.
    pub schedule: Schedule,
    /// The norm that the whole gradient is clipped to.
    pub clip_norm: f64,
    /// How pieces are computed. In fp16 the loss is [scaled](LossScale).
    pub choice: Choice,
    /// Pieces computed at the same time, each on a thread of its own: the cores of a CPU, one for a GPU.
    ///
    /// Most of Burn's operations on the CPU use one core; pieces are what can be given to the others. The result does
    /// not depend on the threads' luck, as gradients are added in the order of the pieces.
    pub lanes: usize,
    /// Whether the device tells of a failure only when something that depends on it is read, as GPUs do.
    pub tells_late: bool,
    /// What becomes of an utterance that does not fit alone, whatever is tried.
    pub unfit: Unfit,
    /// How slowly the mean of the weights moves that is validated and kept; none is kept where `None`.
    pub ema_decay: Option<f64>,
    /// The root of the run's randomness.
    pub key: Key,
}

impl TrainerConfig {
    /// A configuration with the defaults of everything but the learning rate and the key: AdamW as PyTorch has it, one
    /// lane of a CPU, fp32.
    pub fn new(schedule: Schedule, key: Key) -> Self {
        Self {
            optimizer: AdamWConfig::default(),
            schedule,
            clip_norm: 5.0,
            choice: Choice::default(),
            lanes: 1,
            tells_late: false,
            unfit: Unfit::Skip,
            ema_decay: None,
            key,
        }
    }
}

/// What becomes of an utterance that does not fit into memory alone, with every effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unfit {
    /// It is left out, and told.
    #[default]
    Skip,
    /// The run stops.
    Stop,
}

/// A model in training.
pub struct Trainer<T> {
    /// The model.
    pub task: T,
    /// Its optimizer.
    pub optimizer: AdamW,
    /// Who cuts the steps.
    pub governor: Governor,
    /// What the loss is multiplied by, so that small gradients are not lost in fp16.
    pub scale: LossScale,
    /// The mean of the weights, where one is kept.
    pub ema: Option<Ema<T>>,
    /// What the learning rate is multiplied by, for whoever lowers it when a run no longer gets better.
    pub rate_factor: f64,
    config: TrainerConfig,
    device: Device,
    watch: Watch,
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
    /// The pieces that the batch was cut into, in the order in which they were added up: the step's line in the ledger.
    pub cuts: Vec<Cut>,
    /// Pieces that were begun, those that did not fit included.
    pub begun: usize,
    /// What did not fit on the way.
    pub failures: Vec<OutOfMemory>,
    /// Utterances that were left out as they do not fit into memory alone.
    pub unfit: Vec<String>,
    /// Samples that no loss could be computed for.
    pub left_out: Vec<String>,
    /// Samples that the model's length policy cut short.
    pub cut: Vec<String>,
    /// Reads from the device that the step waited for: one, and one more for each that failed.
    pub reads: u32,
    /// What the loss was multiplied by.
    pub loss_scale: f64,
    /// The most memory in use, and the stage in which it was.
    pub peak: (Bytes, Stage),
    /// Time spent on gate, governor and ledger.
    pub safety: Duration,
}

/// Why a step did not happen. Parameters and optimizer are as they were.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The loss or the gradient is not a number.
    #[error("the {what} of step {step} is {value}, in a piece with {}", listed(names))]
    NotFinite {
        /// The step's number.
        step: u64,
        /// Loss or gradient norm.
        what: &'static str,
        /// What it was.
        value: f64,
        /// The utterances of the pieces whose loss it was, or of the batch.
        names: Vec<String>,
        /// Whether that is no surprise: in fp16 the loss scale is too high now and then, and has fallen now.
        is_usual: bool,
    },
    /// The device could not compute it.
    #[error("the device failed in step {step}, with {}: {reason}", listed(names))]
    Device {
        /// The step's number.
        step: u64,
        /// The utterances that were computed.
        names: Vec<String>,
        /// What the device said.
        reason: String,
    },
    /// No utterance of the batch fits alone, and all were left out.
    #[error("no utterance of step {step} fits into memory, not even alone ({})", listed(names))]
    Nothing {
        /// The step's number.
        step: u64,
        /// The utterances.
        names: Vec<String>,
    },
    /// An utterance does not fit, and the run is to stop then.
    #[error(
        "step {step} does not fit into memory, with one utterance at a time and every effort ({}): {source}",
        listed(names)
    )]
    Unfit {
        /// The step's number.
        step: u64,
        /// The utterances.
        names: Vec<String>,
        /// What was said at the last attempt.
        source: OutOfMemory,
    },
}

/// The first of `names`, and how many there are.
fn listed(names: &[String]) -> String {
    const MOST: usize = 4;
    let mut text: Vec<String> = names.iter().take(MOST).map(|name| format!("`{name}`")).collect();
    if names.len() > MOST {
        text.push(format!("{} more", names.len() - MOST));
    }
    text.join(", ")
}

/// Times that the norm of a step is read before its device is given up.
const NORM_READS: usize = 8;
/// Times that a step is begun anew, where a device said only at its end that something had failed.
const BEGINNINGS: usize = 8;

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
        Self {
            ema: config.ema_decay.map(|decay| Ema::of(&task, decay)),
            scale: LossScale::of(config.choice.precision),
            optimizer: AdamW::new(config.optimizer),
            rate_factor: 1.0,
            watch: Watch::nobody(),
            task,
            governor,
            config,
            device,
        }
    }

    /// The same trainer, asking `gate` whether memory has held, and `meter` how much was in use.
    #[must_use]
    pub fn watched(self, gate: impl MemoryGate + 'static, meter: impl MemoryMeter + 'static) -> Self {
        Self { watch: Watch::new(Box::new(gate), Box::new(meter), !self.config.tells_late), ..self }
    }

    /// The device that the model is on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Who looks after memory.
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The learning rate over the run.
    pub fn schedule(&self) -> &Schedule {
        &self.config.schedule
    }

    /// The model to judge and to keep: the mean of the weights where there is one.
    pub fn judged(&self) -> &T {
        self.ema.as_ref().map_or(&self.task, Ema::model)
    }

    /// One step on one effective batch: compute, read, and only then move.
    ///
    /// The batch is cut as the governor says; what does not fit is cut further while the rest is kept. Then the gradient's
    /// norm is read, which is where a device admits what went wrong, and until which nothing has moved.
    pub fn step(&mut self, batch: &HostBatch) -> Result<StepReport, StepError> {
        self.step_by(batch, None)
    }

    /// The step that a ledger tells of: the same pieces in the same order, which gives the same weights to the last bit.
    pub fn replay(&mut self, batch: &HostBatch, cuts: &[Cut]) -> Result<StepReport, StepError> {
        self.step_by(batch, Some(cuts))
    }

    /// The gradient that a step on `batch` would move by, before it is clipped; nothing moves. With `cuts`, by these pieces.
    pub fn gradient(&mut self, batch: &HostBatch, cuts: Option<&[Cut]>) -> Result<GradientsParams, StepError> {
        let step = self.optimizer.steps() + 1;
        let (mut gathered, _) = self.computed(batch, step, cuts, &mut Vec::new())?;
        Ok(gathered.take_gradients())
    }

    fn step_by(&mut self, batch: &HostBatch, cuts: Option<&[Cut]>) -> Result<StepReport, StepError> {
        let step = self.optimizer.steps() + 1;
        let mut failures = Vec::new();
        self.watch.start();
        let (mut gathered, norm) = self.computed(batch, step, cuts, &mut failures)?;
        if gathered.is_empty() {
            return Err(StepError::Nothing { step, names: batch.names.clone() });
        }
        let scale = self.scale.factor();
        let norm = norm / scale * gathered.correction();
        let (loss, parts) = gathered.losses();
        for (what, value) in [("loss", loss), ("gradient norm", norm)] {
            if !value.is_finite() {
                let is_usual = self.scale.failed();
                return Err(StepError::NotFinite { step, what, value, names: gathered.suspects(batch), is_usual });
            }
        }
        self.scale.went_well();
        let rate = self.config.schedule.rate(step) * self.rate_factor;
        // PyTorch's clip_grad_norm_, its small number included.
        let clip = (self.config.clip_norm / (norm + 1e-6)).min(1.0);
        let (task, gradients) = (self.task.clone(), gathered.take_gradients());
        self.task = self.optimizer.step(rate, task, gradients, clip * gathered.correction() / scale);
        if let Some(ema) = &mut self.ema {
            ema.follow(&self.task);
        }
        if self.config.tells_late && step == 1 {
            // What loading and the trials of kernels left behind goes back before the run settles.
            self.device.memory_cleanup();
        }
        let safety = gathered.safety + self.learn(batch, &gathered);
        let Gathered { cuts, begun, unfit, left_out, cut, reads, .. } = gathered;
        let (loss_scale, peak) = (scale, self.watch.end(Stage::Update));
        Ok(StepReport {
            step,
            loss,
            parts,
            norm,
            rate,
            cuts,
            begun,
            failures,
            unfit,
            left_out,
            cut,
            reads,
            loss_scale,
            peak,
            safety,
        })
    }

    /// The gradient of the whole batch and its norm, read.
    fn computed(
        &mut self,
        batch: &HostBatch,
        step: u64,
        cuts: Option<&[Cut]>,
        failures: &mut Vec<OutOfMemory>,
    ) -> Result<(Gathered, f64), StepError> {
        let mut wary = false;
        for _ in 0..BEGINNINGS {
            let mut gathered = self.gathered(batch, step, (cuts, wary), failures)?;
            for _ in 0..NORM_READS {
                let read = gathered.read(&self.task, &self.device);
                match read.and_then(|norm| self.watch.check(Stage::Norm).map(|()| norm).map_err(Fault::Memory)) {
                    Ok(norm) => return Ok((gathered, norm)),
                    Err(Fault::Memory(failure)) => failures.push(failure),
                    Err(Fault::Broken(reason)) if self.config.tells_late => {
                        failures.push(OutOfMemory { stage: Stage::Norm, reason });
                    }
                    Err(Fault::Broken(reason)) => {
                        return Err(StepError::Device { step, names: batch.names.clone(), reason });
                    }
                }
                clean_up(&self.device);
            }
            if !self.config.tells_late {
                break;
            }
            // A sum is lost, and with it all that was added up: once more, and every piece is asked.
            wary = true;
        }
        let source = failures.pop().expect("a read failed");
        Err(StepError::Unfit { step, names: batch.names.clone(), source })
    }

    /// The gradients of all pieces, added up.
    fn gathered(
        &mut self,
        batch: &HostBatch,
        step: u64,
        (cuts, wary): (Option<&[Cut]>, bool),
        failures: &mut Vec<OutOfMemory>,
    ) -> Result<Gathered, StepError> {
        let weight = self.task.weight(batch).max(f64::MIN_POSITIVE);
        let job = Job {
            scale: self.scale.factor() / weight,
            key: self.config.key.with("step").at(step),
            choice: self.governor.choice(batch.shape()).unwrap_or(self.config.choice),
            device: &self.device,
            gate: &self.watch,
        };
        let mut gathered = Gathered::new(weight);
        let mut queue = Queue::of(batch, cuts);
        while let Some(wave) = queue.next_wave(batch, &self.governor, self.config.lanes) {
            if let [cut] = wave.cuts[..]
                && cut.effort == Cut::LEFT_OUT
            {
                gathered.leave_out(cut, self.task.weight(&batch.part(cut.places())), &batch.names[cut.places()]);
                continue;
            }
            let pieces: Vec<HostBatch> = wave.cuts.iter().map(|cut| batch.part(cut.places())).collect();
            let is_only = gathered.is_empty() && queue.is_empty() && wave.cuts.len() == 1;
            let asks = self.config.tells_late && (wary || !is_only);
            gathered.begun += pieces.len();
            let done = job.wave(&self.task, &wave.cuts, &pieces);
            let mut failed = Vec::new();
            for ((&cut, piece), done) in wave.cuts.iter().zip(&pieces).zip(done) {
                let done = if asks { done.and_then(|done| done.written(&self.task, &self.device)) } else { done };
                match done.and_then(|done| gathered.add(&self.task, &self.watch, (cut, piece), done)) {
                    Ok(()) => {}
                    Err(Fault::Memory(failure)) => failed.push((cut, failure)),
                    Err(Fault::Broken(reason)) => {
                        return Err(StepError::Device { step, names: piece.names.clone(), reason });
                    }
                }
            }
            if failed.is_empty() {
                gathered.fitted(wave.shape);
                continue;
            }
            drop(pieces);
            clean_up(&self.device);
            let (failed, new): (Vec<Cut>, Vec<OutOfMemory>) = failed.into_iter().unzip();
            for cut in queue.failed(&failed, &wave, &mut self.governor) {
                let names = &batch.names[cut.places()];
                match (self.config.unfit, new.first()) {
                    (Unfit::Stop, Some(source)) => {
                        return Err(StepError::Unfit { step, names: names.to_vec(), source: source.clone() });
                    }
                    _ => gathered.leave_out(cut, self.task.weight(&batch.part(cut.places())), names),
                }
            }
            failures.extend(new);
        }
        Ok(gathered)
    }

    /// Tells the governor that the pieces of a step fitted.
    fn learn(&mut self, batch: &HostBatch, gathered: &Gathered) -> Duration {
        let start = Instant::now();
        if let Some(largest) = gathered.largest {
            self.governor.went_well(largest, batch.len());
        }
        start.elapsed()
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Trainer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trainer").field("task", &self.task).field("config", &self.config).finish_non_exhaustive()
    }
}

/// Gives back what nobody holds: what a pass kept that was given up, and what was dropped and is on its way in a queue.
pub(crate) fn clean_up(device: &Device) {
    sweep();
    let _ = device.flush();
    device.memory_cleanup();
}

/// Reads every parameter once, so that it is there.
struct Made;

impl ModuleVisitor for Made {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let _ = param.val();
    }
}
