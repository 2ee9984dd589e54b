//! Prints the runs in a folder: `cargo run -p plimsoll-monitor --example runs -- runs`. Names of runs after the folder
//! print a comparison of these runs.

use std::path::Path;
use std::time::{Duration, SystemTime};

use plimsoll_monitor::{Comparison, RecordError, read_runs, run_table};

fn main() -> Result<(), RecordError> {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        println!("usage: runs FOLDER [NAME ...]");
        return Ok(());
    };
    let mut reports = read_runs(Path::new(&folder), SystemTime::now() - Duration::from_secs(300))?;
    let names: Vec<String> = arguments.collect();
    if names.is_empty() {
        print!("{}", run_table(&reports));
        return Ok(());
    }
    reports.retain(|report| names.contains(&report.name));
    match &reports[..] {
        [] => println!("no run of that name in {folder}"),
        [report] => print!("{report}"),
        reports => print!("{}", Comparison::new(reports)),
    }
    Ok(())
}
