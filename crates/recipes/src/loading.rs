//! Cost of loading: the time of each part of it on one thread.

use std::time::{Duration, Instant};

use plimsoll_audio::{AudioSegment, audio_info, read_audio_segment, resample};
use plimsoll_data::Dataset;
use serde::Serialize;

use crate::error::{Failure, FailureExt};

/// Number of utterances that are timed.
const TIMED_UTTERANCES: usize = 200;

/// Seconds that one thread needs for each part of loading one second of audio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LoadingCosts {
    /// Reading and decoding the file.
    pub decoding: f64,
    /// Changing the sample rate.
    pub resampling: f64,
    /// Computing features.
    pub features: f64,
}

impl LoadingCosts {
    /// Measures the time of each part of loading, over utterances at equal distances in `dataset`, without its caches. Stops
    /// after `time`.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn measure(dataset: &Dataset, time: Duration) -> Result<Self, Failure> {
        let (mut costs, mut audio_seconds, start_of_all) = (Self::default(), 0.0, Instant::now());
        let rate = dataset.log_mel().config().sample_rate;
        let step = dataset.len().div_ceil(TIMED_UTTERANCES).max(1);
        for utterance in (0..dataset.len()).step_by(step).map(|index| dataset.utterance(index)) {
            if start_of_all.elapsed() > time {
                break;
            }
            let file_rate = audio_info(utterance.audio).failed()?.rate;
            let segment = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
            let start = Instant::now();
            let audio = read_audio_segment(utterance.audio, segment, file_rate).failed()?;
            costs.decoding += start.elapsed().as_secs_f64();
            let start = Instant::now();
            let samples = resample(audio.samples, file_rate, rate);
            costs.resampling += start.elapsed().as_secs_f64();
            let start = Instant::now();
            let features = dataset.log_mel().extract(&samples);
            costs.features += start.elapsed().as_secs_f64();
            audio_seconds += if features.is_empty() { 0.0 } else { utterance.duration.0 };
        }
        let share = |seconds: f64| seconds / audio_seconds.max(f64::MIN_POSITIVE);
        Ok(Self {
            decoding: share(costs.decoding),
            resampling: share(costs.resampling),
            features: share(costs.features),
        })
    }

    /// Returns the seconds that one thread needs for one second of audio.
    pub fn seconds(&self) -> f64 {
        self.decoding + self.resampling + self.features
    }
}
