//! Loss scale: a factor on the loss that prevents the underflow of small fp16 gradients.

use plimsoll_core::Precision;
use serde::{Deserialize, Serialize};

/// A loss scale that adapts: it halves when a gradient overflows and doubles after 2000 steps without overflow.
///
/// The initial value, factors and interval are those of PyTorch's `GradScaler`. In fp32 and bf16 the scale stays 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    factor: f64,
    /// Number of steps without overflow since the scale last changed.
    quiet: u32,
    is_dynamic: bool,
}

impl LossScale {
    const FIRST: f64 = 65_536.0;
    const INTERVAL: u32 = 2000;
    /// Upper bound of the scale: beyond it a gradient of 1 is no longer finite in fp32.
    const MOST: f64 = 1.0e30;

    /// Returns the initial scale of a run in `precision`.
    pub fn for_precision(precision: Precision) -> Self {
        match precision {
            Precision::Fp16 => Self { factor: Self::FIRST, quiet: 0, is_dynamic: true },
            Precision::Fp32 | Precision::Bf16 => Self { factor: 1.0, quiet: 0, is_dynamic: false },
        }
    }

    /// Returns the scale that a resumed run continues with: this scale from the checkpoint if it suits the precision of
    /// `fresh`, otherwise `fresh`, the initial scale.
    #[must_use]
    pub fn or_fresh(self, fresh: Self) -> Self {
        if self.is_dynamic == fresh.is_dynamic { self } else { fresh }
    }

    /// Returns the factor on the loss.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Records a step with a finite gradient; after 2000 of them in a row an adaptive scale doubles.
    pub fn record_success(&mut self) {
        self.quiet += 1;
        if self.is_dynamic && self.quiet >= Self::INTERVAL {
            (self.factor, self.quiet) = ((self.factor * 2.0).min(Self::MOST), 0);
        }
    }

    /// Records a gradient that is not finite. Returns whether the scale was lowered, so that the next attempt may
    /// succeed.
    pub fn record_overflow(&mut self) -> bool {
        if self.is_dynamic {
            (self.factor, self.quiet) = ((self.factor / 2.0).max(f64::MIN_POSITIVE), 0);
        }
        self.is_dynamic
    }
}

impl Default for LossScale {
    fn default() -> Self {
        Self::for_precision(Precision::Fp32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_scale_falls_at_once_and_rises_slowly() {
        let mut scale = LossScale::for_precision(Precision::Fp16);
        assert!(scale.record_overflow() && scale.record_overflow());
        assert_eq!(scale.factor(), 16_384.0);
        (0..LossScale::INTERVAL).for_each(|_| scale.record_success());
        assert_eq!(scale.factor(), 32_768.0);
        let mut full = LossScale::for_precision(Precision::Bf16);
        assert!(!full.record_overflow());
        assert_eq!(full.factor(), 1.0);
    }
}
