//! `memtest`: whether a run fits, before it runs.

pub(crate) mod ask;
mod case;
mod matrix;
pub(crate) mod verdict;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::ProgressBar;
use plimsoll_core::{Bytes, CountingAllocator};
use plimsoll_memory::{Demand, Life, Plan, PlanError, Subject, Survey, find, page, perfetto, plan};
use plimsoll_monitor::{Host, Machine, NvmlGpus};
use serde_json::json;

use crate::cli::MemtestArgs;
use crate::config::load;
use crate::environment;
use crate::failure::{Failure, Told};
use crate::train::plan::ModelPlan;
use ask::{Asked, Target};
use verdict::Verdict;

/// The exit code of a run that does not fit.
pub(crate) const DOES_NOT_FIT: u8 = 3;

/// Runs the command.
pub(crate) fn memtest(args: &MemtestArgs, wordy: bool, meter: &'static CountingAllocator) -> Result<ExitCode, Failure> {
    let loaded = load(&args.config, environment())?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    if args.verify {
        return matrix::verify(args, loaded.config, meter);
    }
    let asked = Asked::of(loaded.config)?;
    let targets = targets(&args.gpu)?;
    let told = waiting("looking at what a step would need");
    let verdicts = match &asked.model {
        ModelPlan::Recogniser(model) => verdicts(model, &asked, &targets),
        ModelPlan::Synthesiser(model) => verdicts(model, &asked, &targets),
    };
    told.finish_and_clear();
    let verdicts = verdicts?;
    drawn(args, &verdicts)?;
    match args.json {
        true => println!("{:#}", json!({"cards": verdicts.iter().map(Verdict::json).collect::<Vec<_>>()})),
        false => {
            println!("{}", asked.model.told());
            verdicts.iter().for_each(|verdict| print!("\n{}", verdict.told(wordy)));
        }
    }
    Ok(match verdicts.iter().all(Verdict::fits) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DOES_NOT_FIT),
    })
}

/// A sign of life for a person who waits.
pub(crate) fn waiting(what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(what);
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// The cards of `names`; without any, what is here.
pub(crate) fn targets(names: &[String]) -> Result<Vec<Target>, Failure> {
    if names.is_empty() {
        return Ok(vec![here()]);
    }
    let named = |name: &String| {
        if name == "cpu" {
            return Ok(host());
        }
        let card = find(name).wrong()?;
        Ok(Target::Card { usable: card.usable, card })
    };
    names.iter().map(named).collect()
}

/// The first card that this process may use, or the CPU.
pub(crate) fn here() -> Target {
    let gpus = NvmlGpus::load();
    let machine = Machine::from_source(gpus.as_ref().map(|gpus| gpus as _).map_err(Clone::clone));
    let gpu = machine.gpus.iter().filter(|gpu| gpu.cuda_index.is_some()).min_by_key(|gpu| gpu.cuda_index);
    let Some((report, memory)) = gpu.and_then(|gpu| Some((gpu, gpu.memory.as_ref().ok()?))) else { return host() };
    // A card that the catalogue does not know is as fast as others of its size.
    let known = find(&report.gpu.name).or_else(|_| find(&format!("{} B", memory.total.0)));
    match known {
        Ok(mut card) => {
            card.name = report.gpu.name.clone().into();
            // What others hold now is not ours.
            Target::Card { card, usable: memory.free }
        }
        Err(_) => host(),
    }
}

/// The memory of the device that a run would take here.
pub(crate) fn memory_here() -> Bytes {
    match here() {
        Target::Card { card, .. } => card.memory,
        Target::Host { memory, .. } => memory,
    }
}

/// A card of which only the memory is known.
pub(crate) fn card_of(memory: Bytes) -> Option<Target> {
    let card = find(&format!("{} B", memory.0)).ok()?;
    Some(Target::Card { usable: memory, card })
}

/// This machine's processors and memory.
pub(crate) fn host() -> Target {
    let host = Host::read();
    Target::Host { memory: host.usable(), threads: host.logical_cpus }
}

fn verdicts<S: Subject + Sync>(subject: &S, asked: &Asked, targets: &[Target]) -> Result<Vec<Verdict>, Failure> {
    // Cards differ in their memory and speed, and not in what a step asks of them: one survey answers for all.
    let mut surveys: Vec<(Demand, Survey<'_, S>)> = Vec::new();
    let mut verdicts = Vec::new();
    for target in targets {
        let demand = asked.as_written(target);
        let place = surveys.iter().position(|(old, _)| old.rules == demand.rules);
        let place = match place {
            Some(place) => place,
            None => {
                surveys.push((demand.clone(), Survey::of(subject, demand.clone()).failed()?));
                surveys.len() - 1
            }
        };
        let survey = &surveys[place].1;
        let budget = target.budget(&asked.config);
        let plan = plan(survey, budget, &target.speed(demand.precision));
        let life = match &plan {
            Ok(plan) => worst(survey, plan)?,
            Err(PlanError::Trace(error)) => return Err(error.clone()).failed(),
            Err(_) => None,
        };
        verdicts.push(Verdict { name: target.name(), budget, plan, life });
    }
    Ok(verdicts)
}

/// The life of a run at the bucket of `plan` that needs most.
fn worst<S: Subject + Sync>(survey: &Survey<'_, S>, plan: &Plan) -> Result<Option<Life>, Failure> {
    let Some(bucket) = plan.buckets.iter().max_by_key(|bucket| bucket.peak) else { return Ok(None) };
    Ok(Some(survey.life(bucket.bucket, bucket.micro_batch, bucket.choice).failed()?.0))
}

/// Writes the timeline and the trace where they were asked for.
fn drawn(args: &MemtestArgs, verdicts: &[Verdict]) -> Result<(), Failure> {
    let Some((name, life)) = verdicts.iter().find_map(|verdict| Some((&verdict.name, verdict.life.as_ref()?))) else {
        return match args.timeline.is_some() || args.trace.is_some() {
            true => Err(Failure::wrong("there is no timeline of a run that does not fit", "ask for a larger --gpu")),
            false => Ok(()),
        };
    };
    let title = format!("A training step on {name}");
    let write = |path: &Path, text: String| std::fs::write(path, text).failed();
    if let Some(path) = &args.timeline {
        write(path, page(&title, &life.timeline))?;
    }
    if let Some(path) = &args.trace {
        write(path, perfetto(&title, &life.timeline))?;
    }
    Ok(())
}
