//! Measures memory and time of chunked and whole attention: `cargo xtask bench attention [POSITIONS CHUNK]`.

use std::num::NonZeroU32;
use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{Bytes, Choice, CountingAllocator, Key, MemoryMeter, SampleId, Seconds};
use plimsoll_layers::{Attention, AttentionConfig, HeadPositions, Lengths};
use plimsoll_tape::{Noise, Pass, backward, initialize};

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// Width of the layer, as in the recognizer of 24.8M parameters. `HEADS` is from the same model.
const WIDTH: usize = 256;
const HEADS: usize = 4;

/// Activation memory, seconds and result of one forward and backward pass.
struct Measured {
    bytes: Bytes,
    seconds: f64,
    result: Vec<f32>,
}

fn input(positions: usize, device: &Device) -> Tensor<3> {
    let values: Vec<f32> = (0..(positions * WIDTH) as u64).map(|i| Key::new(2).at(i).unit() as f32 - 0.5).collect();
    Tensor::from_data(TensorData::new(values, [1, positions, WIDTH]), device)
}

fn pass(attention: &Attention, x: &Tensor<3>, chunk: Option<NonZeroU32>) -> Measured {
    let positions = x.dims()[1];
    let noise = Noise::new(Key::new(5), &[SampleId(1)]);
    let pass = Pass::new(Choice { attention_chunk: chunk, ..Choice::default() }, noise);
    let lengths = Lengths::new(vec![positions as u32], positions);
    let before = MEMORY.current();
    MEMORY.reset_peak();
    let start = Instant::now();
    let y = attention.forward(x.clone(), &lengths, &pass);
    let result = y.clone().without_autodiff();
    let gradients = backward((y.clone() * y).mean(), attention);
    let seconds = start.elapsed().as_secs_f64();
    let peak = MEMORY.peak();
    drop(gradients);
    let kept = (positions * WIDTH * 4) as u64;
    let bytes = peak.saturating_sub(before + Bytes(kept));
    Measured { bytes, seconds, result: result.into_data().try_into_vec().expect("in fp32") }
}

/// Measures chunked and whole attention and prints the results. The runs alternate, so that other load slows both
/// alike; the first round warms up.
fn compare(name: &str, attention: &Attention, positions: usize, chunk: NonZeroU32, device: &Device) {
    let x = input(positions, device);
    let mut ratios = Vec::new();
    let mut last = None;
    for _ in 0..6 {
        let plain = pass(attention, &x, None);
        let chunked = pass(attention, &x, Some(chunk));
        ratios.push(chunked.seconds / plain.seconds);
        last = Some((plain, chunked));
    }
    ratios.remove(0);
    ratios.sort_by(f64::total_cmp);
    let (plain, chunked) = last.expect("six rounds");
    let largest = plain.result.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let difference = plain.result.iter().zip(&chunked.result).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
    println!(
        "{name}, {positions} positions: at once {} and {}, in chunks of {chunk} {} ({:.1}x less) for {:+.0} % time, \
         results within {:.0e}",
        plain.bytes,
        Seconds(plain.seconds),
        chunked.bytes,
        plain.bytes.0 as f64 / chunked.bytes.0.max(1) as f64,
        (ratios[ratios.len() / 2] - 1.0) * 100.0,
        difference / largest,
    );
}

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (positions, chunk) = match numbers.as_slice() {
        [positions, chunk] => (*positions as usize, *chunk),
        _ => (4096, 64),
    };
    let chunk = NonZeroU32::new(chunk).unwrap_or(NonZeroU32::MIN);
    let device = Device::flex().autodiff();
    println!("self-attention of width {WIDTH} with {HEADS} heads, dropout 0.1, forward and backward");
    let attention = |positions| {
        let config = AttentionConfig { positions, ..AttentionConfig::new(WIDTH, HEADS) };
        initialize(config.init(&device), Key::new(1))
    };
    compare("absolute", &attention(HeadPositions::Absolute), positions, chunk, &device);
    compare("rotary", &attention(HeadPositions::Rotary), positions, chunk, &device);
    compare("relative", &attention(HeadPositions::Relative), positions, chunk, &device);
    let absolute = attention(HeadPositions::Absolute);
    for positions in [1024, 2048, 4096, 8192, 16384] {
        let measured = pass(&absolute, &input(positions, &device), Some(chunk));
        let each = measured.bytes.0 as f64 / positions as f64;
        println!("{positions} positions in chunks of {chunk}: {}, {each:.0} bytes a position", measured.bytes);
    }
}
