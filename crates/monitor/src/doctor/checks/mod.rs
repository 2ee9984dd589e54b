//! Checks of a machine. Each is a function from facts to an outcome; only the checks of disks and clocks measure.

mod clock;
mod container;
mod disk;
mod driver;
mod findings;
mod gpu;
mod host;
mod libraries;
mod session;
mod temp_file;
mod visible;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Bytes;

use super::check::{Check, Outcome};
use super::facts::MachineFacts;

/// Time limit of the check that writes and reads a file: slow network disks are what it looks for.
const DISK_LIMIT: Duration = Duration::from_secs(30);

/// What a program knows and the machine does not: where it writes, how much, and which backend it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoctorOptions {
    /// Folder for checkpoints; without it the checks of the disk are skipped. The folder may not exist yet.
    pub checkpoint_folder: Option<PathBuf>,
    /// Size of a checkpoint, to predict how long one takes.
    pub checkpoint: Option<Bytes>,
    /// Whether the program has the CUDA backend, which needs libraries at run time.
    pub cuda_backend: bool,
}

/// Function from facts to an outcome.
type Judge = fn(&MachineFacts) -> Outcome;

/// Checks that need no options.
const CHECKS: [(&str, &str, Judge); 13] = [
    ("driver", "NVIDIA driver", driver::driver),
    ("driver-permission", "permission to use the GPUs", driver::permission),
    ("container", "settings of the container", container::container),
    ("wsl", "Linux under Windows", container::wsl),
    ("visible-devices", "selection of GPUs", visible::visible_devices),
    ("gpu-memory", "free GPU memory", gpu::memory),
    ("gpu-clocks", "power limits and clocks", gpu::clocks),
    ("nccl", "library for several GPUs", libraries::nccl),
    ("host-memory", "memory of the host", host::memory),
    ("cpus", "processors", host::cpus),
    ("open-files", "limit of open files", host::open_files),
    ("temp-folder", "folder for temporary files", session::temp_folder),
    ("terminal", "character set and terminal", session::terminal),
];

/// Returns all checks of the machine.
pub(super) fn machine_checks(facts: &Arc<MachineFacts>, options: &DoctorOptions) -> Vec<Check> {
    let of_facts = |&(id, title, judge): &(&'static str, &'static str, Judge)| {
        let facts = facts.clone();
        Check::new(id, title, move |_| judge(&facts))
    };
    let mut checks: Vec<Check> = CHECKS.iter().map(of_facts).collect();
    let (cuda_backend, shared) = (options.cuda_backend, facts.clone());
    checks.push(Check::new("libraries", "libraries of the CUDA backend", move |_| {
        libraries::libraries(&shared, cuda_backend)
    }));
    let folder = options.checkpoint_folder.clone();
    checks.push(Check::new("clock", "clocks", move |_| clock::clock(folder.as_deref())));
    let (folder, size) = (options.checkpoint_folder.clone(), options.checkpoint);
    checks.push(Check::new("disk-space", "free space for checkpoints", move |_| disk::space(folder.as_deref(), size)));
    let (folder, size) = (options.checkpoint_folder.clone(), options.checkpoint);
    let speed = Check::new("disk-speed", "speed of the disk for checkpoints", move |context| {
        disk::speed(folder.as_deref(), size, context)
    });
    checks.push(speed.with_limit(DISK_LIMIT));
    checks
}
