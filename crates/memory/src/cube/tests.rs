//! Recordings made by hand: which operations run together, and what their kernel writes.

use burn::tensor::DType;
use plimsoll_tape::ir::{
    BinaryOpIr, FloatOperationIr as Float, NumericOperationIr as Numeric, OperationIr, ReduceDimOpIr, ScalarIr,
    ScalarOpIr, TensorId, TensorIr, TensorStatus, UnaryOpIr,
};

use super::group::Group;
use crate::operations::Operations;

/// Makes recordings.
#[derive(Default)]
struct Script {
    operations: Vec<OperationIr>,
    shapes: Vec<Vec<usize>>,
}

impl Script {
    fn tensor(&mut self, shape: &[usize]) -> usize {
        self.shapes.push(shape.to_vec());
        self.shapes.len() - 1
    }

    fn ir(&self, index: usize) -> TensorIr {
        let shape = self.shapes[index].clone().into();
        TensorIr { id: TensorId::new(index as u64), shape, status: TensorStatus::ReadOnly, dtype: DType::F32 }
    }

    fn out(&mut self, shape: &[usize]) -> (usize, TensorIr) {
        let index = self.tensor(shape);
        (index, TensorIr { status: TensorStatus::NotInit, ..self.ir(index) })
    }

    fn exp(&mut self, input: usize) -> usize {
        let (index, out) = self.out(&self.shapes[input].clone());
        let op = UnaryOpIr { input: self.ir(input), out };
        self.operations.push(OperationIr::Float(DType::F32, Float::Exp(op)));
        index
    }

    fn scaled(&mut self, input: usize) -> usize {
        let (index, out) = self.out(&self.shapes[input].clone());
        let op = ScalarOpIr { lhs: self.ir(input), rhs: ScalarIr::Float(2.0), out };
        self.operations.push(OperationIr::NumericFloat(DType::F32, Numeric::MulScalar(op)));
        index
    }

    fn sum(&mut self, first: usize, second: usize) -> usize {
        let shape: Vec<usize> =
            self.shapes[first].iter().zip(&self.shapes[second]).map(|(one, other)| *one.max(other)).collect();
        let (index, out) = self.out(&shape);
        let op = BinaryOpIr { lhs: self.ir(first), rhs: self.ir(second), out };
        self.operations.push(OperationIr::NumericFloat(DType::F32, Numeric::Add(op)));
        index
    }

    fn reduced(&mut self, input: usize, axis: usize) -> usize {
        let mut shape = self.shapes[input].clone();
        shape[axis] = 1;
        let (index, out) = self.out(&shape);
        let op = ReduceDimOpIr { input: self.ir(input), out, axis, accumulator_len: 1 };
        self.operations.push(OperationIr::NumericFloat(DType::F32, Numeric::SumDim(op)));
        index
    }
}

/// Calls `check` with the group of all of `operations`.
fn with_group(operations: &[OperationIr], check: impl FnOnce(&Group<'_>)) {
    let operations = Operations::new(operations);
    let mut group = Group::default();
    assert!((0..operations.all().len()).all(|index| group.takes(&operations, index)));
    check(&group);
}

/// Returns whether `operations` are one group that is worth a kernel. The tensors in `lasting` are read later.
fn are_one_kernel(operations: &[OperationIr], lasting: &[usize]) -> bool {
    let is_over = |id: TensorId| !lasting.iter().any(|&index| TensorId::new(index as u64) == id);
    let mut is_worth = false;
    with_group(operations, |group| is_worth = group.is_worth_a_kernel(is_over));
    is_worth
}

#[test]
fn a_chain_of_elementwise_operations_is_one_kernel() {
    let mut script = Script::default();
    let x = script.tensor(&[8, 16]);
    let bias = script.tensor(&[1, 16]);
    let y = script.sum(x, bias);
    let y = script.exp(y);
    let y = script.scaled(y);
    assert!(are_one_kernel(&script.operations, &[y]));
}

#[test]
fn one_sum_alone_is_a_kernel_of_its_own() {
    let mut script = Script::default();
    let (x, bias) = (script.tensor(&[8, 16]), script.tensor(&[1, 16]));
    let y = script.sum(x, bias);
    assert!(!are_one_kernel(&script.operations, &[y]));
}

#[test]
fn a_reduction_joins_the_kernel_that_makes_its_input() {
    let mut script = Script::default();
    let x = script.tensor(&[8, 16]);
    let y = script.exp(x);
    let total = script.reduced(y, 1);
    let mean = script.scaled(total);
    let centered = script.sum(y, mean);
    assert!(are_one_kernel(&script.operations, &[centered]));
}

#[test]
fn what_a_loop_after_a_reduction_reads_is_written() {
    // The steps of a softmax: what is masked is read for the maximum and after it, and the exponentials for the sum and after it.
    let mut script = Script::default();
    let x = script.tensor(&[8, 16]);
    let masked = script.scaled(x);
    let maximum = script.reduced(masked, 1);
    let scaled = script.scaled(maximum);
    let exponentials = script.sum(masked, scaled);
    let total = script.reduced(exponentials, 1);
    let result = script.sum(exponentials, total);
    with_group(&script.operations, |group| {
        let keeps = |index: usize| group.keeps(TensorId::new(index as u64));
        assert!([masked, maximum, exponentials, total].into_iter().all(keeps));
        assert!(![x, scaled, result].into_iter().any(keeps));
    });
}

#[test]
fn what_only_the_loop_before_a_reduction_reads_is_not_written() {
    let mut script = Script::default();
    let x = script.tensor(&[8, 16]);
    let y = script.exp(x);
    let y = script.scaled(y);
    let total = script.reduced(y, 1);
    with_group(&script.operations, |group| {
        assert!(group.keeps(TensorId::new(total as u64)) && !group.keeps(TensorId::new(y as u64)));
    });
}
