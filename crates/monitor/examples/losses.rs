//! The losses of a run from its record: `cargo run -p plimsoll-monitor --example losses -- runs/asr-1/metrics.jsonl`.

use std::path::Path;

use plimsoll_monitor::{RecordError, host_memory, read_records};

fn main() -> Result<(), RecordError> {
    println!("this machine has {}", host_memory());
    let Some(path) = std::env::args().nth(1) else {
        println!("give the metrics.jsonl of a run to see its losses");
        return Ok(());
    };
    let records = read_records(Path::new(&path))?;
    let steps: Vec<_> = records.iter().filter(|record| record["event"] == "step").collect();
    for step in steps.iter().step_by(steps.len().div_ceil(20).max(1)) {
        let loss = step["loss"].as_f64().unwrap_or(f64::NAN);
        println!("{:>6} {loss:>8.3} {}", step["step"], "#".repeat((loss * 12.0).clamp(0.0, 80.0) as usize));
    }
    Ok(())
}
