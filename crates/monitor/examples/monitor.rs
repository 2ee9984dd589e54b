//! Samples this machine, prints alerts as they come and a summary at the end:
//! `cargo run -p plimsoll-monitor --example monitor -- SECONDS [RECORDING]`.

use std::path::Path;
use std::time::Duration;

use plimsoll_monitor::sample::{AlertLimits, Alerts, MachineSource, Monitor, Sample, SampleRecorder, Sampler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(10), |seconds| seconds.parse())?;
    let mut recorder = arguments.next().map(|path| SampleRecorder::append(Path::new(&path))).transpose()?;
    let mut alerts = Alerts::new(AlertLimits::default());
    let on_sample = move |sample: &Sample| {
        for alert in alerts.observe(sample) {
            println!("{alert}");
        }
        let recorded = recorder.as_mut().map_or(Ok(()), |recorder| recorder.record(sample));
        if let Err(error) = recorded {
            eprintln!("{error}");
            recorder = None;
        }
    };
    let monitor = Monitor::start_with(Duration::from_secs(1), || Sampler::new(MachineSource::open()), on_sample);
    std::thread::sleep(Duration::from_secs(seconds));
    print!("{}", monitor.stop());
    Ok(())
}
