//! Measures pitch from the periodicity of a waveform: YIN (de Cheveigné and Kawahara, 2002).

/// Lowest pitch of adult speaking voices, in hertz.
const LOWEST_HZ: u32 = 60;
/// Highest pitch of adult speaking voices, in hertz; children and shouting may be higher.
const HIGHEST_HZ: u32 = 400;

/// Number of comparison windows in a second. One window is 1.5 times the longest period.
const WINDOWS_PER_SECOND: u32 = 40;

/// Largest difference of a voiced frame from itself one period later; chance gives a difference of one.
///
/// The paper uses 0.1 for its database. With 0.2, breathy voices count as voiced, and the difference of noise is still
/// far above it.
const VOICED: f32 = 0.2;

/// Pitch detector for one sample rate.
pub(super) struct Yin {
    rate: f64,
    window: usize,
    shortest: usize,
    longest: usize,
}

impl Yin {
    /// Prepares a detector for samples at `rate` hertz.
    pub(super) fn new(rate: u32) -> Self {
        let shortest = (rate / HIGHEST_HZ).max(2) as usize;
        let longest = (rate / LOWEST_HZ).max(3) as usize;
        Self { rate: rate.into(), window: (rate / WINDOWS_PER_SECOND).max(1) as usize, shortest, longest }
    }

    /// Returns the length of a frame in samples.
    pub(super) fn span(&self) -> usize {
        self.window + self.longest + 1
    }

    /// Measures the pitch of a frame in hertz; `None` when the frame is not voiced.
    pub(super) fn pitch(&self, frame: &[f32]) -> Option<f64> {
        let differences = self.differences(frame);
        let voiced = (self.shortest..=self.longest).find(|&lag| differences[lag] < VOICED)?;
        // From the first good lag to the bottom of its valley.
        let bottom = (voiced..self.longest).find(|&lag| differences[lag + 1] >= differences[lag])?;
        let [left, middle, right] = [bottom - 1, bottom, bottom + 1].map(|lag| f64::from(differences[lag]));
        // The lowest point of the parabola through three lags lies between them.
        let bend = left - 2.0 * middle + right;
        let shift = if bend > 0.0 { 0.5 * (left - right) / bend } else { 0.0 };
        Some(self.rate / (bottom as f64 + shift.clamp(-0.5, 0.5)))
    }

    /// Computes the difference of the frame from itself at each lag, relative to the mean over all lags up to that lag.
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
    fn tones_have_the_expected_pitch() {
        for rate in [8_000, 16_000] {
            let yin = Yin::new(rate);
            for hertz in [62.0, 80.0, 133.3, 200.0, 311.1, 390.0] {
                let found = yin.pitch(&tone(hertz, 0.1, rate)).unwrap();
                assert!((found / hertz - 1.0).abs() < 0.005, "{hertz} Hz at {rate}: {found}");
            }
        }
    }

    #[test]
    fn noise_and_silence_have_no_pitch() {
        let yin = Yin::new(16_000);
        for seed in 0..50 {
            let key = plimsoll_core::Key::new(seed);
            let noise: Vec<f32> = (0..yin.span()).map(|n| key.at(n as u64).unit() as f32 - 0.5).collect();
            assert_eq!(yin.pitch(&noise), None, "{seed}");
        }
        assert_eq!(yin.pitch(&vec![0.0; yin.span()]), None);
    }
}
