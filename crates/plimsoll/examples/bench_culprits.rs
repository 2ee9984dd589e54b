//! Who has the time of steps on a device: `cargo run -p plimsoll --features wgpu --example bench_culprits`.
//!
//! Four of five runs of a small model are made slow, each in another way: by many small operations, by reads, by large copies to the
//! device, and by shapes that are new in each step. For each the example prints what the cause took by a clock of its own,
//! and the shares of all owners of time, the largest first. It fails if an owner is not the one that it expects, has less
//! than 80 % of what the cause took, or more than 5 % of the time is unknown; new shapes
//! have no clock of their own. Of copies it expects nothing: what the device
//! copies in its queue looks like computing to the host. On the CPU there is no queue, and the example does nothing.

#[path = "bench_storm/device.rs"]
mod device;
#[path = "../../train/tests/storm/net.rs"]
mod net;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{BatchList, HostBatch, Key, Position, StepEvent, TimeOwner, TimeShares, timing};
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch};
use plimsoll_train::{
    CheckpointStore, Event, Governor, InferenceRunner, Limits, Run, RunOptions, Schedule, Score, Trainer, TrainerConfig,
};

use device::device;
use net::{Net, batch};

/// Steps of a run.
const STEPS: u64 = 24;
/// Operations of a step that are too small for the device.
const OPERATIONS: usize = 1_000;
/// Reads of a step.
const READS: usize = 1_000;
/// Numbers that a step copies to the device.
const COPIED: usize = 1 << 24;

/// What makes a run slow.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Culprit {
    Nothing,
    Operations,
    Reads,
    Copies,
    Shapes,
}

impl Culprit {
    /// Returns the owner that should have its time.
    fn owner(self) -> Option<TimeOwner> {
        match self {
            Self::Operations => Some(TimeOwner::Submit),
            Self::Reads => Some(TimeOwner::Read),
            Self::Shapes => Some(TimeOwner::Compile),
            Self::Nothing | Self::Copies => None,
        }
    }
}

thread_local! {
    static CULPRIT: Cell<Culprit> = const { Cell::new(Culprit::Nothing) };
    /// Seconds that the culprit has taken.
    static TAKEN: Cell<f64> = const { Cell::new(0.0) };
}

/// Runs `work` if `culprit` makes this run slow, and measures what it takes.
fn slow(culprit: Culprit, work: impl FnOnce()) {
    if CULPRIT.get() == culprit {
        let start = Instant::now();
        work();
        TAKEN.set(TAKEN.get() + start.elapsed().as_secs_f64());
    }
}

#[derive(Module, Debug)]
struct Slow {
    net: Net,
}

impl Task for Slow {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        slow(Culprit::Copies, || {
            let data = TensorData::new(vec![1f32; COPIED], [COPIED]);
            drop(Tensor::<1>::from_data(data, device));
        });
        TensorBatch::send(batch, device)
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let device = batch.features.device();
        slow(Culprit::Operations, || {
            // Products are not fused with each other.
            let one = Tensor::<2>::ones([1, 1], &device);
            drop((0..OPERATIONS).fold(one.clone(), |x, _| x.matmul(one.clone())));
        });
        slow(Culprit::Reads, || {
            for index in 0..READS {
                let value = Tensor::<1>::full([1], index as f32, &device);
                timing::measure(TimeOwner::Read, || drop(value.into_data()));
            }
        });
        StepLoss::new(self.net.off(batch, pass))
    }
}

/// Trains for [`STEPS`] steps. Returns the times of all steps but the first two, which meet the first kernels, and their
/// wall time in seconds.
fn train(culprit: Culprit, device: &Device) -> Result<(TimeShares, f64), Box<dyn std::error::Error>> {
    CULPRIT.set(culprit);
    let folder = tempfile::tempdir()?;
    let store = CheckpointStore::new(folder.path(), 1);
    let frames = |step: u64| if culprit == Culprit::Shapes { 10 + 24 * step } else { 10 };
    let batches = (0..STEPS).map(|step| batch(4 * step..4 * step + 4, frames(step))).collect();
    let mut source = BatchList::new(batches, Position::default());
    let (mut times, mut steps, mut start) = (TimeShares::default(), 0, Instant::now());
    let mut watch = |event: &Event| {
        let Event::Step(StepEvent { times: new, .. }) = event else { return };
        steps += 1;
        match steps {
            2 => {
                TAKEN.set(0.0);
                start = Instant::now();
            }
            3.. => times.add_all(new),
            _ => {}
        }
    };
    let mut validate =
        |_: &Slow, _: u64, _: &mut InferenceRunner<'_>| Ok(Score { value: 1.0, tie: 0.0, all: Vec::new() });
    let limits = Limits { steps: Some(STEPS), ..Limits::default() };
    let options = RunOptions { validate_every: Some(10 * STEPS), save_every: 10 * STEPS, ..RunOptions::new(limits) };
    let config = TrainerConfig { async_errors: true, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
    let mut trainer = Trainer::new(Slow { net: Net::new(64, &device.clone().autodiff()) }, config, Governor::new(4));
    Run::new(&mut trainer, &mut source, &store, &options).with_observer(&mut watch).train(&mut validate)?;
    Ok((times, start.elapsed().as_secs_f64()))
}

fn main() -> ExitCode {
    if !cfg!(any(feature = "cuda", feature = "wgpu")) {
        println!("there is no device with a queue: build with --features plimsoll/wgpu or plimsoll/cuda");
        return ExitCode::SUCCESS;
    }
    let device = device();
    for culprit in [Culprit::Nothing, Culprit::Operations, Culprit::Reads, Culprit::Copies, Culprit::Shapes] {
        let (times, wall) = match train(culprit, &device) {
            Ok(found) => found,
            Err(error) => {
                eprintln!("{culprit:?}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let shares: Vec<String> = times
            .ranked()
            .into_iter()
            .map(|(owner, _)| format!("{owner} {:.1} %", 100.0 * times.share(owner)))
            .collect();
        let taken = TAKEN.get();
        println!("{culprit:?}: {wall:.2} s, {taken:.2} s of it by its own clock; {}", shares.join(", "));
        let is_named =
            |owner| times.ranked().first().is_some_and(|(first, _)| *first == owner) && times.get(owner) >= 0.8 * taken;
        let is_known = times.share(TimeOwner::Unknown) <= 0.05;
        if !is_known || culprit.owner().is_some_and(|owner| !is_named(owner)) {
            eprintln!("{culprit:?} has another owner, or none");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
