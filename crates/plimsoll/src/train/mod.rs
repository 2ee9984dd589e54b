//! `plimsoll train`: from a configuration to a trained model and a folder that tells how.

mod craft;
pub(crate) mod data;
mod folder;
pub(crate) mod plan;
mod recognition;
mod report;
pub(crate) mod resolve;
mod synthesis;
mod view;

use std::process::ExitCode;

use burn::tensor::Device;
use plimsoll_core::{Key, MemoryMeter};
use plimsoll_speech::ModelFolder;
use plimsoll_tape::{Task, apply};
use plimsoll_train::{CheckpointStore, Ending, Governor, RunOptions, RunState, Trainer, run};

use crate::cli::TrainArgs;
use crate::config::{Loaded, load};
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
pub(crate) fn train(mut args: TrainArgs, meter: &'static dyn MemoryMeter) -> Result<ExitCode, Failure> {
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
    let plan = resolve::resolve(&loaded.config, &prepared, &device)?;
    eprint!("{}", plan.told());
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let folder = match &args.resume {
        Some(path) => RunFolder::reopen(path),
        None => RunFolder::make(&plan)?,
    };
    let model = plan.model;
    let voyage = Voyage { loaded, plan, prepared, folder, meter: device.meter(meter) };
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
    meter: Box<dyn MemoryMeter>,
}

impl Voyage {
    fn sail<C: Craft>(self, craft: &C, device: &Device, resumed: bool) -> Result<ExitCode, Failure> {
        let task = craft.model(device, Key::new(self.plan.seed));
        let checkpoints = ModelFolder(self.folder.path()).checkpoints();
        let store = CheckpointStore::new(checkpoints, self.plan.training.keep_checkpoints);
        let governor = Governor::new(self.plan.training.micro_batch, self.plan.training.budget);
        let mut trainer = Trainer::new(task, self.plan.trainer(), governor);
        let mut state = RunState { seed: self.plan.seed, ..RunState::default() };
        if resumed {
            state = self.resume(&store, &mut trainer)?;
        } else {
            self.folder.write(&self.plan, &self.loaded)?;
            craft.describe(&self)?;
        }
        let signals = Signals::listen().failed()?;
        let mut view = View::new(&self.plan, &self.folder, &state)?;
        let mut source = self.prepared.training_source(&self.plan, state.position);
        let mut validate = |task: &C::Model, step| craft.validate(task, step, &self);
        let options = RunOptions {
            limits: self.plan.training.limits(),
            validate_every: self.plan.training.validate_every(),
            save_every: self.plan.training.checkpoint_interval,
            failures_max: FAILURES_MAX,
        };
        let outcome = run(
            &mut trainer,
            state,
            &mut source,
            &mut validate,
            &store,
            &options,
            &*self.meter,
            &signals.stop,
            &mut view,
        );
        drop(source);
        view.finish();
        let outcome = outcome.failed()?;
        if outcome.ending == Ending::Stopped {
            eprintln!("Stopped after step {}. To go on: {}", outcome.state.step, self.folder.resume_command());
            return Ok(ExitCode::from(signals.exit_code()));
        }
        let best = apply(trainer.task, store.best().failed()?.weights).failed()?;
        let verdict = craft.finish(best, &self)?;
        let summary = report::summary(&self.plan, &self.folder, &outcome.state, &view, verdict, &self.prepared);
        summary.write(self.folder.path()).failed()?;
        print!("{}{}", report::told(&summary, &self.folder), craft.farewell(self.folder.path()));
        Ok(ExitCode::SUCCESS)
    }

    /// Takes up the newest whole checkpoint.
    fn resume<T: Task>(&self, store: &CheckpointStore, trainer: &mut Trainer<T>) -> Result<RunState, Failure> {
        let (checkpoint, damaged) = store.newest().wrong()?;
        for error in damaged {
            eprintln!("warning: {error}; using the checkpoint before it");
        }
        let state = checkpoint.state;
        trainer.task = apply(trainer.task.clone(), checkpoint.weights).wrong()?;
        trainer.optimizer.restore(state.step, checkpoint.optimizer, &trainer.task);
        if state.limit > 0 {
            let limit = state.limit.min(trainer.governor.limit());
            trainer.governor = Governor::new(limit, self.plan.training.budget);
        }
        eprintln!("Going on after step {} from {}", state.step, checkpoint.path.display());
        Ok(state)
    }
}
