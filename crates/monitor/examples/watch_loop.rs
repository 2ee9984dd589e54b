//! Records a training loop that is not part of Plimsoll, with the owner of its time, and reports it:
//! `cargo run -p plimsoll-monitor --example watch_loop -- FOLDER`.
//!
//! The loop fits a line by gradient descent. It needs no part of Plimsoll but this crate and `plimsoll-core`. While it runs,
//! `plimsoll monitor --run FOLDER` shows it.

use std::path::Path;
use std::time::{Instant, UNIX_EPOCH};

use plimsoll_core::{Bytes, Event, Measure, StepEvent, TimeOwner, timing};
use plimsoll_monitor::{Recorder, ReportPage, RunData, RunReport, TensorBoardFile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/watch_loop".into());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let mut recorder = Recorder::append(&folder.join("metrics.jsonl"))?;
    let mut curves = TensorBoardFile::create(&folder.join("tensorboard"), 0)?;

    let (mut slope, rate, mut best_error) = (0.0, 0.05, f64::INFINITY);
    timing::lap();
    for step in 1..=200 {
        // The target is y = 3 x at four points.
        let points = timing::measure(TimeOwner::Data, || [0.5, 1.0, 1.5, 2.0].map(|x| (x, 3.0 * x)));
        let start = Instant::now();
        let computing = timing::enter(TimeOwner::Compute);
        let errors = points.map(|(x, y)| (x, slope * x - y));
        let loss = errors.iter().map(|(_, error)| error * error).sum::<f64>() / 4.0;
        let gradient = errors.iter().map(|(x, error)| 2.0 * error * x).sum::<f64>() / 4.0;
        slope -= rate * gradient;
        drop(computing);
        let times = timing::lap();
        let _recording = timing::enter(TimeOwner::Record);
        recorder.record(&Event::Step(StepEvent {
            step,
            loss,
            norm: gradient.abs(),
            rate,
            step_seconds: start.elapsed().as_secs_f64(),
            times,
            ..StepEvent::default()
        }))?;
        curves.scalar("train/loss", step, loss)?;
        if step % 50 == 0 {
            let error = (slope - 3.0).abs();
            let best = error < best_error;
            best_error = best_error.min(error);
            let scores = vec![Measure::number("error", "distance from the true slope", error)];
            let epoch = step / 50;
            recorder.record(&Event::Validated { step, epoch, scores, seconds: 0.0, best, peak_bytes: Bytes(0) })?;
        }
    }

    let report = RunReport::read(folder, UNIX_EPOCH).ok_or("the folder has no record")?;
    print!("{report}");
    let page = RunData::read(folder).ok_or("the folder has no record")?;
    std::fs::write(folder.join("report.html"), ReportPage::new(&[page]).to_html())?;
    Ok(())
}
