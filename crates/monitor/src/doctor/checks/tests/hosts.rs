//! Tests of the checks of the host and the user's session.

use std::io;

use super::*;
use crate::doctor::check::CheckStatus::{Fail, Pass, Skip, Warn};

#[test]
fn available_memory_is_judged_within_its_limit() {
    let check = |available: Bytes, limit, swapped_gib, status, part: &str| {
        let mut facts = no_gpu();
        facts.machine.host.available = available;
        facts.machine.host.memory_limit = limit;
        facts.swap = SwapFacts { total: Bytes::gib(64), used: Bytes::gib(swapped_gib) };
        expect(&host::memory(&facts), status, part);
    };
    check(Bytes::gib(50), None, 0, Pass, "50 GiB of 64 GiB available");
    check(Bytes::gib(3), Some(Bytes::gib(4)), 0, Pass, "limited to 4 GiB by the control group");
    check(Bytes::mib(900), Some(Bytes::gib(2)), 0, Warn, "900 MiB of 2 GiB");
    check(Bytes::gib(3), None, 0, Warn, "3 GiB of 64 GiB");
    check(Bytes::mib(100), None, 0, Fail, "100 MiB");
    check(Bytes::gib(50), None, 20, Warn, "20 GiB of memory is in swap");
}

#[test]
fn usable_processors_are_judged() {
    let check = |allowed, affinity, installed, gpus: usize, status, part: &str| {
        let two = two_gpus();
        let mut facts = if gpus == 2 { with_gpus(&two) } else { no_gpu() };
        facts.machine.host.logical_cpus = allowed;
        facts.cpus = CpuFacts { installed, affinity };
        expect(&host::cpus(&facts), status, part);
    };
    check(16, Some(16), 16, 0, Pass, "16 of 16 CPUs usable");
    check(8, Some(8), 128, 0, Pass, "8 of 128 CPUs usable, limited by the affinity");
    check(4, Some(16), 16, 0, Pass, "4 of 16 CPUs usable, limited by a quota");
    check(4, Some(16), 16, 2, Warn, "8 are needed");
    check(1, Some(1), 16, 0, Warn, "1 of 16");
    check(1, None, 1, 0, Pass, "1 of 1");
}

#[test]
fn thread_variables_are_judged() {
    let check = |name: &str, value: &str, status, part: &str| {
        let mut facts = no_gpu();
        set(&mut facts, name, value);
        expect(&host::cpus(&facts), status, part);
    };
    check("RAYON_NUM_THREADS", "16", Pass, "16 of 16");
    check("RAYON_NUM_THREADS", "0", Pass, "16 of 16");
    check("RAYON_NUM_THREADS", "64", Warn, "RAYON_NUM_THREADS is 64, and 16 CPUs are usable");
    check("RAYON_NUM_THREADS", "2", Warn, "leaves 14 CPUs unused");
    check("RAYON_NUM_THREADS", "many", Warn, "not a number");
    check("OMP_NUM_THREADS", "1", Pass, "16 of 16");
    check("OMP_NUM_THREADS", "4,2", Pass, "16 of 16");
    check("OMP_NUM_THREADS", "32", Warn, "OMP_NUM_THREADS is 32");
}

#[test]
fn open_files_are_judged() {
    let check = |limit: Option<(Option<u64>, Option<u64>)>, status, part: &str, fix: Option<&str>| {
        let mut facts = no_gpu();
        facts.open_files = limit.map(|(soft, hard)| OpenFiles { soft, hard });
        let outcome = host::open_files(&facts);
        expect(&outcome, status, part);
        assert_eq!(outcome.fix.as_deref(), fix);
    };
    check(None, Skip, "does not report", None);
    check(Some((None, None)), Pass, "no limit", None);
    check(Some((Some(1024), Some(4096))), Pass, "1024 files", None);
    check(Some((Some(512), Some(4096))), Warn, "512 files", Some("run `ulimit -n 4096` before the program"));
    check(Some((Some(512), None)), Warn, "512 files", Some("run `ulimit -n 65536` before the program"));
    check(Some((Some(64), Some(64))), Fail, "64 files", Some("ask the administrator for a higher limit"));
}

#[test]
fn the_temporary_folder_must_be_writable() {
    let folder = tempfile::tempdir().unwrap();
    let mut facts = no_gpu();
    facts.temp_folder = folder.path().into();
    let outcome = session::temp_folder(&facts);
    assert_ne!(outcome.status, Fail, "{outcome:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    facts.temp_folder = folder.path().join("none");
    expect(&session::temp_folder(&facts), Fail, "cannot write");
    let check = |written, free, status| {
        expect(&session::judge_temp(folder.path(), written, free), status, "");
    };
    check(Ok(()), Some(Bytes::gib(1)), Pass);
    check(Ok(()), None, Pass);
    check(Ok(()), Some(Bytes::mib(10)), Warn);
    check(Err(io::ErrorKind::ReadOnlyFilesystem.into()), Some(Bytes::gib(1)), Fail);
}

#[test]
#[cfg(unix)]
fn the_character_set_is_that_of_the_first_variable() {
    let check = |pairs: &[(&str, &str)], status, part: &str| {
        let mut facts = no_gpu();
        facts.variables.clear();
        pairs.iter().for_each(|(name, value)| set(&mut facts, name, value));
        expect(&session::terminal(&facts), status, part);
    };
    check(&[("LANG", "de_DE.UTF-8"), ("TERM", "xterm")], Pass, "UTF-8");
    check(&[("LANG", "C"), ("LC_ALL", "C.utf8"), ("TERM", "dumb")], Pass, "without colors");
    check(&[("LANG", "C.UTF-8"), ("LC_ALL", "C")], Warn, "LC_ALL is `C`");
    check(&[("LANG", "C.UTF-8"), ("LC_ALL", "")], Pass, "UTF-8");
    check(&[], Warn, "no character set");
}

#[test]
fn clocks_must_agree() {
    let check = |system, skew, disk, status, part: &str| {
        expect(&clock::judge(&clock::ClockReadings { system, skew, disk }), status, part);
    };
    let now = 1_790_000_000.0;
    check(now, 0.0, None, Pass, "the clocks agree");
    check(now, 0.001, Some(0.4), Pass, "the clocks and the disk agree");
    check(now, 0.1, None, Warn, "jumped by 100 ms");
    check(now, -0.1, None, Warn, "jumped by -100 ms");
    check(now, 0.0, Some(90.0), Warn, "90 s ahead of");
    check(now, 0.0, Some(-90.0), Warn, "90 s behind");
    check(3.0, 0.0, None, Fail, "date");
    check(-3.0, 0.0, None, Fail, "date");
}
