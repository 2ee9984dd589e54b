//! Exponential moving average of a model's weights, often a better model than the last step.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use plimsoll_tape::flat::{FlatLayout, FlatViews};
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
    /// Averaged weights in flat tensors, of which the parameters of `model` are `views`; empty if they are not.
    values: Vec<Tensor<1>>,
    views: FlatViews,
}

impl<M: Module> Ema<M> {
    /// Makes an average that starts with the weights of `model`.
    pub fn new(model: &M, decay: f64) -> Self {
        let model = model.clone().map(&mut Detached);
        Self { model, decay, steps: 0, values: Vec::new(), views: FlatViews::default() }
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
        let decay = self.next_decay();
        let mut weights = Weights(HashMap::new());
        model.visit(&mut weights);
        let mut towards = MoveTowards { weights: weights.0, decay };
        self.model = self.model.clone().map(&mut towards);
    }

    /// Updates the average with weights in flat tensors of `layout`.
    pub(crate) fn update_flat(&mut self, layout: &FlatLayout, weights: &[Tensor<1>]) {
        let decay = self.next_decay();
        let old = match !self.values.is_empty() && self.views.are_of(&self.model) {
            true => std::mem::take(&mut self.values),
            false => layout.gather_parameters(&self.model),
        };
        let pairs = old.into_iter().zip(weights);
        self.values = pairs.map(|(old, new)| old * decay + new.clone() * (1.0 - decay)).collect();
        let attached = layout.attach(self.model.clone(), self.values.clone());
        (self.model, self.views) = (attached.module, attached.views);
    }

    /// Counts an update, and returns its decay.
    fn next_decay(&mut self) -> f64 {
        self.steps += 1;
        let steps = self.steps as f64;
        self.decay.min((1.0 + steps) / (10.0 + steps))
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
