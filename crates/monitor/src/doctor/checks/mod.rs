//! Checks of a machine. Each is a function from facts to an outcome; only the checks of disks and clocks measure.

mod clock;
mod container;
mod disk;
mod driver;
mod findings;
mod gpu;
mod host;
mod kernel_cache;
mod libraries;
mod loader;
mod options;
mod precision;
mod session;
mod temp_file;
mod visible;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use loader::LoaderFacts;
pub use options::{DeviceKind, DoctorOptions};

use super::check::{Check, CheckContext, Outcome};
use super::facts::MachineFacts;

/// Time limit of the check that writes and reads a file: slow network disks are what it looks for.
const DISK_LIMIT: Duration = Duration::from_secs(30);

/// Function from facts to an outcome.
type Judge = fn(&MachineFacts) -> Outcome;

/// Checks that need no options.
const CHECKS: [(&str, &str, Judge); 12] = [
    ("driver", "NVIDIA driver", driver::driver),
    ("driver-permission", "permission to use the GPUs", driver::permission),
    ("container", "settings of the container", container::container),
    ("wsl", "Linux under Windows", container::wsl),
    ("visible-devices", "selection of GPUs", visible::visible_devices),
    ("gpu-memory", "free GPU memory", gpu::memory),
    ("gpu-clocks", "power limits and clocks", gpu::clocks),
    ("host-memory", "memory of the host", host::memory),
    ("cpus", "processors", host::cpus),
    ("open-files", "limit of open files", host::open_files),
    ("temp-folder", "folder for temporary files", session::temp_folder),
    ("terminal", "character set and terminal", session::terminal),
];

/// Function from facts, options and time to an outcome.
type JudgeWithOptions = fn(&MachineFacts, &DoctorOptions, &CheckContext) -> Outcome;

/// Checks that also need what the program knows.
const CHECKS_WITH_OPTIONS: [(&str, &str, JudgeWithOptions); 8] = [
    ("number-formats", "number formats", |facts, options, _| precision::number_formats(facts, options)),
    ("nccl", "library for several GPUs", |facts, options, _| libraries::nccl(facts, options)),
    ("libraries", "libraries of the CUDA backend", |facts, options, _| {
        libraries::libraries(facts, options.cuda_backend)
    }),
    ("libdevice", "functions of the CUDA toolkit", |facts, options, _| {
        libraries::libdevice(facts, options.cuda_backend)
    }),
    ("kernel-cache", "cache of kernels", kernel_cache::kernel_cache),
    ("clock", "clocks", |_, options, _| clock::clock(options.checkpoint_folder.as_deref())),
    ("disk-space", "free space for checkpoints", |_, options, _| {
        disk::space(options.checkpoint_folder.as_deref(), options.checkpoint)
    }),
    ("disk-speed", "speed of the disk for checkpoints", |_, options, context| {
        disk::speed(options.checkpoint_folder.as_deref(), options.checkpoint, context)
    }),
];

/// Returns all checks of the machine.
pub(super) fn machine_checks(facts: &Arc<MachineFacts>, options: &DoctorOptions) -> Vec<Check> {
    let of_facts = |&(id, title, judge): &(&'static str, &'static str, Judge)| {
        let facts = facts.clone();
        Check::new(id, title, move |_| judge(&facts))
    };
    let with_options = |&(id, title, judge): &(&'static str, &'static str, JudgeWithOptions)| {
        let (facts, options) = (facts.clone(), options.clone());
        let check = Check::new(id, title, move |context| judge(&facts, &options, context));
        if id == "disk-speed" { check.with_limit(DISK_LIMIT) } else { check }
    };
    CHECKS.iter().map(of_facts).chain(CHECKS_WITH_OPTIONS.iter().map(with_options)).collect()
}
