//! Measures the peak memory of loading in each of fifty epochs. The argument is the number of epochs.
//!
//! The data are the built-in corpus with 1600 utterances and all augmentation. Two workers load; features are kept on
//! disk and not in memory.

use std::error::Error;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;

use plimsoll_audio::{LogMel, LogMelConfig};
use plimsoll_core::{Bytes, CountingAllocator, Key, MemoryMeter, Position};
use plimsoll_corpus::{CorpusOptions, Engine, make_corpus};
use plimsoll_data::store::{Store, StoreConfig, StorePrecision};
use plimsoll_data::{Augment, BatchSize, BatchingConfig, Dataset, Loader, LoaderConfig, Manifest, Mode, Noise, Shard};
use plimsoll_text::Tokenizer;

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

fn main() -> Result<(), Box<dyn Error>> {
    let epochs: u64 = std::env::args().nth(1).map_or(Ok(50), |epochs| epochs.parse())?;
    let folder = Path::new("target/bench-flat");
    if !folder.join("manifest.jsonl").exists() {
        let out = folder.to_path_buf();
        let engine = Engine::Formant;
        make_corpus(
            &CorpusOptions { out, utterances: 1600, speakers: 40, seed: 1, words: None, studio: false, engine },
            &|_, _| {},
        )?;
    }
    let kept = tempfile::tempdir_in(folder)?;
    let utterances = Manifest::read(folder)?.utterances;
    let tokenizer = Tokenizer::characters(utterances.texts());
    let noise = Noise { share: 0.3, ..Noise::default() };
    let augment = Augment { speeds: vec![0.9, 1.0, 1.1], noise, gain_db: 0.0, ..Augment::default() };
    let store = Store::open(kept.path(), &StoreConfig { limit: Bytes::gib(4), precision: StorePrecision::F32 })?;
    let log_mel = LogMel::new(&LogMelConfig::default())?;
    let dataset = Dataset::new(utterances, log_mel, tokenizer).with_augment(augment)?.with_store(Arc::new(store));
    let config = LoaderConfig {
        batching: BatchingConfig::new(BatchSize::Utterances(NonZeroU32::new(16).ok_or("zero")?)),
        grid: None,
        workers: NonZeroUsize::new(2),
        prefetch: NonZeroUsize::new(8),
        unreadable_share: 0.0,
        mode: Mode::Train { epochs: Some(epochs) },
        shard: Shard::default(),
    };
    let mut after: Vec<f64> = Vec::new();
    for loaded in Loader::start(Arc::new(dataset), &config, Key::new(1), Position::default()) {
        if loaded?.position.batch == 0 {
            after.push(MEMORY.peak().0 as f64 / f64::from(1 << 20));
            MEMORY.reset_peak();
            println!("epoch {}: {:.2} MiB", after.len(), after[after.len() - 1]);
        }
    }
    // The first epochs fill the index of the store.
    let (early, late) = (&after[after.len() / 10..after.len() * 3 / 10], &after[after.len() * 8 / 10..]);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    println!(
        "mean peak: {:.2} MiB in the second and third tenth of the epochs, {:.2} MiB in the last two ({:+.1} %)",
        mean(early),
        mean(late),
        100.0 * (mean(late) / mean(early) - 1.0)
    );
    Ok(())
}
