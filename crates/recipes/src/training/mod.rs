//! Trains a model, from a loaded configuration to a folder with record, checkpoints and summary.

mod evaluation;
mod folder;
mod measured_plans;
mod measuring;
mod mels_file;
pub mod pictures;
mod planning;
mod prediction;
#[cfg(test)]
mod processes_tests;
mod recognition;
mod record;
mod resume;
mod summary;
mod synthesis;
mod task;
mod trial;
mod unsaved;
mod vocoding;
mod whispering;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_config::Loaded;
use plimsoll_config::invocation::command;
use plimsoll_core::{Bytes, CountingAllocator, Key, MemoryGate, error_chain};
use plimsoll_data::Shard;
use plimsoll_monitor::{RunStatus, Summary};
use plimsoll_speech::ModelFolder;
use plimsoll_tape::{Task, apply, devices};
use plimsoll_train::pools::preallocate_pages;
use plimsoll_train::{
    CheckpointStore, Cleanup, Ending, Event, Governor, InferenceRunner, LayerClock, Observer, Outcome, Run, RunOptions,
    RunState, StepError, TrainError, Trainer,
};

use crate::beginning::begin;
use crate::data::PreparedData;
use crate::device::{ReplicaDevice, TrainingDevice};
use crate::error::{Failure, FailureExt};
use crate::plan::RunPlan;
use crate::process_memory::InUse;
use crate::processes::Processes;
use crate::reporter::{Level, Reporter, long_work};
use crate::target::Target;
use crate::trained::trained_parts;
use crate::with_model;
use record::RunRecorder;
use resume::ResumedRun;
use summary::{summary, write_report};
use task::{Trainable, TrainingTask};

pub use crate::run_names::{named_run, named_run_in};
pub use evaluation::{evaluation, worst_of};
use folder::RunDisk;
pub use folder::{RunFolder, config_path, written_config};
pub use measuring::noisy_batch;
pub use planning::{PlannedRun, preview};
pub use prediction::StepPrediction;
pub use record::{NoDisplay, RunDisplay, Totals};
pub use resume::{DataChanged, Resume};
pub use trial::{LoadingSpeed, Placement, Trial, TrialOptions, own_seconds, trial_folder, wall_seconds, warm_steps};
pub use unsaved::{EndAnswer, UnsavedSteps};

/// Number of steps in a row with an infinite or NaN loss or gradient, after which the run stops.
const FAILURES_MAX: u32 = 10;

/// A run with its folder, ready to train.
pub struct RunContext<'a> {
    loaded: Loaded,
    /// Plan of the run.
    pub plan: RunPlan,
    prepared: PreparedData,
    /// Folder for the run's record, checkpoints and summary.
    pub folder: RunFolder,
    device: TrainingDevice,
    memory: &'static CountingAllocator,
    /// Device that the memory was planned for; `None` if its memory is neither known nor limited.
    target: Option<Target>,
    /// Memory of the process before the model was made.
    in_use: InUse,
    reporter: &'a dyn Reporter,
    /// Checkpoint of the run, if it is resumed and has one.
    resumed: Option<ResumedRun>,
    /// Whether the run is resumed, with or without a checkpoint.
    is_resumed: bool,
    /// Identity of the run.
    id: String,
    /// The processes that train the run.
    processes: Processes,
    /// Clock of the layers; `None` unless the run is profiled.
    layers: Option<Arc<LayerClock>>,
    /// Where the model is; known once the run has begun.
    placement: Mutex<Placement>,
    /// Steps that no checkpoint has, for a thread that may end the process.
    pub unsaved: Arc<UnsavedSteps>,
}

/// Result of training.
#[derive(Debug)]
pub enum TrainingOutcome {
    /// The run is complete.
    Complete {
        /// Scores, times and memory of the run, as written to its folder.
        summary: Box<Summary>,
        /// Commands to try next with the model, in whole lines.
        next: String,
    },
    /// The run was complete already, and nothing was changed: it has as many steps or epochs as were asked for.
    AlreadyComplete {
        /// Number of steps that are done.
        step: u64,
    },
    /// The run was stopped by its `stop` flag, and can be resumed from its checkpoint.
    Stopped {
        /// Number of steps that are done.
        step: u64,
    },
    /// This process did its part of the run; the first process of the run has the result.
    Followed,
}

/// Reports to the other replicas the step at which they start; `None` if there is nothing to do.
fn start_others<T: Task>(trainer: &Trainer<T>, step: Option<u64>) -> Result<(), Failure> {
    let step = serde_json::to_vec(&step).expect("a number is plain data");
    trainer.replica().broadcast(0, step).failed().map(|_| ())
}

impl RunContext<'_> {
    /// Trains until the run is complete, or until `stop` is set. A stopped run first saves a checkpoint.
    ///
    /// # Errors
    /// If the run cannot continue: a device error, a full disk, data that changed since the run began.
    pub fn train(&self, stop: &AtomicBool, display: &mut dyn RunDisplay) -> Result<TrainingOutcome, Failure> {
        let tokens = self.prepared.tokenizer.size();
        with_model!(&self.plan.model, config => self.train_task(&config.training(tokens), stop, display))
    }

    /// Returns the training time of a complete run, in seconds, as its summary has it; 0 if that cannot be read.
    pub fn trained_seconds(&self) -> f64 {
        summary::of_run(self.folder.path()).map_or(0.0, |summary| summary.train_seconds)
    }

    /// Trains `task` with all replicas of this process, each in its own thread. The first replica of the run records and
    /// evaluates it.
    fn train_task<T: TrainingTask + Sync>(
        &self,
        task: &T,
        stop: &AtomicBool,
        display: &mut dyn RunDisplay,
    ) -> Result<TrainingOutcome, Failure> {
        let mut replicas = self.device.replicas(&self.processes, self.loaded.config.training.sums).into_iter();
        let first = replicas.next().expect("a run has a replica");
        if !self.processes.is_alone() {
            return self.train_process(task, first, stop, display);
        }
        std::thread::scope(|scope| {
            for replica in replicas {
                scope.spawn(move || {
                    if let Err(failure) = self.train_other(task, replica, stop) {
                        self.reporter.line(Level::Warning, &error_chain(&failure));
                    }
                });
            }
            self.train_first(task, first, stop, display)
        })
    }

    /// Trains the replica of this process, one of several that train the run.
    fn train_process<T: TrainingTask>(
        &self,
        task: &T,
        replica: ReplicaDevice,
        stop: &AtomicBool,
        display: &mut dyn RunDisplay,
    ) -> Result<TrainingOutcome, Failure> {
        let outcome = match self.processes.is_first() {
            true => self.train_first(task, replica, stop, display),
            false => self.train_other(task, replica, stop).map(|()| TrainingOutcome::Followed),
        };
        // Unlike a thread, a process that fails is not seen to end: the others would wait for it.
        outcome.inspect_err(|failure| self.processes.collective().fail(&error_chain(failure)))
    }

    /// Trains the first replica, which records, validates and saves the run.
    fn train_first<T: TrainingTask>(
        &self,
        task: &T,
        replica: ReplicaDevice,
        stop: &AtomicBool,
        display: &mut dyn RunDisplay,
    ) -> Result<TrainingOutcome, Failure> {
        let store = self.store();
        // A run that fails before its first step leaves no folder.
        let unstarted = self.folder.removed_unless_kept();
        let device = replica.device.clone();
        let mut trainer = self.trainer(task, replica)?;
        let found = if self.is_resumed { self.resume(&store, &mut trainer)? } else { None };
        if let Some(state) = &found
            && self.plan.training.limits().reached(state).is_some()
            && summary::is_of_step(self.folder.path(), state.step)
        {
            start_others(&trainer, None)?;
            return Ok(TrainingOutcome::AlreadyComplete { step: state.step });
        }
        let scale = trained_parts(&self.plan.config.training).lora.map(|lora| lora.scale());
        if found.is_some() && ModelFolder(self.folder.path()).lora_scale().invalid()? != scale {
            let message = "the adapters of the run were trained with another `training.lora_alpha`";
            return Err(Failure::invalid(message, "leave it out: a resumed run keeps it"));
        }
        // A resumed run may have changed settings: write them, so that the next resume has them too.
        let work = long_work(self.reporter, "preparing the run", self.prepared.training.len());
        self.folder.write(&self.plan, &self.loaded)?;
        if self.resumed.as_ref().is_none_or(ResumedRun::writes_utterances) {
            self.folder.write_utterances(&self.prepared.corpus)?;
        }
        if found.is_none() {
            task.write_metadata(self)?;
            if let Some(scale) = scale {
                ModelFolder(self.folder.path()).write_lora_scale(scale).failed()?;
            }
        }
        drop(work);
        let state = found.unwrap_or_else(|| self.initial_state());
        // The other replicas start at the same step.
        start_others(&trainer, Some(state.step))?;
        let (host, place) = (self.device.is_host, (&self.folder, stop));
        let recorder = RunRecorder::open((&self.plan, host), place, &state, display)?;
        let mut recorder = recorder.beside(self.processes.neighbors()).counting(self.unsaved.clone());
        if let Some(folder) = unstarted {
            folder.keep();
        }
        self.unsaved.begin(state.step);
        let outcome = self.run_loop(task, &mut trainer, state, &store, stop, &mut recorder);
        recorder.finish();
        if self.folder.is_lost() {
            return Err(self.folder.lost());
        }
        let outcome = outcome.failed()?;
        if outcome.ending == Ending::Stopped {
            write_report(self.folder.path(), RunStatus::Stopped)?;
            return Ok(TrainingOutcome::Stopped { step: outcome.state.step });
        }
        let totals = recorder.totals_of_the_run(self.folder.path()).failed()?;
        let summary = self.summarize((task, stop), trainer.task, &outcome.state, (&store, &device, &totals));
        let Some(summary) = summary.inspect_err(|failure| recorder.record_failure(failure))? else {
            recorder.record_stop();
            write_report(self.folder.path(), RunStatus::Stopped)?;
            return Ok(TrainingOutcome::Stopped { step: outcome.state.step });
        };
        write_report(self.folder.path(), RunStatus::Complete)?;
        Ok(TrainingOutcome::Complete { summary: Box::new(summary), next: task.next_steps(self.folder.path()) })
    }

    /// Evaluates the best model of a complete run, and writes the summary into the folder of the run; `None` if `stop` became
    /// true before.
    fn summarize<T: TrainingTask>(
        &self,
        (task, stop): (&T, &AtomicBool),
        model: T::Model,
        state: &RunState,
        (store, device, totals): (&CheckpointStore, &Device, &Totals),
    ) -> Result<Option<Summary>, Failure> {
        let (best, doubts) = store.best().failed()?;
        let warnings: Vec<String> = doubts.iter().map(|doubt| error_chain(doubt)).collect();
        warnings.iter().for_each(|text| self.reporter.line(Level::Warning, text));
        let best = apply(model, best.evaluation_weights()).failed()?;
        let gate = self.device.gate(self.memory, self.plan.training.budget);
        let mut runner = self.inference_runner(device, &*gate).with_stop(stop);
        let scores = match task.finish(best, &mut runner, self) {
            Err(_) if runner.was_stopped() => return Ok(None),
            scores => scores?,
        };
        let summary = Summary { warnings, ..summary(self, state, totals, scores) };
        summary.write(self.folder.path()).failed()?;
        Ok(Some(summary))
    }

    /// Trains another replica, until the first replica ends or fails.
    fn train_other<T: TrainingTask>(&self, task: &T, replica: ReplicaDevice, stop: &AtomicBool) -> Result<(), Failure> {
        let store = self.store();
        let mut trainer = self.trainer(task, replica)?;
        // If the first replica is gone already, it has reported why.
        let Ok(message) = trainer.replica().broadcast(0, Vec::new()) else { return Ok(()) };
        let step: Option<u64> = serde_json::from_slice(&message).failed()?;
        let state = match step {
            None => return Ok(()),
            Some(0) => self.initial_state(),
            Some(step) => self.restore(store.read(step).invalid()?, &mut trainer)?,
        };
        let outcome = self.run_loop(task, &mut trainer, state, &store, stop, &mut |_: &Event| {});
        match outcome {
            // The failure may be that of a process that was killed, which could not report it.
            Err(error) if !self.processes.is_alone() => Err(error).failed(),
            // A replica that failed has reported why.
            Ok(_) | Err(TrainError::Replica(_) | TrainError::Validation(_)) => Ok(()),
            Err(TrainError::Step {
                source: StepError::ReplicaLost { .. } | StepError::OtherReplica { .. }, ..
            }) => Ok(()),
            Err(error) => Err(error).failed(),
        }
    }

    /// Returns the store of the run's checkpoints.
    fn store(&self) -> CheckpointStore {
        let training = &self.plan.training;
        let checkpoints = ModelFolder(self.folder.path()).checkpoints();
        CheckpointStore::new(checkpoints, training.keep_checkpoints)
            .with_keep_best(training.keep_best)
            .with_disk(RunDisk(self.folder.clone()))
            .for_run(&self.id)
    }

    /// Makes a trainer of a new model on the device of `replica`.
    ///
    /// # Errors
    /// If the GPU does not have the planned memory, or a prefix of `training.freeze` names no parameter.
    fn trainer<T: TrainingTask>(
        &self,
        task: &T,
        ReplicaDevice { device, replica }: ReplicaDevice,
    ) -> Result<Trainer<T::Model>, Failure> {
        let training = &self.plan.training;
        if let (false, Some(memory)) = (self.device.is_host, &self.plan.memory) {
            preallocate_pages(&device, memory.plan.page).map_err(|reason| {
                let command = command("gpu-info");
                Failure::invalid(reason, format!("another program may use the memory of the GPU: `{command}` names it"))
            })?;
        }
        let mut model = task.model(&device, Key::new(self.plan.seed));
        if self.resumed.is_none() {
            model = begin(model, &self.plan.model, &self.prepared.tokenizer, &self.plan.config)?;
        }
        let model = trained_parts(&self.plan.config.training).apply(model, Key::new(self.plan.seed)).invalid()?;
        self.check_placement(&model, &device)?;
        // Each replica holds the budget on its own device.
        let own = TrainingDevice { device: device.clone().inner(), ..self.device.clone() };
        let (gate, meter) = (own.gate(self.memory, training.budget), own.meter(self.memory));
        let trainer = Trainer::new(model, self.plan.trainer_config(), self.governor())
            .with_memory(gate, meter)
            .with_replica(replica);
        Ok(match &self.layers {
            Some(clock) => {
                clock.name_layers(&trainer.task);
                trainer.with_observer(clock.clone())
            }
            None => trainer,
        })
    }

    /// Checks that each parameter of `model` is on `device`, and remembers where they are.
    fn check_placement<M: Module>(&self, model: &M, device: &Device) -> Result<(), Failure> {
        let mut placement = Placement { device: self.device.name.clone(), ..Placement::default() };
        for (name, size, found) in devices(model) {
            if found.clone().inner() != device.clone().inner() {
                let message = format!("the parameter `{name}` is on {found:?}, and the run trains on {device:?}");
                return Err(Failure::invalid(
                    message,
                    "this is a mistake of the program: please report it with the plan of the run",
                ));
            }
            placement.parameters += 1;
            placement.values += size;
        }
        *self.placement.lock().unwrap_or_else(PoisonError::into_inner) = placement;
        Ok(())
    }

    /// Runs the training loop from `state` on.
    fn run_loop<T: TrainingTask>(
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
            |model: &T::Model, step, runner: &mut InferenceRunner<'_>| task.validate(model, step, runner, self);
        let options = RunOptions {
            validate_every: training.validate_every(),
            save_every: training.checkpoint_interval,
            failures_max: FAILURES_MAX,
            plateau: training.plateau,
            validation_batch: self.plan.validation_batch(),
            warmup_share: self.plan.config.training.warmup_share.unwrap_or(1.0),
            cleanup: self.cleanup(),
            planned: self
                .plan
                .memory
                .as_ref()
                .map(|memory| memory.expected_peaks(self.device.is_host))
                .unwrap_or_default(),
            ..RunOptions::new(training.limits())
        };
        let run = Run::new(trainer, &mut source, store, &options).with_state(state);
        run.with_stop(stop).with_observer(observer).train(&mut validate)
    }

    /// Returns when unused memory goes back to the driver of a GPU: as the configuration asks for it, or else when the pools
    /// hold more than was planned.
    fn cleanup(&self) -> Option<Cleanup> {
        let training = &self.plan.config.training;
        let every = training.memory_cleanup_interval;
        let planned = self.plan.memory.as_ref().map(|memory| memory.plan.in_pools(memory.plan.peak));
        match training.enable_memory_cleanup {
            Some(asked) => asked.then_some(Cleanup { every, above: Bytes(0) }),
            None => planned.filter(|_| !self.device.is_host).map(|above| Cleanup { every, above }),
        }
    }

    /// Makes the governor, which divides batches into micro-batches. The governor starts with the plan for each batch
    /// shape, if there is a plan.
    fn governor(&self) -> Governor {
        let training = &self.plan.training;
        match &self.plan.memory {
            // On the CPU without a budget, the micro-batch of the configuration holds.
            Some(memory) if memory.budget.is_some() || !self.device.is_host => {
                let mut planned = memory.governor_plan(training.lanes);
                for limit in &mut planned {
                    limit.choice = self.plan.model.with_own_chunks(limit.choice);
                }
                Governor::from_plan(planned, training.micro_batch)
            }
            _ => Governor::new(training.micro_batch),
        }
    }

    /// Returns a runner of work outside of steps, such as validation, with as many utterances at once as fit.
    fn inference_runner<'a>(&self, device: &Device, gate: &'a dyn MemoryGate) -> InferenceRunner<'a> {
        InferenceRunner::new(device, gate, self.plan.validation_batch())
    }
}
