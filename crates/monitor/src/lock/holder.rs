//! The process that holds the lock of a run, as the lock file names it.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::runs::Timestamp;

/// Process that holds the lock of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Name of the machine.
    pub host: String,
    /// Number of the process on its machine.
    pub pid: u32,
    /// Seconds from 1970 to the time at which the process took the lock.
    pub since: f64,
    /// Identity of the running system of the machine, which changes with each start of the machine.
    boot: String,
}

impl LockHolder {
    /// Describes this process.
    pub(super) fn current() -> Self {
        Self {
            host: sysinfo::System::host_name().unwrap_or_else(|| "this machine".into()),
            pid: std::process::id(),
            since: Timestamp::from(SystemTime::now()).0.floor(),
            boot: boot(),
        }
    }

    /// Describes a process that has not written its name yet.
    pub(super) fn unknown() -> Self {
        Self { host: String::new(), pid: 0, since: 0.0, boot: String::new() }
    }

    /// Returns the number of the process if this process can see it: both are on one machine, and in one container.
    pub fn visible_pid(&self) -> Option<u32> {
        // A container has a name of its own unless somebody gives it another.
        let is_near = self.is_on_this_machine() && sysinfo::System::host_name().is_some_and(|name| name == self.host);
        Some(self.pid).filter(|pid| is_near && *pid > 0)
    }

    /// Returns whether the process belongs to this machine, and the machine was not started again since.
    pub(super) fn is_on_this_machine(&self) -> bool {
        !self.boot.is_empty() && self.boot == boot()
    }

    /// Formats the holder as the lock file holds it.
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a holder is plain data") + "\n"
    }

    /// Reads the text of a lock file; `None` if it names no process.
    pub(super) fn from_text(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => f.write_str("another process"),
            pid => write!(f, "process {pid} on {}, since {} UTC", self.host, Timestamp(self.since)),
        }
    }
}

/// Returns the identity of the running system; empty if it is unknown.
fn boot() -> String {
    // Equal in all containers of a machine, and different after each start.
    let linux = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    linux.map(|text| text.trim().to_owned()).unwrap_or_else(|_| {
        match (sysinfo::System::host_name(), sysinfo::System::boot_time()) {
            (Some(host), time) if time > 0 => format!("{host} {time}"),
            _ => String::new(),
        }
    })
}
