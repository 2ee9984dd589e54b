//! A curve for TensorBoard, of a run that is cut off and goes on:
//! `cargo run -p plimsoll-monitor --example events -- FOLDER`, then `tensorboard --logdir FOLDER`.

use std::path::Path;

use plimsoll_monitor::{EventFile, RecordError};

fn main() -> Result<(), RecordError> {
    let Some(folder) = std::env::args().nth(1) else {
        println!("give a folder for the event files");
        return Ok(());
    };
    // Steps 201 to 250 are taken twice: the run is cut off at 250 and goes on from a checkpoint.
    for (after, until) in [(0, 250), (200, 400)] {
        let mut events = EventFile::create(Path::new(&folder), after)?;
        events.text("note", after, &format!("goes on after step **{after}**"))?;
        for step in after + 1..=until {
            events.scalar("train/loss", step, 3.0 * (-0.01 * step as f64).exp())?;
        }
        println!("{}", events.path().display());
    }
    Ok(())
}
