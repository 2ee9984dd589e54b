//! Tests of the loader: equal batches with any number of workers, from any position, with broken files.

use std::num::{NonZeroU32, NonZeroUsize};

use tempfile::TempDir;

use super::*;
use crate::batching::{BatchingConfig, SampleMeta};
use crate::testing::corpus;
use crate::{Augment, BatchSize};
use plimsoll_core::{Batch, Bytes, Frames, Seconds};

mod containers;

const UTTERANCES: usize = 23;

fn dataset(folder: &TempDir) -> Arc<Dataset> {
    let augment = Augment { speeds: vec![0.9, 1.0, 1.1], ..Augment::default() };
    Arc::new(corpus(folder.path(), UTTERANCES).dataset(Some(augment), Bytes::mib(4)))
}

fn config(workers: usize, mode: Mode) -> LoaderConfig {
    let size = BatchSize::Utterances(NonZeroU32::new(4).unwrap());
    let frame_grid = NonZeroU32::new(8).unwrap();
    LoaderConfig {
        batching: BatchingConfig { frame_grid, window: NonZeroU32::new(2), ..BatchingConfig::new(size) },
        grid: None,
        workers: NonZeroUsize::new(workers),
        prefetch: NonZeroUsize::new(3),
        unreadable_share: 1.0,
        mode,
        shard: Shard::default(),
    }
}

fn train(workers: usize, epochs: u64) -> LoaderConfig {
    config(workers, Mode::Train { epochs: Some(epochs) })
}

fn batches(dataset: &Arc<Dataset>, config: &LoaderConfig, from: Position) -> Vec<(HostBatch, Position)> {
    let loader = Loader::start(dataset.clone(), config, Key::new(7), from);
    loader.map(|loaded| loaded.unwrap()).map(|loaded| (loaded.batch, loaded.position)).collect()
}

#[test]
fn the_number_of_workers_changes_no_batch() {
    let folder = TempDir::new().unwrap();
    let dataset = dataset(&folder);
    let alone = batches(&dataset, &train(1, 2), Position::default());
    assert_eq!(alone.len(), 2 * 6);
    assert_eq!(batches(&dataset, &train(4, 2), Position::default()), alone);
    assert!(alone.iter().all(|(batch, _)| batch.frames % 8 == 0));
    let mut names: Vec<_> = alone[..6].iter().flat_map(|(batch, _)| batch.names.clone()).collect();
    names.sort_by_key(|name| name.parse::<usize>().unwrap());
    assert_eq!(names, (0..UTTERANCES).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_ne!(alone[0].0, alone[6].0);
}

#[test]
fn resuming_gives_exactly_the_remaining_batches() {
    let folder = TempDir::new().unwrap();
    let dataset = dataset(&folder);
    let whole = batches(&dataset, &train(2, 2), Position::default());
    for (done, (_, position)) in whole.iter().enumerate() {
        assert_eq!(batches(&dataset, &train(2, 2), *position), whole[done + 1..], "{position:?}");
    }
    assert_eq!(whole[5].1, Position::epoch_start(1));
    assert_eq!(whole[11].1, Position::epoch_start(2));
}

#[test]
fn too_many_failures_end_loading() {
    let folder = TempDir::new().unwrap();
    let dataset = dataset(&folder);
    for n in [2, 9, 15] {
        std::fs::write(folder.path().join(format!("{n}.wav")), "not a sound").unwrap();
    }
    let outcome = |unreadable_share: f64, epochs: u64| {
        let config = LoaderConfig { unreadable_share, ..train(2, epochs) };
        let loader = Loader::start(dataset.clone(), &config, Key::new(7), Position::default());
        loader.map(|loaded| loaded.map(|_| ())).collect::<Result<Vec<()>, LoadError>>()
    };
    // Three of 23 in each epoch, however many epochs there are.
    assert_eq!(outcome(0.14, 5).unwrap().len(), 30);
    let error = outcome(0.1, 1).unwrap_err().to_string();
    assert!(
        error.starts_with("3 of 23 utterances could not be loaded in one epoch, and 2 may fail; the last was"),
        "{error}"
    );
}

#[test]
fn one_failure_of_a_few_is_allowed_and_two_are_not() {
    let outcome = |broken: usize, unreadable_share: f64| {
        let folder = TempDir::new().unwrap();
        let dataset = Arc::new(corpus(folder.path(), 10).dataset(None, Bytes(0)));
        for n in 0..broken {
            std::fs::write(folder.path().join(format!("{n}.wav")), "not a sound").unwrap();
        }
        let config = LoaderConfig { unreadable_share, ..config(2, Mode::Evaluate) };
        let loader = Loader::start(dataset, &config, Key::new(7), Position::default());
        loader.map(|loaded| loaded.map(|loaded| loaded.batch.len())).sum::<Result<usize, LoadError>>()
    };
    assert_eq!(outcome(1, 0.05).unwrap(), 9);
    for (broken, share) in [(2, 0.05), (6, 0.05), (1, 0.0)] {
        assert!(matches!(outcome(broken, share), Err(LoadError::TooManyUnreadable { .. })), "{broken} {share}");
    }
}

#[test]
fn defaults_are_one_thread_and_two_batches() {
    let folder = TempDir::new().unwrap();
    let config = LoaderConfig { workers: None, prefetch: None, ..train(1, 1) };
    let loader = Loader::start(dataset(&folder), &config, Key::new(7), Position::default());
    assert_eq!(loader.workers_and_prefetch(), (1, 2));
    assert_eq!(loader.map(|loaded| loaded.unwrap().batch.len()).sum::<usize>(), UTTERANCES);
}

#[test]
fn two_hundred_positions_lead_to_the_same_remaining_order() {
    let seconds = |index: u64| 1.0 + 16.0 * Key::new(5).at(index).unit();
    let meta = |index: u64| SampleMeta {
        id: SampleId(index),
        frames: Frames((seconds(index) * 100.0) as u32),
        tokens: (seconds(index) * 14.0) as u32,
        seconds: Seconds(seconds(index)),
    };
    for size in [BatchSize::Utterances(NonZeroU32::new(7).unwrap()), BatchSize::Seconds(Seconds(70.0))] {
        let batching = BatchingConfig { window: NonZeroU32::new(6), ..BatchingConfig::new(size) };
        let mode = Mode::Train { epochs: Some(3) };
        let metas: Vec<SampleMeta> = (0..400).map(meta).collect();
        let (grid, seed, shard) = (batching.grid(&metas), Key::new(8), Shard::default());
        let schedule = Arc::new(Schedule { grid, metas, batching, mode, seed, shard });
        let order = |from: Position| -> Vec<(Vec<usize>, Position)> {
            schedule.clone().jobs(from).map(|job| (job.samples, job.next)).collect()
        };
        let whole = order(Position::default());
        for draw in 0..200 {
            let done = Key::new(6).at(draw).below(whole.len() as u64) as usize;
            let position = whole[done].1;
            assert_eq!(order(position), whole[done + 1..], "{position:?}");
            // Positions from before there were windows are found too.
            let counted = Position { window: 0, within: 0, ..position };
            assert_eq!(order(counted), whole[done + 1..], "{counted:?}");
        }
    }
}

#[test]
fn endless_training_stops_when_dropped() {
    let folder = TempDir::new().unwrap();
    let mut loader =
        Loader::start(dataset(&folder), &config(3, Mode::Train { epochs: None }), Key::new(1), Position::default());
    assert_eq!(loader.batches_in_epoch(), 6);
    let last = loader.by_ref().take(40).last().unwrap().unwrap();
    assert_eq!((last.position.epoch, last.position.batch), (6, 4));
    drop(loader);
}

#[test]
fn evaluation_keeps_order_and_audio() {
    let folder = TempDir::new().unwrap();
    let dataset = dataset(&folder);
    let seen = batches(&dataset, &config(3, Mode::Evaluate), Position::default());
    let samples: Vec<_> = seen.iter().flat_map(|(batch, _)| (0..batch.len()).map(|n| batch.sample(n))).collect();
    let expected: Vec<_> = (0..UTTERANCES).map(|index| dataset.load(index, None).unwrap()).collect();
    assert_eq!(samples, expected);
}

#[test]
fn unreadable_utterances_are_skipped_counted_and_named() {
    let folder = TempDir::new().unwrap();
    let dataset = dataset(&folder);
    std::fs::remove_file(folder.path().join("5.wav")).unwrap();
    // All utterances of a batch, so they are reported with the next batch.
    for n in 8..12 {
        std::fs::write(folder.path().join(format!("{n}.wav")), "not a sound").unwrap();
    }
    let mut loader = Loader::start(dataset, &config(2, Mode::Evaluate), Key::new(1), Position::default());
    let loaded: Vec<_> = loader.by_ref().map(Result::unwrap).collect();
    let reported: Vec<(usize, Vec<&str>)> = loaded
        .iter()
        .map(|loaded| (loaded.batch.len(), loaded.skipped.iter().map(|s| s.name.as_str()).collect()))
        .collect();
    assert_eq!(reported, [(4, vec![]), (3, vec!["5"]), (4, vec!["8", "9", "10", "11"]), (4, vec![]), (3, vec![])]);
    assert!(loaded[1].skipped[0].reason.ends_with("5.wav does not exist"), "{:?}", loaded[1].skipped);
    assert_eq!(loader.skipped(), 5);
}

#[test]
fn a_data_set_without_a_readable_file_is_an_error() {
    let folder = TempDir::new().unwrap();
    let dataset = dataset(&folder);
    folder.close().unwrap();
    let mut loader = Loader::start(dataset, &config(2, Mode::Train { epochs: None }), Key::new(1), Position::default());
    let error = loader.next().unwrap().unwrap_err();
    assert!(error.to_string().starts_with("none of 23 utterances could be loaded; the first was `"), "{error}");
    assert!(loader.next().is_none());
}

#[test]
fn an_empty_data_set_ends_at_once() {
    let folder = TempDir::new().unwrap();
    let dataset = Arc::new(corpus(folder.path(), 0).dataset(None, Bytes(0)));
    for mode in [Mode::Evaluate, Mode::Train { epochs: None }] {
        assert!(Loader::start(dataset.clone(), &config(2, mode), Key::new(1), Position::default()).next().is_none());
    }
}

#[test]
fn a_panic_becomes_an_error_that_names_the_batch() {
    let error = catch_panic("a.wav", || -> Result<(), LoadError> { panic!("index {} is wrong", 3) }).unwrap_err();
    assert_eq!(error.to_string(), "a loader thread panicked while loading the batch of `a.wav`: index 3 is wrong");
    assert!(catch_panic("a.wav", || Ok(1)).is_ok());
}

#[test]
fn replicas_together_load_the_batches_of_one() {
    let folder = TempDir::new().unwrap();
    let dataset = dataset(&folder);
    let whole = batches(&dataset, &train(1, 2), Position::default());
    let parts: Vec<_> = (0..3)
        .map(|rank| LoaderConfig { shard: Shard { rank, ranks: 3 }, ..train(2, 2) })
        .map(|config| batches(&dataset, &config, Position::default()))
        .collect();
    for (index, (batch, position)) in whole.iter().enumerate() {
        let mut ids = Vec::new();
        for part in &parts {
            assert_eq!(part[index].1, *position);
            ids.extend(part[index].0.ids.clone());
        }
        let mut expected = batch.ids.clone();
        ids.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ids, expected);
        assert_eq!(parts[1][index].0, batch.shard(1, 3));
    }
    assert!(parts.iter().all(|part| part.len() == whole.len()));
    // A batch with fewer utterances than replicas gives an empty batch.
    assert!(parts[2].iter().any(|(batch, _)| batch.is_empty()) || whole.iter().all(|(batch, _)| batch.len() >= 3));
}
