//! Rematerialization: a block keeps only its inputs, and the backward pass computes its intermediate values again.

mod leaves;
pub(crate) mod nodes;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use burn_autodiff::NodeId;
use burn_backend::tensor::FloatTensor;

use crate::bridge::{PrimitiveBackend, on_backend};
use crate::buffers::BufferSnapshot;
use crate::capture::off_tape;
use crate::{FloatMapper, Pass, TensorTree, is_capture_device};
use leaves::{Leaves, TakeGradient};
use nodes::{Exit, Outcome, Slots, gradient_root, hub};

/// Computes `block(module, inputs)` and keeps only `inputs`; the backward pass computes the block again. This saves the
/// memory of intermediate values and costs a second forward pass.
///
/// Inputs and outputs are [nested collections of tensors](TensorTree); floats with and without a gradient may be mixed.
///
/// - Results and gradients equal those of `block(module, inputs)`, to the last bit on the CPU: both passes run the same
///   kernels. Randomness in the block must come from a [`Pass`](crate::Pass), which draws the same values twice.
/// - Running statistics, such as the statistics of Burn's `BatchNorm`, are updated once.
/// - The closure may capture other data, such as lengths, masks and the pass. Captured tensors are constants: they get
///   no gradient.
/// - Blocks may share parameters and may be nested.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Tensor};
/// use plimsoll_core::Key;
/// use plimsoll_tape::activation::silu;
/// use plimsoll_tape::{backward, initialize, remat};
///
/// let device = Device::flex().autodiff();
/// let layer = initialize(LinearConfig::new(3, 3).init(&device), Key::new(1));
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
    I: TensorTree,
    O: TensorTree,
    F: Fn(&M, I) -> O + Send + Sync + 'static,
{
    let (inputs, device) = device_of(module, inputs);
    let Some(device) = device else { return block(module, inputs) };
    on_backend!(&device, B => remat_on::<B, _, _, _, _, _>(module, inputs, block, NoTail, &device))
}

/// Rematerializes like [`remat`], for a block that ends in the linear layer `tail`: applies `tail` to
/// `block(module, inputs)`. The second pass skips the matrix product of `tail`, because no gradient depends on it.
///
/// In layers that end in a matrix product, such as feed-forward and attention layers, this product is about a third of
/// the second pass.
pub fn remat_dense<M, I, F, const D: usize>(
    module: &M,
    inputs: I,
    block: F,
    tail: fn(&M) -> &Linear,
    pass: &Pass,
) -> Tensor<D>
where
    M: Module + Sync + 'static,
    I: TensorTree,
    F: Fn(&M, I) -> Tensor<D> + Send + Sync + 'static,
{
    let (inputs, device) = device_of(module, inputs);
    let Some(device) = device else { return pass.dense(tail(module), block(module, inputs)) };
    on_backend!(&device, B => remat_on::<B, _, _, _, _, _>(
        module,
        inputs,
        block,
        Tail { layer: tail, pass: pass.clone() },
        &device,
    ))
}

/// Last computation of a rematerialized block, after the closure of the caller: nothing (`NoTail`) or a linear layer
/// (`Tail`). Defines the outputs of the block in the first pass, and where the output gradients enter the second pass.
trait BlockEnd<B: PrimitiveBackend, M, O: TensorTree>: Send + Sync + 'static {
    /// Computes the outputs of the block in the first pass from `outputs`, the results of the caller's closure.
    fn value(&self, module: &M, outputs: O) -> O;
    /// Builds, in the second pass, a scalar whose backward pass starts from `grad_output`, the gradients of the outputs
    /// of the block. `outputs` are the results of the caller's closure. `None` if no tensor gets a gradient.
    fn root(&self, module: &M, outputs: O, grad_output: Vec<Option<FloatTensor<B>>>) -> Option<Tensor<1>>;
}

/// End of a block that has no tail: returns the outputs of the block unchanged.
struct NoTail;

impl<B: PrimitiveBackend, M, O: TensorTree> BlockEnd<B, M, O> for NoTail {
    fn value(&self, _: &M, outputs: O) -> O {
        outputs
    }

    fn root(&self, _: &M, outputs: O, grad_output: Vec<Option<FloatTensor<B>>>) -> Option<Tensor<1>> {
        let mut ends = OutputRoots::<B> { grad_output: grad_output.into_iter(), total: None };
        let _ = outputs.map_floats(&mut ends);
        ends.total
    }
}

/// End of a block with a linear layer as the tail; the second pass skips the matrix product of the layer.
struct Tail<M> {
    layer: fn(&M) -> &Linear,
    pass: Pass,
}

impl<B: PrimitiveBackend, M: 'static, const D: usize> BlockEnd<B, M, Tensor<D>> for Tail<M> {
    fn value(&self, module: &M, output: Tensor<D>) -> Tensor<D> {
        self.pass.dense((self.layer)(module), output)
    }

    fn root(&self, module: &M, output: Tensor<D>, grad_output: Vec<Option<FloatTensor<B>>>) -> Option<Tensor<1>> {
        let grad_output = B::from_plain::<D>(grad_output.into_iter().next()??);
        let (layer, shape) = ((self.layer)(module), output.dims());
        let rows = shape[..D - 1].iter().product::<usize>();
        let untracked = |x: Tensor<2>| B::from_plain::<2>(B::plain(x));
        let weight = self.pass.to_compute_dtype(layer.weight.base());
        let grad_output = grad_output.reshape([rows, weight.dims()[1]]);
        let low = self.pass.to_compute_dtype(untracked(output.clone().reshape([rows, shape[D - 1]])));
        let mut grad_input = grad_output.clone().matmul(untracked(weight.clone()).transpose());
        let mut roots = Roots::<B>(None, PhantomData);
        if let Some(adapter) = layer.weight.adapter() {
            let [a, b] = [&adapter.a, &adapter.b].map(|factor| self.pass.to_compute_dtype(factor.val()));
            let inner = grad_output.clone().matmul(untracked(b.clone()).transpose()) * adapter.scale;
            grad_input = grad_input + inner.clone().matmul(untracked(a.clone()).transpose());
            let reduced = low.clone().matmul(untracked(a.clone())) * adapter.scale;
            roots.add(a, low.clone().transpose().matmul(inner));
            roots.add(b, reduced.transpose().matmul(grad_output.clone()));
        }
        roots.add(output, grad_input.reshape(shape));
        if weight.is_tracked() {
            roots.add(weight, low.transpose().matmul(grad_output.clone()));
        }
        if let Some(bias) = &layer.bias {
            let [width] = bias.val().dims();
            roots.add(self.pass.to_compute_dtype(bias.val()), grad_output.sum_dim(0).reshape([width]));
        }
        roots.0
    }
}

/// Sum of scalars, built to start a backward pass: each scalar gives one tensor a gradient that is already known.
struct Roots<B>(Option<Tensor<1>>, PhantomData<B>);

impl<B: PrimitiveBackend> Roots<B> {
    fn add<const D: usize>(&mut self, tensor: Tensor<D>, gradient: Tensor<D>) {
        if !tensor.is_tracked() {
            return;
        }
        let gradient = if gradient.dtype() == tensor.dtype() { gradient } else { gradient.cast(tensor.dtype()) };
        let root = gradient_root::<B, D>(tensor, B::plain(gradient));
        self.0 = Some(match self.0.take() {
            Some(total) => total + root,
            None => root,
        });
    }
}

/// Returns `inputs` unchanged, and the first autodiff device among the devices of the module and the inputs; `None` if
/// none of them has autodiff.
fn device_of<M: Module, I: TensorTree>(module: &M, inputs: I) -> (I, Option<Device>) {
    struct FindDevice(Option<Device>);
    impl FloatMapper for FindDevice {
        fn map_float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
            if tensor.is_autodiff() {
                self.0.get_or_insert_with(|| tensor.device());
            }
            tensor
        }
    }
    let mut find = FindDevice(module.devices().into_iter().find(Device::is_autodiff));
    (inputs.map_floats(&mut find), find.0)
}

fn remat_on<B: PrimitiveBackend, M, I, O, F, E>(module: &M, inputs: I, block: F, end: E, device: &Device) -> O
where
    M: Module + Sync + 'static,
    I: TensorTree,
    O: TensorTree,
    F: Fn(&M, I) -> O + Send + Sync + 'static,
    E: BlockEnd<B, M, O>,
{
    let mut save = SaveInputs::<B> { guards: Vec::new(), nodes: Vec::new() };
    let kept = inputs.map_floats(&mut save);
    // The first pass runs on the autodiff device, where dropout and batch norm are active, with constants that record
    // no graph.
    let mut leaves = Leaves::<B>::without_gradients();
    let constants = module.clone().map(&mut leaves);
    let outputs = off_tape(|| parameters(module), || end.value(&constants, block(&constants, kept.clone())));
    drop(leaves);
    let slots = Slots::default();
    let (module, nodes, grad_output) = (module.clone(), save.nodes, slots.clone());
    let has_values = !is_capture_device(device);
    let run = move || {
        let buffers = has_values.then(|| BufferSnapshot::from_module(&module));
        let found = second_pass::<B, M, I, O, F, E>(&module, kept.clone(), &nodes, (&block, &end), grad_output.take());
        if let Some(buffers) = buffers {
            let _ = buffers.restore(&module);
        }
        found
    };
    let hub = hub::<B>(save.guards, Arc::new(run), device);
    outputs.map_floats(&mut Exit { hub, slots })
}

/// Counts the parameters of `module`.
fn parameters<M: Module>(module: &M) -> usize {
    struct Count(usize);
    impl ModuleVisitor for Count {
        fn visit_float<const D: usize>(&mut self, _: &Param<Tensor<D>>) {
            self.0 += 1;
        }
    }
    let mut count = Count(0);
    module.visit(&mut count);
    count.0
}

/// Mapper over the inputs of a block that runs before the first pass: returns a copy of each input without its graph,
/// and stores the graph node of the input.
struct SaveInputs<B: PrimitiveBackend> {
    guards: Vec<nodes::TrackedTensor<B>>,
    /// For each float input, the graph node at which the second pass registers the gradient of the input; `None` if the
    /// input requires no gradient.
    nodes: Vec<Option<NodeId>>,
}

impl<B: PrimitiveBackend> FloatMapper for SaveInputs<B> {
    fn map_float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        if !tensor.is_autodiff() {
            self.nodes.push(None);
            return tensor;
        }
        let wanted = tensor.is_tracked();
        let input = B::tracked(tensor);
        let kept = B::constant::<D>(input.clone().into_primitive());
        self.nodes.push(wanted.then(|| input.node().id()));
        if wanted {
            self.guards.push(input);
        }
        kept
    }
}

/// Computes `block` again with a graph of its own, and runs the backward pass of that graph from `grad_output`. Returns
/// the gradients of parameters and inputs, each with its node in the graph of the first pass.
fn second_pass<
    B: PrimitiveBackend,
    M: Module,
    I: TensorTree,
    O: TensorTree,
    F: Fn(&M, I) -> O,
    E: BlockEnd<B, M, O>,
>(
    module: &M,
    kept: I,
    nodes: &[Option<NodeId>],
    (block, end): (&F, &E),
    grad_output: Vec<Option<FloatTensor<B>>>,
) -> Outcome<B> {
    let mut leaves = Leaves::<B>::with_gradients();
    let module = module.clone().map(&mut leaves);
    let Leaves { found, low: _in_use, .. } = leaves;
    let mut restore = RestoreInputs::<B> { nodes: nodes.iter(), found };
    let inputs = kept.map_floats(&mut restore);
    let outputs = block(&module, inputs);
    let Some(total) = end.root(&module, outputs, grad_output) else { return Vec::new() };
    let mut tape = B::tracked(total).backward();
    restore.found.into_iter().filter_map(|(node, take)| Some((node, take(&mut tape)?))).collect()
}

/// Mapper over the saved inputs of a block that runs before the second pass: inputs that require a gradient become
/// leaves of the graph of the second pass.
struct RestoreInputs<'a, B: PrimitiveBackend> {
    nodes: std::slice::Iter<'a, Option<NodeId>>,
    found: Vec<(NodeId, TakeGradient<B>)>,
}

impl<B: PrimitiveBackend> FloatMapper for RestoreInputs<'_, B> {
    fn map_float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        let Some(Some(node)) = self.nodes.next() else { return tensor };
        let leaf = tensor.require_grad();
        self.found.push((*node, leaves::take::<B, D>(&leaf)));
        leaf
    }
}

/// Mapper over the outputs of a block in the second pass: builds for each output a scalar whose backward pass gives the
/// output its known gradient, and adds the scalars up.
struct OutputRoots<B: PrimitiveBackend> {
    grad_output: std::vec::IntoIter<Option<FloatTensor<B>>>,
    total: Option<Tensor<1>>,
}

impl<B: PrimitiveBackend> FloatMapper for OutputRoots<B> {
    fn map_float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        if !tensor.is_autodiff() {
            return tensor;
        }
        if let (Some(Some(grad_output)), true) = (self.grad_output.next(), tensor.is_tracked()) {
            let root = gradient_root::<B, D>(tensor.clone(), grad_output);
            self.total = Some(match self.total.take() {
                Some(total) => total + root,
                None => root,
            });
        }
        tensor
    }
}
