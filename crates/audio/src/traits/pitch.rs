//! How often a sound repeats itself: YIN (de Cheveigné and Kawahara, 2002).

/// The pitches of people, children and shouting left out.
const LOWEST_HZ: u32 = 60;
const HIGHEST_HZ: u32 = 400;

/// Samples that are compared with later ones: this part of a second, so one and a half of the longest periods.
const WINDOWS: u32 = 40;

/// A frame is voiced when a period later it differs from itself by less than this, where one is chance.
///
/// The paper has 0.1 for its database; 0.2 keeps breathy voices, and noise is still far above it.
const VOICED: f32 = 0.2;

/// Finds pitches at one rate.
pub(super) struct Yin {
    rate: f64,
    window: usize,
    shortest: usize,
    longest: usize,
}

impl Yin {
    /// For samples of `rate` a second.
    pub(super) fn new(rate: u32) -> Self {
        let shortest = (rate / HIGHEST_HZ).max(2) as usize;
        let longest = (rate / LOWEST_HZ).max(3) as usize;
        Self { rate: rate.into(), window: (rate / WINDOWS).max(1) as usize, shortest, longest }
    }

    /// The samples of a frame.
    pub(super) fn span(&self) -> usize {
        self.window + self.longest + 1
    }

    /// The pitch of a frame in hertz; `None` where it has none.
    pub(super) fn pitch(&self, frame: &[f32]) -> Option<f64> {
        let differences = self.differences(frame);
        let voiced = (self.shortest..=self.longest).find(|&lag| differences[lag] < VOICED)?;
        // From the first lag that is good enough down to the bottom of its valley.
        let bottom = (voiced..self.longest).find(|&lag| differences[lag + 1] >= differences[lag])?;
        let [left, middle, right] = [bottom - 1, bottom, bottom + 1].map(|lag| f64::from(differences[lag]));
        // The lowest point of the parabola through three lags is between them.
        let bend = left - 2.0 * middle + right;
        let shift = if bend > 0.0 { 0.5 * (left - right) / bend } else { 0.0 };
        Some(self.rate / (bottom as f64 + shift.clamp(-0.5, 0.5)))
    }

    /// How much the frame differs from itself so many samples later, relative to the mean of all lags up to there.
    fn differences(&self, frame: &[f32]) -> Vec<f32> {
        let mut sum = 0.0;
        let mut relative = vec![1.0; self.longest + 2];
        for (lag, value) in relative.iter_mut().enumerate().skip(1) {
            let later = frame[..self.window].iter().zip(&frame[lag..]);
            let difference: f32 = later.map(|(now, later)| (now - later).powi(2)).sum();
            sum += difference;
            if sum > 0.0 {
                *value = difference * lag as f32 / sum;
            }
        }
        relative
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tone;

    #[test]
    fn tones_have_their_pitch() {
        for rate in [8_000, 16_000] {
            let yin = Yin::new(rate);
            for hertz in [62.0, 80.0, 133.3, 200.0, 311.1, 390.0] {
                let found = yin.pitch(&tone(hertz, 0.1, rate)).unwrap();
                assert!((found / hertz - 1.0).abs() < 0.005, "{hertz} Hz at {rate}: {found}");
            }
        }
    }

    #[test]
    fn what_does_not_repeat_has_none() {
        let yin = Yin::new(16_000);
        for seed in 0..50 {
            let key = plimsoll_core::Key::new(seed);
            let noise: Vec<f32> = (0..yin.span()).map(|n| key.at(n as u64).unit() as f32 - 0.5).collect();
            assert_eq!(yin.pitch(&noise), None, "{seed}");
        }
        assert_eq!(yin.pitch(&vec![0.0; yin.span()]), None);
    }
}
