//! Running statistics move once, though a block runs twice.

use std::collections::HashMap;
use std::marker::PhantomData;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use burn_backend::tensor::FloatTensor;

use crate::bridge::Surface;

/// The values of a module that nothing differentiates, as they were.
///
/// Burn's `RunningState` is shared between the clones of a module and written in place; it keeps an update of each
/// thread apart until somebody asks. `valid()` asks.
pub(super) struct Statistics<B: Surface>(HashMap<ParamId, FloatTensor<B>>);

impl<B: Surface> Statistics<B> {
    /// Those of `module` at this moment.
    pub(super) fn of<M: Module>(module: &M) -> Self {
        let mut found = Look::<B> { any: false, values: None };
        module.visit(&mut found);
        if !found.any {
            return Self(HashMap::new());
        }
        let _ = module.valid();
        found.values = Some(HashMap::new());
        module.visit(&mut found);
        Self(found.values.unwrap_or_default())
    }

    /// Gives `module` its statistics back.
    pub(super) fn put_back<M: Module>(self, module: &M) {
        if !self.0.is_empty() {
            let _ = module.valid();
            let _ = module.clone().map(&mut PutBack::<B>(self.0, PhantomData));
        }
    }
}

struct Look<B: Surface> {
    any: bool,
    values: Option<HashMap<ParamId, FloatTensor<B>>>,
}

impl<B: Surface> ModuleVisitor for Look<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if value.is_require_grad() {
            return;
        }
        self.any = true;
        if let Some(values) = &mut self.values {
            values.insert(param.id, B::plain(value));
        }
    }
}

struct PutBack<B: Surface>(HashMap<ParamId, FloatTensor<B>>, PhantomData<B>);

impl<B: Surface> ModuleMapper for PutBack<B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(value) = self.0.remove(&param.id) else { return param };
        param.map(|now| if now.is_autodiff() { B::lifted::<D>(value) } else { B::from_plain::<D>(value) })
    }
}
