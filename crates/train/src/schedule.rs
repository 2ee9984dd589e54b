//! Learning rate as a function of the step.

use serde::{Deserialize, Serialize};

/// Form of the learning rate curve after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Constant learning rate.
    Constant,
    /// Half a cosine, from the highest rate down to the final rate at the last step.
    #[default]
    Cosine,
    /// Learning rate that falls with the inverse square root of the step.
    InverseSqrt,
    /// Schedule of Noam (Vaswani et al. 2017): the curve of `InverseSqrt`, scaled so that its highest rate is the peak.
    /// The warm-up has at least one step.
    Noam,
    /// Constant learning rate, until a [`Plateau`] lowers it because validations no longer improve.
    Plateau,
}

/// Configuration of a plateau: when and how it lowers the learning rate as the validation score no longer improves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlateauConfig {
    /// Number of validations without improvement before the rate is lowered.
    pub patience: u32,
    /// Factor by which each plateau multiplies the learning rate.
    pub factor: f64,
    /// Lower bound on the product of the factors, as a share of the highest rate.
    pub least: f64,
}

/// Current reduction of the learning rate by plateaus.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plateau {
    /// Current factor on the learning rate.
    pub factor: f64,
    /// Number of validations in a row without improvement since the last reduction.
    pub stale: u32,
}

impl Default for Plateau {
    fn default() -> Self {
        Self { factor: 1.0, stale: 0 }
    }
}

impl Plateau {
    /// Records a validation, which had the best score so far if `is_best`. Returns whether the learning rate is
    /// lowered.
    pub fn update(&mut self, is_best: bool, config: &PlateauConfig) -> bool {
        self.stale = if is_best { 0 } else { self.stale + 1 };
        if self.stale < config.patience.max(1) || self.factor <= config.least {
            return false;
        }
        (self.factor, self.stale) = ((self.factor * config.factor).max(config.least), 0);
        true
    }
}

/// Learning rate schedule: a linear warm-up from zero to the peak, then a [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Form of the learning rate curve after the warm-up.
    pub shape: Shape,
    /// Highest learning rate.
    pub peak: f64,
    /// Learning rate at the last step of the run, for `Shape::Cosine`.
    pub last: f64,
    /// Number of steps in the warm-up.
    pub warmup: u64,
    /// Number of steps in the whole run, over which `Shape::Cosine` falls.
    pub total: u64,
}

impl Schedule {
    /// Makes a schedule with the same learning rate at every step.
    pub fn constant(rate: f64) -> Self {
        Self { shape: Shape::Constant, peak: rate, last: rate, warmup: 0, total: u64::MAX }
    }

    /// Returns the steps of a warm-up of `steps` steps that may take `share` of a run of `total` steps.
    pub fn warmup_within(steps: u64, share: f64, total: u64) -> u64 {
        steps.min((total as f64 * share) as u64)
    }

    /// Returns the learning rate of `step`, where the first step is 1.
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * step as f64 / self.warmup as f64;
        }
        match self.shape {
            Shape::Constant | Shape::Plateau => self.peak,
            Shape::Cosine => {
                let span = self.total.saturating_sub(self.warmup).max(1) as f64;
                let share = ((step - self.warmup) as f64 / span).min(1.0);
                self.last + (self.peak - self.last) * 0.5 * (1.0 + (share * std::f64::consts::PI).cos())
            }
            Shape::InverseSqrt | Shape::Noam => self.peak * (self.warmup.max(1) as f64 / step.max(1) as f64).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_warm_up_and_come_down() {
        let schedule = |shape| Schedule { shape, peak: 1.0, last: 0.1, warmup: 10, total: 110 };
        for (shape, step, rate) in [
            (Shape::Cosine, 1, 0.1),
            (Shape::Cosine, 10, 1.0),
            (Shape::Cosine, 60, 0.55),
            (Shape::Cosine, 110, 0.1),
            (Shape::Cosine, 500, 0.1),
            (Shape::Constant, 500, 1.0),
            (Shape::InverseSqrt, 40, 0.5),
            (Shape::Noam, 5, 0.5),
            (Shape::Noam, 90, 1.0 / 3.0),
            (Shape::Plateau, 90, 1.0),
        ] {
            let found = schedule(shape).rate(step);
            assert!((found - rate).abs() < 1e-12, "{shape:?} at {step}: {found}");
        }
        let mut plateau = Plateau::default();
        let config = PlateauConfig { patience: 2, factor: 0.5, least: 0.2 };
        let factors: Vec<f64> = [true, false, false, false, true, false, false, false, false, false, false]
            .into_iter()
            .map(|is_best| {
                plateau.update(is_best, &config);
                plateau.factor
            })
            .collect();
        assert_eq!(factors, [1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2]);
        assert!([1, 1000].iter().all(|&step| Schedule::constant(0.3).rate(step) == 0.3));
    }
}
