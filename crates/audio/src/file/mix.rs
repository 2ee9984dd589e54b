//! How the channels of a file become one: their average, or one of them where the average would lose the sound.
//!
//! The channels of some recordings cancel each other: one wire of a balanced cable is upside down, or a program inverts a
//! channel. Their average is silence, though each channel can be heard. One rule decides this for a file, from its
//! beginning alone, so whole files, segments and streams have the same samples.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::{AudioError, AudioSource, SILENCE, unreadable};

/// Number of blocks in a second. Whether sound is heard is decided for each.
const BLOCKS_PER_SECOND: u32 = 20;

/// Number of blocks with clear sound that decide: one second.
const CLEAR_BLOCKS: u32 = 20;

/// Number of blocks behind the first sound after which is decided in any case: ten seconds. A stream must not wait longer.
const BLOCKS_MAX: u32 = 200;

/// Power from which on sound is clear: 50 dB below full scale. Speech is louder, and the noise of amplifiers is not.
const CLEAR: f64 = 1e-5;

/// Share of the power of a channel below which their average has lost the sound: 20 dB. The average of two unlike channels has
/// half of it, and that of a channel and silence a quarter.
const LOST: f64 = 1e-2;

/// How the channels of a file become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mix {
    /// Channel that is taken; `None` for the average of all.
    channel: Option<usize>,
    /// First frame that it is taken for. All before are silent.
    from: u64,
    /// Whether the channel was asked for.
    is_named: bool,
}

impl Mix {
    /// Takes one channel, which was asked for, counted from 0.
    pub(super) fn named(channel: u16) -> Self {
        Self { channel: Some(channel.into()), from: 0, is_named: true }
    }

    /// Returns the channel that is taken, counted from 0; `None` for the average of all.
    pub(super) fn channel(self) -> Option<usize> {
        self.channel
    }

    /// Returns the channel that is taken in place of the average, counted from 1; `None` also for one that was asked for.
    pub(super) fn number(self) -> Option<u16> {
        self.channel.filter(|_| !self.is_named).map(|channel| channel as u16 + 1)
    }

    /// Appends one channel of `interleaved` to `samples`. The first frame has index `at` in the file.
    pub(super) fn apply(self, interleaved: &[f32], channels: usize, at: u64, samples: &mut Vec<f32>) {
        if channels == 1 {
            return samples.extend_from_slice(interleaved);
        }
        let frames = interleaved.len() / channels;
        // A packet of a damaged file may have fewer channels than the header says.
        let channel = self.channel.filter(|channel| *channel < channels);
        let averaged = match channel {
            Some(_) => usize::try_from(self.from.saturating_sub(at)).unwrap_or(frames).min(frames),
            None => frames,
        };
        let (before, behind) = interleaved.split_at(averaged * channels);
        let scale = 1.0 / channels as f32;
        samples.extend(before.chunks_exact(channels).map(|frame| frame.iter().sum::<f32>() * scale));
        let channel = channel.unwrap_or(0);
        samples.extend(behind.chunks_exact(channels).map(|frame| frame[channel]));
    }
}

/// Decides how the channels of a file become one. Gets the frames of the file from the first on.
pub(super) struct MixJudge {
    channels: usize,
    /// Number of frames of a block.
    block: usize,
    /// Values of a block that is not whole.
    pending: Vec<f32>,
    /// Number of frames in the whole blocks so far.
    passed: u64,
    /// First frame of the first block with sound.
    from: Option<u64>,
    /// Number of blocks from that one on, and of those with clear sound.
    blocks: u32,
    clear: u32,
    /// Power of each channel and of the average, added up over the blocks.
    powers: Vec<f64>,
    average: f64,
    decided: Option<Mix>,
}

impl MixJudge {
    pub(super) fn new(channels: usize, rate: u32) -> Self {
        let block = (rate / BLOCKS_PER_SECOND).max(1) as usize;
        let decided = (channels == 1).then(Mix::default);
        let powers = vec![0.0; channels];
        Self {
            channels,
            block,
            pending: Vec::new(),
            passed: 0,
            from: None,
            blocks: 0,
            clear: 0,
            powers,
            average: 0.0,
            decided,
        }
    }

    /// Takes the next frames. Returns the decision once it is made; more frames change nothing.
    pub(super) fn push(&mut self, interleaved: &[f32]) -> Option<Mix> {
        let size = self.block * self.channels;
        let mut rest = interleaved;
        while self.decided.is_none() && !rest.is_empty() {
            let (taken, behind) = rest.split_at(rest.len().min(size - self.pending.len()));
            self.pending.extend_from_slice(taken);
            rest = behind;
            if self.pending.len() == size {
                let block = std::mem::take(&mut self.pending);
                self.judge(&block);
                self.pending = block;
                self.pending.clear();
            }
        }
        self.decided
    }

    /// Decides at the end of the file.
    pub(super) fn finish(&mut self) -> Mix {
        if self.decided.is_none() {
            let rest = std::mem::take(&mut self.pending);
            self.judge(&rest);
        }
        let mix = self.mix();
        *self.decided.get_or_insert(mix)
    }

    /// Returns the decision; `None` before it is made.
    pub(super) fn decided(&self) -> Option<Mix> {
        self.decided
    }

    /// Returns the number of frames from the first on that are averaged, whatever is decided.
    fn averaged(&self) -> u64 {
        self.from.unwrap_or(self.passed)
    }

    fn judge(&mut self, block: &[f32]) {
        let frames = block.len() / self.channels;
        let start = self.passed;
        self.passed += frames as u64;
        if frames == 0 {
            return;
        }
        let heard = (0..self.channels).any(|channel| is_heard(block.iter().skip(channel).step_by(self.channels)));
        if self.from.is_none() && !heard {
            return;
        }
        self.from.get_or_insert(start);
        let mut loudest = 0.0f64;
        for (channel, sum) in self.powers.iter_mut().enumerate() {
            let power = power(block.iter().skip(channel).step_by(self.channels).map(|value| f64::from(*value)));
            *sum += power;
            loudest = loudest.max(power);
        }
        let scale = 1.0 / self.channels as f64;
        let mean = |frame: &[f32]| frame.iter().map(|value| f64::from(*value)).sum::<f64>() * scale;
        self.average += power(block.chunks_exact(self.channels).map(mean));
        self.blocks += 1;
        self.clear += u32::from(loudest > CLEAR * frames as f64);
        if self.clear == CLEAR_BLOCKS || self.blocks == BLOCKS_MAX {
            self.decided = Some(self.mix());
        }
    }

    /// Returns the decision by what was heard so far.
    fn mix(&self) -> Mix {
        let loudest = self.powers.iter().copied().fold(0.0, f64::max);
        let is_lost = self.average < LOST * loudest;
        let channel = self.powers.iter().position(|power| *power >= 0.5 * loudest).filter(|_| is_lost);
        Mix { channel, from: self.from.filter(|_| channel.is_some()).unwrap_or(0), is_named: false }
    }
}

/// Returns the power of values around their mean, as a sum.
fn power(values: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        count += 1.0;
        sum += value;
        squares += value * value;
    }
    let power = squares - sum * sum / f64::max(count, 1.0);
    // What is no number and no sound decides nothing.
    if power.is_finite() { power.max(0.0) } else { 0.0 }
}

/// Returns whether values differ as those of sound do.
fn is_heard<'a>(values: impl Iterator<Item = &'a f32>) -> bool {
    let (least, most) = values.fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), &value| (a.min(value), b.max(value)));
    most - least >= 2.0 * SILENCE
}

/// Mixes the frames of a file, block by block as they are read.
pub(super) struct Mixer {
    channels: usize,
    state: State,
    /// Index in the file of the next frame to mix.
    at: u64,
}

enum State {
    Decided(Mix),
    /// Frames wait until it is known how they are mixed: those from `at` on.
    Judging(Box<MixJudge>, Vec<f32>),
}

impl Mixer {
    /// Mixes a file from its first frame on.
    pub(super) fn new(channels: usize, rate: u32) -> Self {
        let judge = MixJudge::new(channels, rate);
        let state = judge.decided().map_or_else(|| State::Judging(Box::new(judge), Vec::new()), State::Decided);
        Self { channels, state, at: 0 }
    }

    /// Takes the channel of a file that was asked for; mixes the file from its first frame on without one.
    pub(super) fn of_file(named: Option<u16>, channels: usize, rate: u32) -> Self {
        match named {
            Some(channel) => Self::decided(Mix::named(channel), channels, 0),
            None => Self::new(channels, rate),
        }
    }

    /// Mixes frames from index `at` on as was decided before.
    pub(super) fn decided(mix: Mix, channels: usize, at: u64) -> Self {
        Self { channels, state: State::Decided(mix), at }
    }

    /// Returns how frames are mixed, once that is known.
    pub(super) fn mix(&self) -> Option<Mix> {
        if let State::Decided(mix) = self.state { Some(mix) } else { None }
    }

    pub(super) fn channels(&self) -> usize {
        self.channels
    }

    /// Takes whole frames, and appends to `samples` what can be mixed.
    pub(super) fn push(&mut self, interleaved: &[f32], samples: &mut Vec<f32>) {
        let State::Judging(judge, waiting) = &mut self.state else { return self.apply(interleaved, samples) };
        waiting.extend_from_slice(interleaved);
        let (mix, count) = match judge.push(interleaved) {
            Some(mix) => (mix, waiting.len()),
            // Silence does not wait.
            None => (Mix::default(), (judge.averaged() - self.at) as usize * self.channels),
        };
        let is_decided = judge.decided().is_some();
        let ready: Vec<f32> = waiting.drain(..count).collect();
        mix.apply(&ready, self.channels, self.at, samples);
        self.at += (ready.len() / self.channels) as u64;
        if is_decided {
            self.state = State::Decided(mix);
        }
    }

    /// Returns the index in the file of the next frame to mix.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Goes behind frames that were mixed elsewhere, as was [decided](Self::mix).
    pub(super) fn pass(&mut self, frames: u64) {
        self.at += frames;
    }

    /// Appends the rest. Afterwards nothing may be pushed.
    pub(super) fn finish(&mut self, samples: &mut Vec<f32>) {
        let State::Judging(judge, waiting) = &mut self.state else { return };
        let (mix, waiting) = (judge.finish(), std::mem::take(waiting));
        self.state = State::Decided(mix);
        self.apply(&waiting, samples);
    }

    fn apply(&mut self, interleaved: &[f32], samples: &mut Vec<f32>) {
        let State::Decided(mix) = self.state else { return };
        mix.apply(interleaved, self.channels, self.at, samples);
        self.at += (interleaved.len() / self.channels) as u64;
    }
}

/// Size and time of change of a file, and what was decided for it.
type Known = ((u64, Option<SystemTime>), Mix);

/// Decisions for files of which segments were read, so that not every segment costs reading the beginning of its file.
static KNOWN: Mutex<Option<HashMap<PathBuf, Known>>> = Mutex::new(None);

/// Largest number of decisions that are kept, about 2 MB.
const KNOWN_MAX: usize = 10_000;

/// Returns how the channels of the file `path` are mixed. Where that is not known yet, `find` finds it.
pub(super) fn known(path: &Path, find: impl FnOnce() -> Result<Mix, AudioError>) -> Result<Mix, AudioError> {
    let metadata = AudioSource::from_path(path).metadata().map_err(|error| unreadable(path, error))?;
    let state = (metadata.len(), metadata.modified().ok());
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = lock().as_ref().and_then(|known| known.get(path).copied());
    if let Some((_, mix)) = before.filter(|(known, _)| *known == state) {
        return Ok(mix);
    }
    let mix = find()?;
    let mut all = lock();
    let known = all.get_or_insert_default();
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(path.into(), (state, mix));
    Ok(mix)
}

#[cfg(test)]
mod tests;
