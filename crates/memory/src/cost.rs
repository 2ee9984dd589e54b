//! The cost model: arithmetic, memory traffic and kernel launches, counted from a recording.

use plimsoll_core::Precision;
use plimsoll_tape::CustomOp;
use plimsoll_tape::ir::{FloatOperationIr, ModuleOperationIr, OperationIr, TensorIr};
use serde::Serialize;

use crate::catalog::Gpu;
use crate::operation_name::operation_name;

/// Work that a device does for a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Floating-point operations of all matrix products and convolutions.
    pub operations: f64,
    /// Number of bytes that all kernels together read and write.
    pub bytes: f64,
    /// Number of kernel launches.
    pub launches: f64,
}

/// Speed of a device: arithmetic in each number format, memory traffic, kernel launches, and the link to the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Floating-point operations per second of matrix products in fp32, as reached in practice.
    pub fp32: f64,
    /// Floating-point operations per second of matrix products in bf16, as reached in practice.
    pub bf16: f64,
    /// Floating-point operations per second of matrix products in fp16, as reached in practice.
    pub fp16: f64,
    /// Bytes per second to and from memory, as reached in practice.
    pub bytes: f64,
    /// Seconds that a kernel launch takes.
    pub launch: f64,
    /// Bytes per second between host and device, in one direction.
    pub link: f64,
}

/// Bytes per second that PCIe 4.0 with 16 lanes reaches in practice, in one direction.
const PCIE: f64 = 1.2e10;

impl Speed {
    /// Estimates the speed that training reaches on `gpu`: half of its peak arithmetic, 70 % of its bandwidth, 5
    /// microseconds for a kernel launch, and a link of 12 GB/s to the host.
    pub fn for_gpu(gpu: &Gpu) -> Self {
        let [fp32, bf16, fp16] =
            [Precision::Fp32, Precision::Bf16, Precision::Fp16].map(|precision| gpu.rate(precision) * 0.5);
        Self { fp32, bf16, fp16, bytes: gpu.bandwidth * 0.7, launch: 5e-6, link: PCIE }
    }

    /// Estimates the speed of a CPU with `threads` cores that have wide vector registers.
    pub fn for_host(threads: usize) -> Self {
        let threads = threads as f64;
        Self { launch: 1e-6, link: f64::INFINITY, ..Self::uniform(6e10 * threads, 5e9 * threads) }
    }

    /// Makes a speed of `operations` per second in every number format and of `bytes` per second of memory traffic, with
    /// 5 microseconds for a kernel launch.
    pub const fn uniform(operations: f64, bytes: f64) -> Self {
        Self { fp32: operations, bf16: operations, fp16: operations, bytes, launch: 5e-6, link: PCIE }
    }

    /// Returns the floating-point operations per second of matrix products in `precision`.
    pub fn operations(&self, precision: Precision) -> f64 {
        match precision {
            Precision::Fp32 => self.fp32,
            Precision::Bf16 => self.bf16,
            Precision::Fp16 => self.fp16,
        }
    }

    /// Computes the seconds that work of `cost` takes in `precision`. Arithmetic and memory traffic add up, because
    /// kernels rarely overlap them.
    pub fn seconds(&self, cost: &Cost, precision: Precision) -> f64 {
        cost.operations / self.operations(precision) + cost.bytes / self.bytes + cost.launches * self.launch
    }
}

impl Cost {
    /// Interpolates linearly from this cost (`share` 0) to `other` (`share` 1), or extrapolates beyond.
    pub(crate) fn interpolate(&self, other: &Self, share: f64) -> Self {
        let between = |a: f64, b: f64| a + (b - a) * share;
        Self {
            operations: between(self.operations, other.operations),
            bytes: between(self.bytes, other.bytes),
            launches: between(self.launches, other.launches),
        }
    }

    /// Computes the cost of `kernel`.
    pub(crate) fn of(kernel: &Kernel<'_>) -> Self {
        let [all, _] = Self::parts(kernel, |_| false);
        all
    }

    /// Computes the cost of `kernel` in two parts: that of sizes for which `grows` is false, and that of the others. Launches
    /// belong to the first part.
    pub(crate) fn parts(kernel: &Kernel<'_>, grows: impl Fn(u64) -> bool) -> [Self; 2] {
        let mut parts = [Self::default(); 2];
        for tensor in &kernel.tensors {
            let size = (tensor.shape.num_elements() * tensor.dtype.size()) as u64;
            parts[usize::from(grows(size))].bytes += size as f64;
        }
        let products = kernel.products;
        parts[usize::from(products > 0 && grows(products))].operations += products as f64;
        parts[0].launches += f64::from(kernel.launches);
        parts
    }

    /// Adds `other` to this cost, `factor` times.
    pub(crate) fn add(&mut self, other: &Self, factor: f64) {
        self.operations += other.operations * factor;
        self.bytes += other.bytes * factor;
        self.launches += other.launches * factor;
    }
}

/// What a device computes at once: an operation, or several that are fused.
#[derive(Debug)]
pub(crate) struct Kernel<'a> {
    /// Name under which a timeline shows it.
    pub(crate) name: &'static str,
    /// Tensors that it reads or writes.
    pub(crate) tensors: Vec<&'a TensorIr>,
    /// Floating-point operations of its matrix products and convolutions.
    pub(crate) products: u64,
    pub(crate) launches: u32,
}

impl<'a> Kernel<'a> {
    /// Returns `operation`, computed by one kernel that reads or writes `tensors`; without any cost if it is a view, an upload
    /// or a note.
    pub(crate) fn with_tensors(operation: &OperationIr, tensors: &[&'a TensorIr]) -> Self {
        let name = operation_name(operation);
        if costs_nothing(operation) {
            return Self { name, tensors: Vec::new(), products: 0, launches: 0 };
        }
        Self { name, tensors: tensors.to_vec(), products: products(operation), launches: 1 }
    }
}

/// Returns whether the cost model ignores the operation: views, uploads, and notes that compute nothing.
fn costs_nothing(operation: &OperationIr) -> bool {
    use plimsoll_tape::ir::BaseOperationIr as Base;
    match operation {
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => {
            matches!(base, Base::Reshape(_) | Base::SwapDims(_) | Base::Permute(_) | Base::Expand(_) | Base::Slice(_))
        }
        OperationIr::Init(_) | OperationIr::Drop(_) => true,
        _ => matches!(
            CustomOp::parse(operation),
            Some(
                CustomOp::Mark(_)
                    | CustomOp::Sent
                    | CustomOp::Tape { .. }
                    | CustomOp::Contiguous
                    | CustomOp::Parts
                    | CustomOp::Upload
                    | CustomOp::Scratch { .. }
            )
        ),
    }
}

/// Counts the floating-point operations of attention: the scores by key and by distance, and the sums of values.
fn attended(query: &TensorIr, key: &TensorIr, value: &TensorIr, by_distance: bool) -> u64 {
    let width = |tensor: &TensorIr| tensor.shape.last().copied().unwrap_or(1) as u64;
    let rows = (query.shape.num_elements() as u64) / width(query).max(1);
    let (queries, keys) = (query.shape[1] as u64, key.shape[1] as u64);
    let distances = if by_distance { (queries + keys) * width(query) } else { 0 };
    2 * rows * (keys * (width(query) + width(value)) + distances)
}

/// Counts the floating-point operations of `operation`; 0 unless it is a matrix product or a convolution.
pub(crate) fn products(operation: &OperationIr) -> u64 {
    let count = |tensor: &TensorIr| tensor.shape.num_elements() as u64;
    // Each output of a convolution is a sum over a kernel, and so is each part of its gradients.
    let convolved =
        |out: &TensorIr, weight: &TensorIr| 2 * count(out) * weight.shape[1..].iter().product::<usize>() as u64;
    match operation {
        OperationIr::Float(_, FloatOperationIr::Matmul(op)) => {
            2 * count(&op.out) * op.lhs.shape.last().copied().unwrap_or(1) as u64
        }
        OperationIr::Module(module) => match module {
            ModuleOperationIr::Conv1d(op) => convolved(&op.out, &op.weight),
            ModuleOperationIr::Conv2d(op) => convolved(&op.out, &op.weight),
            ModuleOperationIr::Conv1dXBackward(op) => convolved(&op.output_grad, &op.weight),
            ModuleOperationIr::Conv2dXBackward(op) => convolved(&op.output_grad, &op.weight),
            ModuleOperationIr::Conv1dWeightBackward(op) => convolved(&op.output_grad, &op.weight),
            ModuleOperationIr::Conv2dWeightBackward(op) => convolved(&op.output_grad, &op.weight),
            _ => 0,
        },
        OperationIr::Custom(custom) => match (CustomOp::parse(operation), &custom.inputs[..], &custom.outputs[..]) {
            // Each output is a sum over a window, which has a value for each row of the weight.
            (Some(CustomOp::Make("convolution")), [_, weight], [out]) => 2 * count(out) * weight.shape[0] as u64,
            // Queries, keys and values, then queries and a table of distances; the gradient of the result comes before them.
            (Some(CustomOp::Make("attention")), [query, key, value, distances @ ..], [_]) if distances.len() != 1 => {
                attended(query, key, value, distances.len() == 2)
            }
            // The scores again, and four products for their five: gradients of weights, values, queries and keys.
            (Some(CustomOp::Make("attention")), [_, query, key, value, distances @ ..], _) => {
                attended(query, key, value, distances.len() == 2) * 5 / 2
            }
            (Some(CustomOp::Make("convolution gradient")), [_, grad_output, ..], made) => {
                let rows = made.last().map_or(0, |weight| weight.shape[0] as u64);
                2 * count(grad_output) * rows * made.len() as u64
            }
            _ => 0,
        },
        _ => 0,
    }
}
