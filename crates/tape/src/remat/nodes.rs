//! What a rematerialised block leaves on the tape.
//!
//! ```text
//! inputs --> joins --> hub --> one exit for each output
//! ```
//!
//! Burn's operations have one output and a fixed number of inputs. Here the inputs that want a gradient are joined by
//! nodes that compute nothing and only keep the order; the exits leave the gradients from above in slots; and the hub,
//! which runs when all of them have, runs the block again and hands out what it finds.

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

/// A tensor that holds its place on the tape.
pub(super) type TrackedTensor<B> = FloatTensor<Autodiff<B>>;

/// The gradients that a second run gives, each with the node it belongs to.
pub(super) type Outcome<B> = Vec<(NodeId, FloatTensor<B>)>;

/// Runs a block again.
pub(super) type Run<B> = Arc<dyn Fn() -> Outcome<B> + Send + Sync>;

/// Where the exits leave the gradients from above.
pub(super) struct Slots<B: PrimitiveBackend>(Arc<Mutex<Vec<Option<FloatTensor<B>>>>>);

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
    /// A new slot, and its place.
    fn open(&self) -> usize {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push(None);
        slots.len() - 1
    }

    fn leave(&self, place: usize, gradient: FloatTensor<B>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(gradient);
    }

    /// All that was left, in the order of the outputs.
    pub(super) fn take(&self) -> Vec<Option<FloatTensor<B>>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// State that Burn wants to clone and print.
struct Opaque<T>(T);

impl<T: Clone> Clone for Opaque<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block to run again")
    }
}

/// The node that runs a block again, after all that `inputs` are made from and before all that is made from it.
pub(super) fn hub<B: PrimitiveBackend>(
    inputs: Vec<TrackedTensor<B>>,
    run: Run<B>,
    device: &Device,
) -> TrackedTensor<B> {
    let nothing = B::plain(Tensor::<1>::zeros([1], &inner_device(device)));
    // Where no input wants a gradient, as in a batch, the parameters still do: a leaf that nobody asks stands in.
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

/// Puts each output behind the hub.
pub(super) struct Exit<B: PrimitiveBackend> {
    pub(super) hub: TrackedTensor<B>,
    pub(super) slots: Slots<B>,
}

impl<B: PrimitiveBackend> FloatMapper for Exit<B> {
    fn map_float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        if !tensor.is_autodiff() {
            return tensor;
        }
        let output = B::plain(tensor);
        let place = self.slots.open();
        let step = ExitStep::<B>(PhantomData).prepare::<NoCheckpointing>([self.hub.node()]).compute_bound().stateful();
        B::from_tracked(match step {
            OpsKind::Tracked(step) => step.finish(Opaque((place, self.slots.clone())), output),
            OpsKind::UnTracked(step) => step.finish(output),
        })
    }
}

/// A root for `output`: its backward pass hands `output` the gradient `above`.
pub(super) fn gradient_root<B: PrimitiveBackend, const D: usize>(
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
        let (place, slots) = ops.state.0;
        slots.leave(place, gradients.consume::<B>(&ops.node));
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
