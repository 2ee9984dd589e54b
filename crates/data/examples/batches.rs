//! What is in a manifest, and how much padding its batches would have.
//!
//! `cargo run -p plimsoll-data --example batches -- MANIFEST [UTTERANCES A BATCH]`

use std::error::Error;
use std::num::NonZeroU32;

use plimsoll_audio::{LogMel, LogMelConfig};
use plimsoll_core::{Bytes, Key};
use plimsoll_data::{BatchSize, BatchingConfig, Dataset, Limits, Manifest, SampleMeta, epoch_batches};
use plimsoll_text::Tokenizer;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: batches MANIFEST [UTTERANCES A BATCH]")?;
    let utterances: NonZeroU32 = arguments.next().as_deref().unwrap_or("16").parse()?;

    let manifest = Manifest::read(path)?;
    println!("{}: {} utterances, {}", manifest.path.display(), manifest.utterances.len(), manifest.duration());
    let selection = manifest.select(&Limits::default());
    for (reason, count) in selection.counts() {
        println!("  {count} not used: {reason}");
    }

    let tokenizer = Tokenizer::characters(selection.kept.iter().map(|utterance| &utterance.text));
    println!("{} characters", tokenizer.size());
    let log_mel = LogMel::new(&LogMelConfig::default())?;
    let samples = Dataset::new(selection.kept, log_mel, tokenizer, None, Bytes(0))?.metas();
    quantiles("seconds", samples.iter().map(|sample| sample.seconds.0).collect());
    quantiles("tokens", samples.iter().map(|sample| f64::from(sample.tokens)).collect());

    let sorted = BatchingConfig::new(BatchSize::Utterances(utterances));
    // A window of one batch sorts nothing that matters.
    let unsorted = BatchingConfig { window: Some(NonZeroU32::MIN), ..sorted.clone() };
    for (name, config) in [("without sorting", unsorted), ("sorted in windows", sorted)] {
        let batches = epoch_batches(&samples, &config, Key::new(0), 0);
        println!("{} batches {name}: {:.1} % padding", batches.len(), 100.0 * padding(&samples, &batches));
    }
    Ok(())
}

fn quantiles(name: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let quantile = |share: f64| values.get(((values.len().max(1) - 1) as f64 * share).round() as usize).unwrap_or(&0.0);
    let [least, half, most_of_them, most] = [0.0, 0.5, 0.9, 1.0].map(quantile);
    println!("{name}: least {least:.1}, half below {half:.1}, nine in ten below {most_of_them:.1}, most {most:.1}");
}

/// The share of frames that are padding.
fn padding(samples: &[SampleMeta], batches: &[Vec<usize>]) -> f64 {
    let frames = |&index: &usize| u64::from(samples[index].frames.0);
    let real: u64 = batches.iter().flatten().map(frames).sum();
    let padded: u64 =
        batches.iter().map(|batch| batch.len() as u64 * batch.iter().map(frames).max().unwrap_or(0)).sum();
    1.0 - real as f64 / padded.max(1) as f64
}
