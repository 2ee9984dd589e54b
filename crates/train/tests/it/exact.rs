//! Tests that every split of a batch into micro-batches gives the same gradient.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Tensor};
use plimsoll_core::Key;
use plimsoll_train::{Governor, MicroBatch, Schedule, Trainer, TrainerConfig};

use crate::net::{Net, batch};

/// Converts the parameters of `net` to fp64.
pub(crate) fn wide(net: Net) -> Net {
    struct Wide;
    impl ModuleMapper for Wide {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|value| value.detach().cast(FloatDType::F64).detach().require_grad())
        }
    }
    net.map(&mut Wide)
}

/// Collects the gradients of all parameters of `net` in one vector, in the order of the parameters.
pub(crate) fn flat(net: &Net, gradients: &GradientsParams) -> Vec<f64> {
    struct All<'a>(&'a GradientsParams, Vec<f64>);
    impl ModuleVisitor for All<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let gradient = self.0.get::<D>(param.id).expect("every parameter has a gradient");
            self.1.extend(gradient.into_data().convert::<f64>().try_into_vec::<f64>().unwrap());
        }
    }
    let mut all = All(gradients, Vec::new());
    net.visit(&mut all);
    all.1
}

pub(crate) fn apart(found: &[f64], expected: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut found.iter().zip(expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied())
}

fn micro_batches(sizes: &[u32]) -> Vec<MicroBatch> {
    let place = |start: &mut u32, &len: &u32| {
        let micro_batch = MicroBatch { start: *start, len, fallback_level: 0 };
        *start += len;
        Some(micro_batch)
    };
    sizes.iter().scan(0, place).collect()
}

fn check(build: fn(&Device) -> Net, most: f64) {
    let batch = batch(0..32, 20);
    let gradient = |sizes: &[u32], lanes: usize| {
        let net = build(&Device::flex().autodiff());
        let config = TrainerConfig { lanes, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
        let mut trainer = Trainer::new(net, config, Governor::new(32));
        let gradients = trainer.gradient(&batch, Some(&micro_batches(sizes))).unwrap();
        flat(&trainer.task, &gradients)
    };
    let whole = gradient(&[32], 1);
    assert!(whole.iter().any(|value| value.abs() > 1e-3));
    for sizes in [vec![8; 4], vec![4; 8], vec![1; 32], vec![1, 17, 3, 11], vec![31, 1]] {
        for lanes in [1, 3] {
            let apart = apart(&gradient(&sizes, lanes), &whole);
            assert!(apart <= most, "{sizes:?} in {lanes} lanes: {apart:e}");
        }
    }
}

#[test]
fn every_split_gives_the_same_gradient() {
    check(|device| Net::new(24, device), 1e-5);
}

#[test]
fn every_split_gives_the_same_gradient_in_64_bits() {
    check(|device| wide(Net::new(24, device)), 1e-10);
}

#[test]
fn the_number_of_lanes_changes_no_bit() {
    let run = |lanes: usize| {
        let net = Net::new(24, &Device::flex().autodiff());
        let config = TrainerConfig { lanes, ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1)) };
        let mut trainer = Trainer::new(net, config, Governor::new(32));
        for step in 0..3 {
            trainer.replay(&batch(step * 32..step * 32 + 32, 20), &micro_batches(&[8, 8, 9, 7])).unwrap();
        }
        plimsoll_tape::collect(&trainer.task)
    };
    assert!(run(1) == run(2) && run(1) == run(4));
}
