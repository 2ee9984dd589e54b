//! Tests of traces: their contents, and the models that cannot be traced.

use std::num::NonZeroU32;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor};
use plimsoll_core::{Batch, BatchShape, Choice, Frames, HostBatch, Remat, SampleId};
use plimsoll_memory::{
    BackendRules, Demand, MemoryModel, Owner, Phase, RunMemory, StateOption, StepMemory, TraceError, Traceable, trace,
    trace_validation,
};
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch};

use crate::model::{Stack, Stacks};

const STACKS: Stacks = Stacks { heads: 2, width: 16, layers: 6 };
const SHAPE: BatchShape = BatchShape { utterances: 4, frames: Frames(60), tokens: 1 };

fn both() -> [BackendRules; 3] {
    [BackendRules::Flex { threads: 2 }, BackendRules::cuda(), BackendRules::wgpu()]
}

/// Rows of a tensor that a kernel writes on CUDA begin at multiples of the next power of two, from 16 to 512 bytes. A fused
/// kernel writes rows without gaps.
#[test]
fn rows_are_padded_on_cuda() {
    let sizes = |rules, made_by: &str| {
        let shape = BatchShape { frames: Frames(168), ..SHAPE };
        let traced = trace(&STACKS, shape, Choice::default(), rules).unwrap();
        let made = traced.timeline.allocations.iter().filter(|one| one.made_by == made_by);
        made.map(|one| one.size.0).collect::<Vec<_>>()
    };
    // Attention of 4 utterances with 2 heads: 168 x 168 values, in rows of 672 bytes.
    let (exact, padded) = (4 * 2 * 168 * 672, 4 * 2 * 168 * 1024);
    let products = |rules| sizes(rules, "matrix product");
    assert!(products(BackendRules::cuda()).contains(&padded) && !products(BackendRules::cuda()).contains(&exact));
    assert!(products(BackendRules::wgpu()).contains(&exact) && !products(BackendRules::wgpu()).contains(&padded));
    assert!(!sizes(BackendRules::cuda(), "fused kernel").contains(&padded));
}

#[test]
fn every_byte_has_an_owner_and_every_moment_a_phase() {
    for rules in both() {
        let trained = trace(&STACKS, SHAPE, Choice::default(), rules).unwrap();
        let values = 6 * (2 * 32 * 128 + 128 + 32) as u64;
        assert_eq!(trained.parameters.iter().sum::<u64>(), values);
        assert!(trained.weights.0 >= 4 * values && trained.weights.0 < 4 * values + 256 * 24, "{:?}", trained.weights);
        let phases: Vec<Phase> = trained.timeline.phases.iter().map(|span| span.phase).collect();
        assert_eq!(phases, [Phase::Forward, Phase::Backward]);
        for owner in [Owner::Weights, Owner::Gradients, Owner::Activations, Owner::Temporaries, Owner::Batch] {
            assert!(trained.timeline.allocations.iter().any(|one| one.owner == owner), "{owner:?} under {rules:?}");
        }
        let run =
            RunMemory::new(&trained, None, StepMemory { micro_batches: 2, snapshot: true, ..StepMemory::default() });
        let peaks = run.timeline.peaks_by_phase();
        assert!(peaks.iter().any(|(phase, _)| *phase == Phase::Optimizer));
        assert!(peaks.iter().any(|(phase, _)| *phase == Phase::Checkpoint));
        assert_eq!(peaks.iter().map(|(_, bytes)| *bytes).max(), Some(run.peak()));
        let owned: u64 = run.timeline.owners_at_peak().iter().map(|(_, bytes)| bytes.0).sum();
        assert_eq!(owned, run.peak().0);
    }
}

#[test]
fn one_recording_stands_for_every_number_of_utterances() {
    let rules = BackendRules::cuda();
    // Lengths with the factors of the numbers that stand for any.
    for frames in [60, 101, 202, 101 * 103, 64] {
        let bucket = BatchShape { frames: Frames(frames), ..SHAPE };
        let demand = Demand { prefetch: 0, ..Demand::new(vec![bucket], rules).with_blocks(6) };
        let model = MemoryModel::new(&STACKS, demand).unwrap();
        for (remat, chunk) in [(Remat::None, None), (Remat::First(2), NonZeroU32::new(33)), (Remat::All, None)] {
            let choice = Choice { remat, attention_chunk: chunk, ..Choice::default() };
            for utterances in [2, 3, 5, 8, 31, 64, 101] {
                let exact = trace(&STACKS, bucket.with_utterances(utterances), choice, rules).unwrap();
                let bucket = bucket.with_utterances(utterances);
                let (known, cost) = model.run_memory(bucket, utterances, choice, StateOption::FULL).unwrap();
                let name = format!("{utterances} x {frames}, {choice:?}");
                assert!((cost.operations / exact.cost.operations - 1.0).abs() < 1e-12, "{name}");
                assert!((cost.bytes / exact.cost.bytes - 1.0).abs() < 1e-12, "{name}");
                assert_eq!(cost.launches, exact.cost.launches, "{name}");
                // Some number makes a tensor as large as another by chance, which then takes over its memory.
                let exact = RunMemory::new(&exact, None, StepMemory::default()).peak().0 as f64;
                let share = known.peak().0 as f64 / exact;
                assert!((1.0..1.02).contains(&share), "{name}: {share}");
            }
        }
    }
}

#[test]
fn rematerialization_reduces_activations() {
    for rules in both() {
        let saved = |remat| {
            let trained = trace(&STACKS, SHAPE, Choice { remat, ..Choice::default() }, rules).unwrap();
            let all = trained.timeline.allocations.iter().filter(|one| one.owner == Owner::Activations);
            (all.map(|one| one.size.0).sum::<u64>(), trained.cost.operations)
        };
        let (none, half, all) = (saved(Remat::None), saved(Remat::Half), saved(Remat::All));
        assert!(all.0 * 3 < none.0 && all.0 < half.0 && half.0 < none.0, "{none:?} {half:?} {all:?}");
        assert!(all.1 > half.1 && half.1 > none.1, "{none:?} {half:?} {all:?}");
    }
}

#[test]
fn validation_saves_no_activations() {
    for rules in both() {
        let trained = trace(&STACKS, SHAPE, Choice::default(), rules).unwrap();
        let validated = trace_validation(&STACKS, SHAPE, rules).unwrap();
        let above = |peak: u64| peak - trained.weights.0;
        assert!(above(validated.peak().0) * 2 < above(trained.timeline.peak().0), "{rules:?}");
    }
}

#[test]
fn parallel_and_accumulated_micro_batches_add_up() {
    let trained = trace(&STACKS, SHAPE, Choice::default(), BackendRules::cuda()).unwrap();
    let peak = |micro_batches, parallel_micro_batches| {
        RunMemory::new(&trained, None, StepMemory { micro_batches, parallel_micro_batches, ..StepMemory::default() })
            .peak()
            .0
    };
    // On a GPU the sum lies in flat tensors.
    assert_eq!(peak(2, 1) - peak(1, 1), trained.flat.iter().map(|flat| flat.0).sum::<u64>());
    assert_eq!(peak(5, 1), peak(2, 1));
    assert!(peak(2, 2) > peak(2, 1) + trained.gradients.0 / 2);
}

/// A model that reads a tensor value, which a recording does not have.
#[derive(Module, Debug)]
struct ValueReader {
    inner: Stack,
}

impl Task for ValueReader {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn weight(&self, batch: &HostBatch) -> f64 {
        self.inner.weight(batch)
    }

    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
        let loss = self.inner.loss(batch, pass);
        let seen: f32 = loss.sum.clone().into_scalar();
        StepLoss::new(loss.sum * f64::from(seen))
    }
}

struct ValueReaderModel;

impl Traceable for ValueReaderModel {
    type Task = ValueReader;

    fn init(&self, device: &Device) -> ValueReader {
        ValueReader { inner: STACKS.init(device) }
    }

    fn batch(&self, shape: BatchShape) -> HostBatch {
        STACKS.batch(shape)
    }
}

#[test]
fn model_that_reads_values_is_refused() {
    let error = trace(&ValueReaderModel, SHAPE, Choice::default(), BackendRules::cuda()).unwrap_err();
    assert!(matches!(error, TraceError::Record(_)));
    assert!(error.to_string().starts_with("the model cannot be traced: "), "{error}");
}

/// Model whose loss takes a part of each input.
#[derive(Module, Debug)]
struct Sliced {
    layer: Linear,
}

impl Task for Sliced {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn loss(&self, batch: &TensorBatch, _: &Pass) -> StepLoss {
        let hidden = self.layer.forward(batch.features.clone());
        // Not aligned, so it is a copy, and its gradient is zeros with the gradient of the copy in a part of them.
        StepLoss::new(hidden.narrow(2, 1, 3).powi_scalar(2).sum())
    }
}

struct SlicedModel;

impl Traceable for SlicedModel {
    type Task = Sliced;

    fn init(&self, device: &Device) -> Sliced {
        Sliced { layer: LinearConfig::new(32, 4096).init(device) }
    }

    fn batch(&self, shape: BatchShape) -> HostBatch {
        STACKS.batch(shape)
    }
}

#[test]
fn the_gradient_of_a_slice_is_written_over_its_zeros() {
    let traced = trace(&SlicedModel, SHAPE, Choice::default(), BackendRules::cuda()).unwrap();
    let hidden = 4 * 4 * 60 * 4096;
    let whole = |phase| {
        let all = traced.timeline.allocations.iter().filter(move |one| one.phase == phase && one.size.0 == hidden);
        all.count()
    };
    assert_eq!((whole(Phase::Forward), whole(Phase::Backward)), (1, 1), "{:#?}", traced.timeline.allocations);
}

/// A batch of table rows, given by their ids.
#[derive(Clone)]
struct Rows(Vec<SampleId>);

impl Batch for Rows {
    fn ids(&self) -> &[SampleId] {
        &self.0
    }

    fn select(&self, places: &[usize]) -> Self {
        Self(places.iter().map(|&place| self.0[place]).collect())
    }
}

/// A layer that predicts the label of each row.
#[derive(Module, Debug)]
struct Table {
    layer: Linear,
}

impl Task for Table {
    type Batch = Rows;
    type Tensors = (Tensor<2>, Tensor<1, Int>);

    fn send(rows: &Rows, device: &Device) -> Self::Tensors {
        let (count, values) = (rows.len(), vec![0.0_f32; rows.len() * 64]);
        let rows = Tensor::<1>::from_floats(&values[..], device).reshape([count, 64]);
        (rows, Tensor::from_ints(&vec![0; count][..], device))
    }

    fn loss(&self, (rows, labels): &Self::Tensors, _: &Pass) -> StepLoss {
        let wanted = labels.clone().float().unsqueeze_dim(1);
        StepLoss::new((self.layer.forward(rows.clone()) - wanted).square().sum())
    }
}

struct Tables;

impl Traceable for Tables {
    type Task = Table;

    fn init(&self, device: &Device) -> Table {
        Table { layer: LinearConfig::new(64, 1).init(device) }
    }

    fn batch(&self, shape: BatchShape) -> Rows {
        Rows((0..u64::from(shape.utterances)).map(SampleId).collect())
    }
}

#[test]
fn batch_memory_is_exactly_what_was_sent() {
    for rules in both() {
        let trained = trace(&Tables, BatchShape::samples(64), Choice::default(), rules).unwrap();
        let batch = trained.timeline.allocations.iter().filter(|one| one.owner == Owner::Batch);
        let bytes: u64 = batch.map(|one| one.size.0).sum();
        // Rows and labels, each a multiple of the alignment.
        let alignment = if rules == BackendRules::cuda() { 512 } else { 256 };
        assert_eq!(bytes, 64 * 64 * 4 + alignment, "{rules:?}");
        assert!(trace_validation(&Tables, BatchShape::samples(64), rules).unwrap().peak().0 > bytes);
    }
}
