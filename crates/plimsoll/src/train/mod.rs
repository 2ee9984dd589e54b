//! `plimsoll train`: from a configuration to a trained model and a folder that tells how.

pub(crate) mod data;
mod folder;
mod plan;
mod report;
pub(crate) mod resolve;
mod view;

use std::process::ExitCode;

use plimsoll_core::{Key, MemoryMeter};
use plimsoll_speech::asr::{Bundle, Recogniser, Search, evaluate};
use plimsoll_tape::apply;
use plimsoll_train::{CheckpointStore, Ending, Governor, RunOptions, RunState, Score, Trainer, run};

use crate::cli::TrainArgs;
use crate::config::{Loaded, load};
use crate::failure::{Failure, Told};
use crate::signals::Signals;
use crate::{device, environment};
use data::Prepared;
use folder::RunFolder;
use plan::RunPlan;
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
    let task = plan.model.init(&device.device.clone().autodiff(), Key::new(plan.seed));
    let voyage = Voyage { loaded, plan, prepared, folder, meter: device.meter(meter) };
    voyage.sail(task, args.resume.is_some())
}

/// A run with all that it needs.
struct Voyage {
    loaded: Loaded,
    plan: RunPlan,
    prepared: Prepared,
    folder: RunFolder,
    meter: Box<dyn MemoryMeter>,
}

impl Voyage {
    fn sail(self, task: Recogniser, resumed: bool) -> Result<ExitCode, Failure> {
        let store = CheckpointStore::new(Bundle::checkpoints(self.folder.path()), self.plan.training.keep_checkpoints);
        let governor = Governor::new(self.plan.training.micro_batch, self.plan.training.budget);
        let mut trainer = Trainer::new(task, self.plan.trainer(), governor);
        let mut state = RunState { seed: self.plan.seed, ..RunState::default() };
        if resumed {
            state = self.resume(&store, &mut trainer)?;
        } else {
            self.folder.write(&self.plan, &self.loaded, &self.prepared.bundle(&self.plan))?;
        }
        let signals = Signals::listen().failed()?;
        let mut view = View::new(&self.plan, &self.folder, &state)?;
        let mut source = self.prepared.training_source(&self.plan, state.position);
        let mut validate = |task: &Recogniser| self.validate(task);
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
        self.finish(&store, trainer.task, &view, &outcome.state)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Takes up the newest whole checkpoint.
    fn resume(&self, store: &CheckpointStore, trainer: &mut Trainer<Recogniser>) -> Result<RunState, Failure> {
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

    fn validate(&self, task: &Recogniser) -> Result<Score, String> {
        let mut source = self.prepared.validation_source(&self.plan);
        let result =
            evaluate(task, &mut source, &self.prepared.validation_texts, &self.prepared.tokenizer, &Search::Greedy);
        let evaluation = result.map_err(|error| error.to_string())?;
        let (cer, wer) = (evaluation.characters.rate(), evaluation.words.rate());
        Ok(Score { value: cer, all: vec![("cer".into(), cer), ("wer".into(), wer)] })
    }

    /// Reads the held-out voices once more with the best weights, and leaves the summary.
    fn finish(&self, store: &CheckpointStore, task: Recogniser, view: &View, state: &RunState) -> Result<(), Failure> {
        let task = apply(task, store.best().failed()?.weights).failed()?;
        let mut source = self.prepared.validation_source(&self.plan);
        let evaluation =
            evaluate(&task, &mut source, &self.prepared.validation_texts, &self.prepared.tokenizer, &Search::Greedy)
                .failed()?;
        let summary = report::summary(&self.plan, &self.folder, state, view, &evaluation, &self.prepared);
        summary.write(self.folder.path()).failed()?;
        print!("{}", report::told(&summary, &self.folder));
        Ok(())
    }
}
