//! Operations over plain slices, put on the tape of the CPU backend.

use std::fmt::Debug;
use std::marker::PhantomData;

use burn::tensor::{DType, Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::TensorData;
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_dispatch::backends::Flex;
use burn_dispatch::backends::autodiff::Autodiff;

use crate::bridge::{Family, Surface, family};

type Plain = FloatTensor<Flex>;

/// An operation on `N` tensors, as passes over their values.
pub(crate) trait HostOp<const N: usize>: Clone + Debug + Send + Sync + 'static {
    /// Whether the backward pass reads the inputs; without, it is given none.
    const KEEPS: bool = true;

    /// The values of the result.
    fn forward(&self, inputs: [&[f32]; N]) -> Vec<f32>;

    /// The gradients by each input that is `wanted`, given the one that arrives from `above`.
    fn backward(&self, inputs: [&[f32]; N], above: &[f32], wanted: [bool; N]) -> [Option<Vec<f32>>; N];
}

/// Whether `tensor` is one that a [`HostOp`] can take.
pub(crate) fn is_host<const D: usize>(tensor: &Tensor<D>) -> bool {
    family(&tensor.device()) == Family::Flex && tensor.dtype() == DType::F32
}

/// What `read` makes of the values of a tensor that [is on the host](is_host) and off the tape.
pub(crate) fn host_values<R, const D: usize>(tensor: Tensor<D>, read: impl FnOnce(&[f32]) -> R) -> R {
    read(values(&Flex::plain(tensor).to_contiguous()))
}

/// Lets `change` write the values of `tensor`: in place where nobody else holds them, in a copy where somebody does.
pub(crate) fn change(tensor: Plain, change: impl FnOnce(&mut [f32])) -> Plain {
    let mut tensor = if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() };
    let count = tensor.shape().num_elements();
    if tensor.layout().start_offset() != 0 || tensor.bytes().len() != count * size_of::<f32>() {
        tensor = self::tensor(values(&tensor).to_vec(), tensor.shape());
    }
    change(tensor.storage_mut::<f32>());
    tensor
}

/// A tensor of any rank on its way into a [`HostOp`].
pub(crate) enum Input {
    /// On the tape.
    Tracked(FloatTensor<Autodiff<Flex>>),
    /// Outside it.
    Plain(Plain),
}

impl Input {
    pub(crate) fn of<const D: usize>(tensor: Tensor<D>) -> Self {
        if tensor.is_autodiff() { Self::Tracked(Flex::tracked(tensor)) } else { Self::Plain(Flex::plain(tensor)) }
    }

    fn plain(&self) -> Plain {
        let tensor = match self {
            Self::Tracked(tensor) => tensor.clone().into_primitive(),
            Self::Plain(tensor) => tensor.clone(),
        };
        tensor.to_contiguous()
    }

    fn tracked(self) -> FloatTensor<Autodiff<Flex>> {
        match self {
            Self::Tracked(tensor) => tensor,
            // The rank does not matter to the tape: only the node is asked for, which requires no gradient.
            Self::Plain(tensor) => {
                let count = tensor.shape().num_elements();
                Flex::tracked(Flex::from_plain::<1>(tensor.reshape(Shape::new([count]))).autodiff())
            }
        }
    }
}

/// Runs `op` on `inputs`; the result has `shape`, and is on the tape where any input is.
pub(crate) fn run<Op: HostOp<N>, const N: usize, const D: usize>(
    op: Op,
    inputs: [Input; N],
    shape: [usize; D],
) -> Tensor<D> {
    let plain = inputs.each_ref().map(Input::plain);
    let values = op.forward(plain.each_ref().map(values));
    let output = tensor(values, Shape::new(shape));
    if inputs.iter().all(|input| matches!(input, Input::Plain(_))) {
        return Flex::from_plain(output);
    }
    let nodes = inputs.map(|input| input.tracked().node());
    let step = HostStep::<Op, N>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
    Flex::from_tracked(match step {
        OpsKind::Tracked(step) => {
            let shapes = plain.each_ref().map(TensorMetadata::shape);
            step.finish((op, shapes, Op::KEEPS.then_some(plain)), output)
        }
        OpsKind::UnTracked(step) => step.finish(output),
    })
}

#[derive(Debug)]
struct HostStep<Op, const N: usize>(PhantomData<Op>);

impl<Op: HostOp<N>, const N: usize> Backward<Flex, N> for HostStep<Op, N> {
    type State = (Op, [Shape; N], Option<[Plain; N]>);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let above = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let (op, shapes, inputs) = ops.state;
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let inputs = inputs.as_ref().map_or([&[][..]; N], |inputs| inputs.each_ref().map(values));
        let found = op.backward(inputs, values(&above), wanted);
        for ((parent, shape), found) in ops.parents.iter().zip(shapes).zip(found) {
            if let (Some(parent), Some(found)) = (parent, found) {
                gradients.register::<Flex>(parent.id, tensor(found, shape));
            }
        }
    }
}

fn values(tensor: &Plain) -> &[f32] {
    tensor.as_slice().expect("contiguous, and of 32 bits")
}

fn tensor(values: Vec<f32>, shape: Shape) -> Plain {
    Plain::from_data(TensorData::new(values, shape))
}
