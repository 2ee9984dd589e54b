//! Checks this machine: `cargo run -p plimsoll-monitor --example doctor -- [--json] [--bundle report.tar.gz] [folder]`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use plimsoll_core::Bytes;
use plimsoll_monitor::doctor::{Check, Doctor, DoctorOptions, DoctorProgress, MachineFacts, Outcome};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut json = false;
    let mut bundle = None;
    let mut folder = PathBuf::from(".");
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--bundle" => bundle = arguments.next(),
            _ => folder = argument.into(),
        }
    }
    let facts = Arc::new(MachineFacts::read());
    let options = DoctorOptions {
        checkpoint_folder: Some(folder),
        checkpoint: Some(Bytes::mib(500)),
        cuda_backend: !facts.machine.gpus.is_empty(),
        ..DoctorOptions::default()
    };
    // A program adds checks of its own after those of the machine.
    let own = Check::new("program", "this program", |_| Outcome::pass("it runs"));
    let report = Doctor::for_machine(&facts, &options).with(own).run(|progress| {
        if let DoctorProgress::Started { index, count, title, .. } = progress {
            eprintln!("{} of {count}: {title}", index + 1);
        }
    });
    match json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{report}"),
    }
    if let Some(path) = bundle {
        report.bundle(Path::new(&path))?;
    }
    Ok(report.exit_code().into())
}
