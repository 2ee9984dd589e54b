//! Windows of a recording of any length: parts that are computed at once, with context on both sides.

/// A part of a recording that is computed at once.
#[derive(Debug, PartialEq)]
pub(super) struct Window<'a> {
    /// Samples of the window, context included.
    pub(super) samples: &'a [f32],
    /// Frames of the window before its core.
    pub(super) skipped: usize,
    /// Frames of the core; `None` for all that are left.
    pub(super) taken: Option<usize>,
    /// First frame of the core, counted from the start of the recording.
    pub(super) first: usize,
}

/// Sizes of windows, in samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowSizes {
    /// Samples of one frame. Windows begin and end their cores at whole frames.
    pub(super) frame: usize,
    /// Longest window.
    pub(super) longest: usize,
    /// Samples before and after a core that are computed, too.
    pub(super) context: usize,
    /// Length of the pause that is searched.
    pub(super) pause: usize,
}

impl WindowSizes {
    /// Rounds the sizes to whole frames, and makes the longest window long enough for a core between two contexts.
    fn rounded(self) -> Self {
        let frame = self.frame.max(1);
        let longest = (self.longest / frame).max(4) * frame;
        let context = self.context.min(longest / 4) / frame * frame;
        Self { frame, longest, context, pause: self.pause.clamp(1, longest / 4) }
    }
}

/// Divides a recording that comes in blocks into windows. It keeps at most one window and one block.
///
/// A recording that fits into one window is one window. The cores of longer recordings meet in the quietest place between a
/// half and the whole of what fits.
#[derive(Debug)]
pub(super) struct Windows {
    sizes: WindowSizes,
    samples: Vec<f32>,
    /// Samples before `samples`: always whole frames.
    dropped: usize,
    /// First sample of the next core, counted from the start of the recording: always whole frames.
    core: usize,
    /// Samples at the start of `samples` that no later window needs.
    spent: usize,
}

impl Windows {
    pub(super) fn new(sizes: WindowSizes) -> Self {
        Self { sizes: sizes.rounded(), samples: Vec::new(), dropped: 0, core: 0, spent: 0 }
    }

    /// Adds samples.
    pub(super) fn push(&mut self, samples: &[f32]) {
        self.samples.extend_from_slice(samples);
    }

    /// Returns the number of samples so far.
    pub(super) fn received(&self) -> usize {
        self.dropped + self.samples.len()
    }

    /// Returns the next window, if the samples so far are more than one.
    pub(super) fn next(&mut self) -> Option<Window<'_>> {
        self.forget();
        let WindowSizes { frame, longest, context, .. } = self.sizes;
        if self.samples.len() <= longest {
            return None;
        }
        let core = self.core - self.dropped;
        let cut = self.cut(core);
        let first = self.core / frame;
        self.core = self.dropped + cut;
        self.spent = cut - context.min(cut);
        let samples = &self.samples[..(cut + context).min(self.samples.len())];
        Some(Window { samples, skipped: core / frame, taken: Some((cut - core) / frame), first })
    }

    /// Returns the last window: all samples that are in no core yet.
    pub(super) fn last(&mut self) -> Window<'_> {
        self.forget();
        let (frame, core) = (self.sizes.frame, self.core - self.dropped);
        Window { samples: &self.samples, skipped: core / frame, taken: None, first: self.core / frame }
    }

    fn forget(&mut self) {
        let spent = std::mem::take(&mut self.spent);
        self.samples.drain(..spent);
        self.dropped += spent;
    }

    /// Finds the end of the core that begins at sample `core`: a whole frame in the quietest place.
    fn cut(&self, core: usize) -> usize {
        let WindowSizes { frame, longest, context, pause } = self.sizes;
        let latest = longest - context;
        let earliest = core + (latest - core) / 2;
        let quiet = quietest(&self.samples[earliest..latest], pause, frame);
        ((earliest + quiet) / frame).clamp(core / frame + 1, latest / frame) * frame
    }
}

/// Returns the middle of the quietest `pause` samples, to within `step` samples.
pub(super) fn quietest(samples: &[f32], pause: usize, step: usize) -> usize {
    let energy = |samples: &[f32]| samples.iter().map(|sample| f64::from(sample * sample)).sum::<f64>();
    let step = step.clamp(1, pause.max(1));
    let energies: Vec<f64> = samples.chunks(step).map(energy).collect();
    let count = pause.div_ceil(step).clamp(1, energies.len().max(1));
    let sums = energies.windows(count).map(|part| part.iter().sum::<f64>()).enumerate();
    let least = sums.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(place, _)| place);
    (least * step + count * step / 2).min(samples.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: WindowSizes = WindowSizes { frame: 4, longest: 400, context: 40, pause: 20 };

    fn noise(length: usize) -> Vec<f32> {
        (0..length).map(|n| if n * 7919 % 13 < 6 { 0.5 } else { -0.5 }).collect()
    }

    /// Feeds `samples` in blocks, and returns the frames of all cores, as the samples at their starts.
    fn cores(samples: &[f32], block: usize) -> Vec<(usize, usize)> {
        let mut windows = Windows::new(SIZES);
        let mut cores = Vec::new();
        let mut check = |window: Window<'_>| {
            let start = (window.first - window.skipped) * SIZES.frame;
            assert_eq!(window.samples, &samples[start..start + window.samples.len()]);
            assert!(window.samples.len() <= SIZES.longest);
            let end = window.taken.map(|taken| (window.first + taken) * SIZES.frame);
            if let Some(end) = end {
                assert!(start + window.samples.len() >= (end + SIZES.context).min(samples.len()));
            }
            assert!(window.first == 0 || window.skipped * SIZES.frame >= SIZES.context);
            cores.push((window.first * SIZES.frame, end.unwrap_or(samples.len())));
        };
        for block in samples.chunks(block) {
            windows.push(block);
            while let Some(window) = windows.next() {
                check(window);
            }
            assert!(windows.samples.len() <= SIZES.longest + block.len());
        }
        check(windows.last());
        assert_eq!(windows.received(), samples.len());
        cores
    }

    #[test]
    fn cores_are_complete_and_the_same_for_every_block() {
        for length in [0, 1, 399, 400, 401, 1_234, 5_000] {
            let samples = noise(length);
            let found = cores(&samples, 1_000_000);
            assert!(found[0].0 == 0 && found.windows(2).all(|pair| pair[0].1 == pair[1].0), "{length}: {found:?}");
            assert_eq!(found.len() == 1, length <= 400, "{length}: {found:?}");
            for block in [1, 7, 399, 1_000] {
                assert_eq!(cores(&samples, block), found, "{length} in blocks of {block}");
            }
        }
    }

    #[test]
    fn cores_meet_in_the_quietest_place() {
        let mut samples = noise(600);
        samples[250..290].fill(0.0);
        let found = cores(&samples, 50);
        assert!((255..=285).contains(&found[0].1), "{found:?}");
    }

    #[test]
    fn impossible_sizes_are_made_possible() {
        let mut windows = Windows::new(WindowSizes { frame: 640, longest: 1, context: 1_000_000, pause: 0 });
        windows.push(&noise(100_000));
        let mut next = 0;
        while let Some(window) = windows.next() {
            assert_eq!(window.first, next);
            next += window.taken.unwrap();
        }
        assert!(next > 100);
    }
}
