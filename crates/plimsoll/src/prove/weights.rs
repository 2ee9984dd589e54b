//! Compares the weights of two runs.

use std::fmt;
use std::path::Path;

use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_train::{Checkpoint, CheckpointStore};

/// Distance of two sets of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Distance {
    /// The same to the last bit.
    None,
    /// Norm of the difference, as a share of the norm of the first.
    Relative(f64),
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("the same weights to the last bit"),
            Self::Relative(distance) => write!(f, "weights that are {distance:.1e} of their norm apart"),
        }
    }
}

/// Compares the weights of the newest checkpoints of two runs.
///
/// # Errors
/// If one has no checkpoint, or the checkpoints are of different steps.
pub(super) fn compare(one: &Path, other: &Path) -> Result<Distance, Failure> {
    let newest = |run: &Path| -> Result<Checkpoint, Failure> {
        let (newest, damaged) = CheckpointStore::new(run.join("checkpoints"), 1).newest().failed()?;
        // An older checkpoint would be compared in place of the one that is damaged.
        damaged.into_iter().next().map_or(Ok(newest), Err).failed()
    };
    let [one, other] = [newest(one)?, newest(other)?];
    let steps = [one.state.step, other.state.step];
    if steps[0] != steps[1] {
        let message = format!("the newest checkpoints are of steps {} and {}", steps[0], steps[1]);
        return Err(Failure::invalid(message, "both runs must end at the same step"));
    }
    Ok(distance(&values(&one), &values(&other)))
}

fn values(checkpoint: &Checkpoint) -> Vec<f32> {
    checkpoint.weights.iter().flat_map(|tensor| tensor.values.iter().copied()).collect()
}

fn distance(one: &[f32], other: &[f32]) -> Distance {
    let is_same = one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.to_bits() == b.to_bits());
    if is_same {
        return Distance::None;
    }
    if one.len() != other.len() {
        return Distance::Relative(f64::INFINITY);
    }
    let (mut apart, mut norm) = (0.0, 0.0);
    for (a, b) in one.iter().zip(other) {
        apart += (f64::from(*a) - f64::from(*b)).powi(2);
        norm += f64::from(*a).powi(2);
    }
    Distance::Relative((apart / norm.max(f64::MIN_POSITIVE)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_bits_are_the_same() {
        assert_eq!(distance(&[1.0, -2.0], &[1.0, -2.0]), Distance::None);
        assert_eq!(distance(&[3.0, 4.0], &[3.0, 4.5]), Distance::Relative(0.1));
        assert_eq!(distance(&[0.0], &[-0.0]), Distance::Relative(0.0));
        assert_eq!(distance(&[1.0], &[]), Distance::Relative(f64::INFINITY));
        assert_eq!(distance(&[f32::NAN], &[f32::NAN]), Distance::None);
    }
}
