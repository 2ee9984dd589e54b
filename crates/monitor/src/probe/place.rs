//! Where this process runs, as far as it limits what can be seen of others.

use std::fs::read_to_string;
use std::path::Path;

use serde::Serialize;

/// The kernel gives the first PID namespace always this number: `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
const CONTAINER_GROUPS: [&str; 5] = ["docker", "kubepods", "containerd", "libpod", "lxc"];

/// Why a fact about a process is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Unseen {
    /// The driver counts processes as the machine does, and this container counts anew: the same number may be
    /// another process here.
    #[error("this container numbers its processes apart from the machine")]
    Container,
    /// We may not know.
    #[error("this user may not see it")]
    Permission,
    /// Windows keeps the processes and the memory of the card.
    #[error("Windows manages the card and does not tell it to WSL")]
    Wsl,
    /// The driver has no answer for this card, for example where it is cut into MIG instances.
    #[error("the driver does not say")]
    Driver,
    /// The process ended while we looked.
    #[error("the process ended while we looked")]
    Ended,
}

/// What kind of place this process runs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// In a container.
    pub container: bool,
    /// In Linux under Windows.
    pub wsl: bool,
    /// Whether processes are numbered apart from the machine. A container can share the machine's numbers
    /// (`--pid=host`); then the numbers that the driver gives are good here.
    pub own_pids: bool,
    /// Whether the system hides the processes of other users (`hidepid`).
    pub hides_others: bool,
}

impl Place {
    /// Where this process runs.
    pub fn here() -> Self {
        let read = |path| read_to_string(path).unwrap_or_default();
        Self::of(&Signs {
            kernel: &read("/proc/version"),
            first_group: &read("/proc/1/cgroup"),
            mounts: &read("/proc/self/mounts"),
            pid_namespace: std::fs::read_link("/proc/self/ns/pid").ok().as_deref().and_then(Path::to_str),
            has_container_file: CONTAINER_FILES.iter().any(|path| Path::new(path).exists()),
        })
    }

    /// What the signs mean.
    pub(super) fn of(signs: &Signs<'_>) -> Self {
        let wsl = signs.kernel.to_ascii_lowercase().contains("microsoft");
        let is_named = CONTAINER_GROUPS.iter().any(|name| signs.first_group.contains(name));
        let marked = signs.has_container_file || is_named;
        // Files and names are customs; the namespace is the fact itself, where it can be read.
        let own_pids = signs.pid_namespace.map_or(marked, |namespace| namespace != FIRST_NAMESPACE);
        // WSL itself keeps each distribution in a namespace.
        let container = marked || (own_pids && !wsl);
        Self { container, wsl, own_pids, hides_others: hides_others(signs.mounts) }
    }

    /// Why a process cannot be known by the number that the driver gives, if so.
    pub(super) fn hides_pids(self) -> Option<Unseen> {
        match self {
            Self { wsl: true, .. } => Some(Unseen::Wsl),
            Self { own_pids: true, .. } => Some(Unseen::Container),
            _ => None,
        }
    }

    /// Why the driver has no answer, if it has none.
    pub(super) fn silence(self) -> Unseen {
        if self.wsl { Unseen::Wsl } else { Unseen::Driver }
    }
}

/// What a place is known by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs<'a> {
    /// `/proc/version`.
    pub(super) kernel: &'a str,
    /// `/proc/1/cgroup`.
    pub(super) first_group: &'a str,
    /// `/proc/self/mounts`.
    pub(super) mounts: &'a str,
    /// Where `/proc/self/ns/pid` leads to.
    pub(super) pid_namespace: Option<&'a str>,
    /// Whether one of the files is there that container engines leave.
    pub(super) has_container_file: bool,
}

fn hides_others(mounts: &str) -> bool {
    let mut options = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        (words.next()? == "/proc").then(|| words.nth(1)).flatten()
    });
    let hides = |option: &str| option.strip_prefix("hidepid=").is_some_and(|how| how != "0" && how != "off");
    options.any(|options| options.split(',').any(hides))
}
