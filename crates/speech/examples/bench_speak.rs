//! Measures the time of one generated frame after 50 frames and after 500: `cargo xtask bench speak [WIDTH LAYERS]`.
//!
//! An untrained synthesizer generates 50, 100, 500 and 550 frames in turn, eleven times each, after a warm-up. The time
//! of fifty more frames, early and late, does not include the time of the text encoder.

use std::time::Instant;

use burn::tensor::{Device, Tensor};
use plimsoll_core::{Key, SampleId};
use plimsoll_speech::tts::{LengthBounds, Synthesizer, SynthesizerConfig};

const TOKENS: usize = 40;
const ROUNDS: usize = 11;
const LENGTHS: [usize; 4] = [50, 100, 500, 550];

/// Builds a synthesizer that generates at least `frames` frames for [`TOKENS`] tokens, and few more.
fn model(width: usize, layers: usize, frames: usize) -> Synthesizer {
    let tokens = TOKENS as f64;
    // `LengthBounds::frame_bounds` gives half of the minimum, and 1.5 times the maximum plus 40.
    let length_bounds = LengthBounds {
        frames_per_token_min: 2.0 * frames as f64 / tokens,
        frames_per_token_max: ((frames as f64 - 40.0) / 1.5 / tokens).max(0.0),
        tokens_max: TOKENS,
    };
    let config = SynthesizerConfig { length_bounds, ..SynthesizerConfig::recommended(80, 60, width, layers) };
    config.init(&Device::flex(), Key::new(1))
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let (width, layers) = match numbers[..] {
        [width, layers] => (width, layers),
        _ => (256, 4),
    };
    println!("width {width}, {layers} + {layers} blocks, {TOKENS} tokens, three frames a step, the CPU");
    let models = LENGTHS.map(|frames| model(width, layers, frames));
    let voice = Tensor::zeros([1, 1, models[0].config().voice.width()], &Device::flex());
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|token| 4 + token % 50).collect();
    let mut each = LENGTHS.map(|_| Vec::new());
    for round in 0..=ROUNDS {
        for (model, times) in models.iter().zip(&mut each) {
            let start = Instant::now();
            let generated = model.generate(std::slice::from_ref(&tokens), &[SampleId(1)], voice.clone(), Key::new(1));
            let frames = generated[0].mels.len() / 80;
            if round > 0 {
                times.push((start.elapsed().as_secs_f64() * 1e6, frames));
            }
        }
    }
    let [early, soon, late, last] = each.map(|mut times| {
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        times[times.len() / 2]
    });
    let frame = |(t, n): (f64, usize), (u, m): (f64, usize)| (u - t) / (m - n) as f64;
    let (at_first, at_last) = (frame(early, soon), frame(late, last));
    println!("a frame after  50: {at_first:>7.0} us");
    println!("a frame after 500: {at_last:>7.0} us, {:.2}x", at_last / at_first);
    println!("500 frames in all: {:>7.0} us each, the text read and the postnet included", late.0 / late.1 as f64);
}
