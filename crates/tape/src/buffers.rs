//! Snapshots of module buffers: values such as running statistics that a forward pass changes and no gradient reaches.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;

/// Values of all float parameters of a module that require no gradient, at one moment.
///
/// A batch norm updates its running statistics in every forward pass. A repeated pass must update them only once, and
/// an abandoned step must not update them at all. Take a snapshot before the pass and restore it afterwards.
///
/// Burn's `RunningState` is shared between the clones of a module and written in place. Updates of other threads stay
/// pending until the value is read. A snapshot merges pending updates first; restoring affects all clones.
///
/// ```
/// use burn::nn::BatchNormConfig;
/// use burn::tensor::{Device, Tensor};
/// use plimsoll_tape::{BufferSnapshot, collect};
///
/// let device = Device::flex().autodiff();
/// let norm = BatchNormConfig::new(2).init(&device);
/// let before = BufferSnapshot::from_module(&norm);
/// let _ = norm.forward(Tensor::<3>::ones([4, 2, 3], &device));
/// let norm = before.restore(&norm);
/// let mean = collect(&norm).into_iter().find(|value| value.name == "running_mean").unwrap();
/// assert_eq!(mean.values, [0.0, 0.0]);
/// ```
#[derive(Default)]
pub struct BufferSnapshot(HashMap<ParamId, Box<dyn Any + Send>>);

impl BufferSnapshot {
    /// Takes a snapshot of the current buffers of `module`.
    pub fn from_module<M: Module>(module: &M) -> Self {
        let mut found = Self::default();
        module.visit(&mut found);
        if !found.0.is_empty() {
            merge_updates(module);
            module.visit(&mut found);
        }
        found
    }

    /// Restores the values in `module` and all its clones, and returns the module.
    pub fn restore<M: Module>(&self, module: &M) -> M {
        if self.0.is_empty() {
            return module.clone();
        }
        merge_updates(module);
        module.clone().map(&mut Restore(self))
    }
}

impl fmt::Debug for BufferSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BufferSnapshot").field(&self.0.keys()).finish()
    }
}

/// Merges the pending updates of all threads into the running statistics. `valid` reads every value, which merges them.
fn merge_updates<M: Module>(module: &M) {
    let _ = module.valid();
}

impl ModuleVisitor for BufferSnapshot {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_require_grad() {
            self.0.insert(param.id, Box::new(value.without_autodiff()));
        }
    }
}

struct Restore<'a>(&'a BufferSnapshot);

impl ModuleMapper for Restore<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(kept) = self.0.0.get(&param.id).and_then(|value| value.downcast_ref::<Tensor<D>>()) else {
            return param;
        };
        param.map(|now| if now.is_autodiff() { Tensor::from_inner(kept.clone()) } else { kept.clone() })
    }
}
