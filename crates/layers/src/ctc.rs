//! Connectionist temporal classification (CTC): the loss with its gradient in closed form, and greedy decoding.

use burn::tensor::{Tensor, TensorData};
use plimsoll_core::{TimeOwner, timing};
use plimsoll_tape::gpu::ctc;
use plimsoll_tape::losses::with_gradient;
use plimsoll_tape::transfer::uploaded;
use plimsoll_tape::{inner_device, is_capture_device, runs_host_ops};
use rayon::prelude::*;

use crate::Lengths;

// Shapes: b batch, t frames, v vocabulary.

/// Id of the blank token. The vocabulary of a CTC model must reserve it.
pub const CTC_BLANK: u32 = 0;

/// Result of the CTC loss of a batch.
#[derive(Debug)]
pub struct CtcLoss {
    /// Sum `[1]` of the negative log-probabilities of the texts. Differentiable if the logits are.
    pub sum: Tensor<1>,
    /// Indices of samples with fewer frames than their text needs. Such samples add nothing to the sum and have a zero
    /// gradient.
    pub infeasible: Vec<usize>,
    /// Number of reads from the device for which the computation waited: 0, but 1 where the host computed for a GPU.
    pub reads: u32,
}

/// Returns whether `frames` frames suffice for CTC to read `tokens`: one frame for each token, and one frame for a
/// blank between equal neighbors.
pub fn is_ctc_feasible(frames: usize, tokens: &[u32]) -> bool {
    let repeats = tokens.windows(2).filter(|pair| pair[0] == pair[1]).count();
    frames >= tokens.len() + repeats
}

/// Returns the indices of the samples that have fewer frames than CTC needs to read their text.
pub fn infeasible_texts(lengths: &Lengths, texts: &[Vec<u32>]) -> Vec<usize> {
    let is_infeasible = |&index: &usize| !is_ctc_feasible(lengths.each()[index] as usize, &texts[index]);
    (0..texts.len()).filter(is_infeasible).collect()
}

/// Computes the CTC loss of `logits` `[b, t, v]`, before softmax, for the `texts` of the batch (Graves et al. 2006).
///
/// Equals PyTorch's `ctc_loss` with `reduction="sum"` and `zero_infinity=True`. Frames beyond `lengths` do not count
/// and have a zero gradient. The gradient is computed together with the loss, and the tape holds no graph over time.
///
/// A GPU computes both with kernels in fp32, and the host waits for nothing. The CPU computes them in log space and 64 bits,
/// with the samples in parallel. It also does so for a GPU where a text has more than a thousand tokens, and then waits for the
/// logits, which is counted in [`CtcLoss::reads`].
///
/// # Panics
/// If the batch sizes of `logits`, `lengths` and `texts` differ, the width of `lengths` is not `t`, or a token is not
/// below `v`.
pub fn ctc_loss(logits: Tensor<3>, lengths: &Lengths, texts: &[Vec<u32>]) -> CtcLoss {
    let [b, t, _] = logits.dims();
    assert!(
        b == lengths.each().len() && t == lengths.width(),
        "logits and lengths must have the same batch size, and lengths the width of the logits"
    );
    assert!(b == texts.len(), "logits and texts must have the same batch size");
    let infeasible = infeasible_texts(lengths, texts);
    let has_gradient = logits.device().is_autodiff();
    if let Some((sum, gradient)) = ctc(logits.clone(), lengths.each(), texts, &infeasible, has_gradient) {
        let sum = gradient.into_iter().fold(sum, |sum, gradient| with_gradient(logits.clone(), sum, gradient));
        return CtcLoss { sum, infeasible, reads: 0 };
    }
    on_host(logits, lengths, texts, infeasible, has_gradient)
}

/// Computes the loss on the host.
fn on_host(
    logits: Tensor<3>,
    lengths: &Lengths,
    texts: &[Vec<u32>],
    infeasible: Vec<usize>,
    has_gradient: bool,
) -> CtcLoss {
    let [b, t, v] = logits.dims();
    let device = inner_device(&logits.device());
    let reads = u32::from(!runs_host_ops(&device));
    // A recording device computes nothing: only the shapes count.
    if is_capture_device(&device) {
        let sum = Tensor::zeros([1], &device);
        let sum = if has_gradient { with_gradient(logits, sum, Tensor::zeros([b, t, v], &device)) } else { sum };
        return CtcLoss { sum, infeasible, reads };
    }
    let read = || logits.clone().without_autodiff().into_data().convert::<f32>();
    let values = if reads > 0 { timing::measure(TimeOwner::Read, read) } else { read() };
    let mut gradient: Vec<f32> = values.try_into_vec().expect("converted to f32");
    let sample = |(index, cells): (usize, &mut [f32])| {
        let (valid, padding) = cells.split_at_mut(lengths.each()[index] as usize * v);
        padding.fill(0.0);
        // Without a frame only the empty text can be read, and it is certain.
        if infeasible.contains(&index) || valid.is_empty() {
            valid.fill(0.0);
            return 0.0;
        }
        sample_loss(valid, v, &texts[index])
    };
    // Collected in order before the sum, so that the rounding does not depend on the threads.
    let losses: Vec<f64> = gradient.par_chunks_mut(t * v).enumerate().map(sample).collect();
    let total = losses.iter().sum::<f64>() as f32;
    let total = Tensor::from_data(uploaded([total]), &device);
    if !has_gradient {
        return CtcLoss { sum: total, infeasible, reads };
    }
    let gradient = Tensor::from_data(uploaded(TensorData::new(gradient, [b, t, v])), &device);
    CtcLoss { sum: with_gradient(logits, total, gradient), infeasible, reads }
}

/// Computes the CTC loss of one sample. Overwrites the logits `[t, v]` of the sample in `cells` with their gradient.
fn sample_loss(cells: &mut [f32], v: usize, text: &[u32]) -> f64 {
    let log_probs = log_softmax(cells, v);
    let t = cells.len() / v;
    let states = 2 * text.len() + 1;
    let token = |state: usize| if state.is_multiple_of(2) { CTC_BLANK } else { text[state / 2] } as usize;
    // A path may skip the blank between two different tokens.
    let skips = |state: usize| state >= 3 && state % 2 == 1 && token(state) != token(state - 2);
    let forward = forward_pass(&log_probs, v, t, states, token, skips);
    let last = &forward[(t - 1) * states..];
    let total = if states == 1 { last[0] } else { log_add(last[states - 1], last[states - 2]) };
    let mut beta = vec![f64::NEG_INFINITY; states];
    beta[states - 1] = 0.0;
    if states > 1 {
        beta[states - 2] = 0.0;
    }
    for frame in (0..t).rev() {
        let probs = &log_probs[frame * v..(frame + 1) * v];
        let row = &mut cells[frame * v..(frame + 1) * v];
        row.iter_mut().zip(probs).for_each(|(cell, log_prob)| *cell = log_prob.exp() as f32);
        for state in 0..states {
            let posterior = (forward[frame * states + state] + beta[state] - total).exp();
            row[token(state)] -= posterior as f32;
        }
        // Step to the frame before: log-probability of all suffixes, with this frame's emission.
        let ahead: Vec<f64> = (0..states).map(|state| beta[state] + probs[token(state)]).collect();
        for state in 0..states {
            let mut sum = ahead[state];
            if state + 1 < states {
                sum = log_add(sum, ahead[state + 1]);
            }
            if state + 2 < states && skips(state + 2) {
                sum = log_add(sum, ahead[state + 2]);
            }
            beta[state] = sum;
        }
    }
    -total
}

/// Computes the forward variables `[t, states]` of CTC: the log-probability of all prefixes that end in a state at a
/// frame, including the emission at this frame. `token` gives the token of a state, and `skips` whether a path may skip
/// the state before it.
fn forward_pass(
    log_probs: &[f64],
    v: usize,
    t: usize,
    states: usize,
    token: impl Fn(usize) -> usize,
    skips: impl Fn(usize) -> bool,
) -> Vec<f64> {
    let mut alpha = vec![f64::NEG_INFINITY; t * states];
    for state in 0..states.min(2) {
        alpha[state] = log_probs[token(state)];
    }
    for frame in 1..t {
        let (before, now) = alpha.split_at_mut(frame * states);
        let before = &before[(frame - 1) * states..];
        for state in 0..states {
            let mut sum = before[state];
            if state >= 1 {
                sum = log_add(sum, before[state - 1]);
            }
            if skips(state) {
                sum = log_add(sum, before[state - 2]);
            }
            now[state] = sum + log_probs[frame * v + token(state)];
        }
    }
    alpha
}

/// Computes the log-softmax of each row of `v` logits, in 64 bits.
fn log_softmax(logits: &[f32], v: usize) -> Vec<f64> {
    let mut values = Vec::with_capacity(logits.len());
    for row in logits.chunks_exact(v) {
        let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|&x| f64::from(x - highest).exp()).sum();
        values.extend(row.iter().map(|&x| f64::from(x - highest) - sum.ln()));
    }
    values
}

/// Computes `ln(exp(a) + exp(b))` without overflow.
fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

/// Decodes `logits` `[b, t, v]` with greedy CTC decoding: the best token of each valid frame, without repeats and
/// blanks.
pub fn ctc_greedy(logits: Tensor<3>, lengths: &Lengths) -> Vec<Vec<u32>> {
    let [_, t, _] = logits.dims();
    let best = logits.without_autodiff().argmax(2).into_data().convert::<i64>();
    let best: Vec<i64> = best.try_into_vec().expect("converted to i64");
    best.chunks_exact(t)
        .zip(lengths.each())
        .map(|(row, &length)| {
            let mut text = Vec::new();
            let mut before = i64::from(CTC_BLANK);
            for &token in &row[..length as usize] {
                if token != before && token != i64::from(CTC_BLANK) {
                    text.push(token as u32);
                }
                before = token;
            }
            text
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use plimsoll_core::Key;

    use super::*;

    fn logits(key: Key, b: usize, t: usize, v: usize) -> Vec<f32> {
        (0..b * t * v).map(|i| (key.at(i as u64).unit() * 6.0 - 3.0) as f32).collect()
    }

    fn loss(values: &[f32], shape: [usize; 3], lengths: &[u32], texts: &[Vec<u32>]) -> (f32, Vec<f32>, Vec<usize>) {
        loss_on(&Device::flex().autodiff(), values, shape, lengths, texts)
    }

    fn loss_on(
        device: &Device,
        values: &[f32],
        [b, t, v]: [usize; 3],
        lengths: &[u32],
        texts: &[Vec<u32>],
    ) -> (f32, Vec<f32>, Vec<usize>) {
        let x = Tensor::<3>::from_data(TensorData::new(values.to_vec(), [b, t, v]), device).require_grad();
        let loss = ctc_loss(x.clone(), &Lengths::new(lengths.to_vec(), t), texts);
        let grads = loss.sum.backward();
        let gradient = x.grad(&grads).unwrap().into_data().try_to_vec().unwrap();
        (loss.sum.into_scalar::<f32>(), gradient, loss.infeasible)
    }

    /// Computes the CTC loss by definition: enumerates all paths of `t` tokens that read as the text.
    fn by_enumeration(values: &[f32], v: usize, text: &[u32]) -> f64 {
        let log_probs = log_softmax(values, v);
        let t = values.len() / v;
        let mut sum = 0.0;
        for path in 0..v.pow(t as u32) {
            let tokens: Vec<usize> = (0..t).map(|frame| path / v.pow(frame as u32) % v).collect();
            let mut read: Vec<u32> = tokens.iter().map(|&x| x as u32).collect();
            read.dedup();
            read.retain(|&x| x != CTC_BLANK);
            if read == text {
                sum += tokens.iter().enumerate().map(|(f, &x)| log_probs[f * v + x]).sum::<f64>().exp();
            }
        }
        -sum.ln()
    }

    #[test]
    fn loss_equals_enumeration_of_all_paths() {
        for (case, (t, text)) in
            [(1, vec![]), (1, vec![1]), (3, vec![1]), (4, vec![1, 2]), (5, vec![1, 1]), (5, vec![2, 1, 2])]
                .into_iter()
                .enumerate()
        {
            let values = logits(Key::new(case as u64), 1, t, 3);
            let (sum, _, left_out) = loss(&values, [1, t, 3], &[t as u32], std::slice::from_ref(&text));
            let expected = by_enumeration(&values, 3, &text);
            assert!((f64::from(sum) - expected).abs() < 1e-5, "{text:?} in {t}: {sum} and {expected}");
            assert!(left_out.is_empty());
        }
    }

    #[test]
    fn gradient_equals_finite_differences_of_the_loss() {
        let (shape, lengths) = ([2, 6, 4], [6, 4]);
        let texts = [vec![1, 1, 3], vec![2]];
        let values = logits(Key::new(9), 2, 6, 4);
        let (_, gradient, _) = loss(&values, shape, &lengths, &texts);
        for index in 0..values.len() {
            let at = |delta: f32| {
                let mut moved = values.clone();
                moved[index] += delta;
                let log_of = |i: usize| {
                    let cells = &moved[i * 24..i * 24 + lengths[i] as usize * 4];
                    by_enumeration(cells, 4, &texts[i])
                };
                log_of(0) + log_of(1)
            };
            let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((slope - f64::from(gradient[index])).abs() < 2e-3, "{index}: {slope} {}", gradient[index]);
        }
    }

    #[test]
    fn infeasible_text_is_left_out_and_reported() {
        let values = logits(Key::new(2), 2, 2, 3);
        let (sum, gradient, left_out) = loss(&values, [2, 2, 3], &[2, 2], &[vec![1, 1], vec![1, 2]]);
        let (alone, _, _) = loss(&values[6..], [1, 2, 3], &[2], &[vec![1, 2]]);
        assert_eq!((sum, left_out), (alone, vec![0]));
        assert!(gradient[..6].iter().all(|g| *g == 0.0));
    }

    #[test]
    fn infeasible_samples_give_no_nan_in_any_place_of_a_batch() {
        // Lengths from no frame on; the text of three tokens needs four.
        let text = vec![1, 1, 2];
        for lengths in [[0, 0, 0], [0, 4, 3], [4, 1, 0], [3, 3, 3], [5, 0, 4]] {
            for texts in
                [[vec![], text.clone(), text.clone()], [text.clone(), vec![], vec![1]], [(); 3].map(|()| text.clone())]
            {
                let values = logits(Key::new(7), 3, 5, 3);
                let (sum, gradient, left_out) = loss(&values, [3, 5, 3], &lengths, &texts);
                assert!(sum.is_finite() && gradient.iter().all(|g| g.is_finite()), "{lengths:?} {texts:?}");
                let too_short = |&i: &usize| !is_ctc_feasible(lengths[i] as usize, &texts[i]);
                assert_eq!(left_out, (0..3).filter(too_short).collect::<Vec<_>>());
                for index in left_out {
                    assert!(gradient[index * 15..(index + 1) * 15].iter().all(|g| *g == 0.0));
                }
            }
        }
    }

    #[test]
    fn extreme_logits_stay_finite() {
        let mut values = vec![-1e4; 3 * 3];
        values[0] = 1e4;
        let (sum, gradient, _) = loss(&values, [1, 3, 3], &[3], &[vec![1, 2]]);
        assert!(sum.is_finite() && gradient.iter().all(|g| g.is_finite()), "{sum} {gradient:?}");
    }

    #[test]
    fn greedy_decoding_drops_repeats_and_blanks() {
        let path = [0, 1, 1, 0, 1, 2, 2, 0];
        let values: Vec<f32> = path.iter().flat_map(|&best| (0..3).map(move |x| f32::from(x == best))).collect();
        let logits = Tensor::from_data(TensorData::new(values, [1, 8, 3]), &Device::flex());
        assert_eq!(ctc_greedy(logits.clone(), &Lengths::new(vec![8], 8)), [[1, 1, 2]]);
        assert_eq!(ctc_greedy(logits, &Lengths::new(vec![4], 8)), [[1]]);
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn device_kernels_equal_the_host() {
        let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
        // Samples, frames, tokens of the vocabulary, tokens of the longest text, largest logit.
        let cases = [
            (1, 1, 2, 0, 3.0),
            (1, 1, 2, 1, 3.0),
            (4, 9, 5, 4, 3.0),
            (3, 33, 40, 20, 10.0),
            (2, 300, 33, 120, 3.0),
            (2, 1500, 70, 400, 3.0),
            (2, 400, 1200, 60, 30.0),
            (2, 2300, 5, 1023, 3.0),
            (1, 40, 4, 6, 1e4),
        ];
        for (case, (b, t, v, tokens, largest)) in cases.into_iter().enumerate() {
            let key = Key::new(case as u64);
            let values: Vec<f32> = logits(key, b, t, v).into_iter().map(|x| x * largest / 3.0).collect();
            let below =
                |name: &str, index: usize, bound: usize| key.with(name).at(index as u64).below(bound as u64) as u32;
            // The first sample is the longest; others may have no frame, or too few.
            let lengths: Vec<u32> =
                (0..b).map(|index| if index == 0 { t as u32 } else { below("frames", index, t + 1) }).collect();
            let text = |index: usize| {
                let count = if index == 0 { tokens } else { below("tokens", index, tokens + 1) as usize };
                (0..count).map(|place| 1 + below("text", index * 5000 + place, v - 1)).collect()
            };
            let texts: Vec<Vec<u32>> = (0..b).map(text).collect();
            let (expected, gradient, left_out) = loss(&values, [b, t, v], &lengths, &texts);
            let (found, on_gpu, left_out_there) = loss_on(&gpu, &values, [b, t, v], &lengths, &texts);
            assert_eq!(left_out, left_out_there, "case {case}");
            assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "case {case}: {found} {expected}");
            for (index, (one, other)) in on_gpu.iter().zip(&gradient).enumerate() {
                assert!((one - other).abs() < 1e-4, "case {case}, value {index}: {one} {other}");
            }
            let again = loss_on(&gpu, &values, [b, t, v], &lengths, &texts);
            assert!(again == (found, on_gpu, left_out), "case {case}: two runs differ");
            let x = Tensor::from_data(TensorData::new(values, [b, t, v]), &gpu.clone().inner());
            let plain = ctc_loss(x, &Lengths::new(lengths, t), &texts);
            assert_eq!((plain.sum.into_scalar::<f32>(), plain.reads), (found, 0), "case {case}: without a gradient");
        }
    }
}
