//! Graph nodes of a rematerialized block.
//!
//! ```text
//! inputs --> joins --> hub --> one exit for each output
//! ```
//!
//! An operation of Burn has one output and a fixed number of inputs. Join nodes compute nothing; they connect the
//! inputs that require a gradient, so that the hub runs before their operations in the backward pass. Each exit stores
//! the gradient of one output in a slot. The hub runs after all exits: it computes the block again and distributes the
//! gradients.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, Tensor};
use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_dispatch::backends::autodiff::Autodiff;

use crate::FloatMapper;
use crate::bridge::{PrimitiveBackend, inner_device};

/// Primitive of a tensor with autodiff. It keeps the node of the tensor in the graph alive.
pub(crate) type TrackedTensor<B> = FloatTensor<Autodiff<B>>;

/// Gradients of the inputs and parameters of a block from its second pass, each with the node of the input or parameter
/// in the graph of the first pass.
pub(crate) type Outcome<B> = Vec<(NodeId, FloatTensor<B>)>;

/// Function that computes a block again, runs the backward pass of the block, and returns the gradients.
pub(crate) type Run<B> = Arc<dyn Fn() -> Outcome<B> + Send + Sync>;

/// Slots for the gradients of the outputs of a block, one slot for each output. The exit nodes fill them in the
/// backward pass, and the hub reads them.
pub(crate) struct Slots<B: PrimitiveBackend>(Arc<Mutex<Vec<Option<FloatTensor<B>>>>>);

impl<B: PrimitiveBackend> Default for Slots<B> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<B: PrimitiveBackend> Clone for Slots<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: PrimitiveBackend> Slots<B> {
    /// Adds an empty slot for the gradient of one more output, and returns the index of the slot.
    fn add(&self) -> usize {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push(None);
        slots.len() - 1
    }

    fn store(&self, index: usize, gradient: FloatTensor<B>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(gradient);
    }

    /// Returns the stored gradients in the order of the outputs, `None` for an output without one, and removes all
    /// slots.
    pub(crate) fn take(&self) -> Vec<Option<FloatTensor<B>>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Wrapper of the state of a graph node: Burn requires `Clone` and `Debug` for the state, and functions and slots lack
/// `Debug`.
struct Opaque<T>(T);

impl<T: Clone> Clone for Opaque<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block to compute again")
    }
}

/// Creates the graph node that computes a block again with `run`: in the backward pass it runs after the nodes of the
/// block's outputs and before the nodes of `inputs`.
pub(crate) fn hub<B: PrimitiveBackend>(
    inputs: Vec<TrackedTensor<B>>,
    run: Run<B>,
    device: &Device,
) -> TrackedTensor<B> {
    hub_of::<B>(inputs, run, B::plain(Tensor::<1>::zeros([1], &inner_device(device))))
}

/// Returns the nodes of `inputs`, `None` for one that requires no gradient, and the inputs that require one.
pub(crate) fn with_nodes<B: PrimitiveBackend>(
    inputs: impl IntoIterator<Item = TrackedTensor<B>>,
) -> (Vec<Option<NodeId>>, Vec<TrackedTensor<B>>) {
    let (mut nodes, mut tracked) = (Vec::new(), Vec::new());
    for input in inputs {
        nodes.push(input.is_tracked().then(|| input.id()));
        if input.is_tracked() {
            tracked.push(input);
        }
    }
    (nodes, tracked)
}

/// Creates the node as [`hub`] does. `nothing` is any tensor: nodes need one, and its values are not used.
pub(crate) fn hub_of<B: PrimitiveBackend>(
    inputs: Vec<TrackedTensor<B>>,
    run: Run<B>,
    nothing: FloatTensor<B>,
) -> TrackedTensor<B> {
    // If no input requires a gradient, the parameters still do: an unused leaf takes the place of the inputs.
    let leaf = || B::tracked(B::constant::<1>(nothing.clone()).require_grad());
    let joined = inputs.into_iter().reduce(|a, b| join::<B>(a, b, nothing.clone())).unwrap_or_else(leaf);
    match Hub::<B>(PhantomData).prepare::<NoCheckpointing>([joined.node()]).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish(Opaque(run), nothing),
        OpsKind::UnTracked(step) => step.finish(nothing),
    }
}

fn join<B: PrimitiveBackend>(a: TrackedTensor<B>, b: TrackedTensor<B>, nothing: FloatTensor<B>) -> TrackedTensor<B> {
    match Join::<B>(PhantomData).prepare::<NoCheckpointing>([a.node(), b.node()]).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((), nothing),
        OpsKind::UnTracked(step) => step.finish(nothing),
    }
}

/// Mapper over the outputs of a block in the first pass: gives each output an exit node, which depends on the hub and
/// stores the gradient of the output in a slot.
pub(crate) struct Exit<B: PrimitiveBackend> {
    pub(crate) hub: TrackedTensor<B>,
    pub(crate) slots: Slots<B>,
}

impl<B: PrimitiveBackend> FloatMapper for Exit<B> {
    fn map_float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        if !tensor.is_autodiff() {
            return tensor;
        }
        let output = B::plain(tensor);
        let index = self.slots.add();
        let step = ExitStep::<B>(PhantomData).prepare::<NoCheckpointing>([self.hub.node()]).compute_bound().stateful();
        B::from_tracked(match step {
            OpsKind::Tracked(step) => step.finish(Opaque((index, self.slots.clone())), output),
            OpsKind::UnTracked(step) => step.finish(output),
        })
    }
}

/// Builds a scalar whose backward pass gives `output` the gradient `grad_output`.
pub(crate) fn gradient_root<B: PrimitiveBackend, const D: usize>(
    output: Tensor<D>,
    grad_output: FloatTensor<B>,
) -> Tensor<1> {
    let nothing = B::plain(Tensor::<1>::zeros([1], &inner_device(&output.device())));
    let output = B::tracked(output);
    let step = Seed::<B>(PhantomData).prepare::<NoCheckpointing>([output.node()]).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish(Opaque(grad_output), nothing),
        OpsKind::UnTracked(step) => step.finish(nothing),
    })
}

#[derive(Debug)]
struct Join<B>(PhantomData<B>);

impl<B: PrimitiveBackend> Backward<B, 2> for Join<B> {
    type State = ();

    fn backward(self, _: Ops<(), 2>, _: &mut Gradients, _: &mut Checkpointer) {}
}

#[derive(Debug)]
struct Hub<B>(PhantomData<B>);

impl<B: PrimitiveBackend> Backward<B, 1> for Hub<B> {
    type State = Opaque<Run<B>>;

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        for (node, gradient) in (ops.state.0)() {
            gradients.register::<B>(node, gradient);
        }
    }
}

#[derive(Debug)]
struct ExitStep<B>(PhantomData<B>);

impl<B: PrimitiveBackend> Backward<B, 1> for ExitStep<B> {
    type State = Opaque<(usize, Slots<B>)>;

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (index, slots) = ops.state.0;
        slots.store(index, gradients.consume::<B>(&ops.node));
    }
}

#[derive(Debug)]
struct Seed<B>(PhantomData<B>);

impl<B: PrimitiveBackend> Backward<B, 1> for Seed<B> {
    type State = Opaque<FloatTensor<B>>;

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        if let Some(parent) = &ops.parents[0] {
            gradients.register::<B>(parent.id, ops.state.0);
        }
    }
}
