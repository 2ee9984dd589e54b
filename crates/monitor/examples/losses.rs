//! Prints the losses of a run from its record:
//! `cargo run -p plimsoll-monitor --example losses -- runs/asr-1/metrics.jsonl`.

use std::path::Path;

use plimsoll_core::{Event, StepEvent};
use plimsoll_monitor::{RecordError, read_records};

fn main() -> Result<(), RecordError> {
    let Some(path) = std::env::args().nth(1) else {
        println!("usage: losses METRICS_FILE");
        return Ok(());
    };
    let steps: Vec<StepEvent> = read_records(Path::new(&path))?
        .into_iter()
        .filter_map(|record| if let Event::Step(step) = record.event { Some(step) } else { None })
        .collect();
    for StepEvent { step, loss, .. } in steps.iter().step_by(steps.len().div_ceil(20).max(1)) {
        println!("{step:>6} {loss:>8.3} {}", "#".repeat((loss * 12.0).clamp(0.0, 80.0) as usize));
    }
    Ok(())
}
