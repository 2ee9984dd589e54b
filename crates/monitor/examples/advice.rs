//! Prints advice for the run in a folder: `cargo run -p plimsoll-monitor --example advice -- runs/asr-1`.

use std::path::Path;

use plimsoll_monitor::Host;
use plimsoll_monitor::advice::{RunFacts, advise};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("name the folder of a run")?;
    let mut facts = RunFacts::read(Path::new(&folder))?;
    facts.host = (&Host::read()).into();
    print!("{}", advise(&facts));
    Ok(())
}
