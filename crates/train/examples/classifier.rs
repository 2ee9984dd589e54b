//! Trains a classifier made of Burn's own modules, on batches of its own type: is a point inside a circle?

use burn::module::Module;
use burn::nn::{Linear, LinearConfig, loss::CrossEntropyLossConfig};
use burn::tensor::{Device, Int, Tensor, activation::relu};
use plimsoll_core::{Batch, Key, SampleId};
use plimsoll_tape::{Pass, StepLoss, Task, initialize};
use plimsoll_train::{Governor, Schedule, Trainer, TrainerConfig};

/// Rows of a table of two columns. In this example the values follow from the ids; real data would be a second field.
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

#[derive(Module, Debug)]
struct Classifier {
    hidden: Linear,
    output: Linear,
}
impl Task for Classifier {
    type Batch = Rows;
    type Tensors = (Tensor<2>, Tensor<1, Int>);
    fn send(Rows(ids): &Rows, device: &Device) -> Self::Tensors {
        let values = |id: &SampleId| [0, 1].map(|column| 2.0 * Key::new(id.0).at(column).unit() as f32 - 1.0);
        let rows: Vec<[f32; 2]> = ids.iter().map(values).collect();
        let classes: Vec<i32> = rows.iter().map(|[x, y]| i32::from(x * x + y * y < 0.6)).collect();
        let rows = Tensor::<1>::from_floats(rows.as_flattened(), device).reshape([-1, 2]);
        (rows, Tensor::from_ints(&classes[..], device))
    }
    fn loss(&self, (rows, classes): &Self::Tensors, _: &Pass) -> StepLoss {
        let scores = self.output.forward(relu(self.hidden.forward(rows.clone())));
        let right = scores.clone().argmax(1).squeeze_dim::<1>(1).equal(classes.clone()).float().sum();
        let mean = CrossEntropyLossConfig::new().init(&rows.device()).forward(scores, classes.clone());
        StepLoss { parts: vec![("accuracy", right)], ..StepLoss::new(mean * rows.dims()[0] as f64) }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::flex().autodiff();
    let (hidden, output) = (LinearConfig::new(2, 16).init(&device), LinearConfig::new(16, 2).init(&device));
    let config = TrainerConfig::new(Schedule::constant(0.01), Key::new(1));
    let model = initialize(Classifier { hidden, output }, Key::new(2));
    let mut trainer = Trainer::new(model, config, Governor::new(16));
    for step in 1..=500 {
        let report = trainer.step(&Rows((step * 64..(step + 1) * 64).map(SampleId).collect()))?;
        if step % 100 == 0 {
            println!("step {step}: loss {:.3}, accuracy {:.3}", report.loss, report.parts["accuracy"]);
        }
    }
    Ok(())
}
