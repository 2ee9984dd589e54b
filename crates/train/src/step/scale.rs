//! What a loss is multiplied by, so that small gradients are not lost in 16 bits with a small range.

use plimsoll_core::Precision;
use serde::{Deserialize, Serialize};

/// A loss scale that finds its own size: it falls when a gradient overflows and rises when none has for a while.
///
/// The numbers are those of PyTorch's `GradScaler`. In fp32 and bf16 the scale is 1 and stays there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    factor: f64,
    /// Steps without overflow since the scale last changed.
    quiet: u32,
    is_dynamic: bool,
}

impl LossScale {
    const FIRST: f64 = 65_536.0;
    const INTERVAL: u32 = 2000;
    /// As far as it goes: beyond it a gradient of one is no longer finite in fp32.
    const MOST: f64 = 1.0e30;

    /// The scale that a run in `precision` begins with.
    pub fn for_precision(precision: Precision) -> Self {
        match precision {
            Precision::Fp16 => Self { factor: Self::FIRST, quiet: 0, is_dynamic: true },
            Precision::Fp32 | Precision::Bf16 => Self { factor: 1.0, quiet: 0, is_dynamic: false },
        }
    }

    /// The same scale where a run goes on in the same kind of numbers, or `fresh` where it does not.
    #[must_use]
    pub fn or_fresh(self, fresh: Self) -> Self {
        if self.is_dynamic == fresh.is_dynamic { self } else { fresh }
    }

    /// What the loss is multiplied by.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Learns that a gradient was finite.
    pub fn record_success(&mut self) {
        self.quiet += 1;
        if self.is_dynamic && self.quiet >= Self::INTERVAL {
            (self.factor, self.quiet) = ((self.factor * 2.0).min(Self::MOST), 0);
        }
    }

    /// Learns that a gradient was not finite; true where the scale fell, so that the next may be.
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
