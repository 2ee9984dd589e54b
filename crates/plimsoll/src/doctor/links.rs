//! The links between the processes that MPI has started, measured for `doctor`.

use plimsoll_core::{Bytes, counted, error_chain};
use plimsoll_monitor::doctor::{Check, Outcome};
use plimsoll_mpi::scale::Link;
use plimsoll_recipes::Failure;
use plimsoll_recipes::processes::Processes;

/// What was measured between the processes.
pub(super) struct Links {
    processes: usize,
    link: Link,
    full_speed: f64,
    local_ranks: usize,
}

/// Measures the links between all processes, which make this call together; `None` if there is only one process.
pub(super) fn measure(processes: &Processes) -> Result<Option<Links>, Failure> {
    let (link, full_speed) = (processes.measure_link()?, processes.measure_full_speed()?);
    let (ranks, local_ranks) = (processes.ranks(), processes.local_ranks());
    let links = |(link, full_speed)| Links { processes: ranks, link, full_speed, local_ranks };
    Ok(link.zip(full_speed).map(links))
}

/// Makes the check of the links of the first process; `None` if it is the only one.
pub(super) fn check(joined: Result<Processes, Failure>) -> Option<Check> {
    // Here, and not on the thread of the check: the others measure now.
    let outcome = match joined.and_then(|processes| measure(&processes)) {
        Ok(None) => return None,
        Ok(Some(links)) => links.outcome(),
        Err(failure) => {
            let help = failure.report().help().map_or_else(String::new, |help| help.to_string());
            Outcome::fail(error_chain(&failure)).with_fix(help)
        }
    };
    Some(Check::new("processes", "links between processes", move |_| outcome))
}

impl Links {
    fn outcome(&self) -> Outcome {
        let bandwidth = Bytes(self.link.bytes_per_second as u64);
        let latency = self.link.latency_seconds * 1e6;
        let finding = format!(
            "{}: {latency:.0} us, {bandwidth} a second of gradients; {} of a machine compute like {:.1} alone",
            counted(self.processes, "process"),
            self.local_ranks,
            self.full_speed,
        );
        let outcome = if self.full_speed < 0.6 * self.local_ranks as f64 {
            Outcome::warn(finding).with_fix("start fewer processes on a machine: these share its cores")
        } else {
            Outcome::pass(finding)
        };
        outcome
            .with_detail("latency_seconds", self.link.latency_seconds)
            .with_detail("bytes_per_second", self.link.bytes_per_second)
            .with_detail("full_speed_processes", self.full_speed)
    }
}
