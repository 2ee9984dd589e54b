//! Tests of batches of which some samples, or all, have no loss, and of runs that take no step.

use std::cell::Cell;
use std::time::Duration;

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_core::{
    Batch, BatchList, BatchSource, Collective, DeliveredBatch, EndKind, HostBatch, Key, Position, SourceError,
    error_chain,
};
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch, collect};
use plimsoll_train::{
    CheckpointStore, Event, Governor, InferenceRunner, Limits, Outcome, Run, RunOptions, Schedule, Score, StepError,
    ThreadReplica, TrainError, Trainer, TrainerConfig,
};

use crate::exact::{apart, flat};
use crate::net::{Net, batch};

/// Number of frames below which a sample has no loss.
const LEAST: u32 = 10;

thread_local! {
    /// Whether a sample that has a loss does not fit into memory.
    static IS_FULL: Cell<bool> = const { Cell::new(false) };
}

/// A model that has no loss for short samples, as CTC.
#[derive(Module, Debug)]
struct Picky {
    net: Net,
}

impl Task for Picky {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn weight(&self, batch: &HostBatch) -> f64 {
        batch.frame_lengths.iter().filter(|&&n| n >= LEAST).map(|&n| f64::from(n)).sum()
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let (mut batch, mut left_out) = (batch.clone(), Vec::new());
        for (index, frames) in batch.frame_lengths.iter_mut().enumerate().filter(|(_, frames)| **frames < LEAST) {
            *frames = 0;
            left_out.push(index);
        }
        assert!(!IS_FULL.get() || left_out.len() == batch.frame_lengths.len(), "out of memory");
        StepLoss { left_out, ..StepLoss::new(self.net.off(&batch, pass)) }
    }
}

fn trainer(micro_batch: usize) -> Trainer<Picky> {
    let config = TrainerConfig::new(Schedule::constant(1e-3), Key::new(1));
    Trainer::new(Picky { net: Net::new(8, &Device::flex().autodiff()) }, config, Governor::new(micro_batch))
}

/// Makes a batch with samples of the given numbers, which have no loss, and of others, which have one.
fn mixed(short: std::ops::Range<u64>, long: std::ops::Range<u64>) -> HostBatch {
    let mut whole = batch(short.clone().chain(long), 10);
    let short: Vec<String> = short.map(|index| format!("u{index}")).collect();
    for index in 0..whole.len() {
        if short.contains(&whole.names[index]) {
            whole.frame_lengths[index] = whole.frame_lengths[index] % 4 + 1;
        }
    }
    whole
}

#[test]
fn a_batch_without_a_loss_is_no_step_and_names_its_samples() {
    for micro_batch in [1, 3, 8] {
        let mut trainer = trainer(micro_batch);
        let before = collect(&trainer.task);
        let error = trainer.step(&mixed(0..5, 5..5)).unwrap_err();
        let StepError::Nothing { step: 1, names } = &error else { panic!("{error}") };
        assert_eq!(names.len(), 5);
        assert!(error.to_string().contains("`u"), "{error}");
        assert!(collect(&trainer.task) == before && trainer.optimizer.steps() == 0);
    }
}

#[test]
fn a_batch_without_a_loss_is_no_step_on_any_replica() {
    let names: Vec<Vec<String>> = std::thread::scope(|scope| {
        let work = |replica: ThreadReplica| {
            scope.spawn(move || {
                let share = mixed(0..5, 5..5).shard(replica.rank(), replica.ranks());
                match trainer(2).with_replica(replica).step(&share) {
                    Err(StepError::Nothing { names, .. }) => names,
                    other => panic!("{other:?}"),
                }
            })
        };
        let threads: Vec<_> = ThreadReplica::for_ranks(2).into_iter().map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(names[0] == names[1] && names[0].len() == 5, "{names:?}");
}

#[test]
fn samples_without_a_loss_change_no_gradient_of_the_others() {
    let expected = {
        let mut trainer = trainer(8);
        let gradients = trainer.gradient(&mixed(0..0, 5..9), None).unwrap();
        flat(&trainer.task.net, &gradients)
    };
    for micro_batch in [1, 2, 8] {
        let mut trainer = trainer(micro_batch);
        let whole = mixed(0..5, 5..9);
        let gradients = trainer.gradient(&whole, None).unwrap();
        assert!(apart(&flat(&trainer.task.net, &gradients), &expected) < 1e-5, "{micro_batch}");
        let report = trainer.step(&whole).unwrap();
        assert!(report.loss.is_finite() && report.left_out.len() == 5, "{report:?}");
    }
}

#[test]
fn a_batch_whose_only_loss_does_not_fit_is_not_nan() {
    IS_FULL.set(true);
    for micro_batch in [1, 8] {
        let error = trainer(micro_batch).step(&mixed(0..3, 5..6)).unwrap_err();
        let StepError::NothingFits { names, .. } = &error else { panic!("{error}") };
        assert_eq!(*names, ["u5"]);
    }
    IS_FULL.set(false);
}

/// Trains on `batches`, and returns the result with the names of the events.
fn run(batches: Vec<HostBatch>, limits: Limits) -> (Result<Outcome, TrainError>, Vec<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(folder.path(), 1);
    let mut source = BatchList::new(batches, Position::default());
    let mut events = Vec::new();
    let mut watch = |event: &Event| events.push(event.clone());
    let mut validate =
        |_: &Picky, _: u64, _: &mut InferenceRunner<'_>| Ok(Score { value: 1.0, tie: 0.0, all: Vec::new() });
    let options = RunOptions::new(limits);
    let mut trainer = trainer(8);
    let outcome = Run::new(&mut trainer, &mut source, &store, &options).with_observer(&mut watch).train(&mut validate);
    (outcome, events)
}

#[test]
fn batches_without_a_loss_are_reported_and_are_no_failures() {
    let epochs = |count| Limits { epochs: Some(count), ..Limits::default() };
    let empty = || mixed(0..4, 4..4);
    // More of them in a row than failures that a run survives.
    let batches = std::iter::repeat_with(empty).take(20).chain([mixed(0..4, 4..8)]).collect();
    let (outcome, events) = run(batches, epochs(1));
    let state = outcome.unwrap().state;
    assert_eq!((state.step, state.failures, state.position.epoch), (1, 0, 1));
    let skipped = events.iter().filter(|event| matches!(event, Event::Skipped { .. })).count();
    let named = events.iter().filter(|event| matches!(event, Event::LeftOut { samples } if samples.len() == 4)).count();
    assert_eq!((skipped, named), (20, 21));
}

#[test]
fn a_run_without_a_step_is_not_complete() {
    let broken = || {
        let mut broken = mixed(0..0, 0..4);
        broken.features[0] = f32::NAN;
        broken
    };
    let empty = || mixed(0..4, 4..4);
    let epochs = Limits { epochs: Some(1), ..Limits::default() };
    // Without a limit of epochs it would go on for ever.
    let steps = Limits { steps: Some(3), ..Limits::default() };
    for (batches, limits, reason) in [
        (vec![broken(), broken(), broken()], epochs, "is NaN"),
        (vec![empty(), broken()], epochs, "is NaN"),
        (vec![broken(), empty()], epochs, "has a loss"),
        (vec![empty(), empty()], epochs, "has a loss"),
        (vec![empty(), empty()], steps, "has a loss"),
    ] {
        let (outcome, events) = run(batches, limits);
        let error = error_chain(&outcome.unwrap_err());
        assert!(error.starts_with("the run took no step") && error.contains(reason), "{error}");
        let Some(Event::Ended { step: 0, end: EndKind::Failed, reason, .. }) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!(*reason, error);
    }
}

/// A source that delivers empty batches, because no sample could be read.
struct Unreadable;

impl BatchSource for Unreadable {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        let (batch, position) = (mixed(0..0, 0..1).select(&[]), Position::default());
        Some(Ok(DeliveredBatch { batch, position, skipped: Vec::new(), waited: Duration::ZERO }))
    }

    fn batches_in_epoch(&self) -> u64 {
        4
    }
}

#[test]
fn a_run_whose_samples_cannot_be_read_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (store, options) = (CheckpointStore::new(folder.path(), 1), RunOptions::new(Limits::default()));
    let mut validate =
        |_: &Picky, _: u64, _: &mut InferenceRunner<'_>| Ok(Score { value: 1.0, tie: 0.0, all: Vec::new() });
    let error = Run::new(&mut trainer(8), &mut Unreadable, &store, &options).train(&mut validate).unwrap_err();
    assert_eq!(error.to_string(), "the run took no step in its last 10 batches: all were skipped");
}
