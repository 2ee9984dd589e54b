//! The machine's own memory and processors.

use plimsoll_core::Bytes;
use serde::Serialize;
use sysinfo::{CGroupLimits, ProcessRefreshKind, ProcessesToUpdate, System};

/// The machine without its cards, and what this process may have of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// The memory that is built in.
    pub memory: Bytes,
    /// The memory that the container or the control group may have, where that is less.
    pub memory_limit: Option<Bytes>,
    /// What this process can still have, the limit included.
    pub available: Bytes,
    /// Processors that this process may run on, as threads of the hardware.
    pub logical_cpus: usize,
}

/// The memory of this machine, or of the container that this process may not leave.
pub fn host_memory() -> Bytes {
    Host::read().usable()
}

impl Host {
    /// Reads it from the system.
    pub fn read() -> Self {
        let mut system = System::new();
        system.refresh_memory();
        let limits = [system.cgroup_limits(), own_limits(&mut system)];
        let [memory, available] = [system.total_memory(), system.available_memory()].map(Bytes);
        Self {
            logical_cpus: std::thread::available_parallelism().map_or(1, usize::from),
            ..Self::within(memory, available, limits.into_iter().flatten())
        }
    }

    /// The memory that this process may have in all.
    pub fn usable(&self) -> Bytes {
        self.memory_limit.unwrap_or(self.memory)
    }

    /// A limit leaves what its group does not hold for itself. What the group has read from files counts as left: the
    /// system takes it back when memory is asked for.
    fn within(memory: Bytes, available: Bytes, limits: impl Iterator<Item = CGroupLimits>) -> Self {
        let mut host = Self { memory, memory_limit: None, available, logical_cpus: 1 };
        for limit in limits.filter(|limit| limit.total_memory < memory.0) {
            let [total, held] = [limit.total_memory, limit.rss].map(Bytes);
            host.memory_limit = Some(host.usable().min(total));
            host.available = host.available.min(total.saturating_sub(held));
        }
        host
    }
}

/// The limits of the control group that this process is in. The system's own lookup reads the group at the root, which
/// is ours in a container only; a batch system or a service limits us further down.
fn own_limits(system: &mut System) -> Option<CGroupLimits> {
    let pid = sysinfo::get_current_pid().ok()?;
    let kind = ProcessRefreshKind::nothing().without_tasks();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, kind);
    system.process(pid)?.cgroup_limits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some() {
        let host = Host::read();
        assert!(host_memory() > Bytes::mib(64), "{host:?}");
        assert!(host.available <= host.memory && host.logical_cpus > 0, "{host:?}");
    }

    #[test]
    fn the_tightest_limit_holds() {
        let limit = |gib, held| CGroupLimits {
            total_memory: Bytes::gib(gib).0,
            rss: Bytes::gib(held).0,
            ..CGroupLimits::default()
        };
        let check = |limits: &[CGroupLimits], usable, available| {
            let host = Host::within(Bytes::gib(64), Bytes::gib(40), limits.iter().cloned());
            assert_eq!((host.usable(), host.available), (Bytes::gib(usable), Bytes::gib(available)), "{limits:?}");
        };
        check(&[], 64, 40);
        check(&[limit(64, 3)], 64, 40);
        check(&[limit(16, 3)], 16, 13);
        check(&[limit(60, 3), limit(8, 1)], 8, 7);
        check(&[limit(8, 9)], 8, 0);
    }
}
