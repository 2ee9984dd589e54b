//! `gpu-info`: the cards that are here, who holds them, and what we may use.

use std::process::ExitCode;

use plimsoll_monitor::Machine;

use plimsoll_recipes::Failure;

/// Prints what this machine has.
pub(crate) fn gpu_info(json: bool) -> Result<ExitCode, Failure> {
    let machine = Machine::probe();
    match json {
        true => println!("{:#}", serde_json::json!(machine)),
        false => print!("{machine}"),
    }
    Ok(ExitCode::SUCCESS)
}
