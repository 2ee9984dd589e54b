//! Copies of the parameters of a module as leaves of another graph, for the two passes of a rematerialized block.

use burn::module::{ModuleMapper, Param};
use burn::tensor::Tensor;
use burn_autodiff::NodeId;
use burn_autodiff::grads::Gradients;
use burn_backend::tensor::FloatTensor;
use burn_dispatch::backends::autodiff::Autodiff;

use crate::bridge::PrimitiveBackend;
use crate::flat::{LowParameters, copy_at};

/// Function that removes the gradient of one leaf from the gradients of a backward pass and returns it; `None` if the
/// leaf got no gradient.
pub(super) type TakeGradient<B> = Box<dyn FnOnce(&mut Gradients) -> Option<FloatTensor<B>>>;

/// Returns a function that removes the gradient of `leaf` from the gradients of a backward pass and returns it; the
/// function returns `None` if `leaf` got no gradient.
pub(super) fn take<B: PrimitiveBackend, const D: usize>(leaf: &Tensor<D>) -> TakeGradient<B> {
    let leaf = B::tracked(leaf.clone());
    Box::new(move |tape| leaf.grad_remove(tape))
}

/// Mapper that replaces the parameters of a module by new leaves: without gradients for the first pass, with gradients
/// for the second pass.
pub(super) struct Leaves<B: PrimitiveBackend> {
    record: bool,
    /// For each leaf with a gradient, the graph node of the parameter that it replaces, and a function that takes the
    /// gradient of the leaf out of a backward pass.
    pub(super) found: Vec<(NodeId, TakeGradient<B>)>,
    /// Copies of the leaves in 16 bits, where the parameters have such copies. They are in use until this value is dropped.
    pub(super) low: LowParameters,
}

impl<B: PrimitiveBackend> Leaves<B> {
    pub(super) fn without_gradients() -> Self {
        Self { record: false, found: Vec::new(), low: LowParameters::default() }
    }

    pub(super) fn with_gradients() -> Self {
        Self { record: true, found: Vec::new(), low: LowParameters::default() }
    }
}

impl<B: PrimitiveBackend> ModuleMapper for Leaves<B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        if !value.is_autodiff() {
            return Param::from_mapped_value(id, value, mapper);
        }
        let required = value.is_require_grad() || value.is_tracked();
        let original = B::tracked(value);
        let node = original.id();
        let mut leaf_of = |node: NodeId, original: FloatTensor<Autodiff<B>>| {
            let leaf = B::constant::<D>(original.into_primitive()).set_require_grad(self.record && required);
            if self.record && required {
                self.found.push((node, take::<B, D>(&leaf)));
            }
            leaf
        };
        let leaf = leaf_of(node, original);
        if let Some(copy) = copy_at::<D>(node).map(B::tracked) {
            let copy = leaf_of(copy.id(), copy);
            self.low.add(B::tracked(leaf.clone()).id(), copy);
        }
        Param::from_mapped_value(id, leaf, mapper)
    }
}
