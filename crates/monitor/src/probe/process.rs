//! Processes that hold memory of a GPU, and the memory that no process accounts for.

use plimsoll_core::Bytes;
use serde::Serialize;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind, Users};

use super::fact;
use super::gpu::{GpuMemory, GpuProcess, WorkKind};
use super::process_env::{ProcessEnv, Unavailable};

/// Process on a GPU, with the facts that are available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessReport {
    /// Process number in the driver's namespace. In a container another process may have an equal number.
    pub pid: u32,
    /// Kind of work that the process does on the GPU.
    pub kind: WorkKind,
    /// GPU memory that the process holds.
    #[serde(serialize_with = "fact")]
    pub memory: Result<Bytes, Unavailable>,
    /// User that owns the process.
    #[serde(serialize_with = "fact")]
    pub user: Result<String, Unavailable>,
    /// Command line of the process.
    #[serde(serialize_with = "fact")]
    pub command: Result<String, Unavailable>,
}

/// Used GPU memory that no listed process accounts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unaccounted {
    /// Amount of GPU memory that no listed process accounts for.
    pub bytes: Bytes,
    /// Whether the list of processes is complete and consistent. If not, `bytes` includes processes of unknown size.
    pub exact: bool,
}

/// User and command line of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessOwner {
    pub(super) user: Result<String, Unavailable>,
    pub(super) command: Result<String, Unavailable>,
}

impl ProcessReport {
    /// Collects the available facts about `process`. `owner_of` is called only if the driver's process numbers are
    /// valid in this namespace.
    ///
    /// A value above the `total` memory of the GPU is not an amount: drivers under WSL have given "not available" as a
    /// number, which nvtop showed as 17179869184 GiB (Syllo/nvtop#432).
    pub(super) fn new(
        process: GpuProcess,
        total: Option<Bytes>,
        env: ProcessEnv,
        owner_of: &mut dyn FnMut(u32) -> ProcessOwner,
    ) -> Self {
        let ProcessOwner { user, command } = match env.why_pids_differ() {
            Some(why) => ProcessOwner { user: Err(why), command: Err(why) },
            None => owner_of(process.pid),
        };
        let memory = process.memory.filter(|memory| total.is_none_or(|total| *memory <= total));
        let memory = memory.ok_or(env.why_driver_is_silent());
        Self { pid: process.pid, kind: process.kind, memory, user, command }
    }
}

impl Unaccounted {
    /// Computes the GPU memory that no process accounts for: the used memory minus the known memory of all `processes`.
    pub(super) fn new(memory: GpuMemory, processes: &Result<Vec<ProcessReport>, Unavailable>) -> Self {
        let known = processes.iter().flatten().filter_map(|process| process.memory.ok());
        let known = Bytes(known.fold(0, |sum: u64, bytes| sum.saturating_add(bytes.0)));
        let all_known = processes.as_ref().is_ok_and(|all| all.iter().all(|process| process.memory.is_ok()));
        Self { bytes: memory.used.saturating_sub(known), exact: all_known && known <= memory.used }
    }
}

/// Process table of the operating system, to look up the owner of a process.
pub(super) struct ProcessTable {
    system: System,
    users: Users,
    hides_others: bool,
}

impl ProcessTable {
    pub(super) fn open(env: ProcessEnv) -> Self {
        Self { system: System::new(), users: Users::new_with_refreshed_list(), hides_others: env.hides_others }
    }

    pub(super) fn owner_of(&mut self, pid: u32) -> ProcessOwner {
        let pid = Pid::from_u32(pid);
        let kind = ProcessRefreshKind::nothing().with_cmd(UpdateKind::Always).with_user(UpdateKind::Always);
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, kind.without_tasks());
        let Some(process) = self.system.process(pid) else {
            let why = if self.hides_others { Unavailable::Permission } else { Unavailable::Ended };
            return ProcessOwner { user: Err(why), command: Err(why) };
        };
        let user = process.user_id().ok_or(Unavailable::Permission).map(|id| match self.users.get_user_by_id(id) {
            Some(user) => user.name().to_owned(),
            None => "uid ".to_owned() + &id.to_string(),
        });
        let words: Vec<_> = process.cmd().iter().map(|word| word.to_string_lossy()).collect();
        let name = process.name().to_string_lossy();
        let command = match (words.is_empty(), name.is_empty()) {
            (false, _) => Ok(words.join(" ")),
            // A process without a command line has at least a name, in brackets as `ps` shows it.
            (true, false) => Ok(format!("[{name}]")),
            (true, true) => Err(Unavailable::Permission),
        };
        ProcessOwner { user, command }
    }
}
