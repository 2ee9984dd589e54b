//! Tests that each block gives equal results when rematerialized, in chunks, without its batch, and with other padding.

use std::num::NonZeroU32;

use burn::tensor::{Device, Tensor};
use plimsoll_core::{Choice, Key, SampleId};
use plimsoll_layers::{
    AttentionConfig, ConformerConfig, HeadPositions, KeyValueCache, Lengths, NormKind, TransformerConfig,
};
use plimsoll_tape::{Noise, Pass, initialize, remat};

use crate::block::{Block, Check, Sequence, every_block, gradients, sequence, with_weights};
use crate::fixture::{Fixture, close};

/// Dropout probability that changes results visibly.
const DROPOUT: f64 = 0.2;

fn pass(choice: Choice, samples: &[u64]) -> Pass {
    let ids: Vec<SampleId> = samples.iter().copied().map(SampleId).collect();
    Pass::new(choice, Noise::new(Key::new(11), &ids))
}

/// Computes the result and all gradients of `block` under a nonlinear loss, each with its name.
fn results<B: Block>(block: &B, name: &str, rematerialize: bool, pass: &Pass) -> Vec<(String, Vec<f32>)> {
    results_on(&Device::flex().autodiff(), block, name, rematerialize, pass)
}

fn results_on<B: Block>(
    device: &Device,
    block: &B,
    name: &str,
    rematerialize: bool,
    pass: &Pass,
) -> Vec<(String, Vec<f32>)> {
    let fixture = Fixture::read(name);
    let input = sequence(&fixture, "x", "lengths", device);
    let x = input.x.clone().require_grad();
    let memory = if fixture.shape("memory").is_some() { "memory" } else { "x" };
    let memory = sequence(&fixture, memory, &format!("{memory}_lengths"), device);
    let memory_x = memory.x.clone().require_grad();
    let (lengths, memory_lengths, pass) = (input.lengths, memory.lengths, pass.clone());
    let run = move |block: &B, (x, memory): (Tensor<3>, Tensor<3>)| {
        block.run(x, &lengths, &Sequence { x: memory, lengths: memory_lengths.clone() }, &pass)
    };
    let inputs = (x.clone(), memory_x.clone());
    let y = if rematerialize { remat(block, inputs, run) } else { run(block, inputs) };
    let tape = (y.clone().square() + y.clone()).sum().backward();
    let values = |x: Tensor<3>| x.into_data().try_into_vec::<f32>().unwrap();
    let mut found = vec![("y".to_string(), values(y))];
    found.extend(x.grad(&tape).map(|gradient| ("x".into(), values(gradient))));
    found.extend(memory_x.grad(&tape).map(|gradient| ("memory".into(), values(gradient))));
    found.extend(gradients(block, &tape));
    found
}

struct SameWhenRematerialized;

impl Check for SameWhenRematerialized {
    fn check<B: Block>(&self, name: &str, build: &dyn Fn(&Device) -> B) {
        let build = || with_weights(build(&Device::flex().autodiff()), &Fixture::read(name));
        let pass = pass(Choice::default(), &[3, 4]);
        let [plain, again] = [false, true].map(|again| {
            let block = build();
            (results(&block, name, again, &pass), plimsoll_tape::collect(&block))
        });
        assert!(plain == again, "{name}: rematerialization changes a result");
    }
}

#[test]
fn rematerialized_block_is_equal_to_the_last_bit_with_dropout() {
    every_block(&SameWhenRematerialized, DROPOUT);
}

#[test]
fn rematerialized_conformer_is_equal_to_the_last_bit_with_dropout() {
    for (name, positions, norm) in [
        ("conformer_absolute", HeadPositions::Absolute, NormKind::Layer),
        ("conformer_relative", HeadPositions::Relative, NormKind::Layer),
        ("conformer_batch_norm", HeadPositions::Absolute, NormKind::Batch),
    ] {
        let found = [false, true].map(|again| {
            let device = Device::flex().autodiff();
            let fixture = Fixture::read(name);
            let base = ConformerConfig::new(16, 4);
            let config = ConformerConfig { kernel: 5, positions, norm, dropout: DROPOUT, ..base };
            let block = with_weights(config.init(&device), &fixture);
            let input = sequence(&fixture, "x", "lengths", &device);
            let x = input.x.require_grad();
            let pass = pass(Choice::default(), &[3, 4]);
            let y = match again {
                true => block.forward_rematerialized(x.clone(), &input.lengths, &pass),
                false => block.forward(x.clone(), &input.lengths, &pass),
            };
            let tape = (y.clone().square() + y.clone()).sum().backward();
            (
                y.into_data(),
                x.grad(&tape).unwrap().into_data(),
                gradients(&block, &tape),
                plimsoll_tape::collect(&block),
            )
        });
        assert!(found[0] == found[1], "{name}");
    }
}

struct SameInChunks;

impl Check for SameInChunks {
    fn check<B: Block>(&self, name: &str, build: &dyn Fn(&Device) -> B) {
        let block = with_weights(build(&Device::flex().autodiff()), &Fixture::read(name));
        let whole = results(&block, name, false, &pass(Choice::default(), &[3, 4]));
        for chunk in [1, 5, 13] {
            let choice = Choice { attention_chunk: NonZeroU32::new(chunk), ..Choice::default() };
            let found = results(&block, name, false, &pass(choice, &[3, 4]));
            for ((what, found), (_, expected)) in found.iter().zip(&whole) {
                close(&format!("{name}: {what} in chunks of {chunk}"), found, expected, 1e-5);
            }
        }
    }
}

#[test]
fn chunked_attention_is_equal_with_dropout() {
    every_block(&SameInChunks, DROPOUT);
}

struct SameInAnyBatch;

impl Check for SameInAnyBatch {
    fn check<B: Block>(&self, name: &str, build: &dyn Fn(&Device) -> B) {
        // A batch norm depends on the batch by definition; the subsampling fixture has no lengths.
        if name.contains("batch_norm") || name == "subsampling" {
            return;
        }
        let fixture = Fixture::read(name);
        let device = Device::flex();
        let block = with_weights(build(&device), &fixture);
        let input = sequence(&fixture, "x", "lengths", &device);
        let memory = if fixture.shape("memory").is_some() { "memory" } else { "x" };
        let memory = sequence(&fixture, memory, &format!("{memory}_lengths"), &device);
        let both = block.run(input.x.clone(), &input.lengths, &memory, &pass(Choice::default(), &[3, 4]));
        for index in 0..2 {
            let [own, memory_x] = [&input, &memory].map(|all| {
                let length = all.lengths.each()[index] as usize;
                let x = all.x.clone().narrow(0, index, 1).narrow(1, 0, length);
                Sequence { x, lengths: Lengths::new(vec![length as u32], length) }
            });
            let alone = block.run(own.x, &own.lengths, &memory_x, &pass(Choice::default(), &[[3, 4][index]]));
            // Some blocks turn a sequence into one vector.
            let width = both.dims()[1].min(own.lengths.width());
            let expected = both.clone().narrow(0, index, 1).narrow(1, 0, width);
            let values = |x: Tensor<3>| x.into_data().try_into_vec::<f32>().unwrap();
            close(&format!("{name}: sequence {index} alone"), &values(alone), &values(expected), 1e-5);
        }
        // The values in the padding must not matter either.
        let noisy = |all: &Sequence| {
            let Some(padding) = all.lengths.padding(&device) else { return all.clone() };
            let shape = all.x.dims();
            Sequence {
                x: all.x.clone().mask_fill(padding.unsqueeze_dim::<3>(2).expand(shape), 7.0),
                lengths: all.lengths.clone(),
            }
        };
        let (input, memory) = (noisy(&input), if memory.lengths.is_padded() { noisy(&memory) } else { memory });
        let found = block.run(input.x, &input.lengths, &memory, &pass(Choice::default(), &[3, 4]));
        let values = |x: Tensor<3>| {
            let sequence = x.dims()[1] == input.lengths.width();
            let x = if sequence { input.lengths.clear_padding(x) } else { x };
            x.into_data().try_into_vec::<f32>().unwrap()
        };
        close(&format!("{name}: other padding"), &values(found), &values(both), 1e-5);
    }
}

#[test]
fn sequence_alone_equals_itself_in_a_padded_batch_with_dropout() {
    every_block(&SameInAnyBatch, DROPOUT);
}

fn random(b: usize, t: usize) -> Tensor<3> {
    let values: Vec<f32> = (0..b * t * 16).map(|i| Key::new(5).at(i as u64).unit() as f32 - 0.5).collect();
    Tensor::from_data(burn::tensor::TensorData::new(values, [b, t, 16]), &Device::flex())
}

#[test]
fn causal_attention_ignores_later_frames_and_equals_cached_steps() {
    for positions in [HeadPositions::Absolute, HeadPositions::Relative, HeadPositions::Rotary] {
        let config = AttentionConfig { positions, causal: true, ..AttentionConfig::new(16, 4) };
        let attention = initialize(config.init(&Device::flex()), Key::new(1));
        let x = random(2, 9);
        let whole = attention.forward(x.clone(), &Lengths::new(vec![9, 9], 9), &Pass::plain());
        let values = |x: Tensor<3>| x.into_data().try_into_vec::<f32>().unwrap();
        let first = attention.forward(x.clone().narrow(1, 0, 4), &Lengths::new(vec![4, 4], 4), &Pass::plain());
        close("the first four", &values(first), &values(whole.clone().narrow(1, 0, 4)), 1e-5);
        let mut cache = KeyValueCache::default();
        for (from, count) in [(0, 1), (1, 1), (2, 4), (6, 3)] {
            let part = attention.extend(x.clone().narrow(1, from, count), &mut cache, &Pass::plain());
            let expected = whole.clone().narrow(1, from, count);
            close(&format!("{positions:?} from {from}"), &values(part), &values(expected), 1e-5);
        }
    }
}

#[test]
fn decoder_steps_equal_whole_sequence_after_row_selection() {
    let device = Device::flex();
    let block = initialize(TransformerConfig::new(16, 4).init_decoder(&device), Key::new(1));
    let (x, memory) = (random(2, 5), random(2, 7) * 2.0);
    let (lengths, memory_lengths) = (Lengths::new(vec![5, 5], 5), Lengths::new(vec![7, 4], 7));
    // Reorder the sequences and continue the second one twice, as beam search does.
    let rows = [1, 0, 1];
    let chosen = |x: &Tensor<3>| Tensor::cat(rows.map(|row| x.clone().narrow(0, row, 1)).to_vec(), 0);
    let whole = block.forward(x.clone(), &lengths, memory.clone(), &memory_lengths, &Pass::plain());
    let mut cache = block.cache(memory, &memory_lengths, &Pass::plain());
    for index in 0..4 {
        block.extend(x.clone().narrow(1, index, 1), &mut cache, &Pass::plain());
    }
    cache.select(&rows);
    let last = block.extend(chosen(&x).narrow(1, 4, 1), &mut cache, &Pass::plain());
    let values = |x: Tensor<3>| x.into_data().try_into_vec::<f32>().unwrap();
    close("the last tokens", &values(last), &values(chosen(&whole).narrow(1, 4, 1)), 1e-5);
}

/// Blocks on a GPU, whose kernels are others than those of the CPU. Needs a device with Vulkan, Metal or WebGPU; a software
/// device will do.
#[cfg(feature = "wgpu")]
mod on_a_gpu {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Lets one test at a time use the GPU: kernels are counted for the whole process.
    fn alone() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gpu() -> Device {
        Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff()
    }

    /// Checks that all values differ by at most 1e-4 of the largest.
    fn equal(what: &str, found: &[(String, Vec<f32>)], expected: &[(String, Vec<f32>)]) {
        assert_eq!(found.len(), expected.len(), "{what}");
        for ((name, found), (expected_name, expected)) in found.iter().zip(expected) {
            assert_eq!((name, found.len()), (expected_name, expected.len()), "{what}");
            let largest = expected.iter().fold(1.0_f32, |largest, x| largest.max(x.abs()));
            let far = found.iter().zip(expected).find(|(a, b)| !((*a - *b).abs() <= 1e-4 * largest));
            assert_eq!(far, None, "{what}: {name}, of which the largest is {largest}");
        }
    }

    struct SameOnAGpu;

    impl Check for SameOnAGpu {
        fn check<B: Block>(&self, name: &str, build: &dyn Fn(&Device) -> B) {
            let on = |device: &Device, again| {
                let block = with_weights(build(device), &Fixture::read(name));
                results_on(device, &block, name, again, &pass(Choice::default(), &[3, 4]))
            };
            let expected = on(&Device::flex().autodiff(), false);
            for again in [false, true] {
                equal(&format!("{name}, rematerialized: {again}"), &on(&gpu(), again), &expected);
            }
        }
    }

    #[test]
    fn blocks_compute_what_they_compute_on_the_cpu() {
        let _alone = alone();
        every_block(&SameOnAGpu, DROPOUT);
    }

    #[test]
    fn a_rematerialized_conformer_computes_what_it_computes_on_the_cpu() {
        let _alone = alone();
        for (name, positions) in
            [("conformer_absolute", HeadPositions::Absolute), ("conformer_relative", HeadPositions::Relative)]
        {
            let on = |device: &Device, again: bool| {
                let fixture = Fixture::read(name);
                let config = ConformerConfig { kernel: 5, positions, dropout: DROPOUT, ..ConformerConfig::new(16, 4) };
                let block = with_weights(config.init(device), &fixture);
                let input = sequence(&fixture, "x", "lengths", device);
                let x = input.x.require_grad();
                let pass = pass(Choice::default(), &[3, 4]);
                let y = match again {
                    true => block.forward_rematerialized(x.clone(), &input.lengths, &pass),
                    false => block.forward(x.clone(), &input.lengths, &pass),
                };
                let tape = (y.clone().square() + y.clone()).sum().backward();
                let values = |x: Tensor<3>| x.into_data().try_into_vec::<f32>().unwrap();
                let of_x = values(x.grad(&tape).unwrap());
                let mut all = vec![("y".to_owned(), values(y)), ("x".to_owned(), of_x)];
                all.extend(gradients(&block, &tape));
                all
            };
            let expected = on(&Device::flex().autodiff(), false);
            for again in [false, true] {
                equal(&format!("{name}, rematerialized: {again}"), &on(&gpu(), again), &expected);
            }
        }
    }

    /// The host needs some microseconds for each kernel, so on a fast GPU their number is the time of a step. A number that
    /// grows is a regression, and one that shrinks belongs here.
    #[test]
    fn a_conformer_launches_few_kernels() {
        use plimsoll_tape::gpu::CallCounter;

        /// Kernels of a forward and a backward pass, with those of the loss.
        const LAUNCHES: u64 = 85;
        let _alone = alone();
        let device = gpu();
        let config = ConformerConfig { positions: HeadPositions::Relative, ..ConformerConfig::new(64, 4) };
        let block = initialize(config.init(&device), Key::new(1));
        let (pass, lengths) = (pass(Choice::default(), &[3, 4]), Lengths::new(vec![20, 31], 31));
        let step = || {
            let x = Tensor::<3>::ones([2, 31, 64], &device).require_grad();
            let y = block.forward(x.clone(), &lengths, &pass);
            let tape = (y.clone() * y).sum().backward();
            let _ = x.grad(&tape).map(Tensor::into_data);
            assert!(gradients(&block, &tape).len() > 30);
        };
        step();
        let counter = CallCounter::new();
        let calls = || counter.calls().expect("a GPU backend is built in");
        let counted = |_| {
            let before = calls();
            step();
            calls().since(before).launches
        };
        let launches = (0..4).map(counted).min().expect("several rounds");
        assert!(launches.abs_diff(LAUNCHES) * 20 <= LAUNCHES, "{launches} kernels, and not {LAUNCHES}");
    }
}
