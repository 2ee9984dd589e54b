//! `optimize`: the same run, so that it fits.

mod edit;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use plimsoll_core::{Choice, Remat};
use plimsoll_memory::{MemoryModel, Plan, PlanError, Traceable, plan};

use crate::environment;
use crate::terminal::{DOES_NOT_FIT, waiting};
use edit::{Change, edited};
use plimsoll_recipes::config::{AttentionChoice, ConfigArgs, RematChoice, RunConfig, load};
use plimsoll_recipes::demand::DemandBuilder;
use plimsoll_recipes::mapping::ModelPlan;
use plimsoll_recipes::target::{Target, targets};
use plimsoll_recipes::{Failure, FailureExt};

/// What `optimize` takes.
#[derive(Debug, Args)]
pub(crate) struct OptimizeArgs {
    /// The configuration to start from, a TOML file.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: PathBuf,
    /// Where the changed one is written.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) output: PathBuf,
    /// A card by name or size, as for memtest; of several, it fits all. Without one: what is here.
    #[arg(long, value_name = "NAME|SIZE")]
    pub(crate) gpu: Vec<String>,
}

/// Writes a configuration that fits.
pub(crate) fn optimize(args: &OptimizeArgs) -> Result<ExitCode, Failure> {
    let text = std::fs::read_to_string(&args.config).map_err(|error| {
        let message = format!("cannot read {}: {error}", args.config.display());
        Failure::invalid(message, "give --config the file of a run")
    })?;
    if args.config.extension().is_none_or(|extension| extension != "toml") {
        let message = format!("{} is no TOML file, which is what is edited", args.config.display());
        return Err(Failure::invalid(
            message,
            "`plimsoll config print --config FILE` writes any configuration as TOML",
        ));
    }
    let config_args = ConfigArgs { config: Some(args.config.clone()), ..ConfigArgs::default() };
    let config = load(&config_args, environment())?.config;
    let asked = DemandBuilder::from_config(config)?;
    let targets = targets(&args.gpu)?;
    // What fits the smallest fits all.
    let target = targets.iter().min_by_key(|target| target.budget(&asked.config)).expect("there is a target");
    let bar = waiting("looking for the fastest way that fits");
    let found = match &asked.model {
        ModelPlan::Recogniser(model) => changes(model, &asked, target),
        ModelPlan::Synthesiser(model) => changes(model, &asked, target),
    };
    bar.finish_and_clear();
    let (plan, changes) = match found? {
        Ok(found) => found,
        Err(error) => return Ok(refused(&error, target)),
    };
    let new = edited(&text, &changes);
    std::fs::write(&args.output, &new).map_err(|error| {
        let message = format!("cannot write {}: {error}", args.output.display());
        Failure::invalid(message, "give --output a file in a folder that is there")
    })?;
    println!(
        "{}: {} of {} at most, the effective batch as it was",
        target.name(),
        plan.peak,
        target.budget(&asked.config)
    );
    if changes.is_empty() {
        println!("nothing had to change");
    }
    for line in difference(&text, &new) {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

fn refused(error: &PlanError, target: &Target) -> ExitCode {
    eprintln!("{}: does not fit: {error}", target.name());
    if let PlanError::NothingFits { change: Some(change), .. } = error {
        eprintln!("  the cheapest change that would make it fit: {change}");
    }
    ExitCode::from(DOES_NOT_FIT)
}

type Found = Result<(Plan, Vec<Change>), PlanError>;

/// The plan that fits, and what of the configuration changes for it.
fn changes<S: Traceable + Sync>(subject: &S, asked: &DemandBuilder, target: &Target) -> Result<Found, Failure> {
    let budget = target.budget(&asked.config);
    let written = MemoryModel::new(subject, asked.as_written(target)).failed()?;
    let speed = target.speed(asked.choice(target).precision);
    let old = plan(&written, budget, &speed);
    if let Ok(plan) = old {
        let needs_pieces = plan.buckets.iter().any(|bucket| bucket.accumulation > 1);
        if !needs_pieces || asked.config.training.micro_batch.is_some() {
            return Ok(Ok((plan, Vec::new())));
        }
    }
    let survey = MemoryModel::new(subject, asked.at_best(target)).failed()?;
    let plan = match plan(&survey, budget, &speed) {
        Ok(plan) => plan,
        Err(error) => return Ok(Err(error)),
    };
    // One way for all lengths, as a configuration has one: what the length that needs most needs.
    let worst = plan.buckets.iter().max_by_key(|bucket| bucket.peak).expect("there are lengths");
    let smallest = plan.buckets.iter().map(|bucket| bucket.micro_batch).min().unwrap_or(1);
    Ok(Ok((
        plan.clone(),
        changes_to(asked, (asked.choice(target), worst.choice), smallest, &format!("{} of {budget}", plan.peak)),
    )))
}

/// The changes that lead from the choice `old` to `choice`, in micro-batches of `micro_batch`.
fn changes_to(asked: &DemandBuilder, (old, choice): (Choice, Choice), micro_batch: u32, peak: &str) -> Vec<Change> {
    let config = &asked.config;
    let mut changes = Vec::new();
    let remat = match choice.remat {
        Remat::None => RematChoice::None,
        Remat::Half => RematChoice::Half,
        Remat::First(blocks) if blocks * 2 <= asked.model.blocks() + 1 => RematChoice::Half,
        _ => RematChoice::All,
    };
    if remat != config.training.remat {
        let why = match remat {
            RematChoice::None => "there is room to keep every block, which is faster",
            _ => "these blocks are computed a second time instead of kept, with the same result",
        };
        changes.push(Change::new("training", "remat", format!("\"{}\"", remat.as_str()), why));
    }
    if choice.attention_chunk != old.attention_chunk {
        match choice.attention_chunk {
            Some(chunk) => {
                let why = "attention holds the scores of a chunk of queries and not of all, with the same result";
                changes.push(Change::new("model", "attention", "\"chunked\"", why));
                changes.push(Change::new("model", "attention_chunk", chunk, "as large as keeps a device busy"));
            }
            None if config.model.attention == AttentionChoice::Chunked => {
                changes.push(Change::new("model", "attention", "\"exact\"", "there is room for all scores at once"));
            }
            None => {}
        }
    }
    if config.training.micro_batch != Some(micro_batch) && is_split(config, micro_batch) {
        let why = format!("the largest piece that fits at every length, {peak}; the effective batch stays");
        changes.push(Change::new("training", "micro_batch", micro_batch, &why));
    }
    changes
}

fn is_split(config: &RunConfig, micro_batch: u32) -> bool {
    config.data.effective_utterances().is_none_or(|whole| micro_batch < whole) || config.training.micro_batch.is_some()
}

/// The lines that are only in one of two texts, in order.
fn difference(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
    let come = new.iter().filter(|line| !old.contains(line) && !line.is_empty()).map(|line| format!("+ {line}"));
    gone.chain(come).collect()
}
