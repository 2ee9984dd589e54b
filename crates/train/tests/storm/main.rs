//! A run with failures: the memory budget is too small, and a hundred more failures are injected at random.
//!
//! The test is a separate binary because its allocator has a budget, which other tests in the process would use up.

#![cfg(test)]

mod net;
mod training;

use std::sync::atomic::Ordering::Relaxed;

use burn::tensor::Device;
use plimsoll_core::{Bytes, CountingAllocator, MemoryMeter, Stage};
use plimsoll_tape::collect;

use plimsoll_train::Governor;
use training::{BATCH, Faults, STEPS, StormSetup, StormTable, replayed, run_training};

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// Number of injected failures, besides the failures of the memory budget.
const INJECTED: usize = 100;

#[test]
fn a_run_with_injected_failures_uses_every_sample_once_and_replays_from_its_ledger() {
    let before = MEMORY.current();
    // A CPU with two cores.
    let (device, async_errors, lanes) = (Device::flex(), false, 2);
    let setup = StormSetup {
        device,
        async_errors,
        lanes,
        width: 64,
        frames: 200,
        long: None,
        validate_every: 20,
        bursts: (6, 0),
        validation_batch: usize::MAX,
    };
    let run = |faults: Faults| run_training(&setup, &MEMORY, faults, Governor::new(BATCH as usize), &mut |_| {});
    let calm = run(Faults::none());
    let peak = calm.peak.0 - before.0;
    let budget = Bytes(before.0 + peak * 6 / 10);
    MEMORY.set_budget(Some(budget));
    let faults = Faults::random(&setup, &MEMORY, INJECTED);
    let storm = run(faults.clone());
    MEMORY.set_budget(None);

    assert_eq!(faults.left.load(Relaxed), 0, "all failures were injected");
    let by_budget = storm.failures() - INJECTED;
    assert!(by_budget > 0, "the budget was never exceeded");
    for stage in [Stage::Forward, Stage::Backward, Stage::Accumulate, Stage::Norm, Stage::Validation, Stage::Checkpoint]
    {
        assert!(storm.failures_in(stage) > 0, "no failure in the {stage}");
    }
    for (name, run) in [("calm", &calm), ("storm", &storm)] {
        assert_eq!(run.steps(), STEPS, "{name}");
        run.each_sample_was_used_once(&setup, name);
    }
    storm.no_failure_costs_more_than_a_micro_batch();
    storm.limits_grew_back();
    let again = replayed(&setup, &MEMORY, &storm);
    assert!(collect(&again) == storm.weights, "the ledger leads to other weights");
    let apart = (storm.validation / calm.validation - 1.0).abs();
    assert!(apart < 0.01, "{} beside {}", storm.validation, calm.validation);
    println!("{}", StormTable { calm: &calm, storm: &storm, budget: Some((budget, before)), injected: INJECTED });
}
