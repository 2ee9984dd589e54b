//! Glottal source of the voice: slightly irregular pulses of air through the glottis.

use crate::filter::LowPass;
use crate::random::WhiteNoise;
use crate::voice::Voice;

/// Oscillator that returns the derivative of the glottal air flow, sample by sample.
pub(super) struct Glottis {
    open: f32,
    jitter: f32,
    shimmer: f32,
    rate: f32,
    phase: f32,
    period_scale: f32,
    loudness: f32,
    tilt: LowPass,
}

/// Output sample of [`Glottis`].
pub(super) struct GlottalSample {
    /// Derivative of the glottal air flow, at most about one.
    pub(super) flow: f32,
    /// Share of breath that passes the glottis: one while it is open, less while it is closed.
    pub(super) gap: f32,
}

impl Glottis {
    /// Creates the glottis of `voice` at a sample rate of `rate` hertz.
    pub(super) fn new(voice: &Voice, rate: f32) -> Self {
        Self {
            open: voice.open,
            jitter: voice.jitter,
            shimmer: voice.shimmer,
            rate,
            phase: 0.0,
            period_scale: 1.0,
            loudness: 1.0,
            tilt: LowPass::new(voice.tilt, rate),
        }
    }

    /// Returns the next sample at a pitch of `hertz`; `noise` varies the length and loudness of each pitch period.
    pub(super) fn next(&mut self, hertz: f32, noise: &mut WhiteNoise) -> GlottalSample {
        let step = hertz * self.period_scale / self.rate;
        self.phase += step;
        if self.phase >= 1.0 {
            self.phase -= 1.0;
            self.period_scale = 1.0 + self.jitter * 1.7 * noise.draw();
            self.loudness = 1.0 + self.shimmer * 1.7 * noise.draw();
        }
        let raw = pulse(self.phase / self.open) + poly_blep((self.phase - self.open) / step);
        let gap = if self.phase < self.open { 1.0 } else { 0.3 };
        GlottalSample { flow: self.tilt.pass(self.loudness * raw), gap }
    }
}

/// Computes the derivative of the glottal pulse of Klatt and Klatt (1990): a slow opening, then an abrupt closing.
/// `along` is the time since the pulse began, as a share of its open part.
fn pulse(along: f32) -> f32 {
    if along < 1.0 { along * (2.0 - 3.0 * along) } else { 0.0 }
}

/// Computes a correction that smooths the jump at the closing of the glottis, `past` samples ago, and so reduces
/// aliasing (polyBLEP).
fn poly_blep(past: f32) -> f32 {
    if (-1.0..0.0).contains(&past) {
        0.5 * (past + 1.0).powi(2)
    } else if (0.0..1.0).contains(&past) {
        -0.5 * (1.0 - past).powi(2)
    } else {
        0.0
    }
}
