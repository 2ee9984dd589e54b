//! `plimsoll data bench`: batches loaded as a run would, without training on them.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use plimsoll_core::units::AudioSpeed;
use plimsoll_core::{Bytes, Key, Position, Seconds};
use plimsoll_data::{Dataset, Loader, LoaderConfig, Mode, Shard};
use plimsoll_recipes::data::prepare;
use plimsoll_recipes::loading::LoadingCosts;
use plimsoll_recipes::mapping::batching;
use plimsoll_recipes::{Failure, FailureExt, load_run};
use serde::Serialize;

use super::args::BenchArgs;
use crate::environment;
use crate::terminal::Terminal;

/// Time after which a measurement of loading ends.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Loading speed in seconds of audio per second, with a number of threads, from files or from the cache.
#[derive(Debug, Serialize)]
struct Speed {
    workers: usize,
    cached: bool,
    audio_seconds_per_second: f64,
}

/// Measures loading and prints the speeds and the time of each part.
pub(super) fn bench(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let mut config = load_run(&args.config, environment(), &Terminal)?.config;
    let folder = config.data.cache_dir.take();
    config.data.cache_memory = Bytes(0);
    let spinner = crate::terminal::spinner("reading lists");
    let uncached = prepare(&config, &Terminal);
    spinner.finish_and_clear();
    let uncached = uncached?.training;
    let spinner = crate::terminal::spinner("loading");
    let costs = LoadingCosts::measure(&uncached, TIME_LIMIT)?;
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    let mut speeds = Vec::new();
    let mut workers = 1;
    while workers <= cores {
        speeds.push(speed(&uncached, workers, &config, false)?);
        workers *= 2;
    }
    if folder.is_some() {
        config.data.cache_dir = folder;
        let cached = prepare(&config, &Terminal)?.training;
        // The first pass fills the cache until the time limit, the second reads it.
        speed(&cached, cores, &config, true)?;
        speeds.push(speed(&cached, 1, &config, true)?);
    }
    spinner.finish_and_clear();
    if args.json {
        println!("{}", serde_json::json!({"speeds": speeds, "costs": costs}));
        return Ok(ExitCode::SUCCESS);
    }
    for Speed { workers, cached, audio_seconds_per_second } in &speeds {
        let from = if *cached { ", from the cache" } else { "" };
        let threads = if *workers == 1 { "thread" } else { "threads" };
        println!("{workers} {threads}{from}: {}", AudioSpeed(*audio_seconds_per_second));
    }
    let LoadingCosts { decoding, resampling, features } = costs;
    let all = costs.seconds().max(f64::MIN_POSITIVE) / 100.0;
    println!(
        "time of one thread: {:.0} % reading and decoding, {:.0} % resampling, {:.0} % features",
        decoding / all,
        resampling / all,
        features / all
    );
    println!(
        "Training prints how many seconds of audio it computes per second. If loading is faster, training does not wait for data."
    );
    if config.data.cache_dir.is_none() {
        println!("`--set data.cache_dir=DIR` keeps features on disk, so that later epochs and runs skip this work.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures the seconds of audio per second that `workers` threads load, in one epoch or until the time limit. `cached`
/// only marks the result.
fn speed(
    dataset: &Arc<Dataset>,
    workers: usize,
    config: &plimsoll_config::RunConfig,
    cached: bool,
) -> Result<Speed, Failure> {
    let config = LoaderConfig {
        batching: batching(config),
        grid: None,
        workers: NonZeroUsize::new(workers),
        prefetch: NonZeroUsize::new(2 * workers),
        unreadable_share: config.data.unusable_share,
        mode: Mode::Train { epochs: Some(1) },
        shard: Shard::default(),
    };
    let frames_in_second = f64::from(dataset.log_mel().frames_in(Seconds(100.0)).0) / 100.0;
    let (start, mut frames) = (Instant::now(), 0);
    for loaded in Loader::start(dataset.clone(), &config, Key::new(1), Position::default()) {
        frames += loaded.failed()?.batch.frame_lengths.iter().map(|&count| u64::from(count)).sum::<u64>();
        if start.elapsed() > TIME_LIMIT {
            break;
        }
    }
    let audio_seconds_per_second = frames as f64 / frames_in_second / start.elapsed().as_secs_f64();
    Ok(Speed { workers, cached, audio_seconds_per_second })
}
