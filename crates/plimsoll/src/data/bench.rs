//! `plimsoll data bench`: batches loaded as a run would, without training on them.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use plimsoll_audio::{AudioSegment, audio_info, read_audio_segment, resample};
use plimsoll_core::{Bytes, Key, Position, Seconds};
use plimsoll_data::{Dataset, Loader, LoaderConfig, Mode, Shard};
use serde::Serialize;

use super::args::BenchArgs;
use crate::environment;
use crate::terminal::Terminal;
use plimsoll_recipes::config::load;
use plimsoll_recipes::data::prepare;
use plimsoll_recipes::mapping::batching;
use plimsoll_recipes::{Failure, FailureExt};

/// No measurement takes longer.
const LONGEST: Duration = Duration::from_secs(5);
/// Utterances that are looked at one by one.
const LOOKED_AT: usize = 200;

/// How fast batches come.
#[derive(Debug, Serialize)]
struct Speed {
    workers: usize,
    cached: bool,
    audio_seconds_per_second: f64,
}

/// What a second of audio costs one thread, in seconds.
#[derive(Debug, Default, Serialize)]
struct Costs {
    decoding: f64,
    resampling: f64,
    features: f64,
}

pub(super) fn bench(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let mut config = load(&args.config, environment())?.config;
    let folder = config.data.cache_dir.take();
    config.data.cache_memory = Bytes(0);
    let spinner = crate::terminal::waiting("reading lists");
    let cold = prepare(&config, &Terminal);
    spinner.finish_and_clear();
    let cold = cold?.training;
    let spinner = crate::terminal::waiting("loading");
    let costs = costs(&cold)?;
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    let mut speeds = Vec::new();
    let mut workers = 1;
    while workers <= cores {
        speeds.push(speed(&cold, workers, &config.data, false)?);
        workers *= 2;
    }
    if folder.is_some() {
        config.data.cache_dir = folder;
        let kept = prepare(&config, &Terminal)?.training;
        // The first pass fills the cache as far as it gets, the second reads it.
        speed(&kept, cores, &config.data, true)?;
        speeds.push(speed(&kept, 1, &config.data, true)?);
    }
    spinner.finish_and_clear();
    if args.json {
        println!("{}", serde_json::json!({"speeds": speeds, "costs": costs}));
        return Ok(ExitCode::SUCCESS);
    }
    for Speed { workers, cached, audio_seconds_per_second } in &speeds {
        let from = if *cached { ", from the cache" } else { "" };
        let threads = if *workers == 1 { "thread" } else { "threads" };
        println!("{workers} {threads}{from}: {audio_seconds_per_second:.0} s of audio a second");
    }
    let Costs { decoding, resampling, features } = costs;
    let all = (decoding + resampling + features).max(f64::MIN_POSITIVE) / 100.0;
    println!(
        "of one thread's time, {:.0} % is reading and decoding, {:.0} % resampling, {:.0} % features",
        decoding / all,
        resampling / all,
        features / all
    );
    println!(
        "A run says how many seconds of audio it takes in a second; with more than that, it never waits for long."
    );
    if config.data.cache_dir.is_none() {
        println!("With `--set data.cache_dir=DIR` features are kept, and none of this is done twice.");
    }
    Ok(ExitCode::SUCCESS)
}

fn speed(
    dataset: &Arc<Dataset>,
    workers: usize,
    data: &plimsoll_recipes::config::DataConfig,
    cached: bool,
) -> Result<Speed, Failure> {
    let config = LoaderConfig {
        batching: batching(data),
        grid: None,
        workers: NonZeroUsize::new(workers),
        prefetch: NonZeroUsize::new(2 * workers),
        unreadable_share: data.unusable_share,
        mode: Mode::Train { epochs: Some(1) },
        shard: Shard::default(),
    };
    let frames_in_second = f64::from(dataset.log_mel().frames_in(Seconds(100.0)).0) / 100.0;
    let (start, mut frames) = (Instant::now(), 0);
    for loaded in Loader::start(dataset.clone(), &config, Key::new(1), Position::default()) {
        frames += loaded.failed()?.batch.frame_lengths.iter().map(|&count| u64::from(count)).sum::<u64>();
        if start.elapsed() > LONGEST {
            break;
        }
    }
    let audio_seconds_per_second = frames as f64 / frames_in_second / start.elapsed().as_secs_f64();
    Ok(Speed { workers, cached, audio_seconds_per_second })
}

fn costs(dataset: &Dataset) -> Result<Costs, Failure> {
    let (mut costs, mut audio_seconds, begun) = (Costs::default(), 0.0, Instant::now());
    let rate = dataset.log_mel().config().sample_rate;
    let step = dataset.len().div_ceil(LOOKED_AT).max(1);
    for utterance in (0..dataset.len()).step_by(step).map(|index| dataset.utterance(index)) {
        if begun.elapsed() > LONGEST {
            break;
        }
        let own = audio_info(&utterance.audio).failed()?.rate;
        let stretch = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
        let start = Instant::now();
        let audio = read_audio_segment(&utterance.audio, stretch, own).failed()?;
        costs.decoding += start.elapsed().as_secs_f64();
        let start = Instant::now();
        let samples = resample(audio.samples, own, rate);
        costs.resampling += start.elapsed().as_secs_f64();
        let start = Instant::now();
        let features = dataset.log_mel().extract(&samples);
        costs.features += start.elapsed().as_secs_f64();
        audio_seconds += if features.is_empty() { 0.0 } else { utterance.duration.0 };
    }
    let share = |seconds: f64| seconds / audio_seconds.max(f64::MIN_POSITIVE);
    Ok(Costs { decoding: share(costs.decoding), resampling: share(costs.resampling), features: share(costs.features) })
}
