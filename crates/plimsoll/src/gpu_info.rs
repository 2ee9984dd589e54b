//! `plimsoll gpu-info`: the GPUs of this machine, their memory, and the processes that use it.

use std::process::ExitCode;

use clap::Args;
use plimsoll_config::ConfigArgs;
use plimsoll_monitor::Machine;
use plimsoll_recipes::Failure;
use plimsoll_recipes::load;

use crate::environment;

/// Arguments of `gpu-info`.
#[derive(Debug, Args)]
pub(crate) struct GpuInfoArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Checked, and otherwise without effect: all GPUs are listed.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Prints the GPUs and the memory of this machine.
pub(crate) fn gpu_info(args: &GpuInfoArgs) -> Result<ExitCode, Failure> {
    load(&args.config, environment())?;
    let machine = Machine::probe();
    match args.json {
        true => println!("{:#}", serde_json::json!(machine)),
        false => print!("{machine}"),
    }
    Ok(ExitCode::SUCCESS)
}
