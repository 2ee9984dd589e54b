//! Tests of the training loop between steps, with one replica and with several replicas.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_core::{
    Batch, BatchSource, Bytes, Collective, DeliveredBatch, HostBatch, Key, Measure, MemoryGate, MemoryMeter,
    OutOfMemory, Position, SourceError, Stage,
};
use plimsoll_tape::{NamedTensor, Pass, TensorBatch, collect};
use plimsoll_train::{
    CheckpointStore, Cleanup, Disk, Ending, Event, Governor, InferenceRunner, Limits, LionConfig, OptimizerConfig,
    Outcome, PlateauConfig, Run, RunOptions, RunState, Schedule, Score, StateForm, ThreadReplica, TrainError, Trainer,
    TrainerConfig,
};

use crate::net::{Net, batch};

/// A source of ten batches per epoch with eight samples each, or of a replica's share of these batches.
struct Batches {
    position: Position,
    rank: usize,
    ranks: usize,
}

impl Batches {
    fn from(position: Position) -> Self {
        Self { position, rank: 0, ranks: 1 }
    }
}

impl BatchSource for Batches {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        let first = (self.position.epoch * 10 + self.position.batch) * 8;
        let whole = batch(first..first + 8, 20);
        let done = self.position.batch + 1;
        self.position = Position { epoch: self.position.epoch + done / 10, batch: done % 10, ..Position::default() };
        let batch = if self.ranks == 1 { whole } else { whole.shard(self.rank, self.ranks) };
        Some(Ok(DeliveredBatch { batch, position: self.position, skipped: Vec::new(), waited: Duration::ZERO }))
    }

    fn batches_in_epoch(&self) -> u64 {
        10
    }
}

fn config() -> TrainerConfig {
    TrainerConfig { ema_decay: Some(0.9), ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) }
}

fn trainer(config: TrainerConfig) -> Trainer<Net> {
    Trainer::new(Net::new(24, &Device::flex().autodiff()), config, Governor::new(8))
}

/// Validates `net`: computes its mean squared error on utterances that the replicas share.
fn evaluate(net: &Net, _: u64, runner: &mut InferenceRunner<'_>) -> Result<Score, String> {
    let others = runner.collective();
    let batch = batch(900_000..900_016, 20).shard(others.rank(), others.ranks());
    let net = net.valid();
    let off = |part: &HostBatch| {
        let off = net.off(&TensorBatch::send(part, &Device::flex()), &Pass::plain());
        f64::from(off.into_scalar::<f32>())
    };
    let own: f64 = runner.run(&batch, off).map_err(|error| error.to_string())?.iter().sum();
    let mut found = [own, batch.frame_lengths.iter().map(|&n| f64::from(n)).sum()];
    others.sum(&mut found).map_err(|error| error.to_string())?;
    let value = found[0] / found[1];
    Ok(Score { value, tie: 0.0, all: vec![Measure::number("off", "how far it is off", value)] })
}

fn steps(count: u64) -> RunOptions {
    let limits = Limits { steps: Some(count), ..Limits::default() };
    RunOptions { save_every: 7, ..RunOptions::new(limits) }
}

/// Returns the options of a run of `count` steps that validates every 5 steps and lowers the learning rate on a
/// plateau.
fn often(count: u64) -> RunOptions {
    let plateau = Some(PlateauConfig { patience: 1, factor: 0.7, least: 0.01 });
    RunOptions { validate_every: Some(5), plateau, ..steps(count) }
}

/// Runs `trainer` from `state`. Returns the outcome, and the events as JSON, grouped by event name.
fn run_training(
    trainer: &mut Trainer<Net>,
    state: RunState,
    store: &CheckpointStore,
    options: &RunOptions,
    validate: &mut dyn FnMut(&Net, u64, &mut InferenceRunner<'_>) -> Result<Score, String>,
) -> (Result<Outcome, TrainError>, BTreeMap<String, Vec<serde_json::Value>>) {
    let mut events: BTreeMap<String, Vec<serde_json::Value>> = BTreeMap::new();
    let mut watch = |event: &Event| {
        let event = serde_json::to_value(event).unwrap();
        events.entry(event["event"].as_str().unwrap().into()).or_default().push(event);
    };
    let mut source =
        Batches { rank: trainer.replica().rank(), ranks: trainer.replica().ranks(), ..Batches::from(state.position) };
    let run = Run::new(trainer, &mut source, store, options).with_state(state).with_observer(&mut watch);
    let outcome = run.train(validate);
    (outcome, events)
}

#[test]
fn asynchronous_errors_and_prefetching_give_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, async_errors: bool| {
        let store = CheckpointStore::new(folder.path().join(name), 2);
        let mut trainer = trainer(TrainerConfig { async_errors, ..config() });
        let (outcome, events) = run_training(&mut trainer, RunState::default(), &store, &often(25), &mut evaluate);
        (collect(&trainer.task), outcome.unwrap().state.position, events["step"].len())
    };
    let (soon, late) = (run("soon", false), run("late", true));
    assert!(soon.0 == late.0);
    // A batch that was prefetched but not stepped on does not count in the position.
    assert_eq!((soon.1, soon.2), (late.1, late.2));
}

#[test]
fn resuming_equals_an_uninterrupted_run_in_every_state_form() {
    let lion = OptimizerConfig::from(LionConfig::default());
    let forms = [StateForm::Full, StateForm::Eight, StateForm::Host].map(|state| TrainerConfig { state, ..config() });
    for config in forms.into_iter().chain([TrainerConfig { optimizer: lion, ..config() }]) {
        let folder = tempfile::tempdir().unwrap();
        let store = |name: &str| CheckpointStore::new(folder.path().join(name), 2);
        let mut whole = trainer(config.clone());
        run_training(&mut whole, RunState::default(), &store("whole"), &often(25), &mut evaluate).0.unwrap();
        let mut first = trainer(config.clone());
        run_training(&mut first, RunState::default(), &store("cut"), &often(13), &mut evaluate).0.unwrap();
        let found = store("cut").newest().unwrap().0;
        let mut second = trainer(config.clone());
        second.task = plimsoll_tape::apply(second.task.clone(), found.weights).unwrap();
        second.optimizer.restore(found.state.step, found.optimizer, &second.task).unwrap();
        let mean = plimsoll_tape::apply(second.task.clone(), found.ema.unwrap()).unwrap();
        second.ema.as_mut().unwrap().restore(mean, found.state.ema_steps);
        run_training(&mut second, found.state, &store("cut"), &often(25), &mut evaluate).0.unwrap();
        assert!(collect(&whole.task) == collect(&second.task), "{:?}", config.state);
        assert!(
            collect(whole.evaluation_model()) == collect(second.evaluation_model()),
            "{:?}: the mean",
            config.state
        );
        assert!(collect(whole.evaluation_model()) != collect(&whole.task));
    }
}

#[test]
fn a_plateau_lowers_the_rate_and_then_stops_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let options = RunOptions {
        limits: Limits { stale: Some(6), ..Limits::default() },
        validate_every: Some(1),
        plateau: Some(PlateauConfig { patience: 2, factor: 0.5, least: 0.2 }),
        ..steps(0)
    };
    // Improves three times and never again.
    let mut validate = |_: &Net, step: u64, _: &mut InferenceRunner<'_>| {
        Ok(Score { value: if step <= 3 { 1.0 / step as f64 } else { 1.0 }, tie: 0.0, all: Vec::new() })
    };
    let mut trainer = trainer(config());
    let store = CheckpointStore::new(folder.path(), 1);
    let (outcome, events) = run_training(&mut trainer, RunState::default(), &store, &options, &mut validate);
    let outcome = outcome.unwrap();
    assert_eq!((outcome.ending, outcome.state.step, outcome.state.best_step), (Ending::Stale, 9, Some(3)));
    let factors: Vec<f64> = events["rate_lowered"].iter().map(|event| event["factor"].as_f64().unwrap()).collect();
    assert_eq!(factors, [0.5, 0.25, 0.2]);
    let rates: Vec<f64> = events["step"].iter().map(|event| event["rate"].as_f64().unwrap()).collect();
    assert_eq!((rates[4], rates[5], rates[8]), (3e-3, 1.5e-3, 0.75e-3));
    assert_eq!(store.best().unwrap().0.state.step, 3);
}

#[test]
fn of_equal_scores_the_lowest_tie_is_the_best() {
    // Scores and ties of five validations, and the step that is the best.
    let cases: [([(f64, f64); 5], u64); 5] = [
        ([(1.0, 3.0), (1.0, 2.0), (1.0, 1.5), (1.0, 1.7), (1.0, 1.6)], 3),
        ([(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0)], 1),
        ([(1.0, 1.0), (0.9, 9.0), (0.9, 8.0), (1.0, 0.0), (0.9, 8.5)], 3),
        ([(1.0, f64::NAN), (1.0, f64::INFINITY), (1.0, 5.0), (1.0, f64::NAN), (1.0, 6.0)], 3),
        ([(f64::NAN, 0.0), (1.0, 5.0), (f64::NAN, 0.0), (1.0, 4.0), (1.0, 4.0)], 4),
    ];
    for (scores, best) in cases {
        let folder = tempfile::tempdir().unwrap();
        let options = RunOptions { validate_every: Some(1), ..steps(5) };
        let mut validate = |_: &Net, step: u64, _: &mut InferenceRunner<'_>| {
            let (value, tie) = scores[step as usize - 1];
            Ok(Score { value, tie, all: Vec::new() })
        };
        let store = CheckpointStore::new(folder.path(), 1);
        let mut trainer = trainer(config());
        run_training(&mut trainer, RunState::default(), &store, &options, &mut validate).0.unwrap();
        let state = store.best().unwrap().0.state;
        assert_eq!((state.step, state.best_step), (best, Some(best)), "{scores:?}");
    }
}

#[test]
fn best_scores_of_older_checkpoints_are_read() {
    let state = RunState { best_scores: vec![(3, 0.5, 0.25)], ..RunState::default() };
    let mut json = serde_json::to_value(&state).unwrap();
    assert_eq!(json["best_scores"], serde_json::json!([[3, 0.5, 0.25]]));
    assert_eq!(serde_json::from_value::<RunState>(json.clone()).unwrap(), state);
    json["best_scores"] = serde_json::json!([[3, 0.5]]);
    let older: RunState = serde_json::from_value(json).unwrap();
    assert_eq!(older.best_scores, [(3, 0.5, 1e300)]);
}

/// A disk without space for some paths.
#[derive(Debug)]
struct Full(fn(&str) -> bool);

impl Disk for Full {
    fn write(&self, path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
        match (self.0)(&path.to_string_lossy()) {
            true => Err(std::io::ErrorKind::StorageFull.into()),
            false => std::fs::write(path, bytes),
        }
    }
}

#[test]
fn only_a_failed_final_checkpoint_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let store = |full| CheckpointStore::new(folder.path(), 5).with_disk(Full(full));
    // Checkpoints are due after steps 7, 10 (for its score), 17 and 21; that of step 17 does not fit.
    let mut validate =
        |_: &Net, _: u64, _: &mut InferenceRunner<'_>| Ok(Score { value: 1.0, tie: 0.0, all: Vec::new() });
    let for_a_while = store(|path| path.contains("step-0000017"));
    let mut first = trainer(config());
    let (outcome, events) = run_training(&mut first, RunState::default(), &for_a_while, &steps(21), &mut validate);
    assert_eq!(outcome.unwrap().state.step, 21);
    assert_eq!((events["not_saved"].len(), events["not_saved"][0]["step"].as_u64()), (1, Some(17)));
    assert!(events["not_saved"][0]["reason"].as_str().unwrap().starts_with("cannot access"), "{events:?}");
    assert_eq!(store(|_| false).newest().unwrap().0.state.step, 21);
    let (outcome, _) =
        run_training(&mut trainer(config()), RunState::default(), &store(|_| true), &steps(3), &mut validate);
    assert_eq!(outcome.unwrap_err().to_string(), "cannot write a checkpoint");
    assert_eq!(store(|_| false).newest().unwrap().0.state.step, 21);
}

#[test]
fn replicas_share_a_validation_and_rank_0_writes() {
    let folder = tempfile::tempdir().unwrap();
    type Seen = (usize, Vec<NamedTensor>, RunState, f64, usize);
    let seen: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for replica in ThreadReplica::for_ranks(3) {
            let (seen, folder) = (&seen, folder.path());
            scope.spawn(move || {
                let rank = replica.rank();
                let store = CheckpointStore::new(folder.join(rank.to_string()), 2);
                let mut trainer = trainer(config()).with_replica(replica);
                let (outcome, events) =
                    run_training(&mut trainer, RunState::default(), &store, &steps(20), &mut evaluate);
                let outcome = outcome.unwrap();
                let (score, saved) = (outcome.last_score.unwrap().value, events.get("saved").map_or(0, Vec::len));
                seen.lock().unwrap().push((rank, collect(&trainer.task), outcome.state, score, saved));
            });
        }
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort_by_key(|one| one.0);
    let mut alone = trainer(config());
    let store = CheckpointStore::new(folder.path().join("alone"), 2);
    let (outcome, _) = run_training(&mut alone, RunState::default(), &store, &steps(20), &mut evaluate);
    let expected = outcome.unwrap().last_score.unwrap().value;
    for (rank, weights, state, score, saved) in &seen {
        assert!(*weights == seen[0].1, "replica {rank} has other weights");
        assert_eq!((state.step, state.position, state.best), (20, seen[0].2.position, seen[0].2.best));
        assert!((score / expected - 1.0).abs() < 1e-3, "{score} and {expected}");
        assert_eq!(*saved > 0, *rank == 0);
        assert_eq!(folder.path().join(rank.to_string()).exists(), *rank == 0);
    }
}

/// A gate that lets everything pass, and counts how often unused memory was returned.
struct Cleanups(Arc<AtomicUsize>);

impl MemoryGate for Cleanups {
    fn check(&self, _: Stage) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn cleaned_up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A meter of pools that have reserved 1000 bytes.
struct Reserved;

impl MemoryMeter for Reserved {
    fn current(&self) -> Bytes {
        Bytes(0)
    }
    fn peak(&self) -> Bytes {
        Bytes(1000)
    }
    fn reset_peak(&self) {}
}

#[test]
fn unused_memory_is_returned_at_the_asked_interval() {
    let cleanup = |every, above| Some(Cleanup { every, above: Bytes(above) });
    for (cleanup, expected) in [
        (None, 0),
        (cleanup(1, 0), 7),
        (cleanup(3, 0), 2),
        (cleanup(8, 0), 0),
        (cleanup(1, 999), 7),
        (cleanup(3, 999), 2),
        (cleanup(1, 1000), 0),
    ] {
        let count = Arc::new(AtomicUsize::new(0));
        let mut trainer = trainer(config()).with_memory(Cleanups(Arc::clone(&count)), Reserved);
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::new(folder.path(), 1);
        let limits = Limits { steps: Some(7), ..Limits::default() };
        let options = RunOptions { cleanup, ..RunOptions::new(limits) };
        let mut source = Batches::from(Position::default());
        Run::new(&mut trainer, &mut source, &store, &options).train(&mut evaluate).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), expected, "{cleanup:?}");
    }
}
