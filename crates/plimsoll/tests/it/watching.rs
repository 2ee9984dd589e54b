//! Tests of the commands that watch and report: `report`, `monitor`, `doctor`, and `train --ui`.

use plimsoll_core::{Event, Record, TimeShares};
use serde_json::Value;

use crate::program::{SMALL, TestFolder, names};

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
    // The events on standard output are those of the record, followed by the summary; all of it is JSON.
    let mut printed: Vec<&str> = output.stdout.lines().collect();
    let last: Value = serde_json::from_str(printed.pop().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["summary"]["name"]), (&"summary".into(), &"asr-1".into()));
    assert!(output.stderr.contains("Files in "), "{}", output.stderr);
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
fn a_file_that_is_no_recording_is_refused() {
    let dir = TestFolder::new();
    dir.train(&["--steps", "2"]).success();
    let view = dir.run(&["monitor", "--once", "--json", "--interval", "0.2", "--run", "asr-1"]).success();
    dir.write("view.jsonl", view.stdout);
    dir.write("other.jsonl", "{\"time\": 1, \"cpu\": 0.5}\n{\"time\": 2, \"cpu\": 0.5}\n");
    dir.write("noise.zst", [0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    for file in
        ["view.jsonl", "other.jsonl", "noise.zst", "runs/asr-1/metrics.jsonl", "runs/asr-1/report.html", "runs", "no"]
    {
        let output = dir.run(&["monitor", "--replay", file, "--json"]);
        assert!(output.code == Some(2) && output.stdout.is_empty(), "{file}: {output:?}");
        assert!(output.stderr.contains(file) && output.stderr.contains("--log-file"), "{file}: {}", output.stderr);
    }
    // Damage in the middle is a warning, and so is a recording without samples.
    let sample = "{\"time\":1,\"host\":{},\"gpus\":[]}\n";
    dir.write("damaged.jsonl", format!("{sample}{{\"time\"\n{sample}"));
    let damaged = dir.run(&["monitor", "--replay", "damaged.jsonl", "--json"]).success();
    assert_eq!(damaged.stdout.lines().count(), 2, "{}", damaged.stdout);
    assert!(damaged.stderr.contains("1 line of the recording"), "{}", damaged.stderr);
    dir.write("empty.jsonl", "");
    let empty = dir.run(&["monitor", "--replay", "empty.jsonl"]).success();
    assert!(empty.stderr.contains("no sample"), "{}", empty.stderr);
}

#[test]
fn wrong_addresses_and_runs_are_refused_with_a_way_out() {
    let dir = TestFolder::new();
    dir.write("runs/file", "no run");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    for (flags, part) in [
        (["--serve", port.as_str()], "another program uses this port"),
        (["--serve", "127.0.0.1:99999"], "127.0.0.1:9100"),
        (["--serve", "9100"], "127.0.0.1:9100"),
        (["--run", "file"], "runs list"),
        (["--run", "runs/file"], "runs list"),
    ] {
        let output = dir.run(&["monitor", "--duration", "1", flags[0], flags[1]]);
        let flat = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.code == Some(2) && flat.contains(part), "{flags:?}: {}", output.stderr);
    }
}

#[test]
fn a_run_whose_folder_vanishes_ends_no_monitor() {
    let dir = TestFolder::new();
    dir.train(&["--steps", "2"]).success();
    let flags = ["monitor", "--run", "asr-1", "--interval", "0.2", "--duration", "3", "--json"];
    let child = dir.start(&flags);
    std::thread::sleep(std::time::Duration::from_millis(500));
    std::fs::remove_dir_all(dir.path("runs")).unwrap();
    let output = crate::program::ProgramOutput::from(child.wait_with_output().unwrap()).success();
    let last: Value = serde_json::from_str(output.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["name"], "asr-1", "{last}");
}

#[test]
fn the_doctor_checks_machine_and_program() {
    let dir = TestFolder::new();
    let output = dir.run(&[&["doctor", "--json"], SMALL].concat());
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let status = |id: &str| checks.iter().find(|check| check["id"] == id).map(|check| check["status"].clone());
    assert_eq!(status("device"), Some("pass".into()), "{report}");
    // Whether loading is fast enough depends on the machine, and that it was measured does not.
    let loader = checks.iter().find(|check| check["id"] == "loader").unwrap();
    for speed in ["given", "needed"] {
        let measured = loader["details"][format!("{speed}_audio_seconds_per_second")].as_f64();
        assert!(measured.is_some_and(|speed| speed > 0.0), "{report}");
    }
    let left = names(&dir.path("runs"));
    assert!(left.is_empty(), "the trial leaves nothing behind: {left:?}");
    assert!(!dir.path("corpus").exists(), "the check of loading makes its corpus elsewhere");
    let is_bad = |name: &str| checks.iter().any(|check| check["status"] == name);
    let expected = if is_bad("fail") { 2 } else { i32::from(is_bad("warn")) };
    assert_eq!(output.code, Some(expected), "{report}");
}
