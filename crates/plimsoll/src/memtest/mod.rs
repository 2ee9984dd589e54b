//! `memtest`: whether a run fits, before it runs.

mod case;
mod matrix;
pub(crate) mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use plimsoll_core::CountingAllocator;
use plimsoll_memory::{Demand, MemoryModel, Plan, PlanError, RunMemory, Traceable, html_page, perfetto_trace, plan};
use serde_json::json;

use crate::environment;
use crate::terminal::{DOES_NOT_FIT, waiting};
use plimsoll_recipes::config::{ConfigArgs, load};
use plimsoll_recipes::demand::DemandBuilder;
use plimsoll_recipes::mapping::ModelPlan;
use plimsoll_recipes::target::{Target, targets};
use plimsoll_recipes::{Failure, FailureExt};
use verdict::Verdict;

/// What `memtest` takes.
#[derive(Debug, Args)]
pub(crate) struct MemtestArgs {
    /// A card by name, such as `t4` or `rtx 3060`, or a size such as 8GiB, or cpu; may be repeated. Without one: the card
    /// that is here, or the CPU.
    #[arg(long, value_name = "NAME|SIZE")]
    pub(crate) gpu: Vec<String>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draws memory over the step, by owner, into this HTML page.
    #[arg(long, value_name = "FILE.html", conflicts_with = "verify")]
    pub(crate) timeline: Option<PathBuf>,
    /// Writes the same for ui.perfetto.dev into this file.
    #[arg(long, value_name = "FILE.json", conflicts_with = "verify")]
    pub(crate) trace: Option<PathBuf>,
    /// Runs steps for real, each case in a process of its own, and compares what they need with what was predicted: a
    /// matrix of cases, or the one that --batch names. On the CPU, or on the card that --backend names: then each case
    /// runs twice, as a card tries kernels out when it first meets their sizes.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Utterances of a piece of the one case to verify, of the model that the configuration describes.
    #[arg(long, value_name = "B", requires = "verify")]
    pub(crate) batch: Option<u32>,
    /// Its frames; the longest where not given.
    #[arg(long, value_name = "T", requires = "batch")]
    pub(crate) frames: Option<u32>,
    /// Its tokens.
    #[arg(long, value_name = "U", requires = "batch")]
    pub(crate) tokens: Option<u32>,
    /// What it computes a second time.
    #[arg(long, value_parser = ["none", "half", "all"], requires = "batch")]
    pub(crate) remat: Option<String>,
    /// Plans for so many budgets instead, and runs each plan for real against its budget.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "verify")]
    pub(crate) budgets: u32,
    /// The case that this process is to run, as --verify tells it to the processes it starts.
    #[arg(long, hide = true, requires = "verify")]
    pub(crate) case: Option<String>,
    /// Cases of sizes drawn at random, beside those of the matrix.
    #[arg(long, value_name = "N", default_value_t = 16, requires = "verify")]
    pub(crate) random: u32,
    /// The configuration.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Runs the command.
pub(crate) fn memtest(args: &MemtestArgs, wordy: bool, meter: &'static CountingAllocator) -> Result<ExitCode, Failure> {
    let loaded = load(&args.config, environment())?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    if args.verify {
        return matrix::verify(args, loaded.config, meter);
    }
    let asked = DemandBuilder::from_config(loaded.config)?;
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
            println!("{}", asked.model);
            verdicts.iter().for_each(|verdict| print!("\n{}", verdict.told(wordy)));
        }
    }
    Ok(match verdicts.iter().all(Verdict::fits) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DOES_NOT_FIT),
    })
}

fn verdicts<S: Traceable + Sync>(
    subject: &S,
    asked: &DemandBuilder,
    targets: &[Target],
) -> Result<Vec<Verdict>, Failure> {
    // Cards differ in their memory and speed, and not in what a step asks of them: one survey answers for all.
    let mut surveys: Vec<(Demand, MemoryModel<'_, S>)> = Vec::new();
    let mut verdicts = Vec::new();
    for target in targets {
        let demand = asked.as_written(target);
        let place = surveys.iter().position(|(old, _)| old.rules == demand.rules);
        let place = match place {
            Some(place) => place,
            None => {
                surveys.push((demand.clone(), MemoryModel::new(subject, demand.clone()).failed()?));
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
fn worst<S: Traceable + Sync>(survey: &MemoryModel<'_, S>, plan: &Plan) -> Result<Option<RunMemory>, Failure> {
    let Some(bucket) = plan.buckets.iter().max_by_key(|bucket| bucket.peak) else { return Ok(None) };
    Ok(Some(survey.run_memory(bucket.bucket, bucket.micro_batch, bucket.choice).failed()?.0))
}

/// Writes the timeline and the trace where they were asked for.
fn drawn(args: &MemtestArgs, verdicts: &[Verdict]) -> Result<(), Failure> {
    let Some((name, life)) = verdicts.iter().find_map(|verdict| Some((&verdict.name, verdict.life.as_ref()?))) else {
        return match args.timeline.is_some() || args.trace.is_some() {
            true => Err(Failure::invalid("there is no timeline of a run that does not fit", "ask for a larger --gpu")),
            false => Ok(()),
        };
    };
    let title = format!("A training step on {name}");
    let write = |path: &Path, text: String| std::fs::write(path, text).failed();
    if let Some(path) = &args.timeline {
        write(path, html_page(&title, &life.timeline))?;
    }
    if let Some(path) = &args.trace {
        write(path, perfetto_trace(&title, &life.timeline))?;
    }
    Ok(())
}
