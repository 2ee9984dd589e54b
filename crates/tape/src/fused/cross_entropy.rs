//! Cross-entropy with label smoothing, by one operation each way.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::rows::weight;
use crate::host::{HostOp, Input, MaybeTracked, is_host, run};
use crate::kernels::{KernelBackend, on_kernels};
use crate::noise::ints;
use crate::simd::{self, sum, vectorized};
use crate::transfer::uploaded;

// Shapes: b batch, u tokens, v vocabulary.

/// Label of a row that does not count.
const NONE: u32 = u32::MAX;

/// Computes the cross-entropy `[1]` of `logits` `[b, u, v]`, before softmax, summed over all tokens of `targets`.
///
/// `smoothing` in `[0, 1)` is the part of each label that is spread evenly over the vocabulary (Szegedy et al. 2016).
/// Equals PyTorch's `CrossEntropyLoss(label_smoothing=smoothing, reduction="sum")`. A target may be shorter than `u`,
/// or empty: positions beyond its end add nothing. `logits` should be in fp32.
///
/// The backward pass keeps the logits and, on a GPU, a number for each row.
///
/// # Panics
/// If there are not `b` targets, one is longer than `u`, or a token is not below `v`.
pub fn cross_entropy(logits: Tensor<3>, targets: &[Vec<u32>], smoothing: f64) -> Tensor<1> {
    let [b, u, v] = logits.dims();
    assert!(
        targets.len() == b && targets.iter().all(|target| target.len() <= u),
        "one target of at most {u} tokens for each of {b} sequences"
    );
    assert!(targets.iter().flatten().all(|&token| (token as usize) < v), "a token is not in the vocabulary of {v}");
    let labels = targets.iter().flat_map(|target| (0..u).map(|place| target.get(place).copied().unwrap_or(NONE)));
    let op = CrossEntropy { labels: labels.collect(), width: v, smoothing };
    if is_host(&logits) {
        return run(op, [Input::new(logits)], [1]);
    }
    if logits.dtype() != DType::F32 || b * u * v == 0 {
        return op.composed(logits);
    }
    let device = logits.device();
    on_kernels!(&device, B => on_device::<B>(logits, op), otherwise op.composed(logits))
}

#[derive(Clone, Debug)]
struct CrossEntropy {
    /// Token of each row.
    labels: Arc<[u32]>,
    width: usize,
    smoothing: f64,
}

impl CrossEntropy {
    /// Computes the loss with Burn's operations, for every device and type.
    fn composed(&self, logits: Tensor<3>) -> Tensor<1> {
        let [b, u, v] = logits.dims();
        let device = logits.device();
        let ids: Vec<i32> = self.labels.iter().map(|&label| if label == NONE { 0 } else { label as i32 }).collect();
        let counted: Vec<f32> = self.labels.iter().map(|&label| f32::from(label != NONE)).collect();
        let ids = Tensor::<3, Int>::from_data(uploaded(TensorData::new(ids, [b, u, 1])), &device);
        let counted = Tensor::<3>::from_data(uploaded(TensorData::new(counted, [b, u, 1])), &device);
        let log_probs = log_softmax(logits, 2);
        let target_log_probs = log_probs.clone().gather(2, ids) * (1.0 - self.smoothing);
        let each = match self.smoothing > 0.0 {
            true => target_log_probs + log_probs.sum_dim(2) * (self.smoothing / v as f64),
            false => target_log_probs,
        };
        (each * counted).sum().neg()
    }

    /// Returns the number of rows that one parallel task takes.
    fn rows_per_task(&self) -> usize {
        (1_usize << 14).div_ceil(self.width.max(1))
    }

    /// Returns the parts of a label: that of its token, and that of each token.
    fn parts(&self) -> (f32, f32) {
        ((1.0 - self.smoothing) as f32, (self.smoothing / self.width.max(1) as f64) as f32)
    }
}

/// Returns the highest logit of a row, and the sum of the exponentials of the differences to it.
#[inline(always)]
fn normalization(row: &[f32]) -> (f32, f32) {
    let mut highest = [f32::NEG_INFINITY; 16];
    for (index, &logit) in row.iter().enumerate() {
        highest[index % 16] = if logit > highest[index % 16] { logit } else { highest[index % 16] };
    }
    let highest = highest.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (highest, sum(row.iter().map(|&logit| weight(logit - highest))))
}

impl HostOp<1> for CrossEntropy {
    const NAME: &'static str = "cross_entropy";

    fn forward(&self, [logits]: [&[f32]; 1]) -> Vec<f32> {
        let (width, task_rows) = (self.width, self.rows_per_task());
        let (own, each) = self.parts();
        let tasks = logits.par_chunks(task_rows * width.max(1)).zip(self.labels.par_chunks(task_rows));
        // Added up in order, so that the rounding does not depend on the threads.
        let losses: Vec<f64> = tasks
            .map(|(logits, labels)| {
                vectorized(
                    #[inline(always)]
                    || {
                        let mut loss = 0.0;
                        for (row, &label) in logits.chunks_exact(width).zip(labels) {
                            if label == NONE {
                                continue;
                            }
                            let (highest, total) = normalization(row);
                            let token = row[label as usize] - highest;
                            let all = if each > 0.0 { sum(row.iter().map(|&logit| logit - highest)) } else { 0.0 };
                            loss += f64::from(total).ln() - f64::from(own * token) - f64::from(each * all);
                        }
                        loss
                    },
                )
            })
            .collect();
        vec![losses.iter().sum::<f64>() as f32]
    }

    fn backward(&self, [logits]: [&[f32]; 1], grad_output: &[f32], _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        let (width, task_rows) = (self.width, self.rows_per_task());
        let ((own, each), factor) = (self.parts(), grad_output[0]);
        let mut gradient = vec![0.0; logits.len()];
        let inputs = logits.par_chunks(task_rows * width.max(1)).zip(self.labels.par_chunks(task_rows));
        gradient.par_chunks_mut(task_rows * width.max(1)).zip(inputs).for_each(|(gradient, (logits, labels))| {
            vectorized(
                #[inline(always)]
                || {
                    let rows = gradient.chunks_exact_mut(width).zip(logits.chunks_exact(width)).zip(labels);
                    for ((gradient, row), &label) in rows.filter(|(_, label)| **label != NONE) {
                        let (highest, total) = normalization(row);
                        let inverse = 1.0 / total;
                        for (slope, &logit) in gradient.iter_mut().zip(row) {
                            *slope = simd::gradient((weight(logit - highest) * inverse - each) * factor);
                        }
                        gradient[label as usize] -= own * factor;
                    }
                },
            );
        });
        [Some(gradient)]
    }
}

/// Computes the loss by kernels.
fn on_device<B: KernelBackend>(logits: Tensor<3>, op: CrossEntropy) -> Tensor<1> {
    let device = logits.device().inner();
    let labels: Tensor<1, Int> = ints([op.labels.len()], &device, || op.labels.to_vec());
    let input = MaybeTracked::<B>::new(logits);
    let logits = input.primitive();
    let smoothing = op.smoothing as f32;
    let [losses, norms] = B::cross_entropy(logits.clone(), B::plain_ints(labels.clone()), smoothing);
    let loss = B::from_plain::<1>(losses).sum();
    if matches!(input, MaybeTracked::Plain(_)) {
        return loss;
    }
    let step = Step::<B>(PhantomData).prepare::<NoCheckpointing>([input.tracked().node()]).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish(([logits, norms], labels, smoothing), B::plain(loss)),
        OpsKind::UnTracked(step) => step.finish(B::plain(loss)),
    })
}

#[derive(Debug)]
struct Step<B>(PhantomData<B>);

impl<B: KernelBackend> Backward<B, 1> for Step<B> {
    type State = ([FloatTensor<B>; 2], Tensor<1, Int>, f32);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output = gradients.consume::<B>(&ops.node);
        let ([logits, norms], labels, smoothing) = ops.state;
        if let Some(parent) = &ops.parents[0] {
            let labels = B::plain_ints(labels);
            gradients.register::<B>(parent.id, B::cross_entropy_back([logits, norms, grad_output], labels, smoothing));
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use plimsoll_core::Key;

    use super::*;

    /// Returns the loss and the gradient of random logits `[b, u, v]`, times 3.
    fn found(
        device: &Device,
        key: Key,
        [b, u, v]: [usize; 3],
        smoothing: f64,
        loss: impl Fn(Tensor<3>, &[Vec<u32>], f64) -> Tensor<1>,
    ) -> (f32, Vec<f32>) {
        let values: Vec<f32> = (0..b * u * v).map(|i| ((key.at(i as u64).unit() - 0.5) * 40.0) as f32).collect();
        let length = |index: usize| {
            if index == 0 { u } else { key.with("length").at(index as u64).below(u as u64 + 1) as usize }
        };
        let token = |place: usize| key.with("token").at(place as u64).below(v as u64) as u32;
        let targets: Vec<Vec<u32>> =
            (0..b).map(|index| (0..length(index)).map(|place| token(index * u + place)).collect()).collect();
        let x = Tensor::<3>::from_data(TensorData::new(values, [b, u, v]), device).require_grad();
        let loss = loss(x.clone(), &targets, smoothing);
        let gradients = (loss.clone() * 3.0).backward();
        let gradient = x.grad(&gradients).unwrap().into_data().try_into_vec().unwrap();
        (loss.into_scalar(), gradient)
    }

    fn composed(logits: Tensor<3>, targets: &[Vec<u32>], smoothing: f64) -> Tensor<1> {
        let [_, u, width] = logits.dims();
        let labels = targets.iter().flat_map(|target| (0..u).map(|place| target.get(place).copied().unwrap_or(NONE)));
        CrossEntropy { labels: labels.collect(), width, smoothing }.composed(logits)
    }

    fn check(device: &Device) {
        let shapes = [[1, 1, 1], [1, 1, 2], [3, 5, 7], [2, 9, 33], [4, 40, 1030], [1, 3, 20_000]];
        for (case, shape) in shapes.into_iter().enumerate() {
            for smoothing in [0.0, 0.1] {
                let key = Key::new(case as u64);
                let cpu = Device::flex().autodiff();
                let (expected, slopes) = found(&cpu, key, shape, smoothing, composed);
                let run = || found(device, key, shape, smoothing, cross_entropy);
                let (loss, gradient) = run();
                let name = format!("{shape:?}, {smoothing}");
                assert!((loss - expected).abs() <= 2e-6 * expected.abs().max(1.0), "{name}: {loss} {expected}");
                for (one, other) in gradient.iter().zip(&slopes) {
                    assert!((one - other).abs() < 1e-5, "{name}: {one} {other}");
                }
                assert!(run() == (loss, gradient), "{name}: two runs differ");
            }
        }
    }

    #[test]
    fn one_pass_equals_burns_operations() {
        check(&Device::flex().autodiff());
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn device_kernels_of_the_loss_equal_the_cpu() {
        check(&Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff());
    }

    #[test]
    fn targets_that_do_not_fit_are_refused() {
        let logits = || Tensor::<3>::zeros([1, 2, 3], &Device::flex());
        for targets in [vec![], vec![vec![0, 1, 2]], vec![vec![3]]] {
            assert!(std::panic::catch_unwind(|| cross_entropy(logits(), &targets, 0.0)).is_err(), "{targets:?}");
        }
    }
}
