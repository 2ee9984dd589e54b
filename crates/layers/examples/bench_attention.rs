//! Measures memory and time of attention on the CPU, tile by tile, at once, and in chunks of queries:
//! `cargo xtask bench attention [POSITIONS SAMPLES CHUNK]`.

use std::num::NonZeroU32;
use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{Bytes, CountingAllocator, Key, MemoryMeter, SampleId, Seconds};
use plimsoll_layers::Lengths;
use plimsoll_tape::heads::tiled_attention;
use plimsoll_tape::{AttentionInputs, Noise, RelativePositions, chunked_attention};

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// Heads and their width, as in the recognizer of 24.8M parameters.
const HEADS: usize = 4;
const WIDTH: usize = 64;

/// Memory above the inputs, seconds, and the gradient of the queries of one forward and backward pass.
struct Measured {
    bytes: Bytes,
    seconds: f64,
    result: Vec<f32>,
}

fn values(shape: [usize; 4], key: u64, device: &Device) -> Tensor<4> {
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f32> = (0..count).map(|index| Key::new(key).at(index).unit() as f32 - 0.5).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// How attention is computed.
#[derive(Clone, Copy)]
enum Way {
    Tiles,
    Chunks(NonZeroU32),
}

struct Case {
    inputs: [Tensor<4>; 5],
    by_distance: bool,
    rate: f64,
}

impl Case {
    fn new([samples, positions]: [usize; 2], by_distance: bool, rate: f64) -> Self {
        let device = Device::flex().autodiff();
        // As a projection writes them: the heads of a row side by side.
        let rows = |count: usize, key| values([samples, count, HEADS, WIDTH], key, &device).require_grad();
        let table = values([1, 2 * positions - 1, HEADS, WIDTH], 5, &device).require_grad();
        let inputs = [rows(positions, 1), rows(positions, 2), rows(positions, 3), rows(positions, 4), table];
        Self { inputs, by_distance, rate }
    }

    fn pass(&self, way: Way) -> Measured {
        let [query, key, value, by_distance, table] = self.inputs.clone().map(|x| x.swap_dims(1, 2));
        let [samples, _, positions, _] = query.dims();
        let positions_of = self.by_distance.then_some(RelativePositions { query: by_distance, table });
        let inputs = AttentionInputs { query, key, value, positions: positions_of };
        let mask = Lengths::new(vec![positions as u32; samples], positions).attention_mask(false);
        let ids: Vec<SampleId> = (0..samples as u64).map(SampleId).collect();
        let noise = Noise::new(Key::new(5), &ids);
        let before = MEMORY.current();
        MEMORY.reset_peak();
        let start = Instant::now();
        let output = match way {
            Way::Tiles => tiled_attention(inputs, &mask, &noise, self.rate),
            Way::Chunks(chunk) => chunked_attention(inputs, &mask, &noise, self.rate, chunk),
        };
        let gradients = (output.clone() * output).sum().backward();
        let seconds = start.elapsed().as_secs_f64();
        let bytes = MEMORY.peak().saturating_sub(before);
        let gradient = self.inputs[0].grad(&gradients).expect("the queries have a gradient");
        let result = gradient.into_data().try_into_vec().expect("in fp32");
        Measured { bytes, seconds, result }
    }
}

/// Measures all ways in turn, so that other load slows them alike; the first round warms up.
fn compare(name: &str, case: &Case, chunk: NonZeroU32) {
    let ways = [Way::Tiles, Way::Chunks(NonZeroU32::MAX), Way::Chunks(chunk)];
    let mut rounds: Vec<Vec<Measured>> = (0..6).map(|_| ways.map(|way| case.pass(way)).into()).collect();
    rounds.remove(0);
    let seconds = |way: usize| {
        let mut all: Vec<f64> = rounds.iter().map(|round| round[way].seconds).collect();
        all.sort_by(f64::total_cmp);
        Seconds(all[all.len() / 2])
    };
    let [tiles, at_once, chunked] = [0, 1, 2].map(|way| &rounds[0][way]);
    let largest = at_once.result.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let difference = tiles.result.iter().zip(&at_once.result).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
    println!(
        "{name}: in tiles {} in {}, at once {} in {}, in chunks of {chunk} {} in {}; gradients within {:.0e}",
        tiles.bytes,
        seconds(0),
        at_once.bytes,
        seconds(1),
        chunked.bytes,
        seconds(2),
        difference / largest,
    );
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let number = |place: usize, default: usize| numbers.get(place).copied().unwrap_or(default);
    let (positions, samples) = (number(0, 1500), number(1, 4));
    let chunk = u32::try_from(number(2, 64)).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
    println!(
        "attention of {samples} x {positions} positions with {HEADS} heads of width {WIDTH}, forward and backward; \
         memory above the inputs, median of five"
    );
    for (name, by_distance, rate) in [
        ("absolute", false, 0.0),
        ("absolute, dropout 0.1", false, 0.1),
        ("relative", true, 0.0),
        ("relative, dropout 0.1", true, 0.1),
    ] {
        compare(name, &Case::new([samples, positions], by_distance, rate), chunk);
    }
}
