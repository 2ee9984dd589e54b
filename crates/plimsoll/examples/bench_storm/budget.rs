//! A storm within a memory budget that the plan knows.

use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use burn::tensor::Device;
use plimsoll_core::{Batch, BatchShape, Bytes, Grid, HostBatch, HostSample, MemoryMeter, PoolGate, Position, SampleId};
use plimsoll_memory::{BackendRules, Demand, MemoryModel, Plan, PlanOptions, Speed, Traceable, plan};
use plimsoll_tape::collect;
use plimsoll_train::Governor;
use plimsoll_train::planned::PlannedLimit;
use plimsoll_train::pools::preallocate_pages;

use crate::net::{FEATURES, Net};
use crate::training::{BATCH, EPOCH, Faults, STEPS, StormSetup, StormTable, replayed, run_training};
use crate::{INJECTED, NOTHING, shown, timed};

/// Hidden width of the model.
const WIDTH: usize = 512;

/// The reserved memory of the device's pools, and the most of it that was ever read. The gate of a run reads it after each
/// micro-batch, before anything is returned to the device.
struct Pools {
    device: Device,
    most: &'static AtomicU64,
}

impl Pools {
    fn new(device: &Device) -> Self {
        Self { device: device.clone(), most: Box::leak(Box::default()) }
    }

    fn most(&self) -> Bytes {
        Bytes(self.most.load(Relaxed))
    }
}

impl MemoryMeter for Pools {
    fn current(&self) -> Bytes {
        Bytes(self.device.memory_pool_usage().map_or(0, |usage| usage.bytes_in_use))
    }
    fn peak(&self) -> Bytes {
        let reserved = self.device.memory_pool_usage().map_or(0, |usage| usage.bytes_reserved);
        self.most.fetch_max(reserved, Relaxed);
        Bytes(reserved)
    }
    fn reset_peak(&self) {}
}

/// Makes a gate that holds `budget`, or only reads the pools without one. Returns the reading, too.
fn gate(device: &Device, budget: Option<Bytes>) -> (&'static PoolGate<&'static Pools>, &'static Pools) {
    let pools: &'static Pools = Box::leak(Box::new(Pools::new(device)));
    (Box::leak(Box::new(PoolGate::new(pools, budget.unwrap_or(Bytes(u64::MAX))))), pools)
}

/// The model of the storm, for a plan.
struct Planned;

impl Traceable for Planned {
    type Task = Net;

    fn init(&self, device: &Device) -> Net {
        Net::new(WIDTH, device)
    }

    fn batch(&self, shape: BatchShape) -> HostBatch {
        let features = vec![0.0; shape.frames.0 as usize * FEATURES];
        let sample = |index| HostSample {
            id: SampleId(index),
            name: format!("u{index}"),
            features: features.clone(),
            tokens: vec![],
            reference: vec![],
        };
        let samples: Vec<HostSample> = (0..u64::from(shape.utterances)).map(sample).collect();
        HostBatch::collate(&samples, FEATURES, &Grid::default()).expect("samples are whole frames")
    }
}

/// Lists the longest batch of each of the lengths that `setup` has.
fn buckets(setup: &StormSetup) -> Vec<BatchShape> {
    let position = |number: u64| Position { epoch: number / EPOCH, batch: number % EPOCH, ..Position::default() };
    let mut shapes: Vec<BatchShape> = (0..STEPS).map(|number| setup.batch_at(position(number)).shape()).collect();
    shapes.sort_by_key(|shape| shape.frames);
    // Lengths that are a sixth apart share a bucket, which its longest batch stands for.
    let mut longest: Vec<BatchShape> = Vec::new();
    for shape in shapes.into_iter().rev() {
        if longest.last().is_none_or(|last| shape.frames.0 * 6 < last.frames.0 * 5) {
            longest.push(shape);
        }
    }
    longest
}

/// Plans the run of `setup` within `budget`.
fn planned(setup: &StormSetup, budget: Bytes) -> Plan {
    let rules = if cfg!(feature = "cuda") { BackendRules::cuda() } else { BackendRules::wgpu() };
    let demand = Demand { options: PlanOptions::new(), ..Demand::new(buckets(setup), rules) };
    let model = MemoryModel::new(&Planned, demand).expect("the model can be traced");
    plan(&model, budget, &Speed::for_host(1)).expect("the budget suffices for one utterance")
}

/// Runs the part `name` of this example in another process, and returns the bytes that it prints last.
fn own_process(name: &str) -> Bytes {
    let program = std::env::current_exe().expect("the program has a path");
    let output = Command::new(program).args(["budget", name]).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    Bytes(text.lines().last().and_then(|line| line.parse().ok()).expect("it prints a number"))
}

pub(crate) fn storm_within_a_budget(device: &Device) -> ExitCode {
    let setup = StormSetup {
        device: device.clone(),
        async_errors: true,
        lanes: 1,
        width: WIDTH,
        frames: 8,
        long: Some((10, 600)),
        validate_every: 60,
        bursts: (3, 2),
        validation_batch: usize::MAX,
    };
    let all = BATCH as usize;
    let train = |setup: &StormSetup, faults: &Faults, governor| {
        run_training(setup, &NOTHING, faults.clone(), governor, &mut shown)
    };
    if std::env::args().nth(2).as_deref() == Some("alone") {
        let (open, pools) = gate(device, None);
        train(&setup, &Faults::random(&setup, open, 0), Governor::new(all));
        println!("{}", pools.most().0);
        return ExitCode::SUCCESS;
    }
    // In a process of its own: pages stay as large as the largest tensor that a process ever had.
    let alone = timed("without a budget", || own_process("alone"));
    let budget = Bytes(alone.0 * 6 / 10);
    let plan = planned(&setup, budget);
    println!("{} at once in validation", plan.validation_batch);
    println!("the pools take {alone} by themselves; budget {budget}; planned {}, pages of {}", plan.peak, plan.page);
    let setup = StormSetup { validation_batch: plan.validation_batch as usize, ..setup };
    let limits = plan.buckets.iter().map(|bucket| PlannedLimit {
        shape: BatchShape { utterances: bucket.micro_batch, ..bucket.bucket },
        limit: bucket.micro_batch as usize,
        choice: bucket.choice,
    });
    for bucket in &plan.buckets {
        println!("{} frames: {} at once, {}", bucket.bucket.frames.0, bucket.micro_batch, bucket.peak);
    }
    let governor = Governor::from_plan(limits.collect(), all);
    preallocate_pages(device, plan.page).expect("one page fits");
    let (held, pools) = gate(device, Some(budget));
    let faults = Faults::random(&setup, held, INJECTED);
    let storm = timed("storm", || train(&setup, &faults, governor));
    let most = pools.most();
    let again = collect(&timed("replay", || replayed(&setup, &NOTHING, &storm)));
    let calm = timed("calm", || train(&setup, &Faults::none(), Governor::new(all)));
    for (name, run) in [("calm", &calm), ("storm", &storm)] {
        assert_eq!(run.steps(), STEPS, "{name}");
        run.each_sample_was_used_once(&setup, name);
    }
    storm.no_failure_costs_more_than_a_micro_batch();
    storm.limits_grew_back();
    let injected = INJECTED - faults.left.load(Relaxed);
    println!("{}", StormTable { calm: &calm, storm: &storm, budget: None, injected });
    let is_same = again == storm.weights;
    println!(
        "{} failures by the budget; replayed weights are {}",
        storm.failures() - injected,
        if is_same { "the same" } else { "OTHER" }
    );
    let above = Bytes(most.0.saturating_sub(budget.0));
    println!("reserved {most} at most, {above} above the budget; a page has {}", plan.page);
    if is_same && above <= plan.page { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
