//! Tests that plans stay within the budget and are nearly as fast as the best, and that a refusal names a change that
//! helps.

use std::num::NonZeroU32;

use plimsoll_core::{BatchShape, Bytes, Choice, Frames, Precision, Remat};
use plimsoll_memory::{BackendRules, Change, Cost, Demand, MemoryModel, PlanError, Speed, StepMemory, plan};
use proptest::prelude::*;

use crate::model::Stacks;

/// A device on which kernel launches, arithmetic and memory traffic all matter.
const SPEED: Speed = Speed { operations: 1e12, bytes: 2e11, launch: 3e-6 };

fn demand(buckets: Vec<BatchShape>, layers: u32, rules: BackendRules) -> Demand {
    Demand {
        buckets,
        blocks: layers,
        remat_counts: (0..=layers).collect(),
        chunks: vec![None],
        precision: Precision::Fp32,
        micro_batch: None,
        rules,
        step: StepMemory::default(),
        prefetch: 1,
        eight_bit_state_bits: 17,
    }
}

fn bucket(utterances: u32, frames: u32) -> BatchShape {
    BatchShape { utterances, frames: Frames(frames), tokens: 1 }
}

fn remat(passes: u32, layers: u32) -> Remat {
    match passes {
        0 => Remat::None,
        passes if passes >= layers => Remat::All,
        passes => Remat::First(passes),
    }
}

/// Lists every combination of rematerialization and micro-batch: its peak, the seconds of a step, and the combination
/// itself.
fn everything(model: &MemoryModel<'_, Stacks>, bucket: BatchShape, layers: u32) -> Vec<(Bytes, f64, (Remat, u32))> {
    let mut all = Vec::new();
    for passes in 0..=layers {
        let choice = Choice { remat: remat(passes, layers), ..Choice::default() };
        for micro in 1..=bucket.utterances {
            let estimate = model.estimate(bucket, micro, choice).unwrap();
            let cost = |utterances: u32| -> Cost { model.estimate(bucket, utterances, choice).unwrap().cost };
            let rest = bucket.utterances % micro;
            let last = if rest > 0 { SPEED.seconds(&cost(rest)) } else { 0.0 };
            let seconds = f64::from(bucket.utterances / micro) * SPEED.seconds(&estimate.cost) + last;
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
        let model = MemoryModel::new(&stacks, demand(vec![shape], layers, BackendRules::gpu())).unwrap();
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
    for rules in [BackendRules::gpu(), BackendRules::Flex { threads: 2 }] {
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
            let page = if rules == BackendRules::gpu() { found.largest.0 + (2 << 20) } else { 0 };
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

#[test]
fn refusal_has_the_missing_memory_and_a_change_that_helps() {
    let stacks = Stacks { heads: 2, width: 16, layers: 4 };
    let shape = bucket(8, 150);
    let fixed = |passes: u32, micro: u32| Demand {
        remat_counts: vec![passes],
        micro_batch: Some(micro),
        ..demand(vec![shape], 4, BackendRules::gpu())
    };
    let needs = |micro, remat| {
        let free = MemoryModel::new(&stacks, demand(vec![shape], 4, BackendRules::gpu())).unwrap();
        free.estimate(shape, micro, Choice { remat, ..Choice::default() }).unwrap().peak
    };
    let refused = |passes, micro, budget: Bytes| {
        let model = MemoryModel::new(&stacks, fixed(passes, micro)).unwrap();
        plan(&model, budget, &SPEED).unwrap_err()
    };
    let cases = [
        (0, 8, needs(3, Remat::None), Some(Change::MicroBatch { utterances: 3 })),
        (0, 1, needs(1, Remat::All), Some(Change::Rematerialize)),
    ];
    for (passes, micro, budget, expected) in cases {
        match refused(passes, micro, budget) {
            PlanError::NothingFits { needed, missing, change, .. } => {
                assert_eq!(missing.0, needed.0 - budget.0);
                assert_eq!(change, expected);
            }
            other => panic!("{other}"),
        }
    }
    // Less than the weights need.
    let error = refused(4, 1, Bytes(20_000));
    assert!(
        matches!(error, PlanError::NothingFits { change: Some(Change::SmallerModel { .. }) | None, .. }),
        "{error}"
    );
    let error = refused(4, 1, Bytes(0));
    assert!(error.to_string().starts_with("a budget of 0 B holds nothing: the smallest plan needs "), "{error}");
}

#[test]
fn demand_without_buckets_is_refused() {
    let stacks = Stacks { heads: 1, width: 8, layers: 1 };
    let model = MemoryModel::new(&stacks, demand(vec![bucket(1, 8)], 1, BackendRules::gpu())).unwrap();
    assert!(plan(&model, Bytes::mib(64), &SPEED).is_ok());
    assert!(MemoryModel::new(&stacks, demand(Vec::new(), 1, BackendRules::gpu())).is_err());
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
        let rules = if on_the_cpu { BackendRules::Flex { threads: 2 } } else { BackendRules::gpu() };
        let mut wanted = demand(buckets.clone(), layers as u32, rules);
        if chunked {
            wanted.chunks.push(NonZeroU32::new(16));
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
                    prop_assert!(estimate.peak <= budget);
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
