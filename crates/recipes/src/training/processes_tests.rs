//! Several processes, here threads of one process, train the run that several replicas train.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_config::{ConfigArgs, Loaded};
use plimsoll_core::CountingAllocator;
use plimsoll_speech::ModelFolder;
use plimsoll_train::{CheckpointStore, ThreadReplica};

use super::{NoDisplay, PlannedRun, Resume, TrainingOutcome, config_path};
use crate::Failure;
use crate::load;
use crate::processes::Processes;
use crate::reporter::Silent;
use crate::training::DataChanged;

static MEMORY: CountingAllocator = CountingAllocator::new();

/// Returns a tiny recognizer's configuration, with corpus and runs in `folder`.
fn config(folder: &Path, name: &str, steps: u32, more: &[&str]) -> Loaded {
    let path = folder.display();
    let mut set: Vec<String> = vec![
        format!("data.corpus_dir={path}/corpus"),
        format!("runs_dir={path}/runs"),
        "data.corpus_utterances=24".into(),
        "data.corpus_speakers=4".into(),
        "model.encoder_layers=1".into(),
        "model.attention_heads=2".into(),
        "training.checkpoint_interval=4".into(),
        format!("name={name}"),
    ];
    set.extend(more.iter().map(ToString::to_string));
    let args = ConfigArgs {
        steps: Some(steps.to_string()),
        batch_size: Some("6".into()),
        d_model: Some("16".into()),
        set,
        ..ConfigArgs::default()
    };
    load(&args, std::iter::empty()).unwrap()
}

/// Trains with `count` processes, each of which calls `plan`, and returns what each got.
fn train_together(
    count: usize,
    plan: impl Fn(&Processes) -> Result<PlannedRun<'static>, Failure> + Send + Clone + 'static,
) -> Vec<Result<TrainingOutcome, Failure>> {
    let threads = ThreadReplica::for_ranks(count).into_iter().enumerate().map(|(rank, replica)| {
        let plan = plan.clone();
        std::thread::spawn(move || {
            let processes = Processes::new(Arc::new(replica), rank, count);
            let run = plan(&processes)?.start()?;
            let outcome = run.train(&AtomicBool::new(false), &mut NoDisplay)?;
            processes.wait_for_all()?;
            Ok(outcome)
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Returns the weights in the newest checkpoint of a run, as its file has them.
fn weights(run: &Path) -> Vec<u8> {
    let store = CheckpointStore::new(ModelFolder(run).checkpoints(), 3);
    let (checkpoint, damaged) = store.newest().unwrap();
    assert!(damaged.is_empty());
    std::fs::read(checkpoint.path.join("weights.safetensors")).unwrap()
}

/// Returns the folder of the run with this name.
fn run_of(folder: &Path, name: &str) -> PathBuf {
    folder.join("runs").join(name)
}

#[test]
fn processes_train_to_the_weights_of_replicas() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_path_buf();
    let replicas = config(&root, "replicas", 8, &["device.replicas=3"]);
    let run = PlannedRun::new(replicas, &MEMORY, &Silent).unwrap().start().unwrap();
    run.train(&AtomicBool::new(false), &mut NoDisplay).unwrap();

    // Eight steps at once, and eight steps with another number of processes after the first four.
    let new = |name: &'static str, steps| {
        let root = root.clone();
        move |processes: &Processes| {
            let loaded = config(&root, name, steps, &[]);
            PlannedRun::in_processes(loaded, None, processes, &MEMORY, &Silent)
        }
    };
    let outcomes = train_together(3, new("processes", 8));
    let complete = |outcome: &Result<TrainingOutcome, Failure>| matches!(outcome, Ok(TrainingOutcome::Complete { .. }));
    let followed = |outcome: &Result<TrainingOutcome, Failure>| matches!(outcome, Ok(TrainingOutcome::Followed));
    assert!(complete(&outcomes[0]) && outcomes[1..].iter().all(followed), "{outcomes:?}");
    assert!(weights(&run_of(&root, "replicas")) == weights(&run_of(&root, "processes")), "the weights differ");

    assert!(complete(&train_together(3, new("resumed", 4))[0]));
    let resume = {
        let root = root.clone();
        move |processes: &Processes| {
            let run = run_of(&root, "resumed");
            let args =
                ConfigArgs { config: Some(config_path(&run)?), steps: Some("8".into()), ..ConfigArgs::default() };
            let resume = Resume { folder: &run, data_changed: DataChanged::Refuse };
            let loaded = load(&args, std::iter::empty())?;
            PlannedRun::in_processes(loaded, Some(&resume), processes, &MEMORY, &Silent)
        }
    };
    let outcomes = train_together(2, resume.clone());
    assert!(complete(&outcomes[0]) && followed(&outcomes[1]), "{outcomes:?}");
    let events = std::fs::read_to_string(run_of(&root, "resumed").join("metrics.jsonl")).unwrap();
    assert!(events.contains("\"step\":8"), "{events}");
    // The run is complete: no process waits for another.
    let outcomes = train_together(4, resume);
    let is_done = |outcome: &Result<TrainingOutcome, Failure>| {
        matches!(outcome, Ok(TrainingOutcome::AlreadyComplete { step: 8 } | TrainingOutcome::Followed))
    };
    assert!(outcomes.iter().all(is_done), "{outcomes:?}");
}

#[test]
fn processes_that_differ_are_refused_with_the_one_that_does() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_path_buf();
    for (key, what) in [("training.learning_rate=0.01", "the configuration"), ("seed=18", "the configuration")] {
        let root = root.clone();
        let outcomes = train_together(3, move |processes| {
            let more = if processes.rank() == 2 { &[key][..] } else { &[] };
            PlannedRun::in_processes(config(&root, "differs", 4, more), None, processes, &MEMORY, &Silent)
        });
        for outcome in outcomes {
            let message = outcome.unwrap_err().to_string();
            assert_eq!(message, format!("{what} differs on rank 2 of 3"));
        }
    }
    let outcomes = train_together(2, move |processes| {
        let loaded = config(&root, "replicas", 4, &["device.replicas=2"]);
        PlannedRun::in_processes(loaded, None, processes, &MEMORY, &Silent)
    });
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(|error| error.to_string().contains("replicas"))));
}
