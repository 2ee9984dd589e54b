//! Tests that plans stay within the budget and are nearly as fast as the best, and that a refusal names a change that
//! helps.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::Device;
use plimsoll_core::{BatchShape, Bytes, Choice, Frames, HostBatch, Precision, Remat};
use plimsoll_memory::{
    BackendRules, BucketPlan, Change, Cost, Demand, MemoryLimit, MemoryModel, PlanError, PlanOptions, Speed,
    StateOption, Traceable, Traces, plan, plan_with,
};
use proptest::prelude::*;

use crate::model::{Stack, Stacks};

/// A device on which kernel launches, arithmetic and memory traffic all matter.
const SPEED: Speed = Speed { launch: 3e-6, ..Speed::uniform(1e12, 2e11) };

fn demand(buckets: Vec<BatchShape>, layers: u32, rules: BackendRules) -> Demand {
    let demand = Demand::new(buckets, rules).with_blocks(layers);
    let remat = (0..=layers).map(|count| Remat::count_of(count, layers)).collect();
    Demand { options: PlanOptions { remat, ..PlanOptions::new() }, ..demand }
}

fn bucket(utterances: u32, frames: u32) -> BatchShape {
    BatchShape { utterances, frames: Frames(frames), tokens: 1 }
}

/// Lists every combination of rematerialization and micro-batch: its peak, the seconds of a step, and the combination
/// itself.
fn everything(model: &MemoryModel<'_, Stacks>, bucket: BatchShape, layers: u32) -> Vec<(Bytes, f64, (Remat, u32))> {
    let mut all = Vec::new();
    for passes in 0..=layers {
        let choice = Choice { remat: Remat::count_of(passes, layers), ..Choice::default() };
        for micro in 1..=bucket.utterances {
            let estimate = model.estimate(bucket, micro, choice).unwrap();
            let cost = |utterances: u32| -> Cost { model.estimate(bucket, utterances, choice).unwrap().cost };
            let rest = bucket.utterances % micro;
            let last = if rest > 0 { SPEED.seconds(&cost(rest), Precision::Fp32) } else { 0.0 };
            let seconds = f64::from(bucket.utterances / micro) * SPEED.seconds(&estimate.cost, Precision::Fp32) + last;
            all.push((estimate.peak, seconds, (choice.remat, micro)));
        }
    }
    all
}

/// Returns a function that draws a random integer between its two arguments, both included. `seed` fixes the sequence.
fn drawn(seed: u64) -> impl FnMut(u64, u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    move |from, to| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (state >> 33) % (to - from + 1)
    }
}

#[test]
fn plans_are_nearly_as_fast_as_the_best_that_fits() {
    for seed in 0..30 {
        let mut draw = drawn(seed);
        let layers = draw(2, 4) as u32;
        let stacks = Stacks { heads: 2, width: 8 * draw(1, 4) as usize, layers: layers as usize };
        let shape = bucket(draw(2, 7) as u32, draw(20, 120) as u32);
        let model = MemoryModel::new(&stacks, demand(vec![shape], layers, BackendRules::cuda())).unwrap();
        let all = everything(&model, shape, layers);
        let (least, most) = (all.iter().map(|one| one.0).min().unwrap(), all.iter().map(|one| one.0).max().unwrap());
        let budget = Bytes(least.0 + (most.0 - least.0) * draw(0, 100) / 100);
        let found = plan(&model, budget, &SPEED).unwrap();
        assert!(found.peak <= budget);
        let best = all.iter().filter(|one| one.0 <= budget).map(|one| one.1).fold(f64::INFINITY, f64::min);
        let chosen = &found.buckets[0];
        let seconds = everything(&model, shape, layers)
            .into_iter()
            .find(|one| one.2 == (chosen.choice.remat, chosen.micro_batch))
            .map_or(f64::INFINITY, |one| one.1);
        assert!(best / seconds >= 0.97, "seed {seed}: {seconds} and the best has {best}; {chosen:?}");
    }
}

#[test]
fn larger_budgets_are_never_slower_and_split_batches_use_them() {
    let stacks = Stacks { heads: 2, width: 24, layers: 6 };
    let shape = bucket(96, 50);
    for rules in [BackendRules::cuda(), BackendRules::Flex { threads: 2 }] {
        let model = MemoryModel::new(&stacks, demand(vec![shape], 6, rules)).unwrap();
        let least = model.estimate(shape, 1, Choice { remat: Remat::All, ..Choice::default() }).unwrap().peak;
        let most = model.estimate(shape, 96, Choice::default()).unwrap().peak;
        let mut before = f64::INFINITY;
        for part in 0..=20 {
            let budget = Bytes(least.0 + (most.0 - least.0) * part / 20);
            let found = plan(&model, budget, &SPEED).unwrap();
            let bucket = &found.buckets[0];
            assert!(found.peak <= budget, "{part}: {found:?}");
            assert!(bucket.seconds <= before * 1.0001, "{part}: {before} and then {bucket:?}");
            before = bucket.seconds;
            // From this part on, one more utterance takes less than a twelfth of the budget. On a GPU it may also need
            // another page.
            let page = if rules == BackendRules::cuda() { found.page.0 + (2 << 20) } else { 0 };
            if bucket.accumulation > 1 && part > 3 {
                assert!(
                    (found.peak.0 + page) as f64 >= 0.92 * budget.0 as f64,
                    "{part}: {} of {budget}: {bucket:?}",
                    found.peak
                );
            }
        }
    }
}

/// Returns `options` with the freedom that `changes` need.
fn changed(mut options: PlanOptions, changes: &[Change], layers: u32) -> PlanOptions {
    for change in changes {
        match change {
            Change::MicroBatch { .. } => options.micro_batch = None,
            Change::Rematerialize { .. } => {
                options.remat = (0..=layers).map(|count| Remat::count_of(count, layers)).collect();
            }
            Change::Chunk { queries } => options.chunks = vec![NonZeroU32::new(*queries)],
            Change::Precision { precision } => options.precisions = vec![*precision],
            Change::EightBitOptimizer => options.states = vec![StateOption::EIGHT],
            Change::HostOptimizer => options.states = vec![StateOption::HOST],
            other => panic!("{other}"),
        }
    }
    options
}

#[test]
fn refusal_has_the_missing_memory_and_changes_that_make_it_fit() {
    let (mut refusals, mut kinds) = (0, std::collections::HashSet::new());
    for seed in 0..40 {
        let mut draw = drawn(seed);
        let layers = draw(2, 6) as u32;
        let stacks = Stacks { heads: 2, width: 8 * draw(1, 12) as usize, layers: layers as usize };
        let shapes = vec![bucket(8, draw(20, 300) as u32), bucket(8, draw(20, 300) as u32)];
        let mut wanted = demand(shapes.clone(), layers, BackendRules::cuda());
        wanted.options = PlanOptions { micro_batch: Some(draw(1, 8) as u32), ..PlanOptions::new() };
        let model = MemoryModel::new(&stacks, wanted.clone()).unwrap();
        let needed = |micro| {
            shapes.iter().map(|&shape| model.estimate(shape, micro, Choice::default()).unwrap().peak.0).max().unwrap()
        };
        let budget = Bytes(needed(wanted.options.micro_batch.unwrap()) * draw(10, 95) / 100);
        match plan(&model, budget, &SPEED) {
            Err(PlanError::NothingFits { needed, missing, remedy, share, .. }) => {
                refusals += 1;
                assert_eq!(missing.0, needed.0 - budget.0);
                match remedy {
                    Some(remedy) => {
                        kinds.extend(remedy.changes.iter().map(|change| format!("{change:?}")[..6].to_string()));
                        let options = changed(wanted.options.clone(), &remedy.changes, layers);
                        let found = plan_with(&model, &options, budget, &SPEED).unwrap();
                        assert!(found.peak <= budget && remedy.slowdown > 0.5, "seed {seed}: {remedy}");
                    }
                    None => assert!(share.is_none_or(|share| share < 1.0)),
                }
            }
            Err(other) => panic!("{other}"),
            Ok(found) => assert!(found.peak <= budget),
        }
    }
    assert!(refusals > 20 && kinds.len() >= 3, "{refusals} {kinds:?}");
    let stacks = Stacks { heads: 2, width: 16, layers: 4 };
    let model = MemoryModel::new(&stacks, demand(vec![bucket(8, 150)], 4, BackendRules::cuda())).unwrap();
    let error = plan(&model, Bytes(0), &SPEED).unwrap_err();
    assert!(error.to_string().starts_with("a budget of 0 B holds nothing: the smallest plan needs "), "{error}");
}

#[test]
fn more_memory_never_refuses_and_is_never_slower() {
    for seed in 0..4 {
        let mut draw = drawn(100 + seed);
        let layers = draw(2, 6) as u32;
        let stacks = Stacks { heads: 2, width: 8 * draw(1, 8) as usize, layers: layers as usize };
        let shapes: Vec<BatchShape> =
            (0..draw(2, 5)).map(|_| bucket(draw(1, 40) as u32, draw(8, 300) as u32)).collect();
        let mut wanted = demand(shapes.clone(), layers, BackendRules::cuda());
        wanted.options.chunks.push(NonZeroU32::new(16));
        wanted.options.states = vec![StateOption::FULL, StateOption::HOST];
        let model = MemoryModel::new(&stacks, wanted).unwrap();
        let most = shapes
            .iter()
            .map(|&shape| model.estimate(shape, shape.utterances, Choice::default()).unwrap().peak.0)
            .max()
            .unwrap();
        let mut before: Option<f64> = None;
        for part in 0..25 {
            let budget = Bytes(most * part / 20);
            match plan(&model, budget, &SPEED) {
                Ok(found) => {
                    assert!(found.peak <= budget);
                    let seconds = found.seconds();
                    assert!(before.is_none_or(|before| seconds <= before * 1.0001), "seed {seed}, part {part}");
                    before = Some(seconds);
                }
                Err(error) => assert!(before.is_none(), "seed {seed}, part {part}: {error}"),
            }
        }
        assert!(before.is_some());
    }
}

#[test]
fn no_tensor_is_larger_than_the_device_allows() {
    for seed in 0..4 {
        let mut draw = drawn(300 + seed);
        let layers = draw(2, 5) as u32;
        let stacks = Stacks { heads: 2, width: 8 * draw(1, 8) as usize, layers: layers as usize };
        let shapes: Vec<BatchShape> = (0..3).map(|_| bucket(draw(1, 40) as u32, draw(60, 300) as u32)).collect();
        let model = MemoryModel::new(&stacks, demand(shapes, layers, BackendRules::cuda())).unwrap();
        let free = plan(&model, Bytes::gib(64), &SPEED).unwrap();
        let largest_of = |one: &BucketPlan| model.estimate(one.bucket, one.micro_batch, one.choice).unwrap().largest.0;
        let largest = free.buckets.iter().map(largest_of).max().unwrap();
        let mut before: Option<f64> = None;
        for part in 1..=20 {
            let limit = MemoryLimit { budget: Bytes::gib(64), allocation: Bytes(largest * part / 20) };
            match plan(&model, limit, &SPEED) {
                Ok(found) => {
                    assert!(found.page <= limit.allocation, "seed {seed}, part {part}");
                    for bucket in &found.buckets {
                        let size = model.estimate(bucket.bucket, bucket.micro_batch, bucket.choice).unwrap();
                        assert!(size.largest <= limit.allocation, "seed {seed}, part {part}");
                    }
                    assert!(before.is_none_or(|before| found.seconds() <= before * 1.0001), "seed {seed}, part {part}");
                    before = Some(found.seconds());
                }
                Err(PlanError::NothingFits { refused: Some(refused), missing, budget, needed, .. }) => {
                    assert!(before.is_none() && needed <= budget, "seed {seed}, part {part}");
                    assert_eq!(refused.allowed, limit.allocation);
                    assert_eq!(missing.0, refused.needed.0 - refused.allowed.0);
                }
                Err(other) => panic!("seed {seed}, part {part}: {other}"),
            }
        }
        assert!(before.is_some());
    }
}

#[test]
fn demand_without_buckets_is_refused() {
    let stacks = Stacks { heads: 1, width: 8, layers: 1 };
    let model = MemoryModel::new(&stacks, demand(vec![bucket(1, 8)], 1, BackendRules::cuda())).unwrap();
    assert!(plan(&model, Bytes::mib(64), &SPEED).is_ok());
    assert!(MemoryModel::new(&stacks, demand(Vec::new(), 1, BackendRules::cuda())).is_err());
}

#[test]
fn traces_that_are_known_are_not_made_again() {
    struct Counted(Stacks, AtomicUsize);

    impl Traceable for Counted {
        type Task = Stack;

        fn init(&self, device: &Device) -> Stack {
            self.1.fetch_add(1, Relaxed);
            self.0.init(device)
        }

        fn batch(&self, shape: BatchShape) -> HostBatch {
            self.0.batch(shape)
        }
    }

    let counted = Counted(Stacks { heads: 2, width: 8, layers: 2 }, AtomicUsize::new(0));
    let traces = Traces::default();
    let planned = || {
        let wanted = demand(vec![bucket(4, 16), bucket(2, 40)], 2, BackendRules::cuda());
        let model = MemoryModel::with_traces(&counted, wanted, traces.clone()).unwrap();
        plan(&model, Bytes::mib(64), &SPEED).unwrap()
    };
    let first = planned();
    let made = counted.1.load(Relaxed);
    assert!(made > 0);
    assert_eq!(planned(), first);
    assert_eq!(counted.1.load(Relaxed), made, "the second plan needs no new trace");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_fit_the_budget_and_keep_the_batch(
        heads in 1_usize..3,
        width in 1_usize..4,
        layers in 1_usize..4,
        lengths in prop::collection::vec((1_u32..9, 4_u32..90), 1..4),
        part in 0_u64..110,
        on_the_cpu in any::<bool>(),
        chunked in any::<bool>(),
    ) {
        let stacks = Stacks { heads, width: 8 * width, layers };
        let buckets: Vec<BatchShape> = lengths.iter().map(|&(utterances, frames)| bucket(utterances, frames)).collect();
        let rules = if on_the_cpu { BackendRules::Flex { threads: 2 } } else { BackendRules::cuda() };
        let mut wanted = demand(buckets.clone(), layers as u32, rules);
        if chunked {
            wanted.options.chunks.push(NonZeroU32::new(16));
        }
        let model = MemoryModel::new(&stacks, wanted).unwrap();
        let most = buckets.iter().map(|&shape| {
            model.estimate(shape, shape.utterances, Choice::default()).unwrap().peak.0
        }).max().unwrap();
        let budget = Bytes(most * part / 100);
        match plan(&model, budget, &SPEED) {
            Ok(found) => {
                prop_assert!(found.peak <= budget);
                prop_assert_eq!(found.buckets.len(), buckets.len());
                for (bucket, wanted) in found.buckets.iter().zip(&buckets) {
                    prop_assert!(bucket.peak <= budget);
                    prop_assert_eq!(bucket.bucket, *wanted);
                    // Every utterance is in exactly one micro-batch.
                    prop_assert!(bucket.micro_batch >= 1 && bucket.micro_batch <= wanted.utterances);
                    prop_assert_eq!(bucket.accumulation, wanted.utterances.div_ceil(bucket.micro_batch));
                    let estimate = model.estimate(bucket.bucket, bucket.micro_batch, bucket.choice).unwrap();
                    // On a GPU an estimate is for pages that suit this size alone, and a plan may find better ones.
                    prop_assert!(!on_the_cpu || estimate.peak <= budget);
                }
            }
            Err(PlanError::NothingFits { needed, budget: refused, missing, .. }) => {
                prop_assert!(needed > refused);
                prop_assert_eq!(missing.0, needed.0 - refused.0);
            }
            Err(PlanError::NoBudget { needed, .. }) => prop_assert!(part == 0 && needed.0 > 0),
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }
}
