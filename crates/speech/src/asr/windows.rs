//! Windows of a recording of any length: parts that are computed at once.

use std::ops::Range;

/// A part of a recording that is computed at once.
#[derive(Debug, PartialEq)]
pub(super) struct Window<'a> {
    /// Samples of the window.
    pub(super) samples: &'a [f32],
    /// Frames of the window before its core: context that an earlier window has.
    pub(super) skipped: usize,
    /// Whether the recording goes on after the window.
    pub(super) has_more: bool,
}

/// Sizes of windows, in samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowSizes {
    /// Samples of one frame. Windows begin and end their cores at whole frames.
    pub(super) frame: usize,
    /// Longest window.
    pub(super) longest: usize,
    /// Samples before and after a core that are computed, too, where no pause ends it.
    pub(super) context: usize,
    /// Length of the quietest place that is searched.
    pub(super) quiet: usize,
}

impl WindowSizes {
    /// Rounds the sizes to whole frames, and makes the longest window long enough for a core between two contexts.
    fn rounded(self) -> Self {
        let frame = self.frame.max(1);
        let longest = (self.longest / frame).max(8) * frame;
        // An encoder has one or two frames less than a window has samples for.
        let context = self.context.clamp(2 * frame, longest / 4) / frame * frame;
        Self { frame, longest, context, quiet: self.quiet.clamp(1, longest / 4) }
    }
}

impl Window<'_> {
    /// Returns the frame in the middle of the quietest place of `frames`.
    pub(super) fn quietest(&self, frames: Range<usize>, sizes: WindowSizes) -> usize {
        let WindowSizes { frame, quiet, .. } = sizes;
        let place = frames.start * frame..(frames.end * frame).min(self.samples.len());
        (place.start + quietest(&self.samples[place], quiet, frame)) / frame
    }
}

/// Divides a recording that comes in blocks into windows. It keeps at most one window and one block.
///
/// A recording that fits into one window is one window. The user of a longer one finds where its core ends, in a pause or in
/// [`quietest`](Self::quietest), and [`advance`](Self::advance) begins the next window there.
#[derive(Debug)]
pub(super) struct Windows {
    sizes: WindowSizes,
    /// Samples of the window, and those after it.
    samples: Vec<f32>,
    /// Samples before `samples`: always whole frames.
    dropped: usize,
    /// Samples of the window before its core: always whole frames.
    skipped: usize,
}

impl Windows {
    pub(super) fn new(sizes: WindowSizes) -> Self {
        Self { sizes: sizes.rounded(), samples: Vec::new(), dropped: 0, skipped: 0 }
    }

    /// Adds samples.
    pub(super) fn push(&mut self, samples: &[f32]) {
        self.samples.extend_from_slice(samples);
    }

    /// Returns the number of samples so far.
    pub(super) fn received(&self) -> usize {
        self.dropped + self.samples.len()
    }

    /// Returns the window, if the samples so far are more than one.
    pub(super) fn full(&self) -> Option<Window<'_>> {
        let WindowSizes { frame, longest, .. } = self.sizes;
        let samples = self.samples.get(..longest).filter(|_| self.samples.len() > longest)?;
        Some(Window { samples, skipped: self.skipped / frame, has_more: true })
    }

    /// Returns the last window: all samples that are in no core yet.
    pub(super) fn last(&self) -> Window<'_> {
        Window { samples: &self.samples, skipped: self.skipped / self.sizes.frame, has_more: false }
    }

    /// Returns the sizes of the windows.
    pub(super) fn sizes(&self) -> WindowSizes {
        self.sizes
    }

    /// Finds where the core of the full window ends if it has no pause: the frame in the quietest place of what leaves context
    /// after it.
    pub(super) fn quietest(&self) -> usize {
        let WindowSizes { frame, longest, context, .. } = self.sizes;
        let (first, latest) = (self.skipped / frame, (longest - context) / frame);
        self.full().map_or(latest, |window| window.quietest(first + (latest - first) / 2..latest, self.sizes))
    }

    /// Ends the core of the full window at a frame, which is at least the second of the core, and begins the next window
    /// there; before it if `has_context`.
    pub(super) fn advance(&mut self, end: usize, has_context: bool) {
        let WindowSizes { frame, longest, context, .. } = self.sizes;
        let end = end.clamp(self.skipped / frame + 1, longest / frame) * frame;
        self.skipped = if has_context { context.min(end) } else { 0 };
        let spent = end - self.skipped;
        self.samples.drain(..spent);
        self.dropped += spent;
    }
}

/// Returns the middle of the quietest `pause` samples, to within `step` samples.
pub(crate) fn quietest(samples: &[f32], pause: usize, step: usize) -> usize {
    let energy = |samples: &[f32]| samples.iter().map(|sample| f64::from(sample * sample)).sum::<f64>();
    let step = step.clamp(1, pause.max(1));
    let energies: Vec<f64> = samples.chunks(step).map(energy).collect();
    let count = pause.div_ceil(step).clamp(1, energies.len().max(1));
    let sums = energies.windows(count).map(|part| part.iter().sum::<f64>()).enumerate();
    let least = sums.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(place, _)| place);
    (least * step + count * step / 2).min(samples.len())
}

/// Ratio of the loudest to a quiet part of the sound, in power, below which nothing is said: 5 dB.
const SPEECH: f64 = 3.2;
/// Mean power of the loudest part below which nothing is said: the noise of 16 bits, without any sound.
const SILENCE: f64 = 1e-8;

/// Returns whether the loudest twentieth of a second of `samples` is clearly louder than a quiet one.
pub(super) fn is_speech(samples: &[f32], rate: u32) -> bool {
    let length = (rate as usize / 20).max(1);
    let power = |part: &[f32]| part.iter().map(|sample| f64::from(sample * sample)).sum::<f64>() / length as f64;
    let mut powers: Vec<f64> = samples.chunks_exact(length).map(power).collect();
    powers.sort_by(f64::total_cmp);
    match (powers.get(powers.len() / 10), powers.last()) {
        (Some(quiet), Some(loudest)) => *loudest > (SPEECH * quiet).max(SILENCE),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: WindowSizes = WindowSizes { frame: 4, longest: 400, context: 40, quiet: 20 };

    fn noise(length: usize) -> Vec<f32> {
        (0..length).map(|n| if n * 7919 % 13 < 6 { 0.5 } else { -0.5 }).collect()
    }

    /// Feeds `samples` in blocks, with cores that end where `pause` says, by their first samples and the number of frames before
    /// them. Returns the samples at the starts and ends of all cores.
    fn cores(samples: &[f32], block: usize, pause: impl Fn(usize, usize) -> Option<usize>) -> Vec<(usize, usize)> {
        let mut windows = Windows::new(SIZES);
        let (mut cores, mut core) = (Vec::new(), 0);
        for block in samples.chunks(block) {
            windows.push(block);
            while let Some(window) = windows.full() {
                let skipped = window.skipped;
                let start = core - skipped * SIZES.frame;
                assert!(window.has_more && window.samples == &samples[start..start + SIZES.longest]);
                let pause = pause(start, skipped);
                let end = start + pause.unwrap_or(windows.quietest()) * SIZES.frame;
                windows.advance((end - start) / SIZES.frame, pause.is_none());
                // Without a pause, both windows hear what is on the other side.
                let heard = if pause.is_some() { 0 } else { SIZES.context };
                assert!(end > core && end + heard <= start + SIZES.longest && windows.skipped == heard.min(end));
                cores.push((core, end));
                core = end;
            }
            assert!(windows.samples.len() <= SIZES.longest + block.len());
        }
        let last = windows.last();
        assert_eq!((last.samples.len() + windows.dropped, last.has_more), (samples.len(), false));
        assert_eq!(core, windows.dropped + last.skipped * SIZES.frame);
        cores.push((core, samples.len()));
        assert_eq!(windows.received(), samples.len());
        cores
    }

    #[test]
    fn cores_are_complete_and_the_same_for_every_block() {
        let never = |_: usize, _: usize| None;
        let sometimes = |start: usize, skipped: usize| start.is_multiple_of(3).then_some(skipped + 30);
        for length in [0, 1, 399, 400, 401, 1_234, 5_000] {
            let samples = noise(length);
            for pause in [&never as &dyn Fn(usize, usize) -> Option<usize>, &sometimes] {
                let found = cores(&samples, 1_000_000, pause);
                assert!(found[0].0 == 0 && found.windows(2).all(|pair| pair[0].1 == pair[1].0), "{length}: {found:?}");
                assert_eq!(found.len() == 1, length <= 400, "{length}: {found:?}");
                for block in [1, 7, 399, 1_000] {
                    assert_eq!(cores(&samples, block, pause), found, "{length} in blocks of {block}");
                }
            }
        }
    }

    #[test]
    fn cores_meet_in_the_quietest_place() {
        let mut samples = noise(600);
        samples[250..290].fill(0.0);
        let found = cores(&samples, 50, |_, _| None);
        assert!((255..=285).contains(&found[0].1), "{found:?}");
        let window = Window { samples: &samples, skipped: 0, has_more: true };
        assert!((255..=285).contains(&(SIZES.frame * window.quietest(50..100, SIZES))));
    }

    #[test]
    fn impossible_sizes_are_made_possible() {
        let mut windows = Windows::new(WindowSizes { frame: 640, longest: 1, context: 1_000_000, quiet: 0 });
        windows.push(&noise(100_000));
        let mut count = 0;
        while windows.full().is_some() {
            let before = windows.dropped + windows.skipped;
            windows.advance(windows.quietest(), true);
            assert!(windows.dropped + windows.skipped > before);
            count += 1;
        }
        assert!(count > 10);
    }

    #[test]
    fn steady_noise_is_no_speech() {
        let noise = |n: usize| (n * 7919 % 1009) as f32 / 1009.0 - 0.5;
        let steady: Vec<f32> = (0..32_000).map(noise).collect();
        assert!(!is_speech(&steady, 16_000) && !is_speech(&[0.0; 32_000], 16_000) && !is_speech(&[], 16_000));
        let spoken: Vec<f32> = (0..32_000).map(|n| noise(n) * if n % 8_000 < 2_000 { 1.0 } else { 0.3 }).collect();
        assert!(is_speech(&spoken, 16_000));
        let faint: Vec<f32> = spoken.iter().map(|sample| sample * 1e-4).collect();
        assert!(!is_speech(&faint, 16_000));
    }
}
