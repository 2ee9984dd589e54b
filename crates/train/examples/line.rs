//! A custom model in a complete run with batches, steps, validations and checkpoints. It learns a straight line.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;
use plimsoll_core::{
    Batch, BatchList, Bytes, CountingAllocator, Grid, HostBatch, HostSample, Key, Measure, Position, SampleId,
};
use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch, initialize};
use plimsoll_train::{
    AdamWConfig, CheckpointStore, Event, Governor, InferenceRunner, Limits, Run, RunOptions, Schedule, Score, Shape,
    Trainer, TrainerConfig,
};

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// Model of the line `y = a x + b`, where `x` is the first feature of a frame and `y` the second.
#[derive(Module, Debug)]
struct Line {
    line: Linear,
}

impl Task for Line {
    type Batch = HostBatch;
    type Tensors = TensorBatch;

    fn send(batch: &HostBatch, device: &Device) -> TensorBatch {
        TensorBatch::send(batch, device)
    }

    fn weight(&self, batch: &HostBatch) -> f64 {
        batch.len() as f64
    }

    fn loss(&self, batch: &TensorBatch, _: &Pass) -> StepLoss {
        let [b, _, _] = batch.features.dims();
        let x = batch.features.clone().slice([0..b, 0..1, 0..1]);
        let y = batch.features.clone().slice([0..b, 0..1, 1..2]);
        StepLoss::new((self.line.forward(x) - y).square().sum())
    }
}

/// Makes batch `number`: eight points of the line.
fn points(number: u64) -> HostBatch {
    let sample = |i: u64| {
        let x = Key::new(1).at(number).at(i).unit() as f32;
        let (id, name, features) = (SampleId(i), format!("point {i}"), vec![x, 3.0 * x - 1.0]);
        HostSample { id, name, features, tokens: Vec::new(), reference: Vec::new() }
    };
    HostBatch::collate(&(0..8).map(sample).collect::<Vec<_>>(), 2, &Grid::default()).expect("whole frames")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let device = Device::flex().autodiff();
    let task = initialize(Line { line: LinearConfig::new(1, 1).init(&device) }, Key::new(2));
    let schedule = Schedule { shape: Shape::Cosine, peak: 0.1, last: 1e-3, warmup: 10, total: 200 };
    let config = TrainerConfig {
        optimizer: AdamWConfig { weight_decay: 0.0, ..AdamWConfig::default() }.into(),
        clip_norm: 10.0,
        ..TrainerConfig::new(schedule, Key::new(3))
    };
    // The allocator stands in for a GPU: a batch that exceeds 64 MiB is split into smaller micro-batches.
    MEMORY.set_budget(Some(Bytes::mib(64)));
    let mut trainer = Trainer::new(task, config, Governor::new(8)).with_memory(&MEMORY, &MEMORY);
    let mut validate = |model: &Line, _: u64, _: &mut InferenceRunner<'_>| {
        let slope = model.line.weight.val().into_scalar::<f32>();
        let all = vec![Measure::number("slope", "slope of the line", slope.into())];
        Ok(Score { value: f64::from((slope - 3.0).abs()), tie: 0.0, all })
    };
    let mut watch = |event: &Event| {
        if let Event::Validated { step, scores, .. } = event {
            println!("after step {step} the slope is {:.3}", scores[0].value);
        }
    };
    let limits = Limits { steps: Some(200), ..Limits::default() };
    let options = RunOptions { save_every: 100, ..RunOptions::new(limits) };
    let mut source = BatchList::new((0..50).map(points).collect(), Position::default());
    let store = CheckpointStore::new(folder.path(), 2);
    let run = Run::new(&mut trainer, &mut source, &store, &options).with_observer(&mut watch);
    let outcome = run.train(&mut validate)?;
    println!("{} steps, the best slope is {:.3} off", outcome.state.step, outcome.state.best.unwrap_or(f64::NAN));
    Ok(())
}
