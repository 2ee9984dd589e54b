//! Tests of the commands that watch and report: `report`, `monitor`, `doctor`, and `train --ui`.

use plimsoll_core::{Event, Record, TimeShares};
use serde_json::Value;

use crate::program::TestFolder;

/// Sums up the times of a record by owner.
fn times(record: &str) -> TimeShares {
    let mut times = TimeShares::default();
    for line in record.lines() {
        let record: Record = serde_json::from_str(line).unwrap();
        if let Event::Step(step) = &record.event {
            times.add_all(&step.times);
        }
        if let Event::Ended { times: last, .. } = &record.event {
            times.add_all(last);
        }
    }
    times
}

#[test]
fn a_run_is_reported_and_watched_with_the_times_of_its_record() {
    let dir = TestFolder::new();
    let output = dir.train(&["--epochs", "1", "--ui", "json"]).success();
    let record = std::fs::read_to_string(dir.path("runs/asr-1/metrics.jsonl")).unwrap();
    let owned = times(&record);
    assert!(owned.total() > 0.0, "{record}");
    // The events on standard output are those of the record, followed by the summary.
    let printed: Vec<&str> = output.stdout.lines().take_while(|line| line.starts_with('{')).collect();
    assert_eq!(printed.len(), record.lines().count());
    let printed = times(&printed.join("\n"));
    assert!((printed.total() - owned.total()).abs() < 1e-3, "{printed:?} {owned:?}");

    let page = std::fs::read_to_string(dir.path("runs/asr-1/report.html")).unwrap();
    assert!(page.starts_with("<!") && page.contains("id=\"data\"") && !page.contains("http://"), "{page}");
    dir.run(&["report", "asr-1", "--out", "page.html"]).success();
    let again = dir.run(&["report", "asr-1", "--out", "page.html"]);
    assert_eq!(again.code, Some(2), "an existing file is not replaced: {}", again.stderr);
    let missing = dir.run(&["report", "none"]);
    assert!(missing.code == Some(2) && missing.stderr.contains("runs list"), "{}", missing.stderr);

    let missing = dir.run(&["monitor", "--once", "--run", "none"]);
    assert!(missing.code == Some(2) && missing.stderr.contains("runs list"), "{}", missing.stderr);
    let seen = dir.run(&["monitor", "--once", "--json", "--interval", "0.2", "--run", "asr-1"]).success();
    let seen: Value = serde_json::from_str(&seen.stdout).unwrap();
    assert_eq!((&seen["status"], &seen["name"]), (&"complete".into(), &"asr-1".into()), "{seen}");
    let text = dir.run(&["monitor", "--once", "--interval", "0.2", "--run", "asr-1"]).success();
    assert!(text.stdout.contains("asr-1") && text.stdout.contains("loss"), "{}", text.stdout);
}

#[test]
fn samples_are_recorded_and_played_back() {
    let dir = TestFolder::new();
    dir.run(&["monitor", "--interval", "0.2", "--duration", "1", "--json", "--log-file", "samples.jsonl.zst"])
        .success();
    let replay = dir.run(&["monitor", "--replay", "samples.jsonl.zst", "--speed", "1000", "--json"]).success();
    assert!(!replay.stdout.is_empty());
    for line in replay.stdout.lines() {
        let view: Value = serde_json::from_str(line).unwrap();
        assert_eq!(view["schema_version"], 1);
    }
    let remote = dir.run(&["monitor", "--serve", "0.0.0.0:0", "--duration", "1"]);
    assert!(remote.code == Some(2) && remote.stderr.contains("--allow-"), "{}", remote.stderr);
    for wrong in [["--interval", "0"], ["--interval", "nan"], ["--duration", "-1"]] {
        let output = dir.run(&["monitor", "--once", wrong[0], wrong[1]]);
        assert_eq!(output.code, Some(2), "{wrong:?}: {}", output.stderr);
    }
}

#[test]
fn the_doctor_checks_machine_and_program() {
    let dir = TestFolder::new();
    let output = dir.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let status = |id: &str| checks.iter().find(|check| check["id"] == id).map(|check| check["status"].clone());
    assert_eq!(status("device"), Some("pass".into()), "{report}");
    let is_bad = |name: &str| checks.iter().any(|check| check["status"] == name);
    let expected = if is_bad("fail") { 2 } else { i32::from(is_bad("warn")) };
    assert_eq!(output.code, Some(expected), "{report}");
}
