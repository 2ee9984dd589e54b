//! Rules about waiting for data: too few threads, too few batches ahead, and features that are computed again.

use plimsoll_core::units::AudioSpeed;
use plimsoll_core::{Bytes, StepEvent, TimeOwner, counted};

use crate::advice::change::Change;
use crate::advice::facts::LoadingFacts;
use crate::advice::measured::{Measured, NOTED_SHARE, percent, took};
use crate::advice::outcome::{Outcome, Problem};

const WORKERS: &str = "data.num_workers";
const AHEAD: &str = "data.prefetch_buffer_size";
const CACHE_MEMORY: &str = "data.cache_memory";
const CACHE_DIR: &str = "data.cache_dir";

/// Part of a computed gain that is promised. On the CPU the loader and the model share the processors.
const DISCOUNT: f64 = 0.8;
const DISCOUNT_CPU: f64 = 0.6;
/// Part of the gain of a cache that is promised: reading from it takes time too.
const DISCOUNT_CACHE: f64 = 0.7;
/// Speed of loading that is enough, as a factor on the speed of the run: batches differ in length.
const SPARE_SPEED: f64 = 1.25;
/// Number of batches ahead that `auto` grows to.
const AHEAD_AUTO_MAX: usize = 16;
/// Median share below which most steps do not wait at all.
const RARELY: f64 = 0.01;
/// Share of the waiting time in the slowest tenth of the steps from which waiting is concentrated there.
const CONCENTRATED: f64 = 0.8;
/// Part of a concentrated waiting time that is promised for more batches ahead.
const DISCOUNT_SPIKES: f64 = 0.4;
/// Memory that a cache needs beside its features, and memory that must stay free, as factors on the features.
const CACHE_SPARE: f64 = 1.1;
const CACHE_ROOM: f64 = 1.5;

/// Too few threads or batches ahead are configured.
pub(super) fn loader_bound(run: &Measured<'_>) -> Outcome {
    let share = run.share(TimeOwner::Data);
    if share < NOTED_SHARE {
        return Outcome::Healthy;
    }
    let (workers, ahead) = (run.value::<usize>(WORKERS), run.value::<usize>(AHEAD));
    let problem = Problem::new(share, took(TimeOwner::Data, share));
    if is_concentrated(run) {
        return concentrated(run, problem, ahead);
    }
    let Some(processors) = run.facts.host.processors.filter(|count| *count > 0) else {
        return match (workers, ahead) {
            (None, None) => problem.hint(NO_KEY).found(),
            _ => Outcome::abstained("the number of processors is not known"),
        };
    };
    // A thread loads a whole batch, so threads beyond the batches ahead are idle.
    let threads = workers.unwrap_or(processors);
    let now = threads.min(ahead.unwrap_or(usize::MAX)).max(1);
    let goal = threads_needed(run).map_or(processors, |needed| needed.clamp(1, processors));
    let discount = if run.facts.on_gpu == Some(true) { DISCOUNT } else { DISCOUNT_CPU };
    let saved = |goal: usize| (goal > now).then(|| share * (1.0 - now as f64 / goal as f64) * discount);
    let has_few_ahead = |threads: usize| ahead.is_some_and(|ahead| ahead < threads || ahead == 1);
    let problem = problem.because(format!("at most {} at a time", counted(now, "loading thread")));
    match workers {
        Some(workers) if workers < goal => {
            let more = run.change(AHEAD, "auto").filter(|_| has_few_ahead(goal));
            problem.change(run.change(WORKERS, goal), saved(goal)).together(more).found()
        }
        _ if has_few_ahead(threads) => problem.change(run.change(AHEAD, "auto"), saved(threads)).found(),
        _ => problem.hint(NO_KEY).found(),
    }
}

const NO_KEY: &str = "The loader already adds threads by itself. `plimsoll data bench` shows what takes its time; a cache, or \
                      audio in a faster format, helps.";

/// Waiting is concentrated in few steps: more batches ahead bridge them.
fn concentrated(run: &Measured<'_>, problem: Problem, ahead: Option<usize>) -> Outcome {
    let share = problem.share;
    let to = match ahead {
        Some(ahead) if ahead < AHEAD_AUTO_MAX => AHEAD_AUTO_MAX,
        Some(ahead) => ahead.saturating_mul(2).min(1024),
        None => 2 * AHEAD_AUTO_MAX,
    };
    problem
        .because(format!("{} of the waiting is in the slowest tenth of the steps", percent(in_slowest_tenth(run))))
        .change(run.change(AHEAD, to), Some(share * DISCOUNT_SPIKES))
        .hint("Single slow batches come from a slow disk, another program, or the first pass over a corpus.")
        .found()
}

fn is_concentrated(run: &Measured<'_>) -> bool {
    let mut shares: Vec<f64> = run.steps.iter().map(|step| step.times.share(TimeOwner::Data)).collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).is_some_and(|median| *median < RARELY) && in_slowest_tenth(run) >= CONCENTRATED
}

fn in_slowest_tenth(run: &Measured<'_>) -> f64 {
    let mut waits: Vec<f64> = run.steps.iter().map(|step: &&StepEvent| step.times.get(TimeOwner::Data)).collect();
    waits.sort_by(|a, b| b.total_cmp(a));
    let all: f64 = waits.iter().sum();
    let slowest: f64 = waits.iter().take(waits.len().div_ceil(10)).sum();
    if all > 0.0 { slowest / all } else { 0.0 }
}

/// Returns the number of threads that load as fast as the run trains; `None` if the speed of loading is not known.
fn threads_needed(run: &Measured<'_>) -> Option<usize> {
    let speed = loading(run)?.audio_seconds_per_second;
    Some((run.audio_speed_without_waiting()? * SPARE_SPEED / speed).ceil().min(1e6) as usize)
}

fn loading(run: &Measured<'_>) -> Option<LoadingFacts> {
    run.facts.loading.filter(|loading| loading.audio_seconds_per_second > 0.0)
}

/// Features are computed again in every epoch although they could be kept.
pub(super) fn decode_bound(run: &Measured<'_>) -> Outcome {
    let share = run.share(TimeOwner::Data);
    if share < NOTED_SHARE {
        return Outcome::Healthy;
    }
    let Some(loading) = loading(run) else { return Outcome::abstained("the speed of loading was not measured") };
    let Some(needed) = run.audio_speed_without_waiting() else {
        return Outcome::abstained("the speed of the run in audio is not known");
    };
    let Some(threads) = run.value::<usize>(WORKERS).or(run.facts.host.processors) else {
        return Outcome::abstained("the number of loading threads is not known");
    };
    let threads = threads.min(run.facts.host.processors.unwrap_or(usize::MAX)).max(1);
    let possible = loading.audio_seconds_per_second * threads as f64;
    if possible >= needed * SPARE_SPEED {
        return Outcome::Healthy;
    }
    let LoadingFacts { decoding, resampling, features, .. } = loading;
    let problem = Problem::new(share, took(TimeOwner::Data, share))
        .because(format!(
            "{} load at most {}, and the run needs {}",
            counted(threads, "thread"),
            AudioSpeed(possible),
            AudioSpeed(needed)
        ))
        .because(format!(
            "loading is {} reading and decoding, {} resampling, {} features",
            percent(decoding),
            percent(resampling),
            percent(features)
        ));
    cached(run, problem, loading)
}

/// Proposes a cache for the features of a run that goes over its data more than once.
fn cached(run: &Measured<'_>, problem: Problem, loading: LoadingFacts) -> Outcome {
    let (Some(epochs), Some(size)) = (epochs(run), features_size(run)) else {
        return Outcome::abstained("the number of epochs or the size of the features is not known");
    };
    let again = computed_again(run);
    let fits = run.value::<Bytes>(CACHE_MEMORY).unwrap_or(Bytes::gib(1)).0 as f64 >= size.0 as f64;
    let convert = match loading.resampling > loading.decoding {
        true => "Convert the audio to `features.sample_rate` once.",
        false => "Convert the audio to WAV or FLAC once.",
    };
    if again >= 1.0 {
        let hint =
            format!("Added noise or gain (`augment`) needs new features in every epoch, so no cache helps. {convert}");
        return problem.hint(hint).found();
    }
    if epochs <= 1.0 {
        return problem.hint(format!("The run reads its data only once. {convert}")).found();
    }
    if fits || run.fixed(CACHE_DIR).is_some() {
        return problem.hint(format!("The features are kept after the first pass already. {convert}")).found();
    }
    let saved = problem.share * (1.0 - 1.0 / epochs) * (1.0 - again) * DISCOUNT_CACHE;
    problem
        .because(format!("the features take {size}, and each of {epochs:.1} epochs computes them again"))
        .change(cache_change(run, size), Some(saved))
        .hint("The gain begins with the second epoch, and with a cache on disk in the next run at once.")
        .found()
}

fn cache_change(run: &Measured<'_>, size: Bytes) -> Option<Change> {
    let has_room = |available: Bytes| available.0 as f64 >= size.0 as f64 * CACHE_ROOM;
    if !run.facts.host.available.is_some_and(has_room) {
        return run.change(CACHE_DIR, "cache");
    }
    let gib = (size.0 as f64 * CACHE_SPARE / Bytes::gib(1).0 as f64).ceil();
    run.change(CACHE_MEMORY, format!("{gib:.0}GiB"))
}

fn epochs(run: &Measured<'_>) -> Option<f64> {
    let batches = run.plan()?.batches_in_epoch.filter(|count| *count > 0)?;
    Some(run.facts.total_steps? as f64 / batches as f64)
}

/// Computes the memory of the features of all training utterances, in fp32.
fn features_size(run: &Measured<'_>) -> Option<Bytes> {
    let plan = run.plan()?;
    let n_mels = plan.n_mels.or_else(|| run.value("features.n_mels"))? as f64;
    let bytes = plan.training_seconds? / run.facts.hop_seconds? * n_mels * size_of::<f32>() as f64;
    (bytes.is_finite() && bytes > 0.0).then_some(Bytes(bytes as u64))
}

/// Returns the share of the utterances whose features are new in every epoch, because noise or gain is added.
fn computed_again(run: &Measured<'_>) -> f64 {
    let is_off = run.fixed("augment.enabled") == Some("false") || run.fixed("task") == Some("tts");
    let number = |key| run.value::<f64>(key).unwrap_or(0.0);
    match () {
        () if is_off => 0.0,
        () if number("augment.gain_db") > 0.0 => 1.0,
        () => number("augment.noise_share").clamp(0.0, 1.0),
    }
}
