//! `plimsoll optimize`: changes a configuration so that its run fits into memory.

mod edit;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use plimsoll_core::{Choice, Remat};
use plimsoll_memory::{MemoryModel, Plan, PlanError, Traceable, plan};

use crate::environment;
use crate::output::{ForceFlag, OutputFile};
use crate::terminal::{DOES_NOT_FIT, spinner};
use edit::{Change, edited};
use plimsoll_recipes::config::{AttentionChoice, ConfigArgs, Key, Layer, Loaded, RematChoice, RunConfig, keys, load};
use plimsoll_recipes::demand::DemandBuilder;
use plimsoll_recipes::invocation::command;
use plimsoll_recipes::mapping::ModelPlan;
use plimsoll_recipes::target::{Target, targets};
use plimsoll_recipes::{Failure, FailureExt};

/// Arguments of `optimize`.
#[derive(Debug, Args)]
pub(crate) struct OptimizeArgs {
    /// File for the changed configuration; with --force it can be the same file.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) output: PathBuf,
    /// Whether the file may be overwritten.
    #[command(flatten)]
    pub(crate) overwrite: ForceFlag,
    /// GPU by name or memory size, as for memtest; can be repeated, then the result fits all. Default: the local GPU, or the
    /// CPU if there is none.
    #[arg(long, value_name = "NAME|SIZE")]
    pub(crate) gpu: Vec<String>,
    /// The configuration to change, a TOML file. Keys that other flags set are written into the result too.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Writes a configuration whose run fits into memory, and prints the changes.
pub(crate) fn optimize(args: &OptimizeArgs) -> Result<ExitCode, Failure> {
    let text = read_toml(args)?;
    let loaded = load(&args.config, environment())?;
    let set = set_by_flags(&loaded);
    let config = loaded.config;
    let output = OutputFile::new(&args.output, "--output", args.overwrite)?;
    let builder = DemandBuilder::from_config(config)?;
    let targets = targets(&args.gpu)?;
    // A plan for the smallest budget fits all.
    let target = targets.iter().min_by_key(|target| target.budget(&builder.config)).expect("there is a target");
    let bar = spinner("searching the fastest plan that fits");
    let found = match &builder.model {
        ModelPlan::Recognizer(model) => changes(model, &builder, target),
        ModelPlan::Synthesizer(model) => changes(model, &builder, target),
    };
    bar.finish_and_clear();
    let (plan, changes) = match found? {
        Ok(found) => found,
        Err(error) => return Ok(report_no_fit(&error, target)),
    };
    let new = edited(&text, &[set, changes].concat());
    output.write(&new)?;
    println!(
        "{}: {} of {} at most, effective batch unchanged",
        target.name(),
        plan.peak,
        target.budget(&builder.config)
    );
    let changed = difference(&text, &new);
    if changed.is_empty() {
        println!("no change is needed");
    }
    for line in changed {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the text of the configuration, which must be a TOML file.
fn read_toml(args: &OptimizeArgs) -> Result<String, Failure> {
    let help = "--config takes the configuration file of a run";
    let Some(path) = &args.config.config else {
        return Err(Failure::invalid("optimize needs the configuration to change: --config FILE.toml", help));
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::invalid(format!("cannot read {}: {error}", path.display()), help))?;
    if path.extension().is_none_or(|extension| extension != "toml") {
        let message = format!("{} is not a TOML file; optimize changes only those", path.display());
        let print = command("config print --config FILE");
        return Err(Failure::invalid(message, format!("`{print}` writes any configuration as TOML")));
    }
    Ok(text)
}

/// Lists the keys that flags set, as changes of the file. Without them, the result would fit only with the same flags. The
/// device is left to the machine that trains.
fn set_by_flags(loaded: &Loaded) -> Vec<Change> {
    let table = toml::Table::try_from(&loaded.config).expect("a configuration is plain values");
    let is_set = |key: &&Key| {
        loaded.provenance.origin(key.name).layer() == Layer::CommandLine
            && key.section() != "device"
            && key.name != "name"
    };
    let set = keys().filter(is_set);
    set.filter_map(|key| Some(Change::new(key.section(), key.leaf(), key.value_in(&table)?, "by a flag"))).collect()
}

/// Prints the reason why no plan fits, and returns the exit code.
fn report_no_fit(error: &PlanError, target: &Target) -> ExitCode {
    eprintln!("{}: does not fit: {error}", target.name());
    if let PlanError::NothingFits { change: Some(change), .. } = error {
        eprintln!("  the cheapest change that would make it fit: {change}");
    }
    ExitCode::from(DOES_NOT_FIT)
}

/// A plan with the changes that lead to it, or the reason why no plan fits.
type PlanWithChanges = Result<(Plan, Vec<Change>), PlanError>;

/// Searches the fastest plan that fits, and the changes of the configuration for that plan.
fn changes<S: Traceable + Sync>(
    subject: &S,
    builder: &DemandBuilder,
    target: &Target,
) -> Result<PlanWithChanges, Failure> {
    let budget = target.budget(&builder.config);
    let written = MemoryModel::new(subject, builder.as_written(target)).failed()?;
    let speed = target.speed(builder.choice(target).precision);
    let old = plan(&written, budget, &speed);
    if let Ok(plan) = old {
        let has_micro_batches = plan.buckets.iter().any(|bucket| bucket.accumulation > 1);
        if !has_micro_batches || builder.config.training.micro_batch.is_some() {
            return Ok(Ok((plan, Vec::new())));
        }
    }
    let survey = MemoryModel::new(subject, builder.at_best(target)).failed()?;
    let plan = match plan(&survey, budget, &speed) {
        Ok(plan) => plan,
        Err(error) => return Ok(Err(error)),
    };
    // A configuration has one setting for all lengths: that of the length that needs most memory.
    let worst = plan.buckets.iter().max_by_key(|bucket| bucket.peak).expect("there are lengths");
    let smallest = plan.buckets.iter().map(|bucket| bucket.micro_batch).min().unwrap_or(1);
    Ok(Ok((
        plan.clone(),
        changes_to(builder, (builder.choice(target), worst.choice), smallest, &format!("{} of {budget}", plan.peak)),
    )))
}

/// Lists the changes of the configuration that replace the choice `old`, which it has now, by `choice`, with
/// micro-batches of `micro_batch` utterances. `peak` names the planned peak of memory in the reason for a change.
fn changes_to(builder: &DemandBuilder, (old, choice): (Choice, Choice), micro_batch: u32, peak: &str) -> Vec<Change> {
    let config = &builder.config;
    let mut changes = Vec::new();
    let remat = match choice.remat {
        Remat::None => RematChoice::None,
        Remat::Half => RematChoice::Half,
        Remat::First(blocks) if blocks * 2 <= builder.model.blocks() + 1 => RematChoice::Half,
        _ => RematChoice::All,
    };
    if remat != config.training.remat {
        let why = match remat {
            RematChoice::None => "memory suffices to keep every block, which is faster",
            _ => "these blocks are computed a second time instead of kept; same result",
        };
        changes.push(Change::new("training", "remat", format!("\"{}\"", remat.as_str()), why));
    }
    if choice.attention_chunk != old.attention_chunk {
        match choice.attention_chunk {
            Some(chunk) => {
                let why = "attention holds the scores of one chunk of queries at a time; same result";
                changes.push(Change::new("model", "attention", "\"chunked\"", why));
                changes.push(Change::new("model", "attention_chunk", chunk, "large enough to keep a device busy"));
            }
            None if config.model.attention == AttentionChoice::Chunked => {
                changes.push(Change::new("model", "attention", "\"exact\"", "memory suffices for all scores at once"));
            }
            None => {}
        }
    }
    if config.training.micro_batch != Some(micro_batch) && is_split(config, micro_batch) {
        let why =
            format!("the largest micro-batch that fits at every length, {peak}; the effective batch is unchanged");
        changes.push(Change::new("training", "micro_batch", micro_batch, &why));
    }
    changes
}

/// Returns whether the configuration has to name `micro_batch`: if a batch may have more utterances, or if the
/// configuration already names a size of micro-batches.
fn is_split(config: &RunConfig, micro_batch: u32) -> bool {
    config.data.effective_utterances().is_none_or(|whole| micro_batch < whole) || config.training.micro_batch.is_some()
}

/// Lists the lines that only one of two texts has: removed lines first, then added lines.
fn difference(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let removed = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
    let added = new.iter().filter(|line| !old.contains(line) && !line.is_empty()).map(|line| format!("+ {line}"));
    removed.chain(added).collect()
}
