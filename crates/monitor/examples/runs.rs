//! The runs in a folder: `cargo run -p plimsoll-monitor --example runs -- runs`, and with names after it those runs side
//! by side.

use std::path::Path;
use std::time::{Duration, SystemTime};

use plimsoll_monitor::{RecordError, compared, listed, read_runs, shown};

fn main() -> Result<(), RecordError> {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        println!("give a folder of runs, such as runs");
        return Ok(());
    };
    let mut cards = read_runs(Path::new(&folder), SystemTime::now() - Duration::from_secs(300))?;
    let names: Vec<String> = arguments.collect();
    if names.is_empty() {
        print!("{}", listed(&cards));
        return Ok(());
    }
    cards.retain(|card| names.contains(&card.name));
    match &cards[..] {
        [] => println!("no run of that name in {folder}"),
        [card] => print!("{}", shown(card)),
        cards => print!("{}", compared(cards)),
    }
    Ok(())
}
