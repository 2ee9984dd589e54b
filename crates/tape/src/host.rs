//! Operations over host slices: computed on the CPU; recorded on a capture device, with the memory that they take.

use std::fmt::Debug;
use std::marker::PhantomData;

use burn::tensor::{DType, Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, TensorData, TensorMetadata};
use burn_dispatch::backends::autodiff::Autodiff;
use burn_dispatch::backends::{Capture, Flex};

use crate::bridge::{Family, PrimitiveBackend, family, runs_host_ops};

type Plain = FloatTensor<Flex>;

/// Operation on `N` tensors, defined by forward and backward passes over their values.
pub(crate) trait HostOp<const N: usize>: Clone + Debug + Send + Sync + 'static {
    /// Name of the operation in a capture.
    const NAME: &'static str;
    /// Whether the backward pass reads the inputs. If not, the inputs are not kept, and the backward pass gets empty
    /// slices.
    const KEEPS_INPUTS: bool = true;

    /// Returns the temporary memory of the forward or the backward pass.
    fn scratch(&self, is_backward: bool) -> HostScratch {
        let _ = is_backward;
        HostScratch::default()
    }

    /// Computes the values of the result.
    fn forward(&self, inputs: [&[f32]; N]) -> Vec<f32>;

    /// Computes the gradient of each input whose entry in `wanted` is true, given the gradient of the result. The
    /// entries of other inputs are not used.
    fn backward(&self, inputs: [&[f32]; N], grad_output: &[f32], wanted: [bool; N]) -> [Option<Vec<f32>>; N];
}

/// Temporary memory of an operation of the CPU, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostScratch {
    /// Memory of the whole operation.
    pub(crate) fixed: u64,
    /// Memory of each thread that works on it.
    pub(crate) each: u64,
    /// Number of tasks: with fewer tasks than threads, some threads have none.
    pub(crate) tasks: u64,
}

impl HostScratch {
    /// Returns the memory that the operation takes on `threads` threads, in bytes.
    pub(crate) fn bytes(self, threads: usize) -> u64 {
        self.fixed + self.each * self.tasks.min(threads as u64)
    }
}

/// Backend on which host operations run: it computes them, or records them with the memory that they would need.
pub(crate) trait HostBackend: PrimitiveBackend {
    /// Returns `tensor` with contiguous values, copied if they are not contiguous.
    fn contiguous(tensor: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Creates tensors of `shapes` with the values that `compute` returns, one list for each tensor. `compute` receives
    /// the values of `inputs`. A capture device records the operation `name` with the temporary memory `scratch`, and does not run `compute`.
    fn compute(
        name: &'static str,
        inputs: &[&FloatTensor<Self>],
        shapes: Vec<Shape>,
        scratch: HostScratch,
        compute: impl FnOnce(&[&[f32]]) -> Vec<Vec<f32>>,
    ) -> Vec<FloatTensor<Self>>;

    /// Runs `change`, which overwrites the values of `tensor`: in place if `tensor` is their only owner, otherwise in a
    /// copy. The arguments of `change` are these values, the values of a new tensor of shape `args.second_output` to
    /// fill, and the values of `args.inputs` to read. Returns the changed tensor and the new tensor. A capture device
    /// does not run `change`: it records the operation `name` with `args.scratch` bytes of temporary memory.
    fn change_in_place(
        name: &'static str,
        tensor: FloatTensor<Self>,
        args: InPlaceArgs<'_, Self>,
        change: impl FnOnce(&mut [f32], &mut [f32], &[&[f32]]),
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>);
}

/// Arguments of an operation that overwrites a tensor, besides this tensor: other tensors to read, the shape of a
/// second result if there is one, and the bytes of temporary memory that a capture counts.
pub(crate) struct InPlaceArgs<'a, B: PrimitiveBackend> {
    pub(crate) inputs: &'a [&'a FloatTensor<B>],
    pub(crate) second_output: Option<Shape>,
    pub(crate) scratch: usize,
}

impl<B: PrimitiveBackend> InPlaceArgs<'_, B> {
    /// Creates the arguments of an operation that reads no other tensor, has no second result, and uses `scratch` bytes
    /// of temporary memory.
    pub(crate) fn scratch(scratch: usize) -> Self {
        Self { inputs: &[], second_output: None, scratch }
    }
}

impl HostBackend for Flex {
    fn contiguous(tensor: Plain) -> Plain {
        tensor.to_contiguous()
    }

    fn compute(
        _: &'static str,
        inputs: &[&Plain],
        shapes: Vec<Shape>,
        _: HostScratch,
        compute: impl FnOnce(&[&[f32]]) -> Vec<Vec<f32>>,
    ) -> Vec<Plain> {
        let inputs: Vec<&[f32]> = inputs.iter().map(|tensor| values(tensor)).collect();
        compute(&inputs).into_iter().zip(shapes).map(|(values, shape)| tensor(values, shape)).collect()
    }

    fn change_in_place(
        _: &'static str,
        mut tensor: Plain,
        InPlaceArgs { inputs, second_output, .. }: InPlaceArgs<'_, Self>,
        change: impl FnOnce(&mut [f32], &mut [f32], &[&[f32]]),
    ) -> (Plain, Option<Plain>) {
        let mut new = vec![0.0; second_output.as_ref().map_or(0, Shape::num_elements)];
        tensor = if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() };
        let count = tensor.shape().num_elements();
        if tensor.layout().start_offset() != 0 || tensor.bytes().len() != count * size_of::<f32>() {
            tensor = self::tensor(values(&tensor).to_vec(), tensor.shape());
        }
        let inputs: Vec<&[f32]> = inputs.iter().map(|tensor| values(tensor)).collect();
        change(tensor.storage_mut::<f32>(), &mut new, &inputs);
        (tensor, second_output.map(|shape| self::tensor(new, shape)))
    }
}

/// Returns whether a [`HostOp`] can take `tensor`: fp32 values on the CPU, or on a capture device that simulates the
/// CPU.
pub(crate) fn is_host<const D: usize>(tensor: &Tensor<D>) -> bool {
    runs_host_ops(&tensor.device()) && tensor.dtype() == DType::F32
}

/// Returns whether `tensor` has fp32 values on the real CPU, not on a capture device that simulates it.
pub(crate) fn is_on_cpu<const D: usize>(tensor: &Tensor<D>) -> bool {
    family(&tensor.device()) == Family::Flex && tensor.dtype() == DType::F32
}

/// Runs `$body` with `$B` as the backend type of `$tensor`, which must be [on the host](is_host).
macro_rules! on_host {
    ($tensor:expr, $B:ident => $body:expr) => {
        match $crate::bridge::family(&$tensor.device()) {
            $crate::bridge::Family::Flex => {
                type $B = burn_dispatch::backends::Flex;
                $body
            }
            _ => {
                type $B = burn_dispatch::backends::Capture;
                $body
            }
        }
    };
}
pub(crate) use on_host;

/// Passes the values of a tensor to `read`. The tensor must be [on the CPU](is_on_cpu) and without autodiff.
pub(crate) fn with_cpu_values<R, const D: usize>(tensor: Tensor<D>, read: impl FnOnce(&[f32]) -> R) -> R {
    read(values(&Flex::plain(tensor).to_contiguous()))
}

/// Input of a [`HostOp`]: a tensor of any rank.
pub(crate) enum Input {
    /// Tensor on the CPU.
    Computed(MaybeTracked<Flex>),
    /// Tensor on a capture device that simulates the CPU.
    Recorded(MaybeTracked<Capture>),
}

/// Tensor with or without autodiff.
pub(crate) enum MaybeTracked<B: PrimitiveBackend> {
    /// Tensor with autodiff.
    Tracked(FloatTensor<Autodiff<B>>),
    /// Tensor without autodiff.
    Plain(FloatTensor<B>),
}

impl Input {
    pub(crate) fn new<const D: usize>(tensor: Tensor<D>) -> Self {
        match family(&tensor.device()) {
            Family::Flex => Self::Computed(MaybeTracked::new(tensor)),
            _ => Self::Recorded(MaybeTracked::new(tensor)),
        }
    }
}

impl<B: PrimitiveBackend> MaybeTracked<B> {
    pub(crate) fn new<const D: usize>(tensor: Tensor<D>) -> Self {
        if tensor.is_autodiff() { Self::Tracked(B::tracked(tensor)) } else { Self::Plain(B::plain(tensor)) }
    }

    /// Returns the tensor without autodiff.
    pub(crate) fn primitive(&self) -> FloatTensor<B> {
        match self {
            Self::Tracked(tensor) => tensor.clone().into_primitive(),
            Self::Plain(tensor) => tensor.clone(),
        }
    }

    /// Returns the tensor with autodiff; as a constant if it had none.
    pub(crate) fn tracked(self) -> FloatTensor<Autodiff<B>> {
        match self {
            Self::Tracked(tensor) => tensor,
            Self::Plain(tensor) => <Autodiff<B> as AutodiffBackend>::from_inner(tensor),
        }
    }
}

/// Runs `op` on `inputs`. The result has shape `shape`, and has autodiff if any input has autodiff.
pub(crate) fn run<Op: HostOp<N>, const N: usize, const D: usize>(
    op: Op,
    inputs: [Input; N],
    shape: [usize; D],
) -> Tensor<D> {
    if inputs.iter().any(|input| matches!(input, Input::Recorded(_))) {
        let recorded = |input| match input {
            Input::Recorded(tensor) => tensor,
            Input::Computed(_) => unreachable!("all inputs of an operation are on one device"),
        };
        return run_on::<Capture, Op, N, D>(op, inputs.map(recorded), shape);
    }
    let computed = |input| match input {
        Input::Computed(tensor) => tensor,
        Input::Recorded(_) => unreachable!("all inputs of an operation are on one device"),
    };
    run_on::<Flex, Op, N, D>(op, inputs.map(computed), shape)
}

fn run_on<B: HostBackend, Op: HostOp<N>, const N: usize, const D: usize>(
    op: Op,
    inputs: [MaybeTracked<B>; N],
    shape: [usize; D],
) -> Tensor<D> {
    let plain = inputs.each_ref().map(|input| B::contiguous(input.primitive()));
    let is_plain = inputs.iter().all(|input| matches!(input, MaybeTracked::Plain(_)));
    // An input that was copied to be contiguous is free from here on.
    let nodes = inputs.map(|input| input.tracked().node());
    let forward = |values: &[&[f32]]| vec![op.forward(std::array::from_fn(|tensor| values[tensor]))];
    let output = B::compute(Op::NAME, &plain.each_ref(), vec![Shape::new(shape)], op.scratch(false), forward).remove(0);
    if is_plain {
        return B::from_plain(output);
    }
    let step = HostStep::<B, Op, N>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => {
            let shapes = plain.each_ref().map(TensorMetadata::shape);
            step.finish((op, shapes, Op::KEEPS_INPUTS.then_some(plain)), output)
        }
        OpsKind::UnTracked(step) => step.finish(output),
    })
}

#[derive(Debug)]
struct HostStep<B, Op, const N: usize>(PhantomData<(B, Op)>);

impl<B: HostBackend, Op: HostOp<N>, const N: usize> Backward<B, N> for HostStep<B, Op, N> {
    type State = (Op, [Shape; N], Option<[FloatTensor<B>; N]>);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output = B::contiguous(gradients.consume::<B>(&ops.node));
        let (op, shapes, kept) = ops.state;
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let mut inputs = vec![&grad_output];
        inputs.extend(kept.iter().flatten());
        let wanted_shapes = shapes.into_iter().zip(wanted).filter_map(|(shape, wanted)| wanted.then_some(shape));
        let mut found = B::compute(Op::NAME, &inputs, wanted_shapes.collect(), op.scratch(true), |values| {
            let inputs = std::array::from_fn(|tensor| values.get(tensor + 1).copied().unwrap_or_default());
            op.backward(inputs, values[0], wanted).into_iter().flatten().collect()
        })
        .into_iter();
        drop(inputs);
        for parent in ops.parents.iter().flatten() {
            if let Some(found) = found.next() {
                gradients.register::<B>(parent.id, found);
            }
        }
    }
}

fn values(tensor: &Plain) -> &[f32] {
    tensor.as_slice().expect("the values are contiguous fp32")
}

fn tensor(values: Vec<f32>, shape: Shape) -> Plain {
    Plain::from_data(TensorData::new(values, shape))
}
