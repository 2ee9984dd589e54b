//! AdamW with PyTorch's definition and defaults, its state kept by parameter name.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use plimsoll_tape::NamedTensor;
use serde::{Deserialize, Serialize};

/// The numbers of AdamW (Loshchilov and Hutter 2019). The defaults are PyTorch's, not Burn's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamWConfig {
    /// How slowly the mean of the gradient moves.
    pub beta_1: f64,
    /// How slowly the mean of its square moves.
    pub beta_2: f64,
    /// What keeps the division finite.
    pub epsilon: f64,
    /// How much of every weight is taken away in a step, times the rate.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-8, weight_decay: 1e-2 }
    }
}

/// The optimizer with its state.
///
/// The state is keyed by the names of the parameters and not by Burn's ids, which are new in every process.
#[derive(Debug, Default)]
pub struct AdamW {
    config: AdamWConfig,
    steps: u64,
    moments: BTreeMap<String, Moments>,
}

/// The running means of one parameter, flat: its shape is the parameter's.
#[derive(Clone, Debug)]
struct Moments {
    mean: Tensor<1>,
    square: Tensor<1>,
}

impl AdamW {
    /// An optimizer that has not stepped yet.
    pub fn new(config: AdamWConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// One step: every parameter that has a gradient moves against it, scaled by `scale`, at `rate`.
    pub fn step<M: Module>(&mut self, rate: f64, module: M, gradients: GradientsParams, scale: f64) -> M {
        self.steps += 1;
        let mut update = Update { optimizer: self, gradients, rate, scale, path: Vec::new() };
        module.map(&mut update)
    }

    /// The state as named values, for a checkpoint.
    pub fn state(&self) -> Vec<NamedTensor> {
        let named = |name: &String, part: &str, values: &Tensor<1>| {
            let values: Vec<f32> = values.clone().into_data().try_into_vec().expect("moments are fp32");
            NamedTensor { name: format!("{name}.{part}"), shape: vec![values.len()], values }
        };
        let both = |(name, m): (&String, &Moments)| [named(name, "mean", &m.mean), named(name, "square", &m.square)];
        self.moments.iter().flat_map(both).collect()
    }

    /// Takes over the state of a checkpoint after `steps` steps; the device is that of `module`.
    pub fn restore<M: Module>(&mut self, steps: u64, state: Vec<NamedTensor>, module: &M) {
        let device = module.devices().into_iter().next().expect("a model has parameters").inner();
        let mut state: BTreeMap<String, Vec<f32>> = state.into_iter().map(|t| (t.name, t.values)).collect();
        let names: Vec<String> =
            state.keys().filter_map(|name| name.strip_suffix(".mean")).map(str::to_string).collect();
        let mut tensor = |name: String| -> Option<Tensor<1>> {
            let values = state.remove(&name)?;
            let count = values.len();
            Some(Tensor::from_data(TensorData::new(values, [count]), &device))
        };
        let moments = |name: String| {
            let (mean, square) = (tensor(format!("{name}.mean"))?, tensor(format!("{name}.square"))?);
            Some((name, Moments { mean, square }))
        };
        self.moments = names.into_iter().filter_map(moments).collect();
        self.steps = steps;
    }
}

struct Update<'a> {
    optimizer: &'a mut AdamW,
    gradients: GradientsParams,
    rate: f64,
    scale: f64,
    path: Vec<String>,
}

impl ModuleMapper for Update<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return param };
        let (id, value, mapper) = param.consume();
        let (required, shape) = (value.is_require_grad(), value.dims());
        let flat = value.without_autodiff().reshape([-1]);
        let moved = self.moved(flat, gradient.reshape([-1]));
        let moved = Tensor::from_inner(moved.reshape(shape)).set_require_grad(required);
        Param::from_mapped_value(id, moved, mapper)
    }
}

impl Update<'_> {
    fn moved(&mut self, value: Tensor<1>, gradient: Tensor<1>) -> Tensor<1> {
        let AdamWConfig { beta_1, beta_2, epsilon, weight_decay } = self.optimizer.config;
        let gradient = gradient * self.scale;
        let square = gradient.clone().square() * (1.0 - beta_2);
        let mean = gradient * (1.0 - beta_1);
        let name = self.path.join(".");
        let moments = match self.optimizer.moments.remove(&name) {
            Some(old) => Moments { mean: old.mean * beta_1 + mean, square: old.square * beta_2 + square },
            None => Moments { mean, square },
        };
        let steps = self.optimizer.steps as i32;
        let (first, second) = (1.0 - beta_1.powi(steps), 1.0 - beta_2.powi(steps));
        let root = (moments.square.clone() / second).sqrt() + epsilon;
        let delta = moments.mean.clone() / root * (self.rate / first);
        self.optimizer.moments.insert(name, moments);
        value * (1.0 - self.rate * weight_decay) - delta
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use plimsoll_tape::{backward, collect};

    use super::*;

    #[derive(Module, Debug)]
    struct Point {
        place: Param<Tensor<1>>,
    }

    fn point() -> Point {
        Point { place: Param::from_data([1.0, -2.0], &Device::flex().autodiff()) }
    }

    fn steps(optimizer: &mut AdamW, mut point: Point, n: u32) -> Point {
        for _ in 0..n {
            let gradients = backward(point.place.val().square().sum(), &point);
            point = optimizer.step(0.1, point, gradients, 1.0);
        }
        point
    }

    /// The same in 64 bits, written from PyTorch's documentation.
    fn by_hand(mut x: f64, n: i32) -> f64 {
        let (mut mean, mut square) = (0.0, 0.0);
        for step in 1..=n {
            let gradient = 2.0 * x;
            x -= 0.1 * 1e-2 * x;
            mean = 0.9 * mean + 0.1 * gradient;
            square = 0.999 * square + 0.001 * gradient * gradient;
            let (first, second): (f64, f64) = (1.0 - 0.9f64.powi(step), 1.0 - 0.999f64.powi(step));
            x -= 0.1 * (mean / first) / ((square / second).sqrt() + 1e-8);
        }
        x
    }

    #[test]
    fn steps_are_those_of_the_definition() {
        let moved = steps(&mut AdamW::new(AdamWConfig::default()), point(), 10);
        let values = &collect(&moved)[0].values;
        for (value, start) in values.iter().zip([1.0, -2.0]) {
            assert!((f64::from(*value) - by_hand(start, 10)).abs() < 1e-5, "{values:?}");
        }
    }

    #[test]
    fn a_restored_state_goes_on_to_the_last_bit() {
        let mut first = AdamW::new(AdamWConfig::default());
        let half = steps(&mut first, point(), 5);
        let mut second = AdamW::new(AdamWConfig::default());
        second.restore(first.steps(), first.state(), &half);
        let on = collect(&steps(&mut first, half.clone(), 5));
        assert_eq!(on, collect(&steps(&mut second, half, 5)));
    }
}
