//! Starts ranks under `mpirun`, and reads what they print.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::rank::CASE;

/// Runs a case on some ranks, or returns `None` where there is no `mpirun`.
fn run(ranks: usize, case: &str, more: &[&str]) -> Option<(Output, Duration)> {
    let start = Instant::now();
    let program = std::env::current_exe().unwrap();
    let output = Command::new("mpirun")
        .args(["--oversubscribe", "-n", &ranks.to_string()])
        .args(more)
        .arg(program)
        .args(["rank::program", "--exact", "--nocapture"])
        .env(CASE, case)
        // A container of a build runs as root.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .output();
    match output {
        Ok(output) => Some((output, start.elapsed())),
        Err(error) => {
            println!("skipped: cannot start mpirun: {error}");
            None
        }
    }
}

/// Checks how often the ranks of a case print `expected`, and whether the launcher ends well.
fn check(ranks: usize, case: &str, more: &[&str], expected: &str, times: usize, success: bool) {
    let Some((output, took)) = run(ranks, case, more) else { return };
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches(expected).count(), times, "{case} with {ranks} ranks:\n{text}\n{errors}");
    assert_eq!(output.status.success(), success, "{case} with {ranks} ranks:\n{text}\n{errors}");
    // The limit of a wait is half an hour: this only says that none was reached.
    assert!(took < Duration::from_secs(300), "{case} took {took:?}");
}

#[test]
fn operations_work_over_mpi() {
    for ranks in [1, 2, 4] {
        if ranks > 1 {
            check(ranks, "operations", &[], "[fine]", ranks, true);
        }
        check(ranks, "unequal", &[], if ranks == 1 { "[fine]" } else { "[the corpus differs on rank" }, ranks, true);
    }
}

#[test]
fn sums_by_the_library_work_in_levels() {
    for ranks in [2, 3, 4] {
        check(ranks, "groups", &[], "[fine]", ranks, true);
    }
}

#[test]
fn failures_are_named_on_all_other_ranks() {
    check(4, "fails", &[], "[replica 3 failed: out of memory]", 3, true);
    check(4, "leaves", &[], "[replica 3 is gone]", 3, true);
}

#[test]
fn a_stopped_rank_is_named_and_ended() {
    check(4, "stopped", &[], "[replica 3 has given no sign of life for 4 s]", 3, false);
}

#[test]
fn mpirun_ends_all_ranks_if_one_is_killed() {
    let Some((output, took)) = run(4, "killed", &[]) else { return };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && took < Duration::from_secs(300), "{errors}");
    assert!(errors.contains("exited on signal 9"), "{errors}");
}

#[test]
fn a_killed_rank_is_named_if_mpirun_lets_the_others_live() {
    // Open MPI 4.1.4 then reports success if those that live do.
    check(4, "killed", &["--enable-recovery"], "[replica 3 has given no sign of life for 4 s]", 3, true);
}
