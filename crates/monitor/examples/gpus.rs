//! Prints GPUs and host of this machine: `cargo run -p plimsoll-monitor --example gpus`, with `-- --json` for programs.

use plimsoll_monitor::Machine;

fn main() -> Result<(), serde_json::Error> {
    let machine = Machine::probe();
    if std::env::args().any(|argument| argument == "--json") {
        println!("{}", serde_json::to_string_pretty(&machine)?);
    } else {
        print!("{machine}");
    }
    Ok(())
}
