//! Tests of training on shards: resuming is exact, and a shard that disappears ends nothing.

use proptest::prelude::*;

use super::*;
use crate::pack::{PackFormat, PackOptions, pack};
use crate::{Issue, Manifest};
use plimsoll_audio::{LogMel, LogMelConfig};
use plimsoll_text::Tokenizer;

/// Packs tones into shards of a few utterances, and reads the shards as a data set.
fn packed(folder: &TempDir, format: PackFormat) -> (Vec<PathBuf>, Arc<Dataset>) {
    let utterances = crate::utterances::Utterances::from(corpus(folder.path(), UTTERANCES).0);
    let options = PackOptions { shard_size: Bytes(50_000), ..PackOptions::new(format) };
    let shards = folder.path().join(format.name());
    let packed = pack(&utterances, &shards, &options, &|_, _| {}).unwrap();
    let manifest = Manifest::read(&shards).unwrap();
    assert_eq!((manifest.utterances.len(), manifest.issues), (UTTERANCES, Vec::<Issue>::new()));
    let tokenizer = Tokenizer::characters(manifest.utterances.texts());
    let log_mel = LogMel::new(&LogMelConfig::default()).unwrap();
    (packed.shards, Arc::new(Dataset::new(manifest.utterances, log_mel, tokenizer)))
}

#[test]
fn shards_give_the_batches_of_their_files() {
    let folder = TempDir::new().unwrap();
    for format in PackFormat::ALL {
        let (_, shards) = packed(&folder, format);
        let mut utterances = corpus(folder.path(), UTTERANCES).0;
        if format == PackFormat::Kaldi {
            utterances.sort_by(|a, b| a.id.cmp(&b.id));
        }
        let files = Arc::new(Dataset::new(utterances, shards.log_mel().clone(), shards.tokenizer().clone()));
        assert_eq!(
            batches(&shards, &train(3, 2), Position::default()),
            batches(&files, &train(1, 2), Position::default())
        );
    }
}

#[test]
fn a_shard_that_disappears_ends_nothing() {
    let folder = TempDir::new().unwrap();
    for format in PackFormat::ALL {
        lose_a_shard(&folder, format);
    }
}

fn lose_a_shard(folder: &TempDir, format: PackFormat) {
    let (shards, dataset) = packed(folder, format);
    assert!(shards.len() > 3, "{}", shards.len());
    // One failure may happen in an epoch.
    let config = LoaderConfig { unreadable_share: 0.01, prefetch: NonZeroUsize::new(1), ..train(1, 4) };
    let mut loader = Loader::start(dataset, &config, Key::new(7), Position::default());
    let mut seen = 0;
    for _ in 0..3 {
        seen += loader.next().unwrap().unwrap().batch.names.len();
    }
    std::fs::remove_file(&shards[1]).unwrap();
    for delivered in &mut loader {
        seen += delivered.unwrap().batch.names.len();
    }
    assert!(loader.skipped() > 4, "{}", loader.skipped());
    assert_eq!(seen as u64 + loader.skipped(), 4 * UTTERANCES as u64);
}

#[test]
fn a_run_resumed_at_fifty_random_positions_has_the_same_order() {
    let folder = TempDir::new().unwrap();
    for format in PackFormat::ALL {
        resume_fifty_times(&packed(&folder, format).1);
    }
}

fn resume_fifty_times(dataset: &Arc<Dataset>) {
    let config = train(2, 20);
    let whole = batches(dataset, &config, Position::default());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(50));
    runner
        .run(&(0..whole.len()), |done| {
            let loader = Loader::start(dataset.clone(), &config, Key::new(7), whole[done].1);
            let rest = loader.map(|loaded| loaded.unwrap()).map(|loaded| (loaded.batch, loaded.position));
            // A few batches of each: the order of an epoch does not depend on what was before.
            prop_assert!(rest.take(12).eq(whole[done + 1..].iter().take(12).cloned()));
            Ok(())
        })
        .unwrap();
}
