//! `plimsoll gpu-info`: the GPUs of this machine, their memory, and the processes that use it.

use std::process::ExitCode;

use plimsoll_monitor::Machine;

use plimsoll_recipes::Failure;

/// Prints the GPUs and the memory of this machine, as one JSON object if `json`.
pub(crate) fn gpu_info(json: bool) -> Result<ExitCode, Failure> {
    let machine = Machine::probe();
    match json {
        true => println!("{:#}", serde_json::json!(machine)),
        false => print!("{machine}"),
    }
    Ok(ExitCode::SUCCESS)
}
