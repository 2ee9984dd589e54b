//! A run on a device that runs out of memory: `cargo run -p plimsoll --features wgpu --example bench_storm`.
//!
//! It repeats the storm test of `plimsoll-train`: 300 steps with checkpoints, validations and injected failures. In
//! addition every tenth batch has a tensor that does not fit into device memory as a whole. The device reports that
//! allocation as a buffer that was never written. On the CPU there is no such failure, and the example does nothing.
//!
//! `bench_storm budget` repeats it within a budget of 60 % of what the memory pools take by themselves, with a memory
//! plan for that budget: their reserved memory must not exceed the budget by more than one page.

#[path = "bench_storm/budget.rs"]
mod budget;
#[path = "bench_storm/device.rs"]
mod device;
#[path = "../../train/tests/storm/net.rs"]
mod net;
#[path = "../../train/tests/storm/training.rs"]
mod training;

use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use plimsoll_core::{BatchShape, Bytes, Choice, CountingAllocator, Frames, Stage};
use plimsoll_tape::{NamedTensor, collect};
use plimsoll_train::planned::PlannedLimit;
use plimsoll_train::{Event, Governor};

use device::device;
use net::FEATURES;
use training::{BATCH, Faults, STEPS, StormSetup, StormTable, replayed, run_training};

/// Interval of batches with long utterances: every n-th batch has them.
const EVERY: u64 = 10;
/// Number of injected failures, besides the failures of the device.
const INJECTED: usize = 100;

/// Allocator that is not used: only the device's memory counts here.
static NOTHING: CountingAllocator = CountingAllocator::new();

/// Finds the smallest tensor that does not fit into device memory, in steps of 25 %; `None` if all tensors below 64 GiB
/// fit.
fn too_large(device: &Device) -> Option<Bytes> {
    let holds = |bytes: u64| {
        let sum = Tensor::<1>::ones([(bytes / 4) as usize], device).narrow(0, 0, 1).try_into_scalar::<f32>();
        let _ = device.flush();
        device.memory_cleanup();
        sum.is_ok()
    };
    let mut bytes = 64 << 20;
    while bytes < 64 << 30 {
        if !holds(bytes) {
            return Some(Bytes(bytes));
        }
        bytes += bytes / 4;
    }
    None
}

fn main() -> ExitCode {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !plimsoll_train::is_reported_failure(panic) {
            print(panic);
        }
    }));
    if !cfg!(any(feature = "cuda", feature = "wgpu")) {
        // The system overcommits CPU memory and kills the process instead of failing an allocation.
        println!("there is no device whose memory runs out: build with --features plimsoll/wgpu or plimsoll/cuda");
        return ExitCode::SUCCESS;
    }
    let device = device();
    if std::env::args().nth(1).as_deref() == Some("budget") {
        return budget::storm_within_a_budget(&device);
    }
    let Some(limit) = too_large(&device) else {
        println!("the device could hold every tensor that was tried");
        return ExitCode::SUCCESS;
    };
    let width = 512;
    // The hidden values of a whole batch of the shortest long utterances exceed the limit by a fifth.
    let frames = limit.0 * 6 / 5 / (BATCH * 2 * width as u64 * 4);
    println!(
        "a tensor of {limit} does not fit; long utterances have {frames} to {} frames of {FEATURES}",
        frames * 10 / 3
    );
    let (long, few) = (Some((EVERY, frames)), 8);
    let (frames, validate_every) = (few, 60);
    let setup = StormSetup {
        device,
        async_errors: true,
        lanes: 1,
        width,
        frames,
        long,
        validate_every,
        bursts: (3, 2),
        validation_batch: usize::MAX,
    };
    // The run without failures computes few long utterances at once.
    let short = BatchShape { utterances: BATCH as u32, frames: Frames(few as u32 * 2), tokens: 1 };
    let all = BATCH as usize;
    let longest = BatchShape { frames: Frames(u32::MAX), ..short };
    let planned = |shape, limit| PlannedLimit { shape, limit, choice: Choice::default() };
    let cautious = Governor::from_plan(vec![planned(short, all), planned(longest, 4)], all);
    let calm = timed("calm", || run_training(&setup, &NOTHING, Faults::none(), cautious, &mut |_| {}));
    let faults = Faults::random(&setup, &NOTHING, INJECTED);
    let storm = timed("storm", || run_training(&setup, &NOTHING, faults.clone(), Governor::new(all), &mut shown));
    for (name, run) in [("calm", &calm), ("storm", &storm)] {
        assert_eq!(run.steps(), STEPS, "{name}");
        run.each_sample_was_used_once(&setup, name);
    }
    for stage in [Stage::Forward, Stage::Backward, Stage::Accumulate, Stage::Norm, Stage::Validation, Stage::Checkpoint]
    {
        println!("{} failures in the {stage}", storm.failures_in(stage));
    }
    storm.no_failure_costs_more_than_a_micro_batch();
    storm.limits_grew_back();
    let injected = INJECTED - faults.left.load(Relaxed);
    println!("{} failures, {injected} of them injected", storm.failures());
    println!("{}", StormTable { calm: &calm, storm: &storm, budget: None, injected });
    let again = collect(&timed("replay", || replayed(&setup, &NOTHING, &storm)));
    let (is_same, apart) = (again == storm.weights, (storm.validation / calm.validation - 1.0).abs());
    let word = if is_same { "the same" } else { "OTHER" };
    println!(
        "the ledger, replayed without a failure, gives {word} weights ({:e} apart)",
        distance(&again, &storm.weights)
    );
    println!("validation differs by {:.3} % from the calm run", apart * 100.0);
    if is_same && apart < 0.01 && storm.failures() > injected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Computes the norm of the difference of two sets of weights, relative to the norm of `other`.
fn distance(one: &[NamedTensor], other: &[NamedTensor]) -> f64 {
    let values = |all: &[NamedTensor]| -> Vec<f64> {
        all.iter().flat_map(|tensor| tensor.values.iter().map(|value| f64::from(*value))).collect()
    };
    let (one, other) = (values(one), values(other));
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    norm(&mut one.iter().zip(&other).map(|(a, b)| a - b)) / norm(&mut other.iter().copied())
}

fn timed<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    println!("{name}: {:.0} s", start.elapsed().as_secs_f64());
    done
}

/// Prints the out-of-memory failures of the device; leaves out the failures that the test injected.
fn shown(event: &Event) {
    if let Event::OutOfMemory { step, failure, limit } = event
        && !failure.reason.contains("injected by the test")
    {
        let reason = failure.reason.split_whitespace().take(24).collect::<Vec<_>>().join(" ");
        println!("step {step}: out of memory in the {}, now {limit} at once: {reason}", failure.stage);
    }
}
