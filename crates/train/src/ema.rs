//! Exponential moving average of a model's weights, often a better model than the last step.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use std::any::Any;
use std::collections::HashMap;

/// Exponential moving average of weights: `mean = decay * mean + (1 - decay) * weights` after each step.
///
/// During the first steps the decay is smaller, `(1 + n) / (10 + n)`, so that the initial values lose their weight
/// soon.
#[derive(Clone, Debug)]
pub struct Ema<M> {
    model: M,
    decay: f64,
    steps: u64,
}

impl<M: Module> Ema<M> {
    /// Makes an average that starts with the weights of `model`.
    pub fn new(model: &M, decay: f64) -> Self {
        Self { model: model.clone().map(&mut Detached), decay, steps: 0 }
    }

    /// Returns a copy of the trained model that has the averaged weights.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Returns the number of updates so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Replaces the averaged weights by the weights of `model`, which an average had after `steps` updates. For a
    /// resumed run.
    pub fn restore(&mut self, model: M, steps: u64) {
        self.model = model.map(&mut Detached);
        self.steps = steps;
    }

    /// Updates the average with the weights of `model`, the same model one step later.
    pub fn update(&mut self, model: &M) {
        self.steps += 1;
        let steps = self.steps as f64;
        let decay = self.decay.min((1.0 + steps) / (10.0 + steps));
        let mut weights = Weights(HashMap::new());
        model.visit(&mut weights);
        let mut towards = MoveTowards { weights: weights.0, decay };
        self.model = self.model.clone().map(&mut towards);
    }
}

/// Maps parameters to the same values without autodiff.
struct Detached;

impl ModuleMapper for Detached {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|value| value.detach().set_require_grad(false))
    }
}

/// Collects the weights of a model by parameter id, to find the weight that belongs to each averaged weight. A clone of
/// a model has the ids of the original.
struct Weights(HashMap<ParamId, Box<dyn Any>>);

impl ModuleVisitor for Weights {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.insert(param.id, Box::new(param.val().without_autodiff()));
    }
}

struct MoveTowards {
    weights: HashMap<ParamId, Box<dyn Any>>,
    decay: f64,
}

impl ModuleMapper for MoveTowards {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(new) = self.weights.remove(&param.id) else { return param };
        let new = *new.downcast::<Tensor<D>>().expect("a parameter keeps its rank");
        let decay = self.decay;
        param.map(|old| {
            let old = old.without_autodiff();
            Tensor::from_inner(old * decay + new * (1.0 - decay))
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use plimsoll_tape::collect;

    use super::*;

    #[derive(Module, Debug)]
    struct Point {
        place: Param<Tensor<1>>,
    }

    #[test]
    fn ema_follows_the_weights_and_does_not_change_them() {
        let point = Point { place: Param::from_data([1.0, -2.0], &Device::flex().autodiff()) };
        let moved = point.clone().map(&mut Moved);
        let mut ema = Ema::new(&point, 0.5);
        let mut mean = 1.0;
        for step in 1..=20 {
            ema.update(&moved);
            let decay = f64::min(0.5, (1.0 + f64::from(step)) / (10.0 + f64::from(step)));
            mean = decay * mean + (1.0 - decay) * 3.0;
        }
        assert!((f64::from(collect(ema.model())[0].values[0]) - mean).abs() < 1e-6);
        assert_eq!(collect(&moved)[0].values, [3.0, 0.0]);
        assert!(moved.place.val().is_require_grad());
    }

    struct Moved;
    impl ModuleMapper for Moved {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|value| (value.detach() + 2.0).detach().set_require_grad(true))
        }
    }
}
