//! Training a model, from a loaded configuration to a folder with its record, checkpoints and summary.

mod folder;
mod pictures;
mod recognition;
mod record;
mod summary;
mod synthesis;
mod task;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use plimsoll_core::{CountingAllocator, Key, MemoryGate};
use plimsoll_data::Shard;
use plimsoll_monitor::Summary;
use plimsoll_speech::ModelFolder;
use plimsoll_tape::{Task, apply, freeze};
use plimsoll_train::{
    Checkpoint, CheckpointError, CheckpointStore, Ending, Event, Governor, InferenceRunner, Observer, Outcome, Replica,
    Run, RunOptions, RunState, StepError, TrainError, Trainer, preallocate_pages,
};

use crate::config::Loaded;
use crate::data::{self, Prepared};
use crate::device::TrainingDevice;
use crate::error::{Failure, FailureExt};
use crate::mapping::ModelPlan;
use crate::plan::RunPlan;
use crate::reporter::{Level, Reporter};
use crate::{memory, resolve};
use plimsoll_core::error_chain;
use recognition::Recognition;
use record::RunRecorder;
use summary::summary;
use synthesis::Synthesis;
use task::TrainingTask;

pub use folder::{RunFolder, configuration_of};
pub use pictures::{Mels, alignment, mels};
pub use record::{NoDisplay, RunDisplay, Totals};

/// Steps in a row that may come out infinite or not a number before the run stops.
const FAILURES_MAX: u32 = 10;

/// A run that is planned and not started: nothing is written yet but the corpus that it makes for itself.
pub struct PlannedRun<'a> {
    loaded: Loaded,
    /// What will happen.
    pub plan: RunPlan,
    prepared: Prepared,
    device: TrainingDevice,
    memory: &'static CountingAllocator,
    reporter: &'a dyn Reporter,
}

/// A run with all that it needs.
pub struct RunContext<'a> {
    loaded: Loaded,
    /// What will happen.
    pub plan: RunPlan,
    /// The data.
    prepared: Prepared,
    /// Where it is recorded.
    pub folder: RunFolder,
    device: TrainingDevice,
    memory: &'static CountingAllocator,
    reporter: &'a dyn Reporter,
    is_resumed: bool,
}

/// How training ended.
#[derive(Debug)]
pub enum TrainingOutcome {
    /// The run reached its end.
    Complete {
        /// What came of it.
        summary: Box<Summary>,
        /// What to do next with it, in whole lines.
        next: String,
    },
    /// The run was asked to stop; its checkpoint can be resumed.
    Stopped {
        /// Steps that are done.
        step: u64,
    },
}

impl<'a> PlannedRun<'a> {
    /// Plans the run of `loaded`. `memory` counts what the process holds; on the CPU this is the memory that is planned.
    ///
    /// # Errors
    /// Where the configuration, the data or the device do not allow the run, or it does not fit.
    pub fn new(
        loaded: Loaded,
        memory: &'static CountingAllocator,
        reporter: &'a dyn Reporter,
    ) -> Result<Self, Failure> {
        for warning in &loaded.warnings {
            reporter.line(Level::Warning, &warning.to_string());
        }
        resolve::check(&loaded.config)?;
        let device = TrainingDevice::choose(&loaded.config.device)?;
        let prepared = data::prepare(&loaded.config, reporter)?;
        let mut plan = resolve::resolve(&loaded.config, &prepared, &device)?;
        plan.memory = memory::planned(&plan, &prepared, &device, memory, reporter)?;
        Ok(Self { loaded, plan, prepared, device, memory, reporter })
    }

    /// Makes the folder of a new run.
    ///
    /// # Errors
    /// Where there is a run of this name already, or the folder cannot be made.
    pub fn start(self) -> Result<RunContext<'a>, Failure> {
        let folder = RunFolder::make(&self.plan)?;
        Ok(self.in_folder(folder, false))
    }

    /// Goes on with the run in the folder at `path`.
    pub fn resume(self, path: &Path) -> RunContext<'a> {
        self.in_folder(RunFolder::reopen(path), true)
    }

    fn in_folder(self, folder: RunFolder, is_resumed: bool) -> RunContext<'a> {
        let Self { loaded, plan, prepared, device, memory, reporter } = self;
        RunContext { loaded, plan, prepared, folder, device, memory, reporter, is_resumed }
    }
}

impl RunContext<'_> {
    /// Trains until the plan's end, or until `stop` is set.
    ///
    /// # Errors
    /// Where the run cannot go on: a device error, a full disk, data that changed since the run began.
    pub fn train(&self, stop: &AtomicBool, display: &mut dyn RunDisplay) -> Result<TrainingOutcome, Failure> {
        match self.plan.model {
            ModelPlan::Recogniser(config) => self.train_task(&Recognition::new(config), stop, display),
            ModelPlan::Synthesiser(config) => self.train_task(&Synthesis::new(config), stop, display),
        }
    }

    /// Trains `task` on as many devices as the run has: the first replica records and judges, the others compute along.
    fn train_task<T: TrainingTask + Sync>(
        &self,
        task: &T,
        stop: &AtomicBool,
        display: &mut dyn RunDisplay,
    ) -> Result<TrainingOutcome, Failure> {
        let mut ways = self.device.ways(self.plan.training.replicas).into_iter();
        let (device, first) = ways.next().expect("a run has a replica");
        std::thread::scope(|scope| {
            for (device, way) in ways {
                scope.spawn(move || {
                    if let Err(failure) = self.follow(task, &device, way, stop) {
                        self.reporter.line(Level::Warning, &error_chain(&failure));
                    }
                });
            }
            self.lead(task, &device, first, stop, display)
        })
    }

    /// The first replica, or the only one.
    fn lead<T: TrainingTask>(
        &self,
        task: &T,
        device: &Device,
        way: Box<dyn Replica>,
        stop: &AtomicBool,
        display: &mut dyn RunDisplay,
    ) -> Result<TrainingOutcome, Failure> {
        let store = self.store();
        let mut trainer = self.trainer(task, device, way)?;
        let found = if self.is_resumed { self.resume(task, &store, &mut trainer)? } else { None };
        // What was changed when a run is resumed belongs to it from then on.
        self.folder.write(&self.plan, &self.loaded)?;
        // A run that was killed before its first checkpoint may lack its description, or have another one.
        let is_described = || self.is_resumed && self.folder.is_whole() && task.is_same(self).unwrap_or(false);
        if found.is_none() && !is_described() {
            task.describe(self)?;
        }
        let state = found.unwrap_or_else(|| self.beginning());
        // The other replicas begin where this one does.
        let step = serde_json::to_vec(&state.step).expect("a number is plain data");
        trainer.replica().broadcast(0, step).failed()?;
        let mut recorder = RunRecorder::open(&self.plan, &self.folder, &state, display)?;
        let outcome = self.run(task, &mut trainer, state, &store, stop, &mut recorder).failed()?;
        if outcome.ending == Ending::Stopped {
            return Ok(TrainingOutcome::Stopped { step: outcome.state.step });
        }
        let best = apply(trainer.task, store.best().failed()?.evaluation_weights()).failed()?;
        let verdict = task.finish(best, &mut self.careful(device, self.memory), self)?;
        let totals = &recorder.totals;
        let summary = summary(&self.plan, &self.folder, &outcome.state, totals, verdict, &self.prepared);
        summary.write(self.folder.path()).failed()?;
        Ok(TrainingOutcome::Complete { summary: Box::new(summary), next: task.next_steps(self.folder.path()) })
    }

    /// Another replica: it works along, and leaves when the first does.
    fn follow<T: TrainingTask>(
        &self,
        task: &T,
        device: &Device,
        way: Box<dyn Replica>,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let store = self.store();
        let mut trainer = self.trainer(task, device, way)?;
        // Whoever is gone at this place has said why.
        let Ok(told) = trainer.replica().broadcast(0, Vec::new()) else { return Ok(()) };
        let step: u64 = serde_json::from_slice(&told).failed()?;
        let state = match step {
            0 => self.beginning(),
            step => self.taken(store.read(step).invalid()?, &mut trainer)?,
        };
        let outcome = self.run(task, &mut trainer, state, &store, stop, &mut |_: &Event| {});
        match outcome {
            // Whoever is gone has said why.
            Ok(_) | Err(TrainError::Replica(_) | TrainError::Validation(_)) => Ok(()),
            Err(TrainError::Step {
                source: StepError::ReplicaLost { .. } | StepError::OtherReplica { .. }, ..
            }) => Ok(()),
            Err(error) => Err(error).failed(),
        }
    }

    /// The state of a run that has not begun.
    fn beginning(&self) -> RunState {
        RunState { seed: self.plan.seed, learned_on: self.plan.place(), ..RunState::default() }
    }

    /// Where its checkpoints are.
    fn store(&self) -> CheckpointStore {
        let training = &self.plan.training;
        let checkpoints = ModelFolder(self.folder.path()).checkpoints();
        CheckpointStore::new(checkpoints, training.keep_checkpoints).with_keep_best(training.keep_best)
    }

    /// A trainer of a new model on `device`.
    fn trainer<T: TrainingTask>(
        &self,
        task: &T,
        device: &Device,
        way: Box<dyn Replica>,
    ) -> Result<Trainer<T::Model>, Failure> {
        let training = &self.plan.training;
        if let (false, Some(memory)) = (self.device.is_host, &self.plan.memory) {
            preallocate_pages(device, memory.plan.largest).map_err(|reason| {
                Failure::invalid(reason, "another program may hold the card's memory: `plimsoll gpu-info` says which")
            })?;
        }
        let model = freeze(task.model(device, Key::new(self.plan.seed)), &training.freeze).invalid()?;
        let (gate, meter) = (self.device.gate(self.memory, training.budget), self.device.meter(self.memory));
        Ok(Trainer::new(model, self.plan.trainer(), self.governor()).with_memory(gate, meter).with_replica(way))
    }

    /// The loop, from `state` on.
    fn run<T: TrainingTask>(
        &self,
        task: &T,
        trainer: &mut Trainer<T::Model>,
        state: RunState,
        store: &CheckpointStore,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, TrainError> {
        let training = &self.plan.training;
        let shard = Shard { rank: trainer.replica().rank(), ranks: trainer.replica().ranks() };
        let mut source = self.prepared.training_source(&self.plan, state.position, shard);
        let mut validate =
            |model: &T::Model, step, careful: &mut InferenceRunner<'_>| task.validate(model, step, careful, self);
        let options = RunOptions {
            validate_every: training.validate_every(),
            save_every: training.checkpoint_interval,
            failures_max: FAILURES_MAX,
            plateau: training.plateau,
            planned: self.plan.memory.as_ref().map(|memory| memory.expected(self.device.is_host)).unwrap_or_default(),
            ..RunOptions::new(training.limits())
        };
        let run = Run::new(trainer, &mut source, store, &options).with_state(state);
        run.with_stop(stop).with_observer(observer).train(&mut validate)
    }

    /// Whoever cuts the steps, with what was planned for each length.
    fn governor(&self) -> Governor {
        let training = &self.plan.training;
        match &self.plan.memory {
            // Without a budget the process has the memory of the machine, and does what is written.
            Some(memory) if memory.budget.is_some() || !self.device.is_host => {
                Governor::from_plan(memory.governed(training.lanes), training.micro_batch)
            }
            _ => Governor::new(training.micro_batch),
        }
    }

    /// Work outside of steps, as much at once as fits.
    fn careful<'a>(&self, device: &Device, gate: &'a dyn MemoryGate) -> InferenceRunner<'a> {
        InferenceRunner::new(device, gate, usize::MAX)
    }

    /// Takes up the newest whole checkpoint; nothing where the run was ended before there was one.
    fn resume<T: TrainingTask>(
        &self,
        task: &T,
        store: &CheckpointStore,
        trainer: &mut Trainer<T::Model>,
    ) -> Result<Option<RunState>, Failure> {
        let (checkpoint, damaged) = match store.newest() {
            Err(CheckpointError::None { .. }) => {
                let text = format!("{} has no checkpoint yet: it begins again", self.folder.path().display());
                self.reporter.line(Level::Info, &text);
                return Ok(None);
            }
            newest => newest.invalid()?,
        };
        for error in damaged {
            self.reporter.line(Level::Warning, &format!("{error}; using the checkpoint before it"));
        }
        if checkpoint.state.seed != self.plan.seed {
            let (old, new) = (checkpoint.state.seed, self.plan.seed);
            let message = format!("the run began with seed {old}, and would go on with {new}");
            return Err(Failure::invalid(
                message,
                "with another seed, other utterances are held out: leave it as it was",
            ));
        }
        if !task.is_same(self)? {
            let message = "the data are no longer those that the run began with: the model would have other tokens";
            return Err(Failure::invalid(message, "give the corpus that it began with, or begin a new run"));
        }
        let text = format!("Going on after step {} from {}", checkpoint.state.step, checkpoint.path.display());
        self.reporter.line(Level::Info, &text);
        self.taken(checkpoint, trainer).map(Some)
    }

    /// Takes up `checkpoint`.
    fn taken<M: Task>(&self, checkpoint: Checkpoint, trainer: &mut Trainer<M>) -> Result<RunState, Failure> {
        let state = checkpoint.state;
        trainer.task = apply(trainer.task.clone(), checkpoint.weights).invalid()?;
        trainer.optimizer.restore(state.step, checkpoint.optimizer, &trainer.task).invalid()?;
        trainer.scale = state.scale.or_fresh(trainer.scale);
        if let Some(ema) = &mut trainer.ema {
            match checkpoint.ema {
                Some(values) => ema.restore(apply(trainer.task.clone(), values).invalid()?, state.ema_steps),
                // A mean that is kept from here on begins here.
                None => ema.restore(trainer.task.clone(), 0),
            }
        }
        // What one device could not hold says nothing of another.
        if state.learned_on == self.plan.place() {
            trainer.governor.restore(state.governor.clone());
        }
        Ok(RunState { learned_on: self.plan.place(), ..state })
    }
}
