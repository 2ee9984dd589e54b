//! `plimsoll train`: from a configuration to a trained model and a folder that tells how.

mod craft;
pub(crate) mod data;
mod folder;
pub(crate) mod memory;
pub(crate) mod plan;
mod recognition;
mod report;
pub(crate) mod resolve;
mod synthesis;
pub(crate) mod texts;
mod view;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use plimsoll_core::{CountingAllocator, Key, MemoryGate};
use plimsoll_data::Shard;
use plimsoll_speech::ModelFolder;
use plimsoll_tape::{Task, apply, freeze};
use plimsoll_train::{
    Careful, Checkpoint, CheckpointError, CheckpointStore, Ending, Event, Governor, Observer, Outcome, Replica, Run,
    RunOptions, RunState, StepError, TrainError, Trainer, lay_out,
};

use crate::cli::TrainArgs;
use crate::config::{Loaded, load};
use crate::device::Chosen;
use crate::failure::{Failure, Told};
use crate::signals::Signals;
use crate::{device, environment};
use craft::Craft;
use data::Prepared;
use folder::RunFolder;
use plan::{ModelPlan, RunPlan};
use recognition::Recognition;
use synthesis::Synthesis;
use view::View;

/// Steps in a row that may come out infinite or not a number before the run stops.
const FAILURES_MAX: u32 = 10;

/// The whole of a run, in order.
pub(crate) fn train(mut args: TrainArgs, memory: &'static CountingAllocator) -> Result<ExitCode, Failure> {
    if let Some(folder) = &args.resume {
        args.config.config = Some(folder::configuration_of(folder)?);
    }
    let loaded = load(&args.config, environment())?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    resolve::check(&loaded.config)?;
    let device = device::choose(&loaded.config.device)?;
    let prepared = data::prepare(&loaded.config)?;
    let mut plan = resolve::resolve(&loaded.config, &prepared, &device)?;
    plan.memory = memory::planned(&plan, &prepared, &device, memory)?;
    eprint!("{}", plan.told());
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let folder = match &args.resume {
        Some(path) => RunFolder::reopen(path),
        None => RunFolder::make(&plan)?,
    };
    let model = plan.model;
    let voyage = Voyage { loaded, plan, prepared, folder, chosen: device.clone(), memory };
    let resumed = args.resume.is_some();
    match model {
        ModelPlan::Recogniser(config) => voyage.sail(&Recognition::new(config), resumed),
        ModelPlan::Synthesiser(config) => voyage.sail(&Synthesis::new(config), resumed),
    }
}

/// A run with all that it needs.
pub(crate) struct Voyage {
    loaded: Loaded,
    /// What will happen.
    plan: RunPlan,
    /// The data.
    prepared: Prepared,
    /// Where it is written down.
    folder: RunFolder,
    chosen: Chosen,
    memory: &'static CountingAllocator,
}

impl Voyage {
    /// The run, on as many devices as it has: the first replica shows, writes and judges the end, the others work along.
    fn sail<C: Craft + Sync>(&self, craft: &C, resumed: bool) -> Result<ExitCode, Failure> {
        let mut ways = self.chosen.ways(self.plan.training.replicas).into_iter();
        let (device, first) = ways.next().expect("a run has a replica");
        let signals = Signals::listen().failed()?;
        std::thread::scope(|scope| {
            for (device, way) in ways {
                let stop = &signals.stop;
                scope.spawn(move || {
                    if let Err(failure) = self.follow(craft, &device, way, stop) {
                        failure.print();
                    }
                });
            }
            self.lead(craft, &device, first, &signals, resumed)
        })
    }

    /// The first replica, or the only one.
    fn lead<C: Craft>(
        &self,
        craft: &C,
        device: &Device,
        way: Box<dyn Replica>,
        signals: &Signals,
        resumed: bool,
    ) -> Result<ExitCode, Failure> {
        let store = self.store();
        let mut trainer = self.trainer(craft, device, way)?;
        let found = if resumed { self.resume(craft, &store, &mut trainer)? } else { None };
        // What was changed when a run goes on belongs to it from then on.
        self.folder.write(&self.plan, &self.loaded)?;
        // A run that was killed before its first checkpoint may lack the rest of its beginning as well, or begin as another.
        let is_described = || resumed && self.folder.is_whole() && craft.is_same(self).unwrap_or(false);
        if found.is_none() && !is_described() {
            craft.describe(self)?;
        }
        let state = found.unwrap_or_else(|| self.beginning());
        // The others begin where this one does.
        let told = serde_json::to_vec(&state.step).expect("a number is plain data");
        trainer.replica().broadcast(0, told).failed()?;
        let mut view = View::new(&self.plan, &self.folder, &state)?;
        let outcome = self.run(craft, &mut trainer, state, &store, &signals.stop, &mut view);
        view.finish();
        let outcome = outcome.failed()?;
        if outcome.ending == Ending::Stopped {
            eprintln!("Stopped after step {}. To go on: {}", outcome.state.step, self.folder.resume_command());
            return Ok(ExitCode::from(signals.exit_code()));
        }
        let best = apply(trainer.task, store.best().failed()?.judged()).failed()?;
        let verdict = craft.finish(best, &mut self.careful(device, self.memory), self)?;
        let summary = report::summary(&self.plan, &self.folder, &outcome.state, &view, verdict, &self.prepared);
        summary.write(self.folder.path()).failed()?;
        print!("{}{}", report::told(&summary, &self.folder), craft.farewell(self.folder.path()));
        Ok(ExitCode::SUCCESS)
    }

    /// Another replica: it works along, and leaves when the first does.
    fn follow<C: Craft>(
        &self,
        craft: &C,
        device: &Device,
        way: Box<dyn Replica>,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let store = self.store();
        let mut trainer = self.trainer(craft, device, way)?;
        // Whoever is gone at this place has said why.
        let Ok(told) = trainer.replica().broadcast(0, Vec::new()) else { return Ok(()) };
        let step: u64 = serde_json::from_slice(&told).failed()?;
        let state = match step {
            0 => self.beginning(),
            step => self.taken(store.read(step).wrong()?, &mut trainer)?,
        };
        let outcome = self.run(craft, &mut trainer, state, &store, stop, &mut |_: &Event| {});
        match outcome {
            // Whoever is gone has said why.
            Ok(_) | Err(TrainError::Replica(_) | TrainError::Validation(_)) => Ok(()),
            Err(TrainError::Step { source: StepError::Gone { .. } | StepError::Elsewhere { .. }, .. }) => Ok(()),
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
        CheckpointStore::new(checkpoints, training.keep_checkpoints).keeping_best(training.keep_best)
    }

    /// A trainer of a new model on `device`.
    fn trainer<C: Craft>(
        &self,
        craft: &C,
        device: &Device,
        way: Box<dyn Replica>,
    ) -> Result<Trainer<C::Model>, Failure> {
        let training = &self.plan.training;
        if let (false, Some(memory)) = (self.chosen.is_host, &self.plan.memory) {
            lay_out(device, memory.plan.largest).map_err(|reason| {
                Failure::wrong(reason, "another program may hold the card's memory: `plimsoll gpu-info` says which")
            })?;
        }
        let task = freeze(craft.model(device, Key::new(self.plan.seed)), &training.freeze).wrong()?;
        let (gate, meter) = (self.chosen.gate(self.memory, training.budget), self.chosen.meter(self.memory));
        Ok(Trainer::new(task, self.plan.trainer(), self.governor()).watched(gate, meter).together(way))
    }

    /// The loop, from `state` on.
    fn run<C: Craft>(
        &self,
        craft: &C,
        trainer: &mut Trainer<C::Model>,
        state: RunState,
        store: &CheckpointStore,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, TrainError> {
        let training = &self.plan.training;
        let shard = Shard { rank: trainer.replica().rank(), ranks: trainer.replica().ranks() };
        let mut source = self.prepared.training_source(&self.plan, state.position, shard);
        let mut validate = |task: &C::Model, step, careful: &mut Careful<'_>| craft.validate(task, step, careful, self);
        let options = RunOptions {
            validate_every: training.validate_every(),
            save_every: training.checkpoint_interval,
            failures_max: FAILURES_MAX,
            plateau: training.plateau,
            planned: self.plan.memory.as_ref().map(|memory| memory.expected(self.chosen.is_host)).unwrap_or_default(),
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
            Some(memory) if memory.budget.is_some() || !self.chosen.is_host => {
                Governor::planned(memory.governed(training.lanes), training.micro_batch)
            }
            _ => Governor::new(training.micro_batch),
        }
    }

    /// Work outside of steps, as much at once as fits.
    fn careful<'a>(&self, device: &Device, gate: &'a dyn MemoryGate) -> Careful<'a> {
        Careful::new(device, gate, usize::MAX)
    }

    /// Takes up the newest whole checkpoint; nothing where the run was ended before there was one.
    fn resume<C: Craft>(
        &self,
        craft: &C,
        store: &CheckpointStore,
        trainer: &mut Trainer<C::Model>,
    ) -> Result<Option<RunState>, Failure> {
        let (checkpoint, damaged) = match store.newest() {
            Err(CheckpointError::None { .. }) => {
                eprintln!("{} has no checkpoint yet: it begins again", self.folder.path().display());
                return Ok(None);
            }
            newest => newest.wrong()?,
        };
        for error in damaged {
            eprintln!("warning: {error}; using the checkpoint before it");
        }
        if checkpoint.state.seed != self.plan.seed {
            let (old, new) = (checkpoint.state.seed, self.plan.seed);
            let message = format!("the run began with seed {old}, and would go on with {new}");
            return Err(Failure::wrong(
                message,
                "with another seed, other utterances are held out: leave it as it was",
            ));
        }
        if !craft.is_same(self)? {
            let message = "the data are no longer those that the run began with: the model would have other tokens";
            return Err(Failure::wrong(message, "give the corpus that it began with, or begin a new run"));
        }
        eprintln!("Going on after step {} from {}", checkpoint.state.step, checkpoint.path.display());
        self.taken(checkpoint, trainer).map(Some)
    }

    /// Takes up `checkpoint`.
    fn taken<T: Task>(&self, checkpoint: Checkpoint, trainer: &mut Trainer<T>) -> Result<RunState, Failure> {
        let state = checkpoint.state;
        trainer.task = apply(trainer.task.clone(), checkpoint.weights).wrong()?;
        trainer.optimizer.restore(state.step, checkpoint.optimizer, &trainer.task).wrong()?;
        trainer.scale = state.scale.or_fresh(trainer.scale);
        if let Some(ema) = &mut trainer.ema {
            match checkpoint.ema {
                Some(values) => ema.restore(apply(trainer.task.clone(), values).wrong()?, state.ema_steps),
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
