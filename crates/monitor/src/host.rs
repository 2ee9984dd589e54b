//! The machine's own memory.

use plimsoll_core::Bytes;

/// The memory of this machine, or of the container that this process may not leave.
pub fn host_memory() -> Bytes {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let limit = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
    Bytes(system.total_memory().min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some() {
        assert!(host_memory() > Bytes::mib(64), "{}", host_memory());
    }
}
