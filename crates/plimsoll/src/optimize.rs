//! `plimsoll optimize`: changes a configuration so that its run fits into memory.

pub(crate) mod edit;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use plimsoll_config::choices::{AttentionChoice, RematChoice, StateChoice};
use plimsoll_config::invocation::command;
use plimsoll_config::{AUTO_FILE, ConfigArgs, Key, Layer, Loaded, RunConfig, keys, to_toml};
use plimsoll_core::{CountingAllocator, read_text_file};
use plimsoll_memory::{MemoryModel, Plan, PlanError, Traceable};
use plimsoll_recipes::demand::DemandBuilder;
use plimsoll_recipes::memory_plan::Shares;
use plimsoll_recipes::target::{Target, targets};
use plimsoll_recipes::{Failure, FailureExt, load_run, with_trained};

use crate::environment;
use crate::output::{ForceFlag, OutputFile};
use crate::terminal::{DOES_NOT_FIT, Terminal, spinner};
use edit::{Change, edited};

/// Arguments of `optimize`.
#[derive(Debug, Args)]
pub(crate) struct OptimizeArgs {
    /// File for the changed configuration; with --force it can be the same file.
    #[arg(long = "out", alias = "output", value_name = "FILE.toml")]
    pub(crate) output: PathBuf,
    /// Whether the file may be overwritten.
    #[command(flatten)]
    pub(crate) overwrite: ForceFlag,
    /// GPU by name or memory size, as for memtest; can be repeated, then the result fits all. Default: the local GPU, or the
    /// CPU if there is none.
    #[arg(long, value_name = "NAME|SIZE")]
    pub(crate) gpu: Vec<String>,
    /// The configuration to change: a TOML file, or without one the built-in configuration. Keys that other flags set are written
    /// into the result too.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Writes a configuration whose run fits into memory, and prints the changes.
pub(crate) fn optimize(args: &OptimizeArgs, meter: &'static CountingAllocator) -> Result<ExitCode, Failure> {
    let file = args.config.config.as_deref().filter(|path| *path != Path::new(AUTO_FILE));
    // Before the configuration is loaded: YAML would load, and cannot be changed.
    let text = file.map(read_toml).transpose()?;
    let loaded = load_run(&args.config, environment(), &Terminal)?;
    let (text, set) = match text {
        Some(text) => (text, set_by_flags(&loaded)),
        // The built-in one, or a shipped one, with what flags set.
        None => (to_toml(&loaded), Vec::new()),
    };
    let config = loaded.config;
    let output = OutputFile::new(&args.output, "--out", args.overwrite, &["toml"])?;
    let builder = DemandBuilder::for_run(config, meter, &Terminal)?;
    let targets = targets(&args.gpu, &builder.config.device)?;
    let bar = spinner("searching the smallest change that fits");
    let found = with_trained!(builder, model => optimized(model, &builder, &targets));
    bar.finish_and_clear();
    let Optimized { plans, changes } = match found? {
        Ok(found) => found,
        Err((target, error)) => return Ok(report_no_fit(&error, &target, builder.shares(&target))),
    };
    let new = edited(&text, &[set, changes].concat(), "optimize")?;
    output.write(&new)?;
    for (target, plan) in targets.iter().zip(&plans) {
        let budget = target.budget(&builder.config);
        let peak = builder.shares(target).whole_run(plan.peak);
        println!("{}: {peak} of {budget} at most, effective batch unchanged", target.name());
    }
    let changed = difference(&text, &new);
    if changed.is_empty() {
        println!("no change is needed");
    }
    for line in changed {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the text of the configuration in the file at `path`, which must be TOML.
fn read_toml(path: &Path) -> Result<String, Failure> {
    let help = "--config takes the configuration file of a run; without it, the built-in one is changed";
    let text = read_text_file(path)
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
pub(crate) fn set_by_flags(loaded: &Loaded) -> Vec<Change> {
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
fn report_no_fit(error: &PlanError, target: &Target, shares: Shares) -> ExitCode {
    eprintln!("{}: does not fit: {error}{}", target.name(), shares.beside());
    if let Some(advice) = error.advice() {
        eprintln!("  the cheapest way that would fit: {advice}");
    }
    ExitCode::from(DOES_NOT_FIT)
}

/// A configuration that fits all targets.
struct Optimized {
    /// The plan on each target, in their order.
    plans: Vec<Plan>,
    /// The changes of the configuration.
    changes: Vec<Change>,
}

/// A changed configuration that fits all targets, or the target that it does not fit with the reason.
type Found = Result<Optimized, (Target, PlanError)>;

/// Searches the fewest keys that have to become `auto` so that a run fits every target. Among equally few keys, the
/// fastest plans count.
fn optimized<S: Traceable + Sync>(subject: &S, builder: &DemandBuilder, targets: &[Target]) -> Result<Found, Failure> {
    let model = |target: &Target| MemoryModel::new(subject, builder.as_written(target));
    let models = targets.iter().map(model).collect::<Result<Vec<_>, _>>().invalid()?;
    smallest_change(builder, targets, &models.iter().collect::<Vec<_>>())
}

/// Searches as [`optimized`] does, with the traces in `models`, one for each target.
fn smallest_change<S: Traceable + Sync>(
    builder: &DemandBuilder,
    targets: &[Target],
    models: &[&MemoryModel<'_, S>],
) -> Result<Found, Failure> {
    let plans = |config: &RunConfig| -> Result<Option<Vec<Plan>>, Failure> {
        let builder = builder.with_config(config.clone());
        let mut all = Vec::new();
        for (target, model) in targets.iter().zip(models) {
            match builder.plan_as_written(model, target).failed()? {
                Some(plan) => all.push(plan),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    };
    if let Some(plans) = plans(&builder.config)? {
        return Ok(Ok(Optimized { plans, changes: Vec::new() }));
    }
    let all = Freedom::all(&builder.config);
    let mut subsets: Vec<u32> = (1..1 << all.len()).collect();
    subsets.sort_by_key(|subset| (subset.count_ones(), *subset));
    let mut best: Option<(u32, f64, Optimized)> = None;
    for subset in subsets {
        let count = subset.count_ones();
        if best.as_ref().is_some_and(|(fewest, ..)| *fewest < count) {
            break;
        }
        let chosen: Vec<Freedom> =
            all.iter().enumerate().filter(|(place, _)| subset >> place & 1 == 1).map(|(_, freedom)| *freedom).collect();
        let mut config = builder.config.clone();
        chosen.iter().for_each(|freedom| freedom.apply(&mut config));
        if let Some(plans) = plans(&config)? {
            let seconds = plans.iter().map(Plan::seconds).sum();
            if best.as_ref().is_none_or(|(_, least, _)| seconds < *least) {
                let changes = chosen.iter().flat_map(|freedom| freedom.changes(&builder.config)).collect();
                best = Some((count, seconds, Optimized { plans, changes }));
            }
        }
    }
    if let Some((.., found)) = best {
        return Ok(Ok(found));
    }
    for (target, model) in targets.iter().zip(models) {
        if let Err(error) = builder.plans(model, target).invalid()?.as_written {
            return Ok(Err((target.clone(), error)));
        }
    }
    unreachable!("a configuration that fits every target was returned above")
}

/// A setting that can become `auto`: the planner then chooses it for each length, and the result stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freedom {
    MicroBatch,
    Remat,
    Attention,
    OptimizerState,
}

impl Freedom {
    /// Lists the settings that `config` fixes, the least intrusive first.
    fn all(config: &RunConfig) -> Vec<Self> {
        let training = &config.training;
        let is_cut = training.micro_batch.is_some() || training.gradient_accumulation_steps.is_some();
        let is_fixed = |freedom: &Self| match freedom {
            Self::MicroBatch => is_cut,
            Self::Remat => training.remat != RematChoice::AUTO,
            Self::Attention => {
                matches!(config.model.attention, AttentionChoice::Exact | AttentionChoice::Chunked)
            }
            Self::OptimizerState => training.optimizer_state == StateChoice::Full,
        };
        let all = [Self::MicroBatch, Self::Remat, Self::Attention, Self::OptimizerState];
        all.into_iter().filter(is_fixed).collect()
    }

    /// Frees the setting in `config`. The effective batch stays.
    fn apply(self, config: &mut RunConfig) {
        let whole = config.effective_utterances();
        let training = &mut config.training;
        match self {
            Self::MicroBatch => {
                if training.gradient_accumulation_steps.take().is_some() {
                    config.data.batch_size = whole;
                }
                training.micro_batch = None;
            }
            Self::Remat => training.remat = RematChoice::AUTO,
            Self::Attention => config.model.attention = AttentionChoice::Auto,
            Self::OptimizerState => training.optimizer_state = StateChoice::Auto,
        }
    }

    /// Lists the changes of a file that free the setting of `config`.
    fn changes(self, config: &RunConfig) -> Vec<Change> {
        let auto = "\"auto\"";
        match self {
            Self::MicroBatch => {
                let why = "as many utterances at once as fit, by length";
                if config.training.gradient_accumulation_steps.is_none() {
                    return vec![Change::new("training", "micro_batch", auto, why)];
                }
                let whole = config.effective_utterances().unwrap_or_default();
                vec![
                    Change::new("data", "batch_size", whole, "the same effective batch, as one number"),
                    Change::new("training", "gradient_accumulation_steps", auto, why),
                ]
            }
            Self::Remat => {
                let why = "as few blocks computed a second time as memory allows, by length; same result";
                vec![Change::new("training", "remat", auto, why)]
            }
            Self::Attention => {
                let why = "in chunks of queries at lengths where memory is short; same result";
                vec![Change::new("model", "attention", auto, why)]
            }
            Self::OptimizerState => {
                let why = "in host memory if the run fits only so; same result";
                vec![Change::new("training", "optimizer_state", auto, why)]
            }
        }
    }
}

/// Lists the lines that only one of two texts has: removed lines first, then added lines.
fn difference(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let removed = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
    let added = new.iter().filter(|line| !old.contains(line) && !line.is_empty()).map(|line| format!("+ {line}"));
    removed.chain(added).collect()
}
