//! Measures memory and time of plain and rematerialized Conformer blocks:
//! `cargo xtask bench remat [BLOCKS WIDTH FRAMES]`.

use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{Bytes, Choice, CountingAllocator, Key, MemoryMeter, Remat, SampleId, Seconds};
use plimsoll_layers::{Conformer, ConformerConfig, Lengths};
use plimsoll_tape::{Noise, Pass, backward, initialize};

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

#[derive(Module, Debug)]
struct Encoder {
    blocks: Vec<Conformer>,
}

impl Encoder {
    fn forward(&self, x: Tensor<3>, choice: Remat) -> Tensor<3> {
        let [b, t, _] = x.dims();
        let lengths = Lengths::new(vec![t as u32; b], t);
        let noise = Noise::new(Key::new(5), &(0..b as u64).map(SampleId).collect::<Vec<_>>());
        let pass = Pass::new(Choice::default(), noise);
        self.blocks.iter().enumerate().fold(x, |x, (index, block)| {
            let pass = pass.at(index);
            match choice.covers(index) {
                true => block.forward_rematerialized(x, &lengths, &pass),
                false => block.forward(x, &lengths, &pass),
            }
        })
    }
}

/// Measures activation memory, seconds and gradient sum of one forward and backward pass. Activation memory is the peak
/// minus the memory in use before the pass and the memory of the gradients.
fn pass(encoder: &Encoder, x: &Tensor<3>, choice: Remat) -> (Bytes, f64, f32) {
    let before = MEMORY.current();
    MEMORY.reset_peak();
    let start = Instant::now();
    let y = encoder.forward(x.clone(), choice);
    let gradients = backward((y.clone() * y).mean(), encoder);
    let seconds = start.elapsed().as_secs_f64();
    let peak = MEMORY.peak();
    let held = MEMORY.current().saturating_sub(before);
    let first = encoder.blocks[0].clone();
    let mut sum = Sum(&gradients, 0.0);
    plimsoll_tape::walk(&first, &mut sum);
    (peak.saturating_sub(before + held), seconds, sum.1)
}

/// Visitor that sums the absolute gradients of the first block. The sum must be equal for all rematerialization
/// choices.
struct Sum<'a>(&'a burn::optim::GradientsParams, f32);

impl plimsoll_tape::NamedVisitor for Sum<'_> {
    fn parameter<const D: usize>(&mut self, _: &str, param: &burn::module::Param<Tensor<D>>) {
        if let Some(gradient) = self.0.get::<D>(param.id) {
            self.1 += gradient.abs().sum().into_scalar::<f32>();
        }
    }
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (blocks, width, frames) = match numbers.as_slice() {
        [blocks, width, frames] => (*blocks, *width, *frames),
        _ => (12, 256, 1000),
    };
    let device = Device::flex().autodiff();
    let config = ConformerConfig { kernel: 31, ..ConformerConfig::new(width, 4) };
    let encoder = Encoder { blocks: (0..blocks).map(|_| config.init(&device)).collect() };
    let encoder = initialize(encoder, Key::new(1));
    let values: Vec<f32> = (0..(frames * width) as u64).map(|i| Key::new(2).at(i).unit() as f32 - 0.5).collect();
    let x = Tensor::from_data(TensorData::new(values, [1, frames, width]), &device);
    println!("{blocks} Conformer blocks of width {width}, {frames} frames, dropout 0.1, forward and backward");
    // The choices alternate, so that other load slows all alike; the first round warms up.
    let choices = [Remat::None, Remat::Half, Remat::All];
    let mut rounds: Vec<Vec<(Bytes, f64, f32)>> = Vec::new();
    for _ in 0..4 {
        rounds.push(choices.iter().map(|&choice| pass(&encoder, &x, choice)).collect());
    }
    let median = |index: usize| {
        let mut times: Vec<f64> = rounds[1..].iter().map(|round| round[index].1).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (plain_bytes, _, plain_sum) = rounds[1][0];
    for (index, choice) in choices.iter().enumerate() {
        let (bytes, _, sum) = rounds[1][index];
        println!(
            "{choice:?}: {bytes} of activations ({:.2}x less), {} ({:+.0} % time), gradients {}",
            plain_bytes.0 as f64 / bytes.0.max(1) as f64,
            Seconds(median(index)),
            (median(index) / median(0) - 1.0) * 100.0,
            if sum == plain_sum { "equal" } else { "DIFFERENT" },
        );
    }
}
