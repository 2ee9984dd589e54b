//! Writes a curve for TensorBoard, of a run that is killed and resumed:
//! `cargo run -p plimsoll-monitor --example tensorboard -- FOLDER`, then `tensorboard --logdir FOLDER`.

use std::path::Path;

use plimsoll_monitor::{RecordError, TensorBoardFile};

fn main() -> Result<(), RecordError> {
    let Some(folder) = std::env::args().nth(1) else {
        println!("usage: tensorboard FOLDER");
        return Ok(());
    };
    // Steps 201 to 250 are taken twice: the run is killed at 250 and resumes from the checkpoint of 200.
    for (after, until) in [(0, 250), (200, 400)] {
        let mut file = TensorBoardFile::create(Path::new(&folder), after)?;
        file.text("note", after, &format!("resumes after step **{after}**"))?;
        for step in after + 1..=until {
            file.scalar("train/loss", step, 3.0 * (-0.01 * step as f64).exp())?;
        }
        println!("{}", file.path().display());
    }
    Ok(())
}
