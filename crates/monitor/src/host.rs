//! Memory and processors of the host.

use plimsoll_core::Bytes;
use serde::Serialize;
use sysinfo::{CGroupLimits, ProcessRefreshKind, ProcessesToUpdate, System};

/// Memory and processors of the host, and the part of both that this process can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Installed memory of the host.
    pub memory: Bytes,
    /// Memory limit of the container or control group; `None` if there is none below the installed memory.
    pub memory_limit: Option<Bytes>,
    /// Memory that this process can still allocate without exceeding the limit of its container or control group.
    pub available: Bytes,
    /// Hardware threads that this process can run on.
    pub logical_cpus: usize,
}

/// Returns the memory that this process can use in total: the memory of the host, or the limit of the container or
/// control group.
pub fn host_memory() -> Bytes {
    Host::read().usable()
}

impl Host {
    /// Reads memory and processors of the host from the operating system.
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

    /// Returns the memory that this process can use in total.
    pub fn usable(&self) -> Bytes {
        self.memory_limit.unwrap_or(self.memory)
    }

    /// Computes the memory that this process can use on a host with `memory` installed and `available`, when the
    /// control groups of the process have `limits`. Each limit leaves at most the limit minus the memory that its group
    /// holds. The page cache of a group counts as free, because the system reclaims it on demand.
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

/// Reads the limits of the control group of this process; `None` if they cannot be read. The lookup of `sysinfo` for
/// the whole system reads the root group, which is the group of this process only in a container; batch systems and
/// services set limits further down.
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
    fn the_host_is_read() {
        let host = Host::read();
        assert!(host_memory() > Bytes::mib(64), "{host:?}");
        assert!(host.available <= host.memory && host.logical_cpus > 0, "{host:?}");
    }

    #[test]
    fn the_lowest_limit_applies() {
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
