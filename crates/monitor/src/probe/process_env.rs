//! Environment of this process, as far as it limits which facts about other processes can be read.

use std::fs::read_to_string;
use std::path::Path;

use serde::Serialize;

/// Identifier of the first PID namespace in every Linux kernel: `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
const CONTAINER_GROUPS: [&str; 5] = ["docker", "kubepods", "containerd", "libpod", "lxc"];

/// Reason why a fact about a process is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unavailable {
    /// The driver uses the process numbers of the machine, and this container has its own: an equal number may mean
    /// another process in the container.
    #[error("this container has its own process numbers")]
    Container,
    /// This user has no permission to read the fact.
    #[error("this user has no permission to read it")]
    Permission,
    /// Windows manages the GPU and does not report the fact to WSL.
    #[error("Windows manages the GPU and does not report it to WSL")]
    Wsl,
    /// The driver does not report the fact for this GPU, for example because of MIG.
    #[error("the driver does not report it")]
    Driver,
    /// The process that the fact is about ended before the fact could be read.
    #[error("the process has ended")]
    Ended,
}

/// Environment of this process: container, WSL, and the visibility of other processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessEnv {
    /// Whether this process runs in a container.
    pub container: bool,
    /// Whether this process runs on Linux under Windows (WSL).
    pub wsl: bool,
    /// Whether process numbers differ from the process numbers of the machine. A container can share the machine's
    /// numbers (`--pid=host`); the numbers that the driver gives are then valid in the container.
    pub own_pids: bool,
    /// Whether the system hides the processes of other users from this process (`hidepid`).
    pub hides_others: bool,
}

impl ProcessEnv {
    /// Detects the environment of this process.
    pub fn detect() -> Self {
        let read = |path| read_to_string(path).unwrap_or_default();
        Self::from_evidence(&Evidence {
            kernel: &read("/proc/version"),
            first_group: &read("/proc/1/cgroup"),
            mounts: &read("/proc/self/mounts"),
            pid_namespace: std::fs::read_link("/proc/self/ns/pid").ok().as_deref().and_then(Path::to_str),
            has_container_file: CONTAINER_FILES.iter().any(|path| Path::new(path).exists()),
        })
    }

    /// Derives from system files and links whether this process runs in a container or WSL, and which processes it
    /// sees.
    pub(super) fn from_evidence(evidence: &Evidence<'_>) -> Self {
        let wsl = evidence.kernel.to_ascii_lowercase().contains("microsoft");
        let is_named = CONTAINER_GROUPS.iter().any(|name| evidence.first_group.contains(name));
        let marked = evidence.has_container_file || is_named;
        // Files and names are only conventions; the namespace decides if it can be read.
        let own_pids = evidence.pid_namespace.map_or(marked, |namespace| namespace != FIRST_NAMESPACE);
        // WSL keeps every distribution in a namespace.
        let container = marked || (own_pids && !wsl);
        Self { container, wsl, own_pids, hides_others: hides_others(evidence.mounts) }
    }

    /// Returns the reason why the driver's process numbers are not valid in this process; `None` if they are valid.
    pub(crate) fn why_pids_differ(self) -> Option<Unavailable> {
        match self {
            Self { wsl: true, .. } => Some(Unavailable::Wsl),
            Self { own_pids: true, .. } => Some(Unavailable::Container),
            _ => None,
        }
    }

    /// Returns the most likely reason why the driver does not report a fact about a process.
    pub(super) fn why_driver_is_silent(self) -> Unavailable {
        if self.wsl { Unavailable::Wsl } else { Unavailable::Driver }
    }
}

/// Contents of system files and links, which show whether this process runs in a container or under WSL.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence<'a> {
    /// Content of `/proc/version`.
    pub(super) kernel: &'a str,
    /// Content of `/proc/1/cgroup`.
    pub(super) first_group: &'a str,
    /// Content of `/proc/self/mounts`.
    pub(super) mounts: &'a str,
    /// Target of the link `/proc/self/ns/pid`; `None` if the link cannot be read.
    pub(super) pid_namespace: Option<&'a str>,
    /// Whether a file exists that container engines create, such as `/.dockerenv`.
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
