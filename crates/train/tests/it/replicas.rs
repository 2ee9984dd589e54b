//! Tests that several replicas train like a single replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use plimsoll_core::{
    Batch, Collective, CollectiveError, Grid, HostBatch, Key, MemoryGate, OutOfMemory, Stage, error_chain,
};
use plimsoll_tape::{NamedTensor, Pass, StepLoss, Task, TensorBatch, collect};
use plimsoll_train::{Governor, Replica, Schedule, StepError, ThreadReplica, Trainer, TrainerConfig};

use crate::exact::{apart, flat, wide};
use crate::gates::NoMeter;
use crate::net::{FEATURES, Net, batch, sample};

fn trainer(build: fn(&Device) -> Net) -> Trainer<Net> {
    let config = TrainerConfig::new(Schedule::constant(3e-3), Key::new(1));
    Trainer::new(build(&Device::flex().autodiff()), config, Governor::new(16))
}

/// Runs `work` on each of `ranks` replicas, and returns the results in the order of the ranks.
fn replicas<R: Send>(ranks: usize, work: impl Fn(ThreadReplica) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            ThreadReplica::for_ranks(ranks).into_iter().map(|replica| scope.spawn(|| work(replica))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn check(build: fn(&Device) -> Net, most: f64) {
    // Uneven shares: of the first batch four replicas get different counts, of the second batch one replica gets none.
    for count in [30, 3] {
        let batch = batch(0..count, 20);
        let mut alone = trainer(build);
        let gradients = alone.gradient(&batch, None).unwrap();
        let expected = flat(&alone.task, &gradients);
        for ranks in [1, 2, 4] {
            let found = replicas(ranks, |replica| {
                let part = batch.shard(replica.rank(), ranks);
                let mut trainer = trainer(build).with_replica(replica);
                let gradients = trainer.gradient(&part, None).unwrap();
                flat(&trainer.task, &gradients)
            });
            assert!(found.iter().all(|one| *one == found[0]), "{ranks} replicas differ");
            let apart = apart(&found[0], &expected);
            assert!(apart <= most, "{count} utterances on {ranks} replicas: {apart:e}");
        }
    }
}

#[test]
fn replicas_compute_the_gradient_of_a_single_replica() {
    check(|device| Net::new(24, device), 1e-5);
}

#[test]
fn replicas_compute_the_gradient_of_a_single_replica_in_64_bits() {
    check(|device| wide(Net::new(24, device)), 1e-10);
}

/// A model whose parameter `side` has a gradient only in batches with a long utterance.
#[derive(Module, Debug)]
struct Branched {
    net: Net,
    side: Param<Tensor<1>>,
}

impl Task for Branched {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn weight(&self, batch: &HostBatch) -> f64 {
        self.net.weight(batch)
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let loss = self.net.off(batch, pass);
        let is_long = batch.frame_lengths.iter().any(|&frames| frames >= LONG);
        StepLoss::new(if is_long { loss + self.side.val().square().sum() * 40.0 } else { loss })
    }
}

/// Number of frames from which an utterance is long.
const LONG: u32 = 100;

/// Trains three steps on `ranks` replicas. Only the batch of the step `long` has a long utterance. Returns the weights of
/// each replica.
fn branched(ranks: usize, long: u64) -> Vec<Vec<NamedTensor>> {
    replicas(ranks, |replica| {
        let device = Device::flex().autodiff();
        let side = Param::from_tensor(Tensor::from_floats([0.5, -2.0, 1.0], &device));
        let config = TrainerConfig::new(Schedule::constant(1e-2), Key::new(1));
        let task = Branched { net: Net::new(8, &device), side };
        let mut trainer = Trainer::new(task, config, Governor::new(16)).with_replica(replica);
        for step in 1..=3 {
            let frames = |index| if step == long && index == 7 { u64::from(LONG) } else { 20 };
            let samples: Vec<_> = (0..8).map(|index| sample(index + step * 8, frames(index))).collect();
            let batch = HostBatch::collate(&samples, FEATURES, &Grid::default()).unwrap();
            trainer.step(&batch.shard(trainer.replica().rank(), ranks)).unwrap();
        }
        collect(&trainer.task)
    })
}

#[test]
fn a_parameter_without_a_gradient_on_any_replica_is_not_updated() {
    let side = |weights: &[NamedTensor]| weights.iter().find(|tensor| tensor.name == "side").unwrap().values.clone();
    for long in 0..=3 {
        let alone = &branched(1, long)[0];
        // AdamW decays each parameter that it updates.
        assert_eq!(side(alone) == [0.5, -2.0, 1.0], long == 0, "long utterance in step {long}");
        for ranks in [2, 4] {
            let together = branched(ranks, long);
            assert!(together.iter().all(|weights| *weights == together[0]), "{ranks} replicas differ");
            let apart = side(alone).iter().zip(side(&together[0])).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-5, "long utterance in step {long}, {ranks} replicas: {apart:e} apart");
            assert_eq!(long == 0, side(&together[0]) == [0.5, -2.0, 1.0], "{ranks} replicas");
        }
    }
}

/// Memory gate that sets a stop flag at its n-th check.
struct StopsAt(AtomicUsize, Arc<AtomicBool>);

impl MemoryGate for StopsAt {
    fn check(&self, _: Stage) -> Result<(), OutOfMemory> {
        self.1.fetch_or(self.0.fetch_sub(1, Relaxed) == 1, Relaxed);
        Ok(())
    }
}

/// Takes two steps on `ranks` replicas; the first replica is asked to stop at its check `at` of the first step, which is then
/// taken again. Returns the weights of each replica, and whether it was stopped.
fn stopped(ranks: usize, at: usize) -> Vec<(Vec<NamedTensor>, bool)> {
    let batch = batch(0..16, 20);
    replicas(ranks, |replica| {
        let stop = Arc::new(AtomicBool::new(false));
        let part = batch.shard(replica.rank(), ranks);
        let gate = StopsAt(AtomicUsize::new(if replica.rank() == 0 { at } else { 0 }), stop.clone());
        let config = TrainerConfig::new(Schedule::constant(3e-3), Key::new(1));
        let net = Net::new(8, &Device::flex().autodiff());
        let trainer = Trainer::new(net, config, Governor::new(2));
        let mut trainer = trainer.with_memory(gate, NoMeter).with_replica(replica);
        let before = collect(&trainer.task);
        let first = trainer.step_unless(&stop, &part, &mut |_| {});
        let was_stopped = matches!(first, Err(StepError::Stopped { step: 1 }));
        if was_stopped {
            assert_eq!(collect(&trainer.task), before, "a stopped step changes nothing");
            stop.store(false, Relaxed);
            trainer.step_unless(&stop, &part, &mut |_| {}).unwrap();
        }
        trainer.step(&part).unwrap();
        (collect(&trainer.task), was_stopped)
    })
}

#[test]
fn a_stop_between_two_micro_batches_changes_nothing_on_any_replica() {
    for ranks in [1, 2] {
        // At a check that never comes.
        let calm = stopped(ranks, usize::MAX);
        assert!(calm.iter().all(|(_, was_stopped)| !was_stopped));
        for at in [1, 2, 3, 4, 6] {
            let found = stopped(ranks, at);
            assert!(found.iter().all(|(_, was_stopped)| *was_stopped), "{ranks} replicas, check {at}");
            for ((weights, _), (expected, _)) in found.iter().zip(&calm) {
                assert_eq!(weights, expected, "{ranks} replicas, check {at}");
            }
        }
    }
}

/// Memory gate that fails at every n-th check, where n is the first field. The second field counts the checks.
struct Every(usize, AtomicUsize);

impl MemoryGate for Every {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        match (self.1.fetch_add(1, Relaxed) + 1).is_multiple_of(self.0) {
            true => Err(OutOfMemory { stage, reason: "injected by the test".into() }),
            false => Ok(()),
        }
    }
}

/// Trains for 40 steps, and returns the weights and the number of failures of each replica; the second replica runs out
/// of memory at times if `fails`.
fn trained(ranks: usize, fails: bool, async_errors: bool) -> Vec<(Vec<NamedTensor>, usize)> {
    replicas(ranks, |replica| {
        let rank = replica.rank();
        let every = if fails && rank == 1 { 7 } else { usize::MAX };
        let config = TrainerConfig { async_errors, ..TrainerConfig::new(Schedule::constant(3e-3), Key::new(1)) };
        let trainer = Trainer::new(Net::new(24, &Device::flex().autodiff()), config, Governor::new(16));
        let mut trainer = trainer.with_replica(replica).with_memory(Every(every, AtomicUsize::new(0)), NoMeter);
        let (mut failures, mut losses) = (0, Vec::new());
        for step in 0..40 {
            let report = trainer.step(&batch(step * 16..step * 16 + 16, 20).shard(rank, ranks)).unwrap();
            failures += report.failures.len();
            losses.push(report.loss);
        }
        assert!(losses[39] < losses[0] / 2.0, "{losses:?}");
        (collect(&trainer.task), failures)
    })
}

#[test]
fn a_failure_on_one_replica_keeps_all_weights_equal() {
    let values = |weights: &[NamedTensor]| -> Vec<f64> {
        weights.iter().flat_map(|one| one.values.iter().map(|&value| f64::from(value))).collect()
    };
    let calm = trained(2, false, false);
    assert!(calm[0].0 == calm[1].0, "the replicas differ");
    for async_errors in [false, true] {
        let storm = trained(2, true, async_errors);
        assert!(storm[0].0 == storm[1].0, "the replicas differ");
        assert!(storm[1].1 > 10 && storm[0].1 == 0, "{} and {} failures", storm[0].1, storm[1].1);
        let apart = apart(&values(&storm[0].0), &values(&calm[0].0));
        assert!(apart < 1e-3, "{apart:e}");
    }
}

/// A replica whose report of a step arrives garbled.
struct Garbled(ThreadReplica);

impl Collective for Garbled {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn ranks(&self) -> usize {
        self.0.ranks()
    }
    fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
        let is_report = self.rank() == 1 && own.starts_with(b"{\"losses\"");
        self.0.gather(if is_report { b"{}".to_vec() } else { own })
    }
}

impl Replica for Garbled {
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        self.0.all_reduce(tensor)
    }
}

#[test]
fn an_unreadable_report_names_the_replica_that_sent_it() {
    let errors = replicas(3, |replica| {
        let rank = replica.rank();
        let mut trainer = trainer(|device| Net::new(24, device)).with_replica(Garbled(replica));
        trainer.step(&batch(0..9, 20).shard(rank, 3)).map_err(|error| error_chain(&error)).err()
    });
    for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != 1) {
        let error = error.as_ref().unwrap();
        assert!(error.contains("replica 1 failed: its report of the step is unreadable"), "replica {rank}: {error}");
    }
}

#[test]
fn a_lost_replica_stops_the_others_with_an_error() {
    let errors = replicas(2, |replica| {
        let rank = replica.rank();
        let mut trainer = trainer(|device| Net::new(24, device)).with_replica(replica);
        let batch = batch(0..8, 20).shard(rank, 2);
        match rank {
            0 => trainer.step(&batch).map(|_| ()).map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    });
    assert_eq!(errors[0], Err("another replica is gone in step 1".into()));
    // A step that fails on one replica fails on all.
    let errors = replicas(2, |replica| {
        let rank = replica.rank();
        let mut trainer = trainer(|device| Net::new(24, device)).with_replica(replica);
        let mut batch = batch(0..8, 20).shard(rank, 2);
        if rank == 1 {
            batch.features[0] = f32::NAN;
        }
        let before = collect(&trainer.task);
        let error = trainer.step(&batch).unwrap_err();
        assert!(collect(&trainer.task) == before);
        matches!(error, StepError::NotFinite { .. })
    });
    assert_eq!(errors, [true, true]);
}
