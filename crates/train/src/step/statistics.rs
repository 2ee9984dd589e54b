//! What a forward pass moves by itself: the running statistics of norms, which no gradient reaches.

use std::any::Any;
use std::collections::HashMap;

use burn::module::{ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use plimsoll_tape::Task;

/// The values of a model that are not trained, as they were: a piece that fails has moved them nonetheless.
#[derive(Default)]
pub(super) struct Statistics(HashMap<ParamId, Box<dyn Any>>);

impl Statistics {
    /// Those of `task`.
    pub(super) fn of<T: Task>(task: &T) -> Self {
        let mut found = Self::default();
        task.visit(&mut found);
        if !found.0.is_empty() {
            settle(task);
            task.visit(&mut found);
        }
        found
    }

    /// `task` with them as they were.
    pub(super) fn put_back<T: Task>(&self, task: &T) -> T {
        if self.0.is_empty() {
            return task.clone();
        }
        settle(task);
        task.clone().map(&mut PutBack(self))
    }
}

/// Lets `task` take over what its passes have found: Burn keeps the update of each thread apart until somebody asks for the
/// value, or for the model without its tape.
fn settle<T: Task>(task: &T) {
    let _ = task.valid();
}

impl ModuleVisitor for Statistics {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_require_grad() {
            self.0.insert(param.id, Box::new(value));
        }
    }
}

struct PutBack<'a>(&'a Statistics);

impl ModuleMapper for PutBack<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.0.0.get(&param.id).and_then(|value| value.downcast_ref::<Tensor<D>>()) {
            Some(value) => param.map(|_| value.clone()),
            None => param,
        }
    }
}
