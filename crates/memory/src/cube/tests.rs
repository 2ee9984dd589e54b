//! Recordings made by hand: which operations run together, in which order, and what becomes of activations.

use burn::tensor::DType;
use plimsoll_tape::ir::{
    ActivationOperationIr as Activation, BaseOperationIr as Base, BinaryOpIr, DimOpIr, FloatOperationIr as Float,
    MatmulOpIr, NumericOperationIr as Numeric, OperationIr, ReduceDimOpIr, ScalarIr, ScalarOpIr, SwapDimsOpIr,
    TensorId, TensorIr, TensorStatus, UnaryOpIr,
};
use proptest::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::expanded;
use super::group::Group;
use super::queue::{Queue, Recorded, Tensors, Work};

/// Makes recordings. The statuses of inputs are set at the end, when the last reader of each tensor is known.
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

    fn product(&mut self, first: usize, second: usize) -> usize {
        let shape = [self.shapes[first][0], self.shapes[second][1]];
        let (index, out) = self.out(&shape);
        let op = MatmulOpIr { lhs: self.ir(first), rhs: self.ir(second), out };
        self.operations.push(OperationIr::Float(DType::F32, Float::Matmul(op)));
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

    fn swapped(&mut self, input: usize) -> usize {
        let shape: Vec<usize> = self.shapes[input].iter().rev().copied().collect();
        let (index, out) = self.out(&shape);
        let op = SwapDimsOpIr { input: self.ir(input), out, dim1: 0, dim2: 1 };
        self.operations.push(OperationIr::BaseFloat(Base::SwapDims(op)));
        index
    }

    /// Returns the operations, of which the last reader of each tensor uses it up.
    fn finish(mut self) -> Vec<OperationIr> {
        let mut last = FxHashMap::default();
        for (index, operation) in self.operations.iter().enumerate() {
            last.extend(operation.inputs().map(|input| (input.id, index)));
        }
        for (index, operation) in self.operations.iter_mut().enumerate() {
            let use_up = |tensor: &mut TensorIr| {
                if last[&tensor.id] == index {
                    tensor.status = TensorStatus::ReadWrite;
                }
            };
            match operation {
                OperationIr::Float(_, Float::Exp(op)) => use_up(&mut op.input),
                OperationIr::Float(_, Float::Matmul(op)) => [&mut op.lhs, &mut op.rhs].into_iter().for_each(use_up),
                OperationIr::NumericFloat(_, Numeric::MulScalar(op)) => use_up(&mut op.lhs),
                OperationIr::NumericFloat(_, Numeric::Add(op)) => {
                    [&mut op.lhs, &mut op.rhs].into_iter().for_each(use_up);
                }
                OperationIr::NumericFloat(_, Numeric::SumDim(op)) => use_up(&mut op.input),
                OperationIr::BaseFloat(Base::SwapDims(op)) => use_up(&mut op.input),
                other => unreachable!("{other:?}"),
            }
        }
        self.operations
    }
}

/// Returns the work for `operations`, each with `true` if it is a fused kernel. The queue also runs empty behind each operation
/// in `reads`.
fn work_of(operations: &[OperationIr], lasting: &[usize], reads: &[usize]) -> Vec<(bool, Vec<usize>)> {
    let mut last = FxHashMap::default();
    for (index, operation) in operations.iter().enumerate() {
        last.extend(operation.inputs().map(|input| (input.id, index)));
    }
    let lasting: FxHashSet<TensorId> = lasting.iter().map(|&index| TensorId::new(index as u64)).collect();
    let tensors = operations.iter().map(Tensors::of).collect();
    let mut queue = Queue::new(Recorded { operations, tensors, last: &last, lasting: &lasting });
    let mut work = Vec::new();
    for index in 0..operations.len() {
        work.extend(queue.push(index));
        if reads.contains(&index) {
            work.extend(queue.drain());
        }
    }
    work.extend(queue.drain());
    work.into_iter()
        .map(|one| match one {
            Work::Fused(group) => (true, group.members().to_vec()),
            Work::Alone(members) => (false, members),
        })
        .collect()
}

/// Returns `operations` as one group.
fn group_of(operations: &[OperationIr]) -> Group {
    let mut group = Group::default();
    assert!(operations.iter().enumerate().all(|(index, operation)| group.takes(operation, index)));
    group
}

#[test]
fn a_chain_of_elementwise_operations_is_one_kernel() {
    let mut script = Script::default();
    let x = script.tensor(&[8, 16]);
    let bias = script.tensor(&[1, 16]);
    let y = script.sum(x, bias);
    let y = script.exp(y);
    let y = script.scaled(y);
    assert_eq!(work_of(&script.finish(), &[y], &[]), [(true, vec![0, 1, 2])]);
}

#[test]
fn one_sum_alone_is_a_kernel_of_its_own() {
    let mut script = Script::default();
    let (x, bias) = (script.tensor(&[8, 16]), script.tensor(&[1, 16]));
    let y = script.sum(x, bias);
    assert_eq!(work_of(&script.finish(), &[y], &[]), [(false, vec![0])]);
}

#[test]
fn a_reduction_joins_the_kernel_that_makes_its_input() {
    let mut script = Script::default();
    let x = script.tensor(&[8, 16]);
    let y = script.exp(x);
    let total = script.reduced(y, 1);
    let mean = script.scaled(total);
    let centered = script.sum(y, mean);
    assert_eq!(work_of(&script.finish(), &[centered], &[]), [(true, vec![0, 1, 2, 3])]);
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
    let group = group_of(&script.finish());
    let kept = [masked, maximum, exponentials, total].map(|index| TensorId::new(index as u64));
    assert!(kept.iter().all(|&id| group.keeps(id)));
    assert!(![x, scaled, result].iter().any(|&index| group.keeps(TensorId::new(index as u64))));
}

#[test]
fn what_only_the_loop_before_a_reduction_reads_is_not_written() {
    let mut script = Script::default();
    let x = script.tensor(&[8, 16]);
    let y = script.exp(x);
    let y = script.scaled(y);
    let total = script.reduced(y, 1);
    let group = group_of(&script.finish());
    assert!(group.keeps(TensorId::new(total as u64)) && !group.keeps(TensorId::new(y as u64)));
}

#[test]
fn chains_without_common_tensors_do_not_break_each_other() {
    // Of two chains that are called in turn each is one kernel.
    let mut script = Script::default();
    let (x, other) = (script.tensor(&[8, 16]), script.tensor(&[5, 3]));
    let (a, b) = (script.exp(x), script.exp(other));
    let (a, b) = (script.scaled(a), script.scaled(b));
    let (a, b) = (script.exp(a), script.exp(b));
    assert_eq!(work_of(&script.finish(), &[a, b], &[]), [(true, vec![0, 2, 4]), (true, vec![1, 3, 5])]);
}

#[test]
fn a_read_of_the_device_ends_a_chain() {
    let mut script = Script::default();
    let x = script.tensor(&[8, 16]);
    let y = script.exp(x);
    let y = script.scaled(y);
    let z = script.exp(y);
    let z = script.scaled(z);
    assert_eq!(work_of(&script.finish(), &[y, z], &[1]), [(true, vec![0, 1]), (true, vec![2, 3])]);
}

/// Makes a recording of random operations on matrices of 4x4, 1x4 and 4x1, from random numbers.
fn random_script(choices: &[(u8, u16, u16)]) -> Vec<OperationIr> {
    let mut script = Script::default();
    let mut tensors: Vec<usize> = [[4, 4], [4, 4], [1, 4], [4, 1]].iter().map(|shape| script.tensor(shape)).collect();
    for &(kind, first, second) in choices {
        // Mostly tensors that are new: older ones are weights.
        let newest = |choice: u16| tensors[tensors.len() - 1 - usize::from(choice) % tensors.len().min(9)];
        let (first, second) = (newest(first), tensors[usize::from(second) % tensors.len()]);
        let made = match kind % 8 {
            0 => script.exp(first),
            1 => script.scaled(first),
            2 | 3 => script.sum(first, second),
            4 if script.shapes[first][1] == script.shapes[second][0] => script.product(first, second),
            5 => script.reduced(first, usize::from(kind / 8) % 2),
            6 => script.swapped(first),
            _ => script.exp(second),
        };
        tensors.push(made);
    }
    script.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever waits, and however blocks are merged: each operation runs once, after those that make its inputs, and before
    /// those that use them up.
    #[test]
    fn every_order_is_one_in_which_operations_can_run(
        choices in prop::collection::vec(any::<(u8, u16, u16)>(), 1..120),
        reads in prop::collection::vec(0_usize..120, 0..4),
    ) {
        let operations = random_script(&choices);
        let work = work_of(&operations, &[0, 1, 2, 3], &reads);
        let order: Vec<usize> = work.iter().flat_map(|(_, members)| members).copied().collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..operations.len()).collect::<Vec<_>>());
        let place: FxHashMap<usize, usize> = order.iter().enumerate().map(|(place, &index)| (index, place)).collect();
        let (mut maker, mut readers) = (FxHashMap::default(), FxHashMap::<_, Vec<usize>>::default());
        for (index, operation) in operations.iter().enumerate() {
            for input in operation.inputs() {
                if let Some(maker) = maker.get(&input.id) {
                    prop_assert!(place[maker] < place[&index], "{index} runs before {maker}, whose output it reads");
                }
                let earlier = readers.entry(input.id).or_default();
                if input.status == TensorStatus::ReadWrite {
                    for earlier in earlier.iter() {
                        prop_assert!(place[earlier] <= place[&index], "{earlier} reads what {index} has used up");
                    }
                }
                earlier.push(index);
            }
            maker.extend(operation.outputs().map(|output| (output.id, index)));
        }
        for read in reads.iter().filter(|&&read| read < operations.len()) {
            prop_assert!(order[..=*read].iter().all(|index| index <= read), "the read after {read} came too early");
        }
    }
}

#[test]
fn expanded_activations_read_and_make_the_same_tensors() {
    type Make = fn(TensorIr, TensorIr) -> Activation;
    let makes: [Make; 6] = [
        |input, out| Activation::Relu(UnaryOpIr { input, out }),
        |input, out| Activation::Sigmoid(UnaryOpIr { input, out }),
        |input, out| Activation::LogSigmoid(UnaryOpIr { input, out }),
        |input, out| Activation::Gelu(UnaryOpIr { input, out }),
        |input, out| Activation::Softmax(DimOpIr { input, out, axis: 1 }),
        |input, out| Activation::LogSoftmax(DimOpIr { input, out, axis: 1 }),
    ];
    for (make, status) in
        makes.iter().flat_map(|make| [(make, TensorStatus::ReadWrite), (make, TensorStatus::ReadOnly)])
    {
        let mut script = Script::default();
        let x = script.tensor(&[4, 6]);
        let (y, out) = script.out(&[4, 6]);
        let input = TensorIr { status, ..script.ir(x) };
        let operations = expanded(&[OperationIr::Activation(make(input, out))]);
        assert!(operations.len() > 1);
        let mut made: FxHashSet<TensorId> = [TensorId::new(x as u64)].into_iter().collect();
        let mut used_up = FxHashSet::default();
        for operation in &operations {
            for input in operation.inputs() {
                assert!(made.contains(&input.id) && !used_up.contains(&input.id), "{operation:?}");
            }
            let consumed = operation.inputs().filter(|input| input.status == TensorStatus::ReadWrite);
            used_up.extend(consumed.map(|input| input.id));
            for output in operation.outputs() {
                assert!(made.insert(output.id) || output.id == TensorId::new(y as u64), "{operation:?}");
            }
        }
        // Nothing is left over but the output, and the input if others read it.
        let expected = 1 + usize::from(status == TensorStatus::ReadOnly);
        assert_eq!(made.len() - used_up.len(), expected, "{operations:?}");
        assert!(made.contains(&TensorId::new(y as u64)) && !used_up.contains(&TensorId::new(y as u64)));
    }
}
