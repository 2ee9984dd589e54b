//! Tests that a run that fails at any point can be resumed as if it had not failed.

use std::path::Path;
use std::time::Duration;

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_core::{
    Batch, BatchSource, Collective, DeliveredBatch, EndKind, HostBatch, Key, Position, SourceError, Stage, error_chain,
};
use plimsoll_tape::{NamedTensor, Pass, TensorBatch, apply, collect};
use plimsoll_train::{
    CheckpointError, CheckpointStore, Disk, Event, Governor, InferenceRunner, Limits, Outcome, PlateauConfig, Run,
    RunOptions, RunState, Schedule, Score, ThreadReplica, TrainError, Trainer, TrainerConfig, Unfit,
};

use crate::gates::{Failing, FailingGate, NoMeter};
use crate::net::{Net, batch};

/// Number of steps in a run.
const STEPS: u64 = 12;

/// Cause of the end of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    Gate(Failing, Stage),
    /// An utterance is not a number, and the next time it is read it is.
    NotFinite,
    /// The batches cannot be loaded.
    Source,
    /// The validation reports an error.
    Validation,
}

/// Source of ten batches per epoch with four samples each; it fails at one batch.
struct Batches {
    position: Position,
    delivered: u64,
    fails: Option<(Cause, u64)>,
}

impl BatchSource for Batches {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        let Position { epoch, batch: index, .. } = self.position;
        let mut whole = batch((epoch * 10 + index) * 4..(epoch * 10 + index + 1) * 4, 6);
        self.delivered += 1;
        match self.fails {
            Some((Cause::NotFinite, at)) if at == self.delivered => whole.features[0] = f32::NAN,
            Some((Cause::Source, at)) if at == self.delivered => return Some(Err(SourceError("no disk".into()))),
            _ => {}
        }
        let done = index + 1;
        self.position = Position { epoch: epoch + done / 10, batch: done % 10, ..Position::default() };
        Some(Ok(DeliveredBatch { batch: whole, position: self.position, skipped: Vec::new(), waited: Duration::ZERO }))
    }

    fn batches_in_epoch(&self) -> u64 {
        10
    }
}

/// A disk that does not wait until a file is stored.
#[derive(Debug)]
struct FastDisk;

impl Disk for FastDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        std::fs::write(path, bytes)
    }
}

fn config(async_errors: bool, unfit: Unfit) -> TrainerConfig {
    let config = TrainerConfig::new(Schedule::constant(3e-3), Key::new(1));
    TrainerConfig { async_errors, unfit, ema_decay: Some(0.9), ..config }
}

/// Events of a run, reduced to what the tests compare.
#[derive(Default)]
struct Seen {
    /// Step and position after it.
    steps: Vec<(u64, Position)>,
    validations: Vec<u64>,
    ends: Vec<EndKind>,
}

/// Trains from the newest checkpoint of `store`, or from the start. With a `cause` the run fails at step `at`.
fn leg(
    store: &CheckpointStore,
    async_errors: bool,
    unfit: Unfit,
    fails: Option<(Cause, u64)>,
    seen: &mut Seen,
) -> (Result<Outcome, TrainError>, Vec<Vec<NamedTensor>>) {
    let net = Net::new(8, &Device::flex().autodiff());
    let mut trainer = Trainer::new(net, config(async_errors, unfit), Governor::new(2));
    if let Some((Cause::Gate(how, stage), at)) = fails {
        trainer = trainer.with_memory(FailingGate::new(how, stage, at as usize), NoMeter);
    }
    let state = match store.newest() {
        Ok((found, _)) => {
            trainer.task = apply(trainer.task.clone(), found.weights).unwrap();
            trainer.optimizer.restore(found.state.step, found.optimizer, &trainer.task).unwrap();
            let mean = apply(trainer.task.clone(), found.ema.unwrap()).unwrap();
            trainer.ema.as_mut().unwrap().restore(mean, found.state.ema_steps);
            // Without the limits of the governor: they change the split of a batch, and so the rounding.
            found.state
        }
        Err(CheckpointError::None { .. }) => RunState::default(),
        Err(error) => panic!("{error}"),
    };
    let plateau = Some(PlateauConfig { patience: 1, factor: 0.7, least: 0.01 });
    let limits = Limits { steps: Some(STEPS), ..Limits::default() };
    let options =
        RunOptions { save_every: 4, validate_every: Some(5), failures_max: 1, plateau, ..RunOptions::new(limits) };
    let mut source = Batches { position: state.position, delivered: 0, fails };
    let mut validate = |net: &Net, step: u64, runner: &mut InferenceRunner<'_>| {
        if matches!(fails, Some((Cause::Validation, at)) if step >= at) {
            return Err("the validation fails, says the test".into());
        }
        let net = net.valid();
        let off =
            |part: &HostBatch| net.off(&TensorBatch::send(part, &Device::flex()), &Pass::plain()).into_scalar::<f32>();
        let parts = runner.run(&batch(900..908, 6), off).map_err(|error| error.to_string())?;
        Ok(Score { value: parts.into_iter().map(f64::from).sum(), tie: 0.0, all: Vec::new() })
    };
    let mut watch = |event: &Event| match event {
        Event::Step(step) => seen.steps.push((step.step, step.position)),
        Event::Validated { step, .. } => seen.validations.push(*step),
        Event::Ended { end, .. } => seen.ends.push(*end),
        _ => {}
    };
    let run = Run::new(&mut trainer, &mut source, store, &options).with_state(state).with_observer(&mut watch);
    let outcome = run.train(&mut validate);
    let weights = vec![collect(&trainer.task), collect(trainer.evaluation_model())];
    (outcome, weights)
}

#[test]
fn a_run_that_fails_anywhere_resumes_to_the_weights_of_the_undisturbed_run() {
    use Stage::{Accumulate, Backward, Checkpoint, Forward, Norm, Update, Validation};
    let memory = [Forward, Backward, Accumulate, Norm].map(|stage| Cause::Gate(Failing::Memory, stage));
    let device = [Forward, Backward, Accumulate, Norm, Update, Validation, Checkpoint]
        .map(|stage| Cause::Gate(Failing::Device, stage));
    let others = [Cause::NotFinite, Cause::Source, Cause::Validation];
    let store = |folder: &tempfile::TempDir| CheckpointStore::new(folder.path(), 2).with_disk(FastDisk);
    for async_errors in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut calm = Seen::default();
        let (outcome, expected) = leg(&store(&folder), async_errors, Unfit::Stop, None, &mut calm);
        assert_eq!(outcome.unwrap().state.step, STEPS);
        assert_eq!((calm.validations.as_slice(), calm.ends.as_slice()), (&[5, 10, 12][..], &[EndKind::Complete][..]));
        let points = [(1, Unfit::Stop), (2, Unfit::Skip), (5, Unfit::Stop), (9, Unfit::Skip), (10, Unfit::Stop)];
        // Each cause at two of the points, and each point with several causes.
        let at_two = |(index, cause)| [index, index + 2].map(|index: usize| (cause, points[index % points.len()]));
        let all = device.into_iter().chain(others).enumerate().flat_map(at_two);
        // Each retry after a memory failure takes some milliseconds.
        let with_retries = memory.into_iter().zip(points.into_iter().skip(1));
        for (cause, (at, unfit)) in all.chain(with_retries) {
            let folder = tempfile::tempdir().unwrap();
            let mut seen = Seen::default();
            let (outcome, mut found) = leg(&store(&folder), async_errors, unfit, Some((cause, at)), &mut seen);
            // What a checkpoint or the memory after an update lacks does not end a run.
            let goes_on = matches!(cause, Cause::Gate(_, Update | Checkpoint))
                || (matches!(cause, Cause::Gate(_, Validation)) && ![5, 10].contains(&at));
            assert_eq!(outcome.is_ok(), goes_on, "{cause:?} at {at}");
            if let Err(error) = outcome {
                assert_eq!(seen.ends, [EndKind::Failed], "{cause:?} at {at}: {error}");
                let (outcome, resumed) = leg(&store(&folder), async_errors, unfit, None, &mut seen);
                assert_eq!(outcome.unwrap().state.step, STEPS, "{cause:?} at {at}");
                found = resumed;
            }
            assert!(found == expected, "{cause:?} at {at}: other weights");
            assert_eq!(seen.steps, calm.steps, "{cause:?} at {at}: a batch was lost or used twice");
            assert_eq!(seen.validations, calm.validations, "{cause:?} at {at}: a validation was lost");
        }
    }
}

/// Trains the replica of `rank`, of two. With a `cause` it fails at step `at`.
fn replica_leg(replica: ThreadReplica, folder: &Path, fails: Option<(Cause, u64)>) -> Result<Outcome, TrainError> {
    let rank = replica.rank();
    let net = Net::new(8, &Device::flex().autodiff());
    let mut trainer = Trainer::new(net, config(false, Unfit::Skip), Governor::new(2)).with_replica(replica);
    if let Some((Cause::Gate(how, stage), at)) = fails {
        trainer = trainer.with_memory(FailingGate::new(how, stage, at as usize), NoMeter);
    }
    let mut source = Shares(Batches { position: Position::default(), delivered: 0, fails }, rank);
    let options = RunOptions::new(Limits { steps: Some(STEPS), ..Limits::default() });
    let mut validate =
        |_: &Net, _: u64, _: &mut InferenceRunner<'_>| Ok(Score { value: 1.0, tie: 0.0, all: Vec::new() });
    let store = CheckpointStore::new(folder, 2);
    Run::new(&mut trainer, &mut source, &store, &options).train(&mut validate)
}

#[test]
fn a_run_whose_other_replica_fails_keeps_the_position_before_the_batch_and_names_it() {
    let device = |stage| Cause::Gate(Failing::Device, stage);
    let causes = [device(Stage::Forward), device(Stage::Accumulate), device(Stage::Norm), Cause::Source];
    for cause in causes {
        for at in [2, 6] {
            let folder = tempfile::tempdir().unwrap();
            let mut replicas = ThreadReplica::for_ranks(2);
            let (other, own) = (replicas.pop().unwrap(), replicas.pop().unwrap());
            let error = std::thread::scope(|scope| {
                scope.spawn(|| replica_leg(other, folder.path(), Some((cause, at))).unwrap_err());
                replica_leg(own, folder.path(), None).unwrap_err()
            });
            let text = error_chain(&error);
            assert!(text.contains("replica 1 failed"), "{cause:?} at {at}: {text}");
            let reason = if cause == Cause::Source { "no disk" } else { "the device is lost" };
            assert!(text.contains(reason), "{cause:?} at {at}: {text}");
            let state = CheckpointStore::new(folder.path(), 2).newest().unwrap().0.state;
            assert_eq!((state.step, state.position.batch), (at - 1, at - 1), "{cause:?} at {at}");
        }
    }
}

/// Shares of the batches of a source for the replica of a rank, of two.
struct Shares(Batches, usize);

impl BatchSource for Shares {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        let next = self.0.next_batch()?;
        Some(next.map(|next| DeliveredBatch { batch: next.batch.shard(self.1, 2), ..next }))
    }

    fn batches_in_epoch(&self) -> u64 {
        10
    }
}
