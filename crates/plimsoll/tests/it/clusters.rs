//! Several processes that train one run: started by `mpirun` where the program is built with it, refused where it is not.

use crate::program::{SMALL, TestFolder};

#[cfg(not(feature = "mpi"))]
#[test]
fn several_processes_are_refused_without_mpi() {
    let dir = TestFolder::new();
    let args = [&["train", "--steps", "2"][..], SMALL].concat();
    let started = |ranks: &str| {
        let mut command = dir.command(&args);
        command.env("OMPI_COMM_WORLD_SIZE", ranks).env("OMPI_COMM_WORLD_RANK", "0");
        command.output().unwrap()
    };
    let output = started("2");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("mpirun (Open MPI) started 2 processes") && stderr.contains("--features mpi"), "{stderr}");
    assert!(!dir.path("runs").exists(), "nothing is written");
    // One process needs no MPI.
    assert_eq!(started("1").status.code(), Some(0));
}

#[test]
fn a_bigger_machine_is_predicted_from_a_run() {
    let dir = TestFolder::new();
    dir.train(&["--name", "short", "--steps", "8"]).success();
    let output = dir.run(&["scale", "--run", "short", "--network", "25gbe", "--price", "3", "--ranks", "64", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&output.success().stdout).unwrap();
    let rows = found["table"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["ranks"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
    assert_eq!((rows[0]["speedup"].as_f64(), rows[0]["efficiency"].as_f64()), (Some(1.0), Some(1.0)));
    assert!(rows.iter().all(|row| row["step_seconds"].as_f64() > Some(0.0) && row["audio_hour_cost"].is_f64()));
    // Six utterances are at most six parts.
    assert_eq!(rows[3]["compute_seconds"], rows[6]["compute_seconds"]);
    let output = dir.run(&["scale", "--run", "short"]).success();
    assert!(output.stdout.contains("efficiency") && output.stdout.contains("(assumed)"), "{}", output.stdout);
    dir.train(&["--name", "two", "--steps", "8", "--set", "device.replicas=2"]).success();
    let output = dir.run(&["scale", "--run", "two"]);
    assert!(output.code == Some(2) && output.stderr.contains("2 replicas"), "{output:?}");
    dir.train(&["--name", "shorter", "--steps", "2"]).success();
    let output = dir.run(&["scale", "--run", "shorter"]);
    assert!(output.code == Some(2) && output.stderr.contains("--steps 20"), "{output:?}");
    // A plan without a size is refused: a size of 0 would promise a sum that takes no time.
    let plan = std::fs::read_to_string(dir.path("runs/short/plan.toml")).unwrap();
    for (field, message) in
        [("parameters", "how many parameters"), ("hop_seconds", "how long a frame"), ("replicas", "missing field")]
    {
        std::fs::write(dir.path("runs/short/plan.toml"), plan.replace(field, &field.replace(['s', 'g'], "_"))).unwrap();
        let output = dir.run(&["scale", "--run", "short"]);
        assert!(output.code == Some(2) && output.stderr.contains(message), "{field}: {output:?}");
    }
}

#[cfg(feature = "mpi")]
mod with_mpi {
    use std::process::{Command, Output};

    use super::*;

    /// Runs the program with `ranks` processes in `dir`.
    fn mpirun(dir: &TestFolder, ranks: &str, args: &[&str]) -> Output {
        let program = dir.command(&[]);
        let mut command = Command::new("mpirun");
        command.args(["-n", ranks, "--oversubscribe", "--bind-to", "none"]).arg(program.get_program()).args(args);
        command.current_dir(dir.path("")).env("OMPI_ALLOW_RUN_AS_ROOT", "1");
        command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env("NO_COLOR", "1").output().unwrap()
    }

    fn weights(dir: &TestFolder, run: &str, step: u64) -> Vec<u8> {
        std::fs::read(dir.path(&format!("runs/{run}/checkpoints/step-{step:07}/weights.safetensors"))).unwrap()
    }

    #[test]
    fn long_processes_that_differ_get_the_reason() {
        if Command::new("mpirun").arg("--version").output().is_err() {
            eprintln!("skipped: there is no mpirun");
            return;
        }
        let dir = TestFolder::new();
        let program = dir.command(&[]).get_program().to_str().unwrap().to_owned();
        let train = [&["train", "--name", "odd", "--steps", "2"][..], SMALL].concat();
        let colon = [":", "-n", "1", &program];
        let more = [&train[..], &["--set", "training.clip_norm=2"]].concat();
        let args = [&train[..], &colon, &more].concat();
        // The launcher ends all as soon as one has failed: the first must have said why by then, each time.
        for _ in 0..10 {
            let output = mpirun(&dir, "3", &args);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(stderr.matches("differs on rank 3 of 4").count(), 1, "{stderr}");
            assert_eq!(output.status.code(), Some(2), "{stderr}");
        }
        assert!(!dir.path("runs").exists(), "nothing is written");
    }

    #[test]
    fn long_processes_train_to_the_bits_of_replicas() {
        if Command::new("mpirun").arg("--version").output().is_err() {
            eprintln!("skipped: there is no mpirun");
            return;
        }
        let dir = TestFolder::new();
        for (ranks, set) in [("2", "device.replicas=2"), ("4", "device.replicas=4")] {
            let (threads, processes) = (format!("threads-{ranks}"), format!("processes-{ranks}"));
            dir.train(&["--name", &threads, "--steps", "12", "--set", set]).success();
            let ordered = ["--set", "training.sums=ordered"];
            let args = [&["train", "--name", &processes, "--steps", "12"][..], SMALL, &ordered].concat();
            let output = mpirun(&dir, ranks, &args);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(weights(&dir, &threads, 12) == weights(&dir, &processes, 12), "{ranks}: the weights differ");
            let output = mpirun(&dir, ranks, &args);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(stderr.matches("there is a run").count(), 1, "{stderr}");
        }
        // By the library: a run repeated gives the same bits, and as good a model.
        let repeated = ["library-1", "library-2"].map(|name| {
            let args = [&["train", "--name", name, "--steps", "12"][..], SMALL].concat();
            assert!(mpirun(&dir, "2", &args).status.success());
            weights(&dir, name, 12)
        });
        assert!(repeated[0] == repeated[1], "a run repeated differs");
        // Another number of processes goes on.
        let output = mpirun(&dir, "3", &["train", "--resume", "runs/processes-2", "--steps", "16"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!weights(&dir, "processes-2", 16).is_empty());
    }
}
