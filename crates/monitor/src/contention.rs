//! Time that a process loses because other processes use its processors.

use std::collections::HashMap;
use std::fs;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use plimsoll_core::{TimeOwner, TimeShares};

/// Shortest interval between two readings.
const INTERVAL: Duration = Duration::from_secs(1);
/// Share of an interval that a thread must have run or waited to count. Threads that sleep lose no time.
const ACTIVE: f64 = 0.2;
/// Clock ticks in a second of `/proc/stat`. It is 100 on every architecture that Linux supports.
const TICKS: f64 = 100.0;
/// Share of the time below which a loss is noise: the system counts in hundredths of a second.
const LEAST: f64 = 0.03;

/// Owners whose time the host spends itself. A device computes on whatever other processes do.
const OF_THE_HOST: [TimeOwner; 8] = [
    TimeOwner::Data,
    TimeOwner::Transfer,
    TimeOwner::Submit,
    TimeOwner::Optimizer,
    TimeOwner::Checkpoint,
    TimeOwner::Validation,
    TimeOwner::Record,
    TimeOwner::Unknown,
];

/// Measures the share of its time that this process waits for a processor because other processes run.
///
/// Linux counts for each thread how long it ran and how long it was ready to run and waited. A thread also waits where
/// this process has more threads than processors; such time is not lost to others, so a loss is never larger than the
/// share of the processors that others use. Only processors count that this process may run on: `taskset`, `mpirun` and
/// containers leave it some. On other systems nothing is measured, and nothing is moved.
///
/// ```
/// use plimsoll_core::{TimeOwner, TimeShares};
/// use plimsoll_monitor::Contention;
///
/// let mut contention = Contention::new();
/// let mut times = TimeShares::default();
/// times.add(TimeOwner::Compute, 2.0);
/// contention.attribute(&mut times, true);
/// assert_eq!(times.total(), 2.0);
/// ```
#[derive(Debug)]
pub struct Contention {
    last: Option<Usage>,
    /// Share of the time that was lost in the last interval.
    lost: f64,
    cpus: f64,
    /// Other processes of the same work.
    family: Vec<u32>,
}

/// Use of the processors up to a moment.
#[derive(Clone, Debug)]
struct Usage {
    at: Instant,
    /// Seconds that each thread of this process ran, and waited to run.
    threads: HashMap<u32, (f64, f64)>,
    /// Seconds that all processes ran on the processors that this process may use.
    busy: f64,
    /// Seconds that this process and its family ran, with their threads that have ended.
    own: f64,
}

impl Default for Contention {
    fn default() -> Self {
        Self::new()
    }
}

impl Contention {
    /// Begins to measure.
    pub fn new() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
        Self { last: Usage::read(&[]), lost: 0.0, cpus, family: Vec::new() }
    }

    /// Counts the processes `family` as own: they do the same work, such as the other replicas of a run on this machine.
    #[must_use]
    pub fn with_family(self, family: Vec<u32>) -> Self {
        Self { last: Usage::read(&family), family, ..self }
    }

    /// Returns the share of the time that this process lost to others lately, from 0 to 1.
    pub fn lost(&mut self) -> f64 {
        if self.last.as_ref().is_none_or(|last| last.at.elapsed() >= INTERVAL) {
            let now = Usage::read(&self.family);
            if let (Some(last), Some(now)) = (&self.last, &now) {
                self.lost = lost_between(last, now, self.cpus);
            }
            self.last = now;
        }
        self.lost
    }

    /// Moves the lost share of the times to [`TimeOwner::OtherProcess`]. `is_host`: whether the CPU is the device that
    /// computes; the time of a GPU is not lost to other processes of the CPU.
    pub fn attribute(&mut self, times: &mut TimeShares, is_host: bool) {
        let lost = self.lost();
        if lost < LEAST {
            return;
        }
        let computing = is_host.then_some(TimeOwner::Compute);
        for owner in OF_THE_HOST.into_iter().chain(computing) {
            times.shift(owner, TimeOwner::OtherProcess, times.get(owner) * lost);
        }
    }
}

/// Computes the share of the time between two readings that was lost to other processes on `cpus` processors.
fn lost_between(last: &Usage, now: &Usage, cpus: f64) -> f64 {
    let seconds = (now.at - last.at).as_secs_f64();
    if seconds <= 0.0 {
        return 0.0;
    }
    let waited = now.threads.iter().filter_map(|(thread, (ran, waited))| {
        let (ran_before, waited_before) = last.threads.get(thread).copied().unwrap_or_default();
        let (ran, waited) = (ran - ran_before, waited - waited_before);
        (ran + waited > ACTIVE * seconds).then_some(waited / seconds)
    });
    let waited = waited.fold(0.0, f64::max);
    let others = ((now.busy - last.busy) - (now.own - last.own)) / seconds;
    waited.min(others / cpus).clamp(0.0, 1.0)
}

impl Usage {
    /// Reads the use so far; `None` where the system does not count it. The processes `family` count as own.
    fn read(family: &[u32]) -> Option<Self> {
        let mut threads = HashMap::new();
        for entry in fs::read_dir("/proc/self/task").ok()?.flatten() {
            let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A thread may have ended since it was listed.
            let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
            threads.extend(schedule(&text).map(|times| (thread, times)));
        }
        let allowed = fs::read_to_string("/proc/self/status").ok().and_then(|status| allowed(&status));
        let busy = busy(&fs::read_to_string("/proc/stat").ok()?, allowed.as_deref())?;
        let of = |process: &str| own(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?);
        // One that has ended is not there.
        let family = family.iter().filter_map(|process| of(&process.to_string())).sum::<f64>();
        Some(Self { at: Instant::now(), threads, busy, own: of("self")? + family })
    }
}

/// Parses the seconds that a thread ran and waited to run from its `schedstat`.
fn schedule(text: &str) -> Option<(f64, f64)> {
    let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().ok().map(|nanos| nanos as f64 / 1e9));
    Some((numbers.next()??, numbers.next()??))
}

/// Parses the processors that a process may run on from its `status`.
fn allowed(text: &str) -> Option<Vec<usize>> {
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    let ranges: Option<Vec<RangeInclusive<usize>>> = list.split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

/// Parses the seconds that all processes ran from `/proc/stat`, on the `allowed` processors or on all.
fn busy(text: &str, allowed: Option<&[usize]>) -> Option<f64> {
    let line = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        let ticks: Vec<f64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        // User, nice, system, idle, waiting for disks, interrupts; what guests take is already in the first two.
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0);
        (ticks.len() > 3).then(|| (at(0) + at(1) + at(2) + at(5) + at(6)) / TICKS)
    };
    let each = allowed.and_then(|allowed| allowed.iter().map(|cpu| line(&format!("cpu{cpu}"))).sum::<Option<f64>>());
    each.or_else(|| line("cpu"))
}

/// Parses the seconds that a process ran from its `stat`, with its threads that have ended.
fn own(text: &str) -> Option<f64> {
    // The name of the program is in brackets, and may have spaces and brackets of its own.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(at: Instant, threads: &[(u32, f64, f64)], busy: f64) -> Usage {
        let own = threads.iter().map(|(_, ran, _)| ran).sum();
        let threads = threads.iter().map(|&(thread, ran, waited)| (thread, (ran, waited))).collect();
        Usage { at, threads, busy, own }
    }

    #[test]
    fn a_loss_needs_a_thread_that_waits_and_others_that_run() {
        let start = Instant::now();
        let zero = usage(start, &[], 0.0);
        let end = start + Duration::from_secs(1);
        let check = |threads: &[(u32, f64, f64)], busy, expected: f64| {
            let lost = lost_between(&zero, &usage(end, threads, busy), 2.0);
            assert!((lost - expected).abs() < 1e-9, "{threads:?}, {busy}: {lost} instead of {expected}");
        };
        // Alone on two processors.
        check(&[(1, 1.0, 0.0), (2, 1.0, 0.0)], 2.0, 0.0);
        // Four own threads on two processors wait for each other.
        check(&[(1, 0.5, 0.5), (2, 0.5, 0.5), (3, 0.5, 0.5), (4, 0.5, 0.5)], 2.0, 0.0);
        // Two own threads beside two of others.
        check(&[(1, 0.5, 0.5), (2, 0.5, 0.5)], 2.0, 0.5);
        // Others run on the processor that is free.
        check(&[(1, 1.0, 0.0)], 2.0, 0.0);
        // A thread that sleeps nearly always does not count.
        check(&[(1, 0.9, 0.0), (2, 0.05, 0.1)], 2.0, 0.0);
        check(&[], 2.0, 0.0);
    }

    #[test]
    fn a_process_of_the_family_counts_as_own() {
        if !cfg!(target_os = "linux") {
            return;
        }
        let own = |family: &[u32]| Usage::read(family).expect("Linux counts the time of threads").own;
        // This process as its own relative has its time twice, and one that has ended has none.
        let (alone, twice) = (own(&[]), own(&[std::process::id(), u32::MAX]));
        assert!((twice - 2.0 * alone).abs() <= 2.0 * (own(&[]) - alone) + 0.02, "{alone} {twice}");
    }

    /// Threads that end take their counts with them, and must not look like another process.
    #[test]
    fn threads_that_end_are_no_other_process() {
        if !cfg!(target_os = "linux") {
            return;
        }
        let before = Usage::read(&[]).expect("Linux counts the time of threads");
        let work = || (0..10_000_000).for_each(|_| std::hint::spin_loop());
        let own = || {
            std::thread::scope(|scope| drop((scope.spawn(work), scope.spawn(work))));
            Usage::read(&[]).expect("Linux counts the time of threads").own
        };
        // Other processes can take the processor: the threads work until they have had it for long enough.
        assert!((0..1000).any(|_| own() - before.own >= 0.03), "{before:?}");
    }

    #[test]
    fn files_of_the_system_are_read() {
        assert_eq!(schedule("1500000000 250000000 12\n"), Some((1.5, 0.25)));
        assert_eq!(schedule(""), None);
        let cpus = "cpu  100 0 50 1000 7 0 50 0 0 0\ncpu0 60 0 20 1 0 0 20 0\ncpu1 40 0 30 9 7 0 30 0\ncpu10 1 1 1 1\n";
        assert_eq!(busy(cpus, None), Some(2.0));
        assert_eq!([&[0][..], &[1], &[0, 1], &[10]].map(|cpu| busy(cpus, Some(cpu))), [1.0, 1.0, 2.0, 0.03].map(Some));
        // A processor without a line was switched off: all count.
        assert_eq!(busy(cpus, Some(&[0, 2])), Some(2.0));
        assert_eq!(busy("intr 5\n", None), None);
        assert_eq!(allowed("Name:\tx\nCpus_allowed_list:\t0-2,5, 7-8\nMems: 0\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(allowed("Cpus_allowed_list:\t\n"), None);
        assert_eq!(allowed("Name:\tx\n"), None);
        assert_eq!(own("7 (a (b) c) S 1 1 1 0 -1 4 5 0 0 0 150 50 9 9 20 0 3 0"), Some(2.0));
        assert_eq!(own("7"), None);
        if cfg!(target_os = "linux") {
            let usage = Usage::read(&[]).expect("Linux counts the time of threads");
            assert!(!usage.threads.is_empty() && usage.busy > 0.0, "{usage:?}");
        }
    }
}
