//! The source of the voice: puffs of air through the glottis, none quite like the one before.

use super::draw::White;
use super::filter::LowPass;
use super::voice::Voice;

/// A glottis in motion, giving the change of air flow sample by sample.
pub(super) struct Glottis {
    open: f32,
    jitter: f32,
    shimmer: f32,
    rate: f32,
    phase: f32,
    stretch: f32,
    loudness: f32,
    tilt: LowPass,
}

/// One sample of the glottis.
pub(super) struct Puff {
    /// The change of flow, at most about one.
    pub(super) flow: f32,
    /// How much breath gets through: one while the glottis is open, less while it is shut.
    pub(super) gap: f32,
}

impl Glottis {
    /// The glottis of `voice`, at `rate` samples a second.
    pub(super) fn new(voice: &Voice, rate: f32) -> Self {
        Self {
            open: voice.open,
            jitter: voice.jitter,
            shimmer: voice.shimmer,
            rate,
            phase: 0.0,
            stretch: 1.0,
            loudness: 1.0,
            tilt: LowPass::new(voice.tilt, rate),
        }
    }

    /// The next sample at a pitch of `hertz`; `noise` shakes each period's length and loudness.
    pub(super) fn next(&mut self, hertz: f32, noise: &mut White) -> Puff {
        let step = hertz * self.stretch / self.rate;
        self.phase += step;
        if self.phase >= 1.0 {
            self.phase -= 1.0;
            self.stretch = 1.0 + self.jitter * 1.7 * noise.draw();
            self.loudness = 1.0 + self.shimmer * 1.7 * noise.draw();
        }
        let raw = pulse(self.phase / self.open) + corner((self.phase - self.open) / step);
        let gap = if self.phase < self.open { 1.0 } else { 0.3 };
        Puff { flow: self.tilt.pass(self.loudness * raw), gap }
    }
}

/// The derivative of the pulse of Klatt and Klatt (1990): a slow opening and an abrupt close at one.
fn pulse(along: f32) -> f32 {
    if along < 1.0 { along * (2.0 - 3.0 * along) } else { 0.0 }
}

/// Rounds the jump at the close, `past` samples ago, so that it makes no tones above half the rate (polyBLEP).
fn corner(past: f32) -> f32 {
    if (-1.0..0.0).contains(&past) {
        0.5 * (past + 1.0).powi(2)
    } else if (0.0..1.0).contains(&past) {
        -0.5 * (1.0 - past).powi(2)
    } else {
        0.0
    }
}
