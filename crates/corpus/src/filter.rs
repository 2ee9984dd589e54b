//! Second-order filters: the resonances of a vocal tract, and small tools around them.

use std::f32::consts::PI;

/// A resonance: loud around one frequency.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resonator {
    gain: f32,
    near: f32,
    far: f32,
    last: [f32; 2],
}

impl Resonator {
    /// Moves the resonance to `hertz` with a width of `width` hertz; what is still sounding goes on.
    pub(super) fn tune(&mut self, hertz: f32, width: f32, rate: f32) {
        let radius = (-PI * width / rate).exp();
        self.far = -radius * radius;
        self.near = 2.0 * radius * (2.0 * PI * hertz / rate).cos();
        self.gain = 1.0 - self.near - self.far;
    }

    /// One sample through it, with a gain of one at zero hertz: for resonances one after another.
    pub(super) fn pass(&mut self, input: f32) -> f32 {
        self.ring(self.gain * input)
    }

    /// One sample through it, with a gain of about one at the resonance: for resonances side by side.
    pub(super) fn peak(&mut self, input: f32) -> f32 {
        self.ring((1.0 + self.far) * input)
    }

    fn ring(&mut self, input: f32) -> f32 {
        let output = input + self.near * self.last[0] + self.far * self.last[1];
        self.last = [output, self.last[0]];
        output
    }
}

/// The opposite of a resonance: what an open nose takes out of the sound.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notch {
    taps: [f32; 3],
    last: [f32; 2],
}

impl Notch {
    /// Moves the notch to `hertz` with a width of `width` hertz.
    pub(super) fn tune(&mut self, hertz: f32, width: f32, rate: f32) {
        let mut opposite = Resonator::default();
        opposite.tune(hertz, width, rate);
        let scale = 1.0 / opposite.gain;
        self.taps = [scale, -opposite.near * scale, -opposite.far * scale];
    }

    /// One sample through it, with a gain of one at zero hertz.
    pub(super) fn pass(&mut self, input: f32) -> f32 {
        let output = self.taps[0] * input + self.taps[1] * self.last[0] + self.taps[2] * self.last[1];
        self.last = [input, self.last[0]];
        output
    }
}

/// Takes away what is above a frequency, 6 dB an octave.
#[derive(Clone, Copy, Debug)]
pub(super) struct LowPass {
    share: f32,
    last: f32,
}

impl LowPass {
    /// Passes what is below `hertz`.
    pub(super) fn new(hertz: f32, rate: f32) -> Self {
        Self { share: 1.0 - (-2.0 * PI * hertz / rate).exp(), last: 0.0 }
    }

    /// One sample through it.
    pub(super) fn pass(&mut self, input: f32) -> f32 {
        self.last += self.share * (input - self.last);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much louder a sine of `hertz` leaves `filter` than it came.
    fn gain(mut filter: impl FnMut(f32) -> f32, hertz: f32) -> f32 {
        let wave = |n: i32| (2.0 * PI * hertz * n as f32 / 16000.0).sin();
        let power: f32 = (0..16000).map(|n| filter(wave(n)).powi(2)).skip(8000).sum();
        (power / 4000.0).sqrt()
    }

    #[test]
    fn a_resonance_and_its_opposite_cancel() {
        let (mut resonator, mut notch) = (Resonator::default(), Notch::default());
        resonator.tune(700.0, 80.0, 16000.0);
        notch.tune(700.0, 80.0, 16000.0);
        assert!(gain(|x| resonator.pass(x), 700.0) > 4.0);
        assert!(gain(|x| notch.pass(resonator.pass(x)), 700.0) - 1.0 < 0.01);
    }

    #[test]
    fn gains_are_as_told() {
        let mut resonator = Resonator::default();
        resonator.tune(3000.0, 200.0, 16000.0);
        let (inside, below) = (gain(|x| resonator.peak(x), 3000.0), gain(|x| resonator.peak(x), 1000.0));
        assert!((0.3..1.2).contains(&inside) && below < inside / 5.0, "{inside} {below}");
        let mut low = LowPass::new(1000.0, 16000.0);
        let corner = gain(|x| low.pass(x), 1000.0);
        assert!((0.6..0.8).contains(&corner), "{corner}");
    }
}
