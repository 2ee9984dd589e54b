//! Measures the time of keyed dropout compared with Burn's dropout: `cargo xtask bench dropout`.

use std::time::Instant;

use burn::nn::DropoutConfig;
use burn::tensor::{Device, Tensor};
use plimsoll_core::{Key, SampleId};
use plimsoll_tape::Noise;

/// Runs one forward and backward pass of `dropout` over `x`, and returns the time in seconds.
fn timed<const D: usize>(x: &Tensor<D>, dropout: impl Fn(Tensor<D>) -> Tensor<D>) -> f64 {
    let x = x.clone().require_grad();
    let start = Instant::now();
    let tape = dropout(x.clone()).sum().backward();
    let gradient = x.grad(&tape);
    let seconds = start.elapsed().as_secs_f64();
    drop(gradient);
    seconds
}

fn compare<const D: usize>(name: &str, shape: [usize; D], rate: f64) {
    let device = Device::flex().autodiff();
    let x = Tensor::<D>::ones(shape, &device);
    let ids: Vec<SampleId> = (0..shape[0] as u64).map(SampleId).collect();
    let noise = Noise::new(Key::new(3), &ids);
    let burns = DropoutConfig::new(rate).init();
    // Interleaved, so that load on the machine slows both equally. The first round is a warm-up.
    let rounds: Vec<[f64; 2]> =
        (0..21).map(|_| [timed(&x, |x| noise.dropout(x, rate)), timed(&x, |x| burns.forward(x))]).skip(1).collect();
    let median = |value: &dyn Fn(&[f64; 2]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!(
        "{name} {shape:?} at {rate}: keyed {:.2} ms, Burn's {:.2} ms, {:.2}x",
        median(&|round| round[0]) * 1e3,
        median(&|round| round[1]) * 1e3,
        median(&|round| round[0] / round[1]),
    );
}

fn main() {
    println!("dropout, forward and backward, medians of 20");
    compare("activations", [8, 250, 256], 0.1);
    compare("inside a feed-forward layer", [8, 250, 1024], 0.1);
    compare("attention weights", [8, 4, 250, 250], 0.1);
    compare("narrow", [64, 100, 32], 0.3);
}
