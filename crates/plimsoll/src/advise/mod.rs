//! `plimsoll advise`: what slows a run, the exact change that helps, and a trial that proves it.

mod apply;
mod facts;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll_core::CountingAllocator;
use plimsoll_monitor::advice::{Advice, advise as judge};
use plimsoll_recipes::{Failure, FailureExt};
use serde_json::{Value, json};

use crate::output::ForceFlag;
use crate::print::{go_on_without_output, uses_color};
use crate::signals::Signals;
use crate::trial::TrialConfigArgs;
use apply::Destination;
use verify::{Verified, Verifier};

/// Arguments of `advise`.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// Prove each change: train N steps with and without it in turns, two times each, and keep what helps. At least 20.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(20..=100_000))]
    verify: Option<u64>,
    /// Write the changes into the file of --config; with --verify only those that helped.
    #[arg(long, requires = "config", conflicts_with = "output")]
    apply: bool,
    /// Write the changed configuration to this file instead.
    #[arg(long = "out", alias = "output", value_name = "FILE.toml")]
    output: Option<PathBuf>,
    /// The flag `--force`.
    #[command(flatten)]
    force: ForceFlag,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// The configuration, or a run. Of a run its record is read; a configuration is trained for a trial of `--steps` steps,
    /// 40 unless given.
    #[command(flatten)]
    trial: TrialConfigArgs,
}

/// Prints the advice for a run or a configuration, proves it if asked to, and writes the changes if asked to.
pub(crate) fn advise(args: &AdviseArgs, memory: &'static CountingAllocator) -> Result<ExitCode, Failure> {
    let destination = Destination::new(args)?;
    let flags = args.trial.flags()?;
    if args.apply || args.output.is_some() {
        // Then the result is a file.
        go_on_without_output();
    }
    let signals = Signals::listen().failed()?;
    signals.end_if_busy().failed()?;
    let Some(facts) = facts::gather(&args.trial, memory, &signals.stop)? else {
        return Ok(ExitCode::from(signals.exit_code()));
    };
    let advice = judge(&facts);
    if !args.json {
        print!("{}", advice.page(uses_color()));
    }
    let verified = match args.verify {
        Some(steps) => {
            let epoch = facts.plan.as_ref().and_then(|plan| plan.batches_in_epoch);
            let verifier = Verifier { flags: &flags, steps, epoch, memory, stop: &signals.stop };
            let verified = verifier.verify(&advice.findings, |result| {
                if !args.json {
                    println!("{result}");
                }
            })?;
            let Some(verified) = verified else { return Ok(ExitCode::from(signals.exit_code())) };
            Some(verified)
        }
        None => None,
    };
    if args.json {
        println!("{:#}", page(&advice, verified.as_deref()));
    }
    let kept = |rule: &str| match &verified {
        Some(verified) => verified.iter().any(|result| result.rule == rule && result.is_kept),
        None => true,
    };
    let findings: Vec<_> = advice.findings.iter().filter(|finding| kept(finding.rule)).collect();
    destination.write(&findings, &flags, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn page(advice: &Advice, verified: Option<&[Verified]>) -> Value {
    let mut page = json!(advice);
    if let Some(verified) = verified {
        page["verified"] = json!(verified);
    }
    page
}
