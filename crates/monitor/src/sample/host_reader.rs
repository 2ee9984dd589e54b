//! Reads the host: memory at once, and rates as differences between two readings.

use std::fs::read_to_string;
use std::time::Duration;

use sysinfo::{MINIMUM_CPU_UPDATE_INTERVAL, Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::HostSample;
use super::reading::{Missing, Origin, Reading};
use super::watched::WatchedProcess;
use crate::Host;
use plimsoll_core::Bytes;

/// Reader of the host that keeps the counters of the reading before.
pub(super) struct HostReader {
    /// Processors. `sysinfo` reads them at most every 200 ms, and a refresh of processes counts as a reading of the sum of
    /// all processors alone. So the processes have their own system.
    cpus: System,
    processes: System,
    watched: WatchedProcess,
    /// Process of the reading before.
    pid: Option<Pid>,
    /// Numbers of the processors that this process can run on; `None` if they are not known, which means all.
    allowed: Option<Vec<usize>>,
    /// Whether the system counts the bytes that the process reads and writes. `sysinfo` gives zero if not.
    counts_disk: bool,
    /// Time of the reading before, and the counters of the process if it ran.
    before: Option<(Duration, Option<Counters>)>,
    rates: Rates,
}

/// Counters of the watched process since its start.
#[derive(Clone, Copy)]
struct Counters {
    cpu_seconds: f64,
    read: u64,
    written: u64,
}

/// Values that need two readings.
#[derive(Clone)]
struct Rates {
    cpu: Reading<f64>,
    own_cpus: Reading<f64>,
    other_cpus: Reading<f64>,
    disk_read: Reading<f64>,
    disk_written: Reading<f64>,
}

impl Rates {
    fn missing(why: Missing) -> Self {
        let [cpu, own_cpus, other_cpus, disk_read, disk_written] =
            std::array::from_fn(|_| Reading::missing(why, Origin::System));
        Self { cpu, own_cpus, other_cpus, disk_read, disk_written }
    }

    fn aged(&self, age: Duration) -> Self {
        let mut rates = self.clone();
        let Rates { cpu, own_cpus, other_cpus, disk_read, disk_written } = &mut rates;
        for rate in [cpu, own_cpus, other_cpus, disk_read, disk_written] {
            rate.age_seconds = age.as_secs_f64();
        }
        rates
    }
}

impl HostReader {
    pub(super) fn new(watched: WatchedProcess) -> Self {
        Self {
            cpus: System::new(),
            processes: System::new(),
            watched,
            pid: None,
            allowed: read_to_string("/proc/self/status").ok().and_then(|status| allowed_cpus(&status)),
            counts_disk: false,
            before: None,
            rates: Rates::missing(Missing::NeedsTwoReadings),
        }
    }

    pub(super) fn read(&mut self, elapsed: Duration) -> HostSample {
        let host = Host::read();
        let memory_origin = if host.memory_limit.is_some() { Origin::ControlGroup } else { Origin::System };
        let Rates { cpu, own_cpus, other_cpus, disk_read, disk_written } = self.read_rates(elapsed);
        let own_memory = self.process().map(|process| Bytes(process.memory())).filter(|memory| memory.0 > 0);
        HostSample {
            cpu,
            own_cpus,
            other_cpus,
            cpus: Reading::new(host.logical_cpus as u64, Origin::System),
            memory_total: known(host.usable(), memory_origin),
            memory_available: match host.memory {
                Bytes(0) => Reading::missing(Missing::Failed, memory_origin),
                _ => Reading::new(host.available, memory_origin),
            },
            own_memory: Reading::from_result(own_memory.ok_or(self.why_no_process()), Origin::System),
            disk_read,
            disk_written,
        }
    }

    /// Takes over which process is watched.
    fn follow(&mut self) {
        let pid = self.watched.pid().map(Pid::from_u32);
        if pid != self.pid {
            let counts = |pid: Pid| !cfg!(target_os = "linux") || read_to_string(format!("/proc/{pid}/io")).is_ok();
            (self.pid, self.counts_disk) = (pid, pid.is_some_and(counts));
            // The counters of another process say nothing.
            self.before = self.before.map(|(at, _)| (at, None));
        }
    }

    /// Returns why nothing is known about the process.
    fn why_no_process(&self) -> Missing {
        if self.pid.is_some() { Missing::Failed } else { Missing::NotVisible }
    }

    fn process(&self) -> Option<&sysinfo::Process> {
        self.processes.process(self.pid?)
    }

    /// Reads the counters, and returns the rates since the reading before. Readings in quick succession give the same
    /// rates again: the system counts processor time in steps of 10 ms.
    fn read_rates(&mut self, elapsed: Duration) -> Rates {
        self.follow();
        if let Some(pid) = self.pid {
            let kind = ProcessRefreshKind::nothing().with_cpu().with_memory().with_disk_usage().without_tasks();
            self.processes.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, kind);
        }
        let period = self.before.map(|(at, _)| elapsed.saturating_sub(at));
        if let Some(period) = period.filter(|period| *period < MINIMUM_CPU_UPDATE_INTERVAL) {
            return self.rates.aged(period);
        }
        self.cpus.refresh_cpu_usage();
        let now = self.counters();
        if let (Some((_, before)), Some(period)) = (self.before, period) {
            self.rates = self.rates_since(before, now, period.as_secs_f64());
        }
        self.before = Some((elapsed, now));
        self.rates.clone()
    }

    fn counters(&self) -> Option<Counters> {
        let process = self.process()?;
        let disk = process.disk_usage();
        Some(Counters {
            cpu_seconds: process.accumulated_cpu_time() as f64 / 1e3,
            read: disk.total_read_bytes,
            written: disk.total_written_bytes,
        })
    }

    fn rates_since(&self, before: Option<Counters>, now: Option<Counters>, seconds: f64) -> Rates {
        let both = match (before, now) {
            (Some(before), Some(now)) => Ok((before, now)),
            (None, Some(_)) => Err(Missing::NeedsTwoReadings),
            (_, None) => Err(self.why_no_process()),
        };
        let rate = |count: fn(&Counters) -> u64| {
            let rate =
                |(before, now): (Counters, Counters)| count(&now).saturating_sub(count(&before)) as f64 / seconds;
            let visible = both.and_then(|both| if self.counts_disk { Ok(both) } else { Err(Missing::NotVisible) });
            Reading::from_result(visible.map(rate), Origin::System)
        };
        let own = both.map(|(before, now)| (now.cpu_seconds - before.cpu_seconds).max(0.0) / seconds);
        let busy = self.busy_cpus().ok_or(Missing::Failed);
        // Without a process, all that run are others.
        let others = if self.pid.is_none() { Ok(0.0) } else { own };
        let others = busy.and_then(|(busy, _)| others.map(|own| (busy - own).max(0.0)));
        Rates {
            cpu: Reading::from_result(busy.map(|(busy, cpus)| (busy / cpus).clamp(0.0, 1.0)), Origin::System),
            own_cpus: Reading::from_result(own, Origin::System),
            other_cpus: Reading::from_result(others, Origin::System),
            disk_read: rate(|counters| counters.read),
            disk_written: rate(|counters| counters.written),
        }
    }

    /// Returns how many of the processors that this process can run on were busy, and their number.
    fn busy_cpus(&self) -> Option<(f64, f64)> {
        let cpus = self.cpus.cpus();
        let number = |name: &str| name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().ok();
        let is_allowed = |name: &str| match (&self.allowed, number(name)) {
            (Some(allowed), Some(number)) => allowed.binary_search(&number).is_ok(),
            _ => true,
        };
        let usages = cpus.iter().filter(|cpu| is_allowed(cpu.name())).map(|cpu| f64::from(cpu.cpu_usage()) / 100.0);
        let (busy, n) = usages.fold((0.0, 0.0), |(busy, n), usage| (busy + usage, n + 1.0));
        (n > 0.0).then_some((busy, n))
    }
}

fn known(bytes: Bytes, origin: Origin) -> Reading<Bytes> {
    Reading::from_result(Some(bytes).filter(|bytes| bytes.0 > 0).ok_or(Missing::Failed), origin)
}

/// Reads the processors in `Cpus_allowed_list` of a process status, such as `0-3,8`, in ascending order.
fn allowed_cpus(status: &str) -> Option<Vec<usize>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last.min(first.saturating_add(1 << 16)));
    }
    cpus.sort_unstable();
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        let check = |list: &str, expected: Option<&[usize]>| {
            let status = format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\nMems_allowed:\t1\n");
            assert_eq!(allowed_cpus(&status).as_deref(), expected, "{list}");
        };
        check("0", Some(&[0]));
        check("0-2,8", Some(&[0, 1, 2, 8]));
        check("4-5,1", Some(&[1, 4, 5]));
        check("", None);
        check("a-b", None);
        assert_eq!(allowed_cpus("Name:\tx\n"), None);
    }

    #[test]
    fn rates_need_two_readings() {
        let mut reader = HostReader::new(WatchedProcess::this());
        let first = reader.read(Duration::ZERO);
        let rates = |sample: &HostSample| {
            let HostSample { cpu, own_cpus, other_cpus, disk_read, disk_written, .. } = sample.clone();
            [cpu, own_cpus, other_cpus, disk_read, disk_written]
        };
        assert!(rates(&first).iter().all(|rate| rate.why_missing() == Some(Missing::NeedsTwoReadings)), "{first:?}");
        assert!(first.memory_total.value() >= first.memory_available.value() && first.own_memory.value().is_some());
        let second = reader.read(Duration::from_secs(1));
        assert!(second.own_cpus.value().is_some_and(|own| *own >= 0.0), "{second:?}");
        assert!(second.cpu.value().is_some_and(|cpu| (0.0..=1.0).contains(cpu)), "{second:?}");
        let third = reader.read(Duration::from_millis(1050));
        assert_eq!(third.own_cpus.value(), second.own_cpus.value());
        assert!((third.own_cpus.age_seconds - 0.05).abs() < 1e-9, "{third:?}");
    }

    #[test]
    fn work_is_seen() {
        let mut reader = HostReader::new(WatchedProcess::this());
        reader.read(Duration::ZERO);
        let start = Instant::now();
        while start.elapsed() < MINIMUM_CPU_UPDATE_INTERVAL + Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        // This thread has worked, or others have kept it from working.
        let sample = reader.read(start.elapsed());
        assert!(sample.cpu.value().is_some_and(|cpu| *cpu > 0.0), "{sample:?}");
    }

    #[test]
    fn the_watched_process_can_change() {
        let watched = WatchedProcess::none();
        let mut reader = HostReader::new(watched.clone());
        reader.read(Duration::ZERO);
        let none = reader.read(Duration::from_secs(1));
        assert_eq!(none.own_cpus.why_missing(), Some(Missing::NotVisible), "{none:?}");
        assert!(none.cpu.value().is_some() && none.other_cpus.value().is_some(), "{none:?}");
        watched.set(Some(std::process::id()));
        let first = reader.read(Duration::from_secs(2));
        assert_eq!(first.own_cpus.why_missing(), Some(Missing::NeedsTwoReadings), "{first:?}");
        assert!(first.own_memory.value().is_some() && first.cpu.value().is_some(), "{first:?}");
        assert!(reader.read(Duration::from_secs(3)).own_cpus.value().is_some());
        // No process has this number: it is larger than any that Linux gives.
        watched.set(Some(1 << 30));
        let gone = reader.read(Duration::from_secs(4));
        assert_eq!(gone.own_cpus.why_missing(), Some(Missing::Failed), "{gone:?}");
    }

    #[test]
    fn disk_rates_without_counters_are_missing() {
        let mut reader = HostReader::new(WatchedProcess::this());
        reader.read(Duration::ZERO);
        reader.counts_disk = false;
        let sample = reader.read(Duration::from_secs(1));
        assert_eq!(sample.disk_read.why_missing(), Some(Missing::NotVisible));
        assert!(sample.own_cpus.value().is_some());
    }
}
