//! Second-order filters: resonances of a vocal tract, inverse resonances, and a low-pass filter.

use std::f32::consts::PI;

/// Filter with a resonance at one frequency.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resonator {
    gain: f32,
    near: f32,
    far: f32,
    last: [f32; 2],
}

impl Resonator {
    /// Sets the resonance to `hertz` with a bandwidth of `width` hertz; the state of the filter is kept.
    pub(super) fn tune(&mut self, hertz: f32, width: f32, rate: f32) {
        let radius = (-PI * width / rate).exp();
        self.far = -radius * radius;
        self.near = 2.0 * radius * (2.0 * PI * hertz / rate).cos();
        self.gain = 1.0 - self.near - self.far;
    }

    /// Filters one sample, with a gain of one at zero hertz: for resonances in series.
    pub(super) fn pass(&mut self, input: f32) -> f32 {
        self.ring(self.gain * input)
    }

    /// Filters one sample, with a gain of about one at the resonance: for resonances in parallel.
    pub(super) fn peak(&mut self, input: f32) -> f32 {
        self.ring((1.0 + self.far) * input)
    }

    fn ring(&mut self, input: f32) -> f32 {
        let output = input + self.near * self.last[0] + self.far * self.last[1];
        self.last = [output, self.last[0]];
        output
    }
}

/// Inverse of a resonance: a filter that removes one frequency, as an open nose does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notch {
    taps: [f32; 3],
    last: [f32; 2],
}

impl Notch {
    /// Sets the removed frequency to `hertz` with a bandwidth of `width` hertz.
    pub(super) fn tune(&mut self, hertz: f32, width: f32, rate: f32) {
        let mut inverse = Resonator::default();
        inverse.tune(hertz, width, rate);
        let scale = 1.0 / inverse.gain;
        self.taps = [scale, -inverse.near * scale, -inverse.far * scale];
    }

    /// Filters one sample, with a gain of one at zero hertz.
    pub(super) fn pass(&mut self, input: f32) -> f32 {
        let output = self.taps[0] * input + self.taps[1] * self.last[0] + self.taps[2] * self.last[1];
        self.last = [input, self.last[0]];
        output
    }
}

/// Low-pass filter of 6 dB per octave.
#[derive(Clone, Copy, Debug)]
pub(super) struct LowPass {
    share: f32,
    last: f32,
}

impl LowPass {
    /// Creates a filter that passes frequencies below `hertz`.
    pub(super) fn new(hertz: f32, rate: f32) -> Self {
        Self { share: 1.0 - (-2.0 * PI * hertz / rate).exp(), last: 0.0 }
    }

    /// Filters one sample, with a gain of one at zero hertz.
    pub(super) fn pass(&mut self, input: f32) -> f32 {
        self.last += self.share * (input - self.last);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures the gain of `filter` for a sine of `hertz`.
    fn gain(mut filter: impl FnMut(f32) -> f32, hertz: f32) -> f32 {
        let wave = |n: i32| (2.0 * PI * hertz * n as f32 / 16000.0).sin();
        let power: f32 = (0..16000).map(|n| filter(wave(n)).powi(2)).skip(8000).sum();
        (power / 4000.0).sqrt()
    }

    #[test]
    fn a_resonance_and_its_notch_cancel() {
        let (mut resonator, mut notch) = (Resonator::default(), Notch::default());
        resonator.tune(700.0, 80.0, 16000.0);
        notch.tune(700.0, 80.0, 16000.0);
        assert!(gain(|x| resonator.pass(x), 700.0) > 4.0);
        assert!(gain(|x| notch.pass(resonator.pass(x)), 700.0) - 1.0 < 0.01);
    }

    #[test]
    fn gains_match_their_definitions() {
        let mut resonator = Resonator::default();
        resonator.tune(3000.0, 200.0, 16000.0);
        let (inside, below) = (gain(|x| resonator.peak(x), 3000.0), gain(|x| resonator.peak(x), 1000.0));
        assert!((0.3..1.2).contains(&inside) && below < inside / 5.0, "{inside} {below}");
        let mut low = LowPass::new(1000.0, 16000.0);
        let corner = gain(|x| low.pass(x), 1000.0);
        assert!((0.6..0.8).contains(&corner), "{corner}");
    }
}
