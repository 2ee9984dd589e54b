//! Measures the time to resume in the middle of an epoch of a million samples. The argument is the number of samples.

use std::num::NonZeroU32;
use std::time::Instant;

use plimsoll_core::{Frames, Key, SampleId, Seconds};
use plimsoll_data::{BatchSize, BatchingConfig, SampleMeta};

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let sample = |index: u64| {
        let seconds = 1.0 + 16.0 * Key::new(1).at(index).unit().sqrt();
        let tokens = (seconds * (13.0 + 3.0 * Key::new(2).at(index).unit())) as u32;
        SampleMeta { id: SampleId(index), frames: Frames((seconds * 100.0) as u32), tokens, seconds: Seconds(seconds) }
    };
    let samples: Vec<SampleMeta> = (0..count).map(sample).collect();
    let utterances = NonZeroU32::new(32).expect("32 is not zero");
    for size in [BatchSize::Utterances(utterances), BatchSize::Seconds(Seconds(400.0))] {
        let config = BatchingConfig { shapes: NonZeroU32::new(72), ..BatchingConfig::new(size) };
        let mut times: Vec<f64> = Vec::new();
        for epoch in 0..11 {
            let start = Instant::now();
            let grid = config.grid(&samples);
            let epoch = config.epoch(&samples, &grid, Key::new(3), epoch);
            let batches = epoch.batches(&samples, epoch.windows() / 2);
            times.push(start.elapsed().as_secs_f64() * 1e3);
            assert!(!batches.is_empty());
        }
        times.sort_by(f64::total_cmp);
        let start = Instant::now();
        let epoch = config.epoch(&samples, &config.grid(&samples), Key::new(3), 0);
        let all: usize = (0..epoch.windows()).map(|window| epoch.batches(&samples, window).len()).sum();
        println!(
            "{count} samples, {size:?}: the next batches after {:.1} ms (median of 11, {:.1} to {:.1}); all {all} of the \
             epoch after {:.0} ms",
            times[5],
            times[0],
            times[10],
            start.elapsed().as_secs_f64() * 1e3
        );
    }
}
