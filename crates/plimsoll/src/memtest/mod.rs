//! `plimsoll memtest`: computes whether a run fits into memory, before it runs.

mod case;
mod matrix;
pub(crate) mod verdict;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use plimsoll_config::ConfigArgs;
use plimsoll_core::CountingAllocator;
use plimsoll_memory::{Demand, MemoryModel, Plan, RunMemory, Traceable, html_page, perfetto_trace};
use plimsoll_recipes::demand::DemandBuilder;
use plimsoll_recipes::target::{Target, targets};
use plimsoll_recipes::{Failure, FailureExt, load_run, with_trained};
use serde_json::json;

use crate::environment;
use crate::output::{ForceFlag, HTML, OutputFile};
use crate::terminal::{DOES_NOT_FIT, Terminal, spinner};
use verdict::Verdict;

/// Arguments of `memtest`.
#[derive(Debug, Args)]
pub(crate) struct MemtestArgs {
    /// GPU by name, such as `t4` or `rtx 3060`, or memory size, such as 8GiB, or cpu; can be repeated. Default: the local
    /// GPU, or the CPU if there is none.
    #[arg(long, value_name = "NAME|SIZE")]
    pub(crate) gpu: Vec<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the memory of a step over time, by owner, as an HTML page to this file.
    #[arg(long, value_name = "FILE.html", conflicts_with = "verify")]
    pub(crate) timeline: Option<PathBuf>,
    /// Write the same timeline for ui.perfetto.dev to this file.
    #[arg(long, value_name = "FILE.json", conflicts_with = "verify")]
    pub(crate) trace: Option<PathBuf>,
    /// Whether the two files may be overwritten.
    #[command(flatten)]
    pub(crate) overwrite: ForceFlag,
    /// Run real training steps and compare their peak memory with the prediction: a matrix of cases, or the one of --batch,
    /// each in its own process. Runs on the CPU, or on the GPU that --backend selects; there each case runs twice, because a
    /// GPU tries several kernels when it first meets new sizes.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Verify one case, with the model of the configuration and this many utterances per micro-batch.
    #[arg(long, value_name = "B", requires = "verify", group = "one-case")]
    pub(crate) batch: Option<u32>,
    /// Frames per utterance of the case. Default: the longest that the configuration allows.
    #[arg(long, value_name = "T", requires = "batch")]
    pub(crate) frames: Option<u32>,
    /// Tokens per utterance of the case. Default: the most that the configuration allows.
    #[arg(long, value_name = "U", requires = "batch")]
    pub(crate) tokens: Option<u32>,
    /// Blocks that the case computes a second time in the backward pass: none, half or all. Default: as configured.
    #[arg(long, value_parser = ["none", "half", "all"], requires = "batch")]
    pub(crate) remat: Option<String>,
    /// Plan for N memory budgets instead, and check that each plan stays within its budget when it runs.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "verify", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) budgets: u32,
    /// Case to run, as JSON; --verify passes it to the processes that it starts.
    #[arg(long, hide = true, requires = "verify", group = "one-case")]
    pub(crate) case: Option<String>,
    /// Write each allocation that is predicted for a micro-batch of the case to this file, as JSON: its size, its owner, its
    /// lifetime, and the operation that makes it.
    #[arg(long, value_name = "FILE.json", requires = "one-case")]
    pub(crate) allocations: Option<PathBuf>,
    /// Number of cases with random sizes, in addition to the matrix. Default: 16 on the CPU, 0 on a GPU. On a GPU their
    /// micro-batches are made as small as its memory requires.
    #[arg(long, value_name = "N", requires = "verify", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) random: Option<u32>,
    /// The configuration.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Predicts the memory of a run for every target and prints whether it fits; `verbose` adds owners and phases.
pub(crate) fn memtest(
    args: &MemtestArgs,
    verbose: bool,
    meter: &'static CountingAllocator,
) -> Result<ExitCode, Failure> {
    let loaded = load_run(&args.config, environment(), &Terminal)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    if args.verify {
        return verify::verify(args, loaded.config, meter);
    }
    let files = TimelineFiles::new(args)?;
    let builder = DemandBuilder::for_run(loaded.config, meter, &Terminal)?;
    let targets = targets(&args.gpu, &builder.config.device)?;
    let spinner = spinner("computing the memory of a step");
    let verdicts = with_trained!(builder, model => verdicts(model, &builder, &targets));
    spinner.finish_and_clear();
    let verdicts = verdicts?;
    write_timeline(&files, &verdicts)?;
    match args.json {
        true => println!("{:#}", json!({"cards": verdicts.iter().map(Verdict::json).collect::<Vec<_>>()})),
        false => {
            println!("{}", builder.model);
            verdicts.iter().for_each(|verdict| print!("\n{}", verdict.summary(verbose)));
        }
    }
    Ok(match verdicts.iter().all(Verdict::fits) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DOES_NOT_FIT),
    })
}

/// Predicts the memory of a run on each target, and returns one verdict per target.
fn verdicts<S: Traceable + Sync>(
    subject: &S,
    builder: &DemandBuilder,
    targets: &[Target],
) -> Result<Vec<Verdict>, Failure> {
    // GPUs differ in memory and speed, but the demand of a step depends only on the rules of the backend and on the
    // options: one model of the memory serves all targets where both are the same.
    let mut models: Vec<MemoryModel<'_, S>> = Vec::new();
    let mut verdicts = Vec::new();
    for target in targets {
        let demand = builder.as_written(target);
        let same = |old: &Demand| {
            (old.rules, &old.options, &old.remedies) == (demand.rules, &demand.options, &demand.remedies)
        };
        let index = match models.iter().position(|model| same(model.demand())) {
            Some(index) => index,
            None => {
                // Even with other options the traces are the same.
                let traced = models.iter().find(|model| model.demand().rules == demand.rules);
                let traces = traced.map(MemoryModel::traces).unwrap_or_default();
                models.push(MemoryModel::with_traces(subject, demand, traces).invalid()?);
                models.len() - 1
            }
        };
        let model = &models[index];
        let (budget, shares) = (target.budget(&builder.config), builder.shares(target));
        let plans = builder.plans(model, target).invalid()?;
        let memory = match plans.used() {
            Ok(plan) => worst(model, plan)?,
            Err(_) => None,
        };
        verdicts.push(Verdict { name: target.name(), budget, shares, plans, memory });
    }
    Ok(verdicts)
}

/// Computes the memory over time of a run at the length of `plan` that needs most.
fn worst<S: Traceable + Sync>(model: &MemoryModel<'_, S>, plan: &Plan) -> Result<Option<RunMemory>, Failure> {
    let Some(bucket) = plan.buckets.iter().max_by_key(|bucket| bucket.peak) else { return Ok(None) };
    Ok(Some(model.run_memory(bucket.bucket, bucket.micro_batch, bucket.choice, plan.state).failed()?.0))
}

/// Files for the memory of a step over time.
struct TimelineFiles {
    page: Option<OutputFile>,
    trace: Option<OutputFile>,
}

impl TimelineFiles {
    /// Checks the files that `args` name.
    fn new(args: &MemtestArgs) -> Result<Self, Failure> {
        let file = |path: &Option<PathBuf>, flag, endings: &[&str]| {
            path.as_deref().map(|path| OutputFile::new(path, flag, args.overwrite, endings)).transpose()
        };
        Ok(Self { page: file(&args.timeline, "--timeline", HTML)?, trace: file(&args.trace, "--trace", &["json"])? })
    }
}

/// Writes the timeline and the trace, if asked for, of the first target that fits.
fn write_timeline(files: &TimelineFiles, verdicts: &[Verdict]) -> Result<(), Failure> {
    let Some((name, memory)) = verdicts.iter().find_map(|verdict| Some((&verdict.name, verdict.memory.as_ref()?)))
    else {
        return match files.page.is_some() || files.trace.is_some() {
            true => Err(Failure::invalid("there is no timeline of a run that does not fit", "choose a larger --gpu")),
            false => Ok(()),
        };
    };
    let title = format!("A training step on {name}");
    if let Some(file) = &files.page {
        file.write(html_page(&title, &memory.timeline))?;
    }
    if let Some(file) = &files.trace {
        file.write(perfetto_trace(&title, &memory.timeline))?;
    }
    Ok(())
}
