//! Who holds memory on a card, and how much of it nobody owns up to.

use plimsoll_core::Bytes;
use serde::Serialize;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind, Users};

use super::{CardMemory, CardProcess, Place, Unseen, WorkKind, fact};

/// A process on a card, with what can be known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Its number where the driver lives; in a container another process may have it.
    pub pid: u32,
    /// What it does there.
    pub kind: WorkKind,
    /// The memory it holds.
    #[serde(serialize_with = "fact")]
    pub memory: Result<Bytes, Unseen>,
    /// Whose it is.
    #[serde(serialize_with = "fact")]
    pub user: Result<String, Unseen>,
    /// Its command line.
    #[serde(serialize_with = "fact")]
    pub command: Result<String, Unseen>,
}

/// Memory in use that no process in the list accounts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unaccounted {
    /// How much.
    pub bytes: Bytes,
    /// Whether the list is whole and its amounts are known and within what is used. Where not, theirs is in here too.
    pub exact: bool,
}

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) user: Result<String, Unseen>,
    pub(super) command: Result<String, Unseen>,
}

impl Holder {
    /// What can be known of `process`. `who` is asked only where the driver's number means the same process here.
    ///
    /// More than the `total` of the card is no amount: drivers under WSL have given "not available" as a number, and
    /// nvtop showed 17179869184 GiB for it (Syllo/nvtop#432).
    pub(super) fn of(
        process: CardProcess,
        total: Option<Bytes>,
        place: Place,
        who: &mut dyn FnMut(u32) -> Person,
    ) -> Self {
        let Person { user, command } = match place.hides_pids() {
            Some(why) => Person { user: Err(why), command: Err(why) },
            None => who(process.pid),
        };
        let memory = process.memory.filter(|memory| total.is_none_or(|total| *memory <= total));
        let memory = memory.ok_or(place.silence());
        Self { pid: process.pid, kind: process.kind, memory, user, command }
    }
}

impl Unaccounted {
    /// What is left of the used memory after all that `holders` own up to.
    pub(super) fn of(memory: CardMemory, holders: &Result<Vec<Holder>, Unseen>) -> Self {
        let known = holders.iter().flatten().filter_map(|holder| holder.memory.ok());
        let known = Bytes(known.fold(0, |sum: u64, bytes| sum.saturating_add(bytes.0)));
        let every = holders.as_ref().is_ok_and(|holders| holders.iter().all(|holder| holder.memory.is_ok()));
        Self { bytes: memory.used.saturating_sub(known), exact: every && known <= memory.used }
    }
}

/// Asks the system who processes are.
pub(super) struct Register {
    system: System,
    users: Users,
    hides_others: bool,
}

impl Register {
    pub(super) fn open(place: Place) -> Self {
        Self { system: System::new(), users: Users::new_with_refreshed_list(), hides_others: place.hides_others }
    }

    pub(super) fn who(&mut self, pid: u32) -> Person {
        let pid = Pid::from_u32(pid);
        let kind = ProcessRefreshKind::nothing().with_cmd(UpdateKind::Always).with_user(UpdateKind::Always);
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, kind.without_tasks());
        let Some(process) = self.system.process(pid) else {
            let why = if self.hides_others { Unseen::Permission } else { Unseen::Ended };
            return Person { user: Err(why), command: Err(why) };
        };
        let user = process.user_id().ok_or(Unseen::Permission).map(|id| match self.users.get_user_by_id(id) {
            Some(user) => user.name().to_owned(),
            None => "uid ".to_owned() + &id.to_string(),
        });
        let words: Vec<_> = process.cmd().iter().map(|word| word.to_string_lossy()).collect();
        let name = process.name().to_string_lossy();
        let command = match (words.is_empty(), name.is_empty()) {
            (false, _) => Ok(words.join(" ")),
            // A process without a command line has at least a name; `ps` puts it in brackets too.
            (true, false) => Ok(format!("[{name}]")),
            (true, true) => Err(Unseen::Permission),
        };
        Person { user, command }
    }
}
