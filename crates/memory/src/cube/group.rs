//! Groups of operations that one fused kernel can compute.
//!
//! Follows `burn-cubecl-fusion` 0.22.1 (`engine/fuser.rs`, `engine/scoring.rs`). A group takes elementwise operations as
//! long as their outputs have one shape, or can be broadcast to it. A view of a tensor joins only a group that reads the
//! same tensor already. A fused kernel runs only if it saves something: a single addition runs as a kernel of its own,
//! which differs in the memory that it takes.

use plimsoll_tape::CustomOp;
use plimsoll_tape::ir::{
    ActivationOperationIr as Activation, BaseOperationIr as Base, FloatOperationIr as Float, IntOperationIr as Int,
    NumericOperationIr as Numeric, OperationIr, ReduceDimOpIr, TensorId, TensorIr,
};

use crate::operations::Operations;

/// Largest number of operations in a fused kernel.
const OPERATIONS_MAX: usize = 64;
/// What a read or a write of a tensor counts in the score of a group.
const ACCESS_SCORE: usize = 100;
/// What a launch of a kernel counts in the score of a group.
const LAUNCH_SCORE: usize = 10;
/// What a view takes off the score of a group.
const VIEW_SCORE: usize = 50;

/// How a fused kernel reads the inputs of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Value by value.
    Elementwise,
    /// At places that it computes from the place of the output; `true` if only the reference shape allows it.
    Indexed(bool),
    /// The operation gives its input another shape or order.
    View,
}

/// Returns the role of an operation in a fused kernel, or `None` if no fused kernel can compute it.
pub(super) fn role(operation: &OperationIr) -> Option<Role> {
    let is_elementwise = match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => match base {
            Base::Gather(_) => return Some(Role::Indexed(false)),
            Base::Select(_) | Base::Cat(_) => return Some(Role::Indexed(true)),
            Base::SwapDims(_) => return Some(Role::View),
            Base::Reshape(op) if op.input.shape.num_dims() > op.out.shape.num_dims() => false,
            Base::Reshape(op) if op.input.shape != op.out.shape => return Some(Role::View),
            Base::Reshape(_)
            | Base::Cast(_)
            | Base::Equal(_)
            | Base::EqualElem(_)
            | Base::NotEqual(_)
            | Base::NotEqualElem(_)
            | Base::MaskFill(_)
            | Base::MaskWhere(_)
            | Base::Zeros(_)
            | Base::Ones(_) => true,
            _ => false,
        },
        OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => is_elementwise(numeric),
        OperationIr::Float(_, float) => matches!(
            float,
            Float::Exp(_)
                | Float::Log(_)
                | Float::Log1p(_)
                | Float::Powf(_)
                | Float::PowfScalar(_)
                | Float::Cos(_)
                | Float::Sin(_)
                | Float::Tanh(_)
                | Float::Erf(_)
                | Float::Sqrt(_)
                | Float::Recip(_)
        ),
        OperationIr::Int(int) => !matches!(int, Int::Matmul(_)),
        // They are recorded as one operation, and computed as several elementwise ones.
        OperationIr::Activation(activation) => {
            !matches!(activation, Activation::Softmax(_) | Activation::LogSoftmax(_) | Activation::Softmin(_))
        }
        _ => false,
    };
    is_elementwise.then_some(Role::Elementwise)
}

fn is_elementwise(numeric: &Numeric) -> bool {
    matches!(
        numeric,
        Numeric::Add(_)
            | Numeric::AddScalar(_)
            | Numeric::Sub(_)
            | Numeric::SubScalar(_)
            | Numeric::Mul(_)
            | Numeric::MulScalar(_)
            | Numeric::Div(_)
            | Numeric::DivScalar(_)
            | Numeric::Rem(_)
            | Numeric::RemScalar(_)
            | Numeric::Abs(_)
            | Numeric::Neg(_)
            | Numeric::Sign(_)
            | Numeric::Clamp(_)
            | Numeric::ClampMin(_)
            | Numeric::ClampMax(_)
            | Numeric::Greater(_)
            | Numeric::GreaterElem(_)
            | Numeric::GreaterEqual(_)
            | Numeric::GreaterEqualElem(_)
            | Numeric::Lower(_)
            | Numeric::LowerElem(_)
            | Numeric::LowerEqual(_)
            | Numeric::LowerEqualElem(_)
            | Numeric::PowiScalar(_)
            | Numeric::Full(_)
    )
}

/// Returns the reduction along an axis that an operation is, if fusion knows it.
fn reduction(operation: &OperationIr) -> Option<&ReduceDimOpIr> {
    let (OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric)) = operation else { return None };
    match numeric {
        Numeric::SumDim(op)
        | Numeric::MeanDim(op)
        | Numeric::ProdDim(op)
        | Numeric::MaxDim(op)
        | Numeric::MinDim(op)
        | Numeric::MaxAbsDim(op) => Some(op),
        _ => None,
    }
}

/// Operations for one fused kernel, in their order.
#[derive(Debug, Default)]
pub(super) struct Group<'a> {
    /// Indices of the operations in the recording.
    members: Vec<usize>,
    /// Shape of the largest output; `None` as long as there is no operation.
    shape: Option<&'a [usize]>,
    /// Whether an output with computed places fixes the shape.
    is_fixed: bool,
    /// Tensors from outside that are read value by value, in the order of their first use.
    read: Vec<&'a TensorIr>,
    /// Tensors from outside that are read at computed places.
    indexed: Vec<&'a TensorIr>,
    /// Tensors that the operations make.
    made: Vec<&'a TensorIr>,
    /// Outputs of reductions.
    sums: Vec<TensorId>,
    /// Tensors of the shape of the group that its operations have made before the last reduction.
    earlier: Vec<TensorId>,
    /// Those of them that an operation after the reduction reads. Each reduction is a loop of its own, so they are written.
    kept: Vec<TensorId>,
    /// Output of the matrix product with which the group begins, if it does.
    product: Option<&'a TensorIr>,
    /// Reads and writes of all operations if each were a kernel of its own.
    accesses: usize,
    /// Kernels if each operation had its own.
    launches: usize,
    views: usize,
}

impl<'a> Group<'a> {
    /// Adds operation `index` if the fused kernel can compute it too. Returns whether it can.
    pub(super) fn takes(&mut self, operations: &Operations<'a>, index: usize) -> bool {
        let (operation, inputs) = (&operations.all()[index], operations.inputs(index));
        if CustomOp::parse(operation).is_some() {
            return false;
        }
        let taken = match operation {
            OperationIr::Float(_, Float::Matmul(op)) if self.is_empty() => {
                self.begin_with_product(&op.out, inputs);
                true
            }
            _ => reduction(operation).is_some_and(|op| self.takes_reduction(op)),
        };
        if taken {
            self.members.push(index);
            return true;
        }
        let Some(role) = role(operation).filter(|_| self.members.len() < OPERATIONS_MAX) else { return false };
        let outputs = operations.outputs(index);
        let Some(&out) = outputs.first().filter(|_| self.can_read(inputs, role)) else { return false };
        let Some(shape) = self.shape_with(&out.shape) else { return false };
        if role == Role::Indexed(true) {
            if shape != &out.shape[..] {
                return false;
            }
            self.is_fixed = true;
        }
        self.shape = Some(shape);
        for &input in inputs {
            self.keep(input.id);
            let is_own = self.makes(input.id);
            let list = match role {
                Role::Indexed(_) => &mut self.indexed,
                Role::Elementwise | Role::View => &mut self.read,
            };
            if !is_own && !holds(list, input.id) {
                list.push(input);
            }
        }
        self.accesses += inputs.len() + outputs.len();
        self.launches += 1;
        if matches!(operation, OperationIr::Activation(_)) {
            // At least two operations with a tensor between them.
            self.accesses += 2;
            self.launches += 1;
        }
        self.views += usize::from(role == Role::View);
        self.made.extend(outputs);
        self.members.push(index);
        true
    }

    /// Begins the group with a matrix product of `inputs`.
    fn begin_with_product(&mut self, out: &'a TensorIr, inputs: &[&'a TensorIr]) {
        (self.product, self.shape, self.is_fixed) = (Some(out), Some(&out.shape[..]), true);
        for &input in inputs {
            if !holds(&self.indexed, input.id) {
                self.indexed.push(input);
            }
        }
        self.made.push(out);
    }

    /// Returns whether the kernel can read `inputs` in this role.
    fn can_read(&self, inputs: &[&TensorIr], role: Role) -> bool {
        inputs.iter().all(|input| match role {
            Role::Elementwise => !holds(&self.indexed, input.id),
            Role::Indexed(_) => !holds(&self.read, input.id) && !self.makes(input.id),
            // A view alone is no kernel at all, and not worth a slower read of its input.
            Role::View => holds(&self.read, input.id),
        })
    }

    /// Adds the reduction of a tensor of the group, if one kernel can compute both. Along the last axis the group goes on with
    /// outputs of its shape. Along another one it goes on with outputs of the shape of the reduction.
    fn takes_reduction(&mut self, op: &'a ReduceDimOpIr) -> bool {
        let is_own = holds(&self.read, op.input.id) || self.makes(op.input.id);
        if !is_own || self.product.is_some() || self.shape != Some(&op.input.shape[..]) {
            return false;
        }
        if op.axis + 1 < op.input.shape.num_dims() {
            self.shape = Some(&op.out.shape);
            self.is_fixed = true;
        }
        self.keep(op.input.id);
        let is_row = |tensor: &&&TensorIr| tensor.shape == op.input.shape;
        self.earlier = self.made.iter().filter(is_row).map(|tensor| tensor.id).collect();
        self.sums.push(op.out.id);
        self.made.push(&op.out);
        true
    }

    /// Notes that the next operation reads tensor `id`.
    fn keep(&mut self, id: TensorId) {
        if self.earlier.contains(&id) && !self.kept.contains(&id) {
            self.kept.push(id);
        }
    }

    fn makes(&self, id: TensorId) -> bool {
        holds(&self.made, id)
    }

    /// Returns whether the kernel writes a tensor that it makes, even if no later operation reads it.
    pub(super) fn keeps(&self, id: TensorId) -> bool {
        self.sums.contains(&id) || self.kept.contains(&id)
    }

    /// Returns whether the group computes a reduction.
    pub(super) fn has_reduction(&self) -> bool {
        !self.sums.is_empty()
    }

    /// Returns the shape of the group with an output of the shape `out`, or `None` if they do not fit.
    fn shape_with(&self, out: &'a [usize]) -> Option<&'a [usize]> {
        let Some(shape) = self.shape else { return Some(out) };
        if shape.len() != out.len() {
            return None;
        }
        let fits = shape.iter().zip(out).all(|(&length, &new)| length == new || new == 1 || length == 1);
        let grows = shape.iter().zip(out).any(|(&length, &new)| length == 1 && new > 1);
        let is_whole = shape.iter().zip(out).all(|(&length, &new)| length == new || length == 1);
        match (fits, grows) {
            (true, false) => Some(shape),
            (true, true) if !self.is_fixed && is_whole => Some(out),
            _ => None,
        }
    }

    /// Returns the output of the matrix product with which the group begins.
    pub(super) fn product(&self) -> Option<&'a TensorIr> {
        self.product
    }

    /// Returns whether there is no operation.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the indices of the operations.
    pub(super) fn members(&self) -> &[usize] {
        &self.members
    }

    /// Returns the tensors from outside that are read value by value.
    pub(super) fn read(&self) -> &[&'a TensorIr] {
        &self.read
    }

    /// Returns the tensors from outside that are read at computed places.
    pub(super) fn indexed(&self) -> &[&'a TensorIr] {
        &self.indexed
    }

    /// Returns the tensors that the operations make.
    pub(super) fn made(&self) -> &[&'a TensorIr] {
        &self.made
    }

    /// Returns whether a fused kernel saves reads, writes or launches, if `is_over` is true for each tensor that no later
    /// operation reads.
    pub(super) fn is_worth_a_kernel(&self, is_over: impl Fn(TensorId) -> bool) -> bool {
        if self.product.is_some() && self.members.len() == 1 {
            return false;
        }
        // As in Burn, a reduction itself does not count.
        let counts = |id: TensorId| !self.sums.contains(&id) && !is_over(id);
        let written = self.made.iter().filter(|tensor| counts(tensor.id)).count();
        let saved = self.accesses.saturating_sub(self.read.len() + self.views + written);
        saved * ACCESS_SCORE + self.launches.saturating_sub(1) * LAUNCH_SCORE > self.views * VIEW_SCORE
    }
}

/// Returns whether tensor `id` is in `list`.
fn holds(list: &[&TensorIr], id: TensorId) -> bool {
    list.iter().any(|tensor| tensor.id == id)
}
