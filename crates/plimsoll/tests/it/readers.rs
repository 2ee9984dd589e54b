//! Readers of other people agree with what the program writes: TensorBoard, and `promtool` of Prometheus.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::browsing::Server;
use crate::program::{SMALL, TestFolder};
use crate::tool::{build_library, find, find_python_with, wait_for};

/// Prints the curves as lists of steps and values.
const READ_CURVES: &str = "
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0})
events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()['scalars']}))
";

/// Returns the curves that the record of a run stands for.
fn expected_curves(record: &str, hop_seconds: f64) -> BTreeMap<String, Vec<(u64, f64)>> {
    let mut curves: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    for line in record.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| line[name].as_f64();
        let mut add = |name: String, value: f64| {
            curves.entry(name).or_default().push((line["step"].as_u64().unwrap(), value));
        };
        if line["event"] == "step" {
            let seconds = number("step_seconds").unwrap() + number("wait_seconds").unwrap();
            add("train/loss".into(), number("loss").unwrap());
            add("train/gradient norm".into(), number("norm").unwrap());
            add("train/learning rate".into(), number("rate").unwrap());
            add("speed/audio seconds a second".into(), number("frames").unwrap() * hop_seconds / seconds);
            add("speed/share waited for data".into(), number("wait_seconds").unwrap() / seconds);
            add("memory/MiB".into(), number("peak_bytes").unwrap() / f64::from(1 << 20));
            for (part, value) in line["parts"].as_object().into_iter().flatten() {
                add(format!("train/loss of {part}"), value.as_f64().unwrap());
            }
            for (owner, seconds) in line["times"].as_object().unwrap() {
                add(format!("time/{owner}"), seconds.as_f64().unwrap());
            }
        }
        for score in line["scores"].as_array().into_iter().flatten() {
            add(format!("validation/{}", score["name"].as_str().unwrap()), score["value"].as_f64().unwrap());
        }
    }
    curves
}

#[test]
fn tensorboard_reads_the_record_of_a_run_and_of_its_continuation() {
    let Some(python) = find_python_with("tensorboard") else { return };
    let dir = TestFolder::new();
    dir.train(&["--steps", "6", "--set", "training.validation_interval=3"]).success();
    dir.run(&["train", "--resume", "asr-1", "--steps", "10"]).success();
    let output = Command::new(python).args(["-c", READ_CURVES]).arg(dir.path("runs/asr-1/tensorboard")).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: BTreeMap<String, Vec<(u64, f64)>> = serde_json::from_slice(&output.stdout).unwrap();
    let record = std::fs::read_to_string(dir.path("runs/asr-1/metrics.jsonl")).unwrap();
    let expected = expected_curves(&record, 0.01);
    assert!(read.keys().eq(expected.keys()), "{:?} and not {:?}", read.keys(), expected.keys());
    assert_eq!(read["train/loss"].len(), 10);
    for (name, points) in &expected {
        assert_eq!(read[name].len(), points.len(), "{name}");
        for (found, wanted) in read[name].iter().zip(points) {
            // The file has single precision, and the record has whole microseconds.
            let rounding = if name.starts_with("time/") { 0.5e-6 } else { 0.0 };
            let is_near = (found.1 - wanted.1).abs() <= 1e-6 * wanted.1.abs() + rounding;
            assert!(found.0 == wanted.0 && is_near, "{name}: {found:?} and not {wanted:?}");
        }
    }
}

/// Checks a text with `promtool check metrics`: its form, names, units and help texts.
fn check_metrics(promtool: &Path, text: &str) {
    let mut command = Command::new(promtool);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}\n{text}");
}

/// Waits until `/metrics` has `part`, and returns the text.
fn metrics_with(server: &Server, part: &str) -> String {
    let mut last = String::new();
    wait_for(part, || {
        last = server.get("/metrics");
        last.contains(part).then(|| last.clone())
    })
}

#[test]
fn promtool_accepts_the_metrics_of_a_machine_and_of_a_run() {
    let Some(promtool) = find(&["promtool"]) else { return };
    let dir = TestFolder::new();
    std::fs::create_dir(dir.path("runs")).unwrap();
    let serve = ["monitor", "--serve", "127.0.0.1:0", "--interval", "0.2"];
    let server = Server::start(&mut dir.command(&serve));
    let text = metrics_with(&server, "plimsoll_other_process_cpus");
    assert!(!text.contains("plimsoll_process_cpus"), "no run is watched: {text}");
    check_metrics(&promtool, &text);
    drop(server);

    let server = Server::start(&mut dir.command(&[&serve[..], &["--run", "asr-1"]].concat()));
    check_metrics(&promtool, &server.get("/metrics"));
    let mut training = dir.start(&[&["train", "--steps", "200"], SMALL].concat());
    let during = metrics_with(&server, "\nplimsoll_running 1\n");
    check_metrics(&promtool, &during);
    check_metrics(&promtool, &metrics_with(&server, "plimsoll_time_seconds_total{owner=\"compute\"}"));
    check_metrics(&promtool, &metrics_with(&server, "plimsoll_process_cpus"));
    assert!(training.wait().unwrap().success());
    let after = metrics_with(&server, "\nplimsoll_running 0\n");
    check_metrics(&promtool, &after);
    assert!(after.contains("plimsoll_validation_score{score=\"cer\"}"), "{after}");
}

/// Builds the library that answers as the driver does, and puts it into `folder` under the driver's names.
fn put_driver(folder: &Path) {
    let library = build_library("stand-in-nvml");
    for name in ["libnvidia-ml.so", "libnvidia-ml.so.1"] {
        std::fs::copy(&library, folder.join(name)).unwrap();
    }
}

/// Two GPUs, of which one has every value.
const TWO: &str = "driver 580.82.07\ncuda 13000
gpu GPU-0a NVIDIA H200
memory 143771 562 100000
utilization 93 41
power 512500
power-limit 700000
temperature 61
clock 1 1785
clock-max 1 1980
throttle 4
pcie 0 1200
pcie 1 3000
ecc 1 2
mig 0
process compute self 40000
process compute 1 3000
gpu GPU-1a Tesla \"T4\"
memory 16384 400 15000
utilization 0 0
power 9000
throttle 1
";
/// A GPU that is divided into instances.
const DIVIDED: &str = "driver 580.82.07\ncuda 13000
gpu GPU-2a NVIDIA H200
memory 143771 562 100000
mig 1
instance MIG-2a-1 17920 100 17000
instance -
instance MIG-2a-2 17920 100 9000
";

#[cfg(target_os = "linux")]
#[test]
fn promtool_accepts_the_metrics_of_gpus() {
    let Some(promtool) = find(&["promtool"]) else { return };
    let dir = TestFolder::new();
    put_driver(&dir.path(""));
    // 15 is the code of a GPU that is lost.
    let lost = TWO.replace("gpu GPU-1a Tesla \"T4\"\n", "gpu GPU-1a Tesla \"T4\"\nfail * 15\n");
    for (scenario, parts) in [
        (TWO, &["plimsoll_gpu_power_watts{gpu=\"0\",uuid=\"GPU-0a\"} 512.5", "uuid=\"GPU-1a\"}"][..]),
        (DIVIDED, &["plimsoll_gpu_memory_total_bytes{gpu=\"0\",uuid=\"GPU-2a\"}"]),
        (&lost, &["plimsoll_gpu_power_watts{gpu=\"0\",uuid=\"GPU-0a\"} 512.5"]),
        ("driver 580.82.07\ncuda 13000\nfail nvmlInit_v2 9\n", &["plimsoll_host_cpus"]),
    ] {
        dir.write("scenario", scenario);
        let mut command = dir.command(&["monitor", "--serve", "127.0.0.1:0", "--interval", "0.2", "--all-gpus"]);
        command.env("LD_LIBRARY_PATH", dir.path("")).env("STAND_IN_NVML", dir.path("scenario"));
        let server = Server::start(&mut command);
        metrics_with(&server, "plimsoll_other_process_cpus");
        for part in parts {
            let text = metrics_with(&server, part);
            check_metrics(&promtool, &text);
            assert!(!text.contains("NaN"), "{text}");
        }
        if scenario == TWO {
            // A GPU that is lost keeps its names, and has no values.
            dir.write("scenario", &lost);
            let power = |text: &str| text.contains("plimsoll_gpu_power_watts{gpu=\"1\"");
            let text = wait_for("the loss", || Some(server.get("/metrics")).filter(|text| !power(text)));
            check_metrics(&promtool, &text);
            assert!(text.contains("plimsoll_gpu_info{gpu=\"1\",uuid=\"GPU-1a\""), "{text}");
        }
    }
}
