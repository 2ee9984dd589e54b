//! Reads machines that a scenario describes, each in a process of its own: the library takes the path of the scenario
//! from the environment, and a process has only one.

use std::env::{current_exe, var_os};
use std::fs::{read_to_string, write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use plimsoll_monitor::{NvmlGpus, ProcessEnv};

use plimsoll_monitor::sample::{MachineSource, Sample, SampleSource};
use serde::{Deserialize, Serialize};

use crate::tool::build_library;

/// Variable with the folder of the process that reads.
const FOLDER: &str = "MONITOR_TEST_FOLDER";

/// Path of the library, which is built once.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| build_library("stand-in-nvml"));

/// What the process that reads is asked for.
#[derive(Serialize, Deserialize)]
struct Task {
    library: PathBuf,
    /// Time of a sample in seconds, and the scenario that begins with it.
    steps: Vec<(f64, String)>,
    own_pids: bool,
}

/// Samples a machine: each step has a time in seconds and a scenario.
pub(crate) fn samples(steps: &[(f64, &str)]) -> Vec<Sample> {
    run(steps, false)
}

/// Samples a machine from a container that has its own process numbers.
pub(crate) fn samples_in_container(steps: &[(f64, &str)]) -> Vec<Sample> {
    run(steps, true)
}

fn run(steps: &[(f64, &str)], own_pids: bool) -> Vec<Sample> {
    let folder = tempfile::tempdir().unwrap();
    let steps = steps.iter().map(|(time, scenario)| (*time, (*scenario).to_owned())).collect();
    let task = Task { library: LIBRARY.clone(), steps, own_pids };
    write(folder.path().join("task"), serde_json::to_string(&task).unwrap()).unwrap();
    let mut child = Command::new(current_exe().unwrap());
    child.args(["--exact", "machine::a_process_samples"]).env(FOLDER, folder.path());
    let output = child.env("STAND_IN_NVML", folder.path().join("scenario")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_str(&read_to_string(folder.path().join("samples")).unwrap()).unwrap()
}

/// Is the process that reads if a test has started it, and does nothing otherwise.
#[test]
fn a_process_samples() {
    let Some(folder) = var_os(FOLDER).map(PathBuf::from) else { return };
    let task: Task = serde_json::from_str(&read_to_string(folder.join("task")).unwrap()).unwrap();
    let begin = |scenario: &str| write(folder.join("scenario"), scenario).unwrap();
    begin(&task.steps[0].1);
    let env = ProcessEnv { own_pids: task.own_pids, container: task.own_pids, ..ProcessEnv::default() };
    let mut source = MachineSource::with_gpus(NvmlGpus::load_from(&task.library)).with_process_env(env);
    let samples = task.steps.iter().map(|(time, scenario)| {
        begin(scenario);
        source.read(Duration::from_secs_f64(*time))
    });
    let samples: Vec<Sample> = samples.collect();
    write(folder.join("samples"), serde_json::to_string(&samples).unwrap()).unwrap();
}
