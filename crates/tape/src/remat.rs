//! Rematerialisation: a block keeps its inputs alone and computes its inside a second time in the backward pass.

mod leaves;
mod nodes;
mod statistics;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_autodiff::NodeId;
use burn_backend::tensor::FloatTensor;

use crate::bridge::{Surface, on_backend};
use crate::{FloatMapper, Tensors, is_recording};
use leaves::{Leaves, Take};
use nodes::{Exit, Outcome, Slots, hub, seed};
use statistics::Statistics;

/// Computes `block(module, inputs)`, keeping `inputs` and nothing that is made inside; the backward pass computes it
/// again.
///
/// Inputs and outputs are tensors in any [arrangement](Tensors), floats with and without a gradient among them. Results
/// and gradients are those of `block(module, inputs)` itself, to the last bit on the CPU: both passes run the same
/// kernels, and what is random in the block must come from a [`Pass`](crate::Pass), which draws the same twice. Running
/// statistics, such as those of Burn's `BatchNorm`, move once. Whatever else the block reads (lengths, masks, the pass)
/// it captures; tensors captured so are constants to it. Parameters may be shared with other blocks, and blocks may be
/// nested.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Tensor};
/// use plimsoll_core::Key;
/// use plimsoll_tape::{backward, initialise, remat, silu};
///
/// let device = Device::flex().autodiff();
/// let layer = initialise(LinearConfig::new(3, 3).init(&device), Key::new(1));
/// let x = Tensor::<2>::ones([4, 3], &device);
/// let (y, z) = remat(&layer, (x.clone(), x), |layer, (x, left)| {
///     let y = silu(layer.forward(x));
///     (y.clone(), y * left)
/// });
/// assert_eq!(backward((y + z).sum(), &layer).len(), 2);
/// ```
pub fn remat<M, I, O, F>(module: &M, inputs: I, block: F) -> O
where
    M: Module + Sync + 'static,
    I: Tensors,
    O: Tensors,
    F: Fn(&M, I) -> O + Send + Sync + 'static,
{
    let (inputs, device) = device_of(module, inputs);
    match device {
        Some(device) => on_backend!(&device, B => remat_on::<B, M, I, O, F>(module, inputs, block, &device)),
        None => block(module, inputs),
    }
}

/// The autodiff device that anything is on, if one is.
fn device_of<M: Module, I: Tensors>(module: &M, inputs: I) -> (I, Option<Device>) {
    struct Look(Option<Device>);
    impl FloatMapper for Look {
        fn float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
            if tensor.is_autodiff() {
                self.0.get_or_insert_with(|| tensor.device());
            }
            tensor
        }
    }
    let mut look = Look(module.devices().into_iter().find(Device::is_autodiff));
    (inputs.map_floats(&mut look), look.0)
}

fn remat_on<B: Surface, M, I, O, F>(module: &M, inputs: I, block: F, device: &Device) -> O
where
    M: Module + Sync + 'static,
    I: Tensors,
    O: Tensors,
    F: Fn(&M, I) -> O + Send + Sync + 'static,
{
    let mut enter = Enter::<B> { guards: Vec::new(), nodes: Vec::new() };
    let kept = inputs.map_floats(&mut enter);
    // On the autodiff device, where dropout and batch norm act, but with nothing that requires a gradient.
    let outputs = block(&module.clone().map(&mut Leaves::<B>::silent()), kept.clone());
    let slots = Slots::default();
    let (module, nodes, above) = (module.clone(), enter.nodes, slots.clone());
    let recorded = !is_recording(device);
    let run = move || {
        let statistics = recorded.then(|| Statistics::<B>::of(&module));
        let found = second_pass::<B, M, I, O, F>(&module, kept.clone(), &nodes, &block, above.take());
        if let Some(statistics) = statistics {
            statistics.put_back(&module);
        }
        found
    };
    let hub = hub::<B>(enter.guards, Arc::new(run), device);
    outputs.map_floats(&mut Exit { hub, slots })
}

/// Takes the inputs off the tape, remembering where on it they were.
struct Enter<B: Surface> {
    guards: Vec<nodes::Guard<B>>,
    /// For each float input the node that its gradient goes to, if it wants one.
    nodes: Vec<Option<NodeId>>,
}

impl<B: Surface> FloatMapper for Enter<B> {
    fn float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        if !tensor.is_autodiff() {
            self.nodes.push(None);
            return tensor;
        }
        let wanted = tensor.is_tracked();
        let input = B::tracked(tensor);
        let kept = B::lifted::<D>(input.clone().into_primitive());
        self.nodes.push(wanted.then(|| input.node().id()));
        if wanted {
            self.guards.push(input);
        }
        kept
    }
}

/// Runs `block` with a tape of its own and takes that one back.
fn second_pass<B: Surface, M: Module, I: Tensors, O: Tensors, F: Fn(&M, I) -> O>(
    module: &M,
    kept: I,
    nodes: &[Option<NodeId>],
    block: &F,
    above: Vec<Option<FloatTensor<B>>>,
) -> Outcome<B> {
    let mut leaves = Leaves::<B>::recorded();
    let module = module.clone().map(&mut leaves);
    let mut again = Again::<B> { nodes: nodes.iter(), found: leaves.found };
    let inputs = kept.map_floats(&mut again);
    let mut ends = Ends::<B> { above: above.into_iter(), total: None };
    let _ = block(&module, inputs).map_floats(&mut ends);
    let Some(total) = ends.total else { return Vec::new() };
    let mut tape = B::tracked(total).backward();
    again.found.into_iter().filter_map(|(node, take)| Some((node, take(&mut tape)?))).collect()
}

/// Puts the inputs that want a gradient on the tape of the second pass.
struct Again<'a, B: Surface> {
    nodes: std::slice::Iter<'a, Option<NodeId>>,
    found: Vec<(NodeId, Take<B>)>,
}

impl<B: Surface> FloatMapper for Again<'_, B> {
    fn float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        let Some(Some(node)) = self.nodes.next() else { return tensor };
        let leaf = tensor.require_grad();
        self.found.push((*node, leaves::take::<B, D>(&leaf)));
        leaf
    }
}

/// Joins the outputs of the second pass to one root that hands each the gradient it had from above.
struct Ends<B: Surface> {
    above: std::vec::IntoIter<Option<FloatTensor<B>>>,
    total: Option<Tensor<1>>,
}

impl<B: Surface> FloatMapper for Ends<B> {
    fn float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        if !tensor.is_autodiff() {
            return tensor;
        }
        if let (Some(Some(above)), true) = (self.above.next(), tensor.is_tracked()) {
            let seed = seed::<B, D>(tensor.clone(), above);
            self.total = Some(match self.total.take() {
                Some(total) => total + seed,
                None => seed,
            });
        }
        tensor
    }
}
