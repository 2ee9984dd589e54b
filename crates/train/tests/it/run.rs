//! The loop: what it does between steps, alone and with others.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_core::{Batch, BatchSource, Collective, DeliveredBatch, HostBatch, Key, Measure, Position, SourceError};
use plimsoll_tape::{NamedTensor, Pass, TensorBatch, collect};
use plimsoll_train::{
    Careful, CheckpointStore, Disk, Ending, Event, Governor, Limits, LionConfig, OptimizerConfig, Outcome,
    PlateauConfig, Run, RunOptions, RunState, Schedule, Score, StateForm, Threads, TrainError, Trainer, TrainerConfig,
};

use crate::net::{Net, batch};

/// Ten batches of eight in an epoch, of which a replica has its part.
struct Waves {
    position: Position,
    rank: usize,
    ranks: usize,
}

impl Waves {
    fn from(position: Position) -> Self {
        Self { position, rank: 0, ranks: 1 }
    }
}

impl BatchSource for Waves {
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

/// How far `net` is off, over utterances that each replica has a part of.
fn judged(net: &Net, _: u64, careful: &mut Careful<'_>) -> Result<Score, String> {
    let others = careful.others();
    let batch = batch(900_000..900_016, 20).shard(others.rank(), others.ranks());
    let net = net.valid();
    let off = |piece: &HostBatch| {
        let off = net.off(&TensorBatch::send(piece, &Device::flex()), &Pass::plain());
        f64::from(off.into_scalar::<f32>())
    };
    let own: f64 = careful.over(&batch, off).map_err(|error| error.to_string())?.iter().sum();
    let mut found = [own, batch.frame_lengths.iter().map(|&n| f64::from(n)).sum()];
    others.sum(&mut found).map_err(|error| error.to_string())?;
    let value = found[0] / found[1];
    Ok(Score { value, all: vec![Measure::number("off", "how far it is off", value)] })
}

fn steps(count: u64) -> RunOptions {
    let limits = Limits { steps: Some(count), ..Limits::default() };
    RunOptions { save_every: 7, ..RunOptions::new(limits) }
}

/// The same, validated where a stop does not fall, with a rate that depends on what validations found.
fn often(count: u64) -> RunOptions {
    let plateau = Some(PlateauConfig { patience: 1, factor: 0.7, least: 0.01 });
    RunOptions { validate_every: Some(5), plateau, ..steps(count) }
}

/// What a run tells, by the name of the event.
fn sailed(
    trainer: &mut Trainer<Net>,
    state: RunState,
    store: &CheckpointStore,
    options: &RunOptions,
    validate: &mut dyn FnMut(&Net, u64, &mut Careful<'_>) -> Result<Score, String>,
) -> (Result<Outcome, TrainError>, BTreeMap<String, Vec<serde_json::Value>>) {
    let mut told: BTreeMap<String, Vec<serde_json::Value>> = BTreeMap::new();
    let mut watch = |event: &Event| {
        let event = serde_json::to_value(event).unwrap();
        told.entry(event["event"].as_str().unwrap().into()).or_default().push(event);
    };
    let mut source =
        Waves { rank: trainer.replica().rank(), ranks: trainer.replica().ranks(), ..Waves::from(state.position) };
    let run = Run::new(trainer, &mut source, store, options).with_state(state).with_observer(&mut watch);
    let outcome = run.train(validate);
    (outcome, told)
}

#[test]
fn a_device_that_tells_late_and_gets_batches_ahead_trains_to_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let sail = |name: &str, tells_late: bool| {
        let store = CheckpointStore::new(folder.path().join(name), 2);
        let mut trainer = trainer(TrainerConfig { tells_late, ..config() });
        let (outcome, told) = sailed(&mut trainer, RunState::default(), &store, &often(25), &mut judged);
        (collect(&trainer.task), outcome.unwrap().state.position, told["step"].len())
    };
    let (soon, late) = (sail("soon", false), sail("late", true));
    assert!(soon.0 == late.0);
    // What was asked for ahead and never stepped on is not behind it.
    assert_eq!((soon.1, soon.2), (late.1, late.2));
}

#[test]
fn going_on_equals_never_having_stopped_in_every_form() {
    let lion = OptimizerConfig::from(LionConfig::default());
    let forms = [StateForm::Full, StateForm::Eight, StateForm::Host].map(|state| TrainerConfig { state, ..config() });
    for config in forms.into_iter().chain([TrainerConfig { optimizer: lion, ..config() }]) {
        let folder = tempfile::tempdir().unwrap();
        let store = |name: &str| CheckpointStore::new(folder.path().join(name), 2);
        let mut whole = trainer(config);
        sailed(&mut whole, RunState::default(), &store("whole"), &often(25), &mut judged).0.unwrap();
        let mut first = trainer(config);
        sailed(&mut first, RunState::default(), &store("cut"), &often(13), &mut judged).0.unwrap();
        let found = store("cut").newest().unwrap().0;
        let mut second = trainer(config);
        second.task = plimsoll_tape::apply(second.task.clone(), found.weights).unwrap();
        second.optimizer.restore(found.state.step, found.optimizer, &second.task).unwrap();
        let mean = plimsoll_tape::apply(second.task.clone(), found.ema.unwrap()).unwrap();
        second.ema.as_mut().unwrap().restore(mean, found.state.ema_steps);
        sailed(&mut second, found.state, &store("cut"), &often(25), &mut judged).0.unwrap();
        assert!(collect(&whole.task) == collect(&second.task), "{:?}", config.state);
        assert!(collect(whole.judged()) == collect(second.judged()), "{:?}: the mean", config.state);
        assert!(collect(whole.judged()) != collect(&whole.task));
    }
}

#[test]
fn a_run_that_gets_no_better_lowers_its_rate_and_then_stops() {
    let folder = tempfile::tempdir().unwrap();
    let options = RunOptions {
        limits: Limits { stale: Some(6), ..Limits::default() },
        validate_every: Some(1),
        plateau: Some(PlateauConfig { patience: 2, factor: 0.5, least: 0.2 }),
        ..steps(0)
    };
    // Better three times, and then never again.
    let mut validate = |_: &Net, step: u64, _: &mut Careful<'_>| {
        Ok(Score { value: if step <= 3 { 1.0 / step as f64 } else { 1.0 }, all: Vec::new() })
    };
    let mut trainer = trainer(config());
    let store = CheckpointStore::new(folder.path(), 1);
    let (outcome, told) = sailed(&mut trainer, RunState::default(), &store, &options, &mut validate);
    let outcome = outcome.unwrap();
    assert_eq!((outcome.ending, outcome.state.step, outcome.state.best_step), (Ending::Stale, 9, Some(3)));
    let factors: Vec<f64> = told["rate_lowered"].iter().map(|event| event["factor"].as_f64().unwrap()).collect();
    assert_eq!(factors, [0.5, 0.25, 0.2]);
    let rates: Vec<f64> = told["step"].iter().map(|event| event["rate"].as_f64().unwrap()).collect();
    assert_eq!((rates[4], rates[5], rates[8]), (3e-3, 1.5e-3, 0.75e-3));
    assert_eq!(store.best().unwrap().state.step, 3);
}

/// A disk that has no room for the checkpoints of some steps.
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
fn a_checkpoint_that_cannot_be_written_ends_no_run_but_its_last_does() {
    let folder = tempfile::tempdir().unwrap();
    let store = |full| CheckpointStore::new(folder.path(), 5).on(Full(full));
    // Saved after 7 steps, 10 for the score, 17 and 21; the one of 17 does not fit.
    let mut validate = |_: &Net, _: u64, _: &mut Careful<'_>| Ok(Score { value: 1.0, all: Vec::new() });
    let for_a_while = store(|path| path.contains("step-0000017"));
    let mut first = trainer(config());
    let (outcome, told) = sailed(&mut first, RunState::default(), &for_a_while, &steps(21), &mut validate);
    assert_eq!(outcome.unwrap().state.step, 21);
    assert_eq!((told["not_saved"].len(), told["not_saved"][0]["step"].as_u64()), (1, Some(17)));
    assert!(told["not_saved"][0]["reason"].as_str().unwrap().starts_with("cannot access"), "{told:?}");
    assert_eq!(store(|_| false).newest().unwrap().0.state.step, 21);
    let (outcome, _) = sailed(&mut trainer(config()), RunState::default(), &store(|_| true), &steps(3), &mut validate);
    assert_eq!(outcome.unwrap_err().to_string(), "cannot write a checkpoint");
    assert_eq!(store(|_| false).newest().unwrap().0.state.step, 21);
}

#[test]
fn replicas_share_a_validation_and_the_first_writes() {
    let folder = tempfile::tempdir().unwrap();
    type Seen = (usize, Vec<NamedTensor>, RunState, f64, usize);
    let seen: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for way in Threads::of(3) {
            let (seen, folder) = (&seen, folder.path());
            scope.spawn(move || {
                let rank = way.rank();
                let store = CheckpointStore::new(folder.join(rank.to_string()), 2);
                let mut trainer = trainer(config()).together(way);
                let (outcome, told) = sailed(&mut trainer, RunState::default(), &store, &steps(20), &mut judged);
                let outcome = outcome.unwrap();
                let (score, saved) = (outcome.last_score.unwrap().value, told.get("saved").map_or(0, Vec::len));
                seen.lock().unwrap().push((rank, collect(&trainer.task), outcome.state, score, saved));
            });
        }
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort_by_key(|one| one.0);
    let mut alone = trainer(config());
    let store = CheckpointStore::new(folder.path().join("alone"), 2);
    let (outcome, _) = sailed(&mut alone, RunState::default(), &store, &steps(20), &mut judged);
    let expected = outcome.unwrap().last_score.unwrap().value;
    for (rank, weights, state, score, saved) in &seen {
        assert!(*weights == seen[0].1, "replica {rank} has other weights");
        assert_eq!((state.step, state.position, state.best), (20, seen[0].2.position, seen[0].2.best));
        assert!((score / expected - 1.0).abs() < 1e-3, "{score} and {expected}");
        assert_eq!(*saved > 0, *rank == 0);
        assert_eq!(folder.path().join(rank.to_string()).exists(), *rank == 0);
    }
}
