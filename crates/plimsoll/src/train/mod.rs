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
mod view;

use std::process::ExitCode;

use burn::tensor::Device;
use plimsoll_core::{CountingAllocator, Key, MemoryGate};
use plimsoll_speech::ModelFolder;
use plimsoll_tape::{Task, apply, freeze};
use plimsoll_train::{
    Careful, CheckpointError, CheckpointStore, Ending, Governor, RunOptions, RunState, Trainer, lay_out, run,
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
    let (device, resumed) = (device.device.autodiff(), args.resume.is_some());
    match model {
        ModelPlan::Recogniser(config) => voyage.sail(&Recognition::new(config), &device, resumed),
        ModelPlan::Synthesiser(config) => voyage.sail(&Synthesis::new(config), &device, resumed),
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
    fn sail<C: Craft>(self, craft: &C, device: &Device, resumed: bool) -> Result<ExitCode, Failure> {
        let training = &self.plan.training;
        let task = freeze(craft.model(device, Key::new(self.plan.seed)), &training.freeze).wrong()?;
        let checkpoints = ModelFolder(self.folder.path()).checkpoints();
        let store = CheckpointStore::new(checkpoints, training.keep_checkpoints).keeping_best(training.keep_best);
        if let (false, Some(memory)) = (self.chosen.is_host, &self.plan.memory) {
            lay_out(&self.chosen.device, memory.plan.largest).map_err(|reason| {
                Failure::wrong(reason, "another program may hold the card's memory: `plimsoll gpu-info` says which")
            })?;
        }
        let (gate, meter) = (self.chosen.gate(self.memory, training.budget), self.chosen.meter(self.memory));
        let mut trainer = Trainer::new(task, self.plan.trainer(), self.governor()).watched(gate, meter);
        let mut state = RunState { seed: self.plan.seed, learned_on: self.plan.place(), ..RunState::default() };
        let found = if resumed { self.resume(&store, &mut trainer)? } else { None };
        // A run that was killed before its first checkpoint may lack the rest of its beginning as well.
        if found.is_none() && !(resumed && self.folder.is_whole()) {
            self.folder.write(&self.plan, &self.loaded)?;
            craft.describe(&self)?;
        }
        state = found.unwrap_or(state);
        let signals = Signals::listen().failed()?;
        let mut view = View::new(&self.plan, &self.folder, &state)?;
        let mut source = self.prepared.training_source(&self.plan, state.position);
        let mut validate =
            |task: &C::Model, step, careful: &mut Careful<'_>| craft.validate(task, step, careful, &self);
        let options = RunOptions {
            validate_every: training.validate_every(),
            save_every: training.checkpoint_interval,
            failures_max: FAILURES_MAX,
            plateau: training.plateau,
            planned: self.plan.memory.as_ref().map(memory::MemoryPlan::expected).unwrap_or_default(),
            ..RunOptions::new(training.limits())
        };
        let outcome = run(&mut trainer, state, &mut source, &mut validate, &store, &options, &signals.stop, &mut view);
        drop(source);
        view.finish();
        let outcome = outcome.failed()?;
        if outcome.ending == Ending::Stopped {
            eprintln!("Stopped after step {}. To go on: {}", outcome.state.step, self.folder.resume_command());
            return Ok(ExitCode::from(signals.exit_code()));
        }
        let best = apply(trainer.task, store.best().failed()?.judged()).failed()?;
        let verdict = craft.finish(best, &mut self.careful(device, self.memory), &self)?;
        let summary = report::summary(&self.plan, &self.folder, &outcome.state, &view, verdict, &self.prepared);
        summary.write(self.folder.path()).failed()?;
        print!("{}{}", report::told(&summary, &self.folder), craft.farewell(self.folder.path()));
        Ok(ExitCode::SUCCESS)
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
    fn resume<T: Task>(&self, store: &CheckpointStore, trainer: &mut Trainer<T>) -> Result<Option<RunState>, Failure> {
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
        let state = checkpoint.state;
        trainer.task = apply(trainer.task.clone(), checkpoint.weights).wrong()?;
        trainer.optimizer.restore(state.step, checkpoint.optimizer, &trainer.task).wrong()?;
        trainer.scale = state.scale;
        if let (Some(ema), Some(values)) = (&mut trainer.ema, checkpoint.ema) {
            ema.restore(apply(trainer.task.clone(), values).wrong()?, state.ema_steps);
        }
        // What one device could not hold says nothing of another.
        if state.learned_on == self.plan.place() {
            trainer.governor.restore(state.governor.clone());
        }
        let state = RunState { learned_on: self.plan.place(), ..state };
        eprintln!("Going on after step {} from {}", state.step, checkpoint.path.display());
        Ok(Some(state))
    }
}
