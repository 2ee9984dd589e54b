//! Feeds the batches of a corpus: `cargo run -p plimsoll-data --example batches -- [CORPUS] [SECONDS A BATCH]`.
//!
//! CORPUS is a folder or a list in any layout. Without CORPUS, the example writes thirty short tones and reads them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_core::{Batch, Bytes, Key, Position, Seconds};
use plimsoll_data::audio::{LogMel, LogMelConfig};
use plimsoll_data::text::Tokenizer;
use plimsoll_data::{Augment, BatchSize, BatchingConfig, Dataset, Limits, Loader, LoaderConfig, Manifest, Mode, Shard};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = tempfile::tempdir()?;
    let corpus = arguments.next().map_or_else(|| tones(folder.path()), |path| Ok(PathBuf::from(path)))?;
    let batch = Seconds(arguments.next().as_deref().unwrap_or("20").parse()?);

    let manifest = Manifest::read(corpus)?;
    println!("{} utterances, {}", manifest.utterances.len(), manifest.duration());
    manifest.issues.iter().take(5).for_each(|issue| println!("not used: {issue}"));
    let utterances = manifest.select(&Limits::default()).kept;
    let tokenizer = Tokenizer::characters(utterances.texts());
    let dataset = Dataset::new(utterances, LogMel::new(&LogMelConfig::default())?, tokenizer)
        .with_augment(Augment { speeds: vec![0.9, 1.0, 1.1], ..Augment::default() })?
        .with_memory_cache(Bytes::mib(64));

    let (mode, shard) = (Mode::Train { epochs: Some(2) }, Shard::default());
    let batching = BatchingConfig::new(BatchSize::Seconds(batch));
    let config =
        LoaderConfig { batching, grid: None, workers: None, prefetch: None, unreadable_share: 0.01, mode, shard };
    for delivered in Loader::start(Arc::new(dataset), &config, Key::new(1), Position::default()) {
        let delivered = delivered?;
        println!("{}: {}", delivered.batch.shape(), delivered.batch.names.join(" "));
    }
    Ok(())
}

/// Writes tones of half a second to three seconds in the layout of LJSpeech, and returns the folder of the corpus.
fn tones(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    std::fs::create_dir(folder.join("wavs"))?;
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 16_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut list = String::new();
    for n in 0..30u32 {
        let mut wav = hound::WavWriter::create(folder.join(format!("wavs/{n}.wav")), spec)?;
        let sample = |t: u32| (f64::from(t * (20 + n)) * 0.001).sin() * 10_000.0;
        (0..8_000 + n * 7 % 30 * 1_333).try_for_each(|t| wav.write_sample(sample(t) as i16))?;
        wav.finalize()?;
        list += &format!("{n}|tone number {n}\n");
    }
    std::fs::write(folder.join("metadata.csv"), list)?;
    Ok(folder.into())
}
