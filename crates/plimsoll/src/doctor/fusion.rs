//! Check that elementwise operations become one kernel: a chain of them with fusion and without.

use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use plimsoll_core::Seconds;
use plimsoll_monitor::doctor::Outcome;

/// Number of fp32 values of the tensor. Each operation reads and writes 128 MiB, which takes much longer than a wait for the
/// device.
const VALUES: usize = 1 << 25;
/// Number of operations of the chain.
const OPERATIONS: usize = 16;
/// Rounds, of which the fastest counts. The first one compiles the kernels.
const ROUNDS: usize = 4;
/// Gain from which operations are fused for certain: one kernel in place of sixteen gains far more.
const GAIN_MIN: f64 = 2.0;
/// Gain below which they are not fused: waiting for the device after each operation alone costs as much.
const GAIN_NONE: f64 = 1.4;

/// Measures a chain of elementwise operations in one queue, and with a wait for the device after each operation. Nothing is
/// fused across such a wait.
///
/// The memory of the device shows no fusion: Burn runs what is queued before it reports the memory.
pub(super) fn fusion(device: &Device) -> Outcome {
    let (mut queued, mut alone) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        for (is_queued, best) in [(true, &mut queued), (false, &mut alone)] {
            match chain(device, VALUES, is_queued) {
                Ok(time) => *best = time.min(*best),
                Err(error) => return Outcome::skip(format!("the device did not compute the chain: {error}")),
            }
        }
    }
    judge(queued.as_secs_f64(), alone.as_secs_f64())
}

/// Runs the chain on a tensor with `values` values, and returns its time.
fn chain(device: &Device, values: usize, is_queued: bool) -> Result<Duration, String> {
    let wait = || device.sync().map_err(|error| error.to_string());
    let mut x = Tensor::<1>::ones([values], device);
    wait()?;
    let begun = Instant::now();
    for _ in 0..OPERATIONS / 2 {
        x = x * 0.5;
        if !is_queued {
            wait()?;
        }
        x = x + 1.0;
        if !is_queued {
            wait()?;
        }
    }
    // A result that is never used may never be computed.
    let last = x.narrow(0, values - 1, 1);
    let sum = last.try_into_scalar::<f32>().map_err(|error| error.to_string())?;
    let time = begun.elapsed();
    if sum.is_finite() { Ok(time) } else { Err(format!("a value is {sum}")) }
}

/// Judges the seconds of the chain in one queue and one by one.
fn judge(queued: f64, alone: f64) -> Outcome {
    let gain = alone / queued.max(f64::MIN_POSITIVE);
    let text = format!(
        "{OPERATIONS} elementwise operations take {} in one queue and {} one by one",
        Seconds(queued),
        Seconds(alone)
    );
    let outcome = if gain >= GAIN_MIN {
        Outcome::pass(format!("{text}: they are one kernel"))
    } else if gain >= GAIN_NONE {
        Outcome::skip(format!("{text}: this does not show whether they are one kernel"))
    } else {
        Outcome::warn(format!("{text}: each runs alone"))
            .with_fix("build the program with the feature `fusion` of Burn")
    };
    outcome.with_detail("queued_seconds", queued).with_detail("alone_seconds", alone)
}

#[cfg(test)]
mod tests {
    use plimsoll_monitor::doctor::CheckStatus;

    use super::*;

    #[test]
    fn only_a_chain_that_gains_nothing_is_a_warning() {
        for (queued, alone, expected) in [
            (0.001, 0.015, CheckStatus::Pass),
            (0.001, 0.002, CheckStatus::Pass),
            (0.001, 0.0017, CheckStatus::Skip),
            (0.001, 0.0012, CheckStatus::Warn),
            (0.002, 0.001, CheckStatus::Warn),
            (0.0, 0.0, CheckStatus::Warn),
        ] {
            assert_eq!(judge(queued, alone).status, expected, "{queued} {alone}");
        }
    }

    #[test]
    fn the_chain_runs_with_and_without_waits() {
        for is_queued in [true, false] {
            let time = chain(&Device::flex(), 1 << 10, is_queued).unwrap();
            assert!(time > Duration::ZERO);
        }
    }
}
