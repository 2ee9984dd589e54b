//! Measures the resonances of the vocal tract: linear prediction, and the roots of its filter (Markel and Gray, 1976).

use std::f64::consts::{PI, TAU};

use realfft::num_complex::Complex64;

/// Factor of the pre-emphasis, which raises the treble: it is weak in every voice, and higher formants must count.
const PREEMPHASIS: f64 = 0.97;

/// Smallest distance of a formant from zero and from half the sample rate, in hertz.
const EDGE_HZ: f64 = 90.0;

/// Largest bandwidth of a formant in hertz: a wider resonance shapes the tilt of the spectrum.
const WIDEST_HZ: f64 = 500.0;

/// Measures the three lowest formants of a frame in hertz; `None` when the frame has fewer.
pub(super) fn formants(frame: &[f32], rate: u32) -> Option<[f64; 3]> {
    // Two coefficients for each formant, about one in a kilohertz, and two for glottis and lips.
    let filter = prediction(&windowed(frame), 2 + rate as usize / 1000)?;
    let rate = f64::from(rate);
    let resonance = |root: Complex64| {
        let (hertz, width) = (root.arg() * rate / TAU, -root.norm().ln() * rate / PI);
        (hertz > EDGE_HZ && hertz < rate / 2.0 - EDGE_HZ && width < WIDEST_HZ).then_some(hertz)
    };
    let mut found: Vec<f64> = roots(&filter).into_iter().filter_map(resonance).collect();
    found.sort_by(f64::total_cmp);
    found.first_chunk().copied()
}

/// Returns the frame with pre-emphasis and a Hamming window.
fn windowed(frame: &[f32]) -> Vec<f64> {
    let last = frame.len().saturating_sub(2).max(1) as f64;
    let weight = |n: usize| 0.54 - 0.46 * (TAU * n as f64 / last).cos();
    let lifted = frame.windows(2).map(|pair| f64::from(pair[1]) - PREEMPHASIS * f64::from(pair[0]));
    lifted.enumerate().map(|(n, sample)| weight(n) * sample).collect()
}

/// Computes the `order` coefficients `a` of `x[n] + a[0] x[n - 1] + ...` with the smallest residual (Levinson, 1947;
/// Durbin, 1960). `None` for silence, or for fewer samples than coefficients.
fn prediction(samples: &[f64], order: usize) -> Option<Vec<f64>> {
    let autocorrelation = |lag: usize| samples.iter().zip(samples.get(lag..)?).map(|(a, b)| a * b).sum::<f64>().into();
    let autocorrelation: Vec<f64> = (0..=order).map(autocorrelation).collect::<Option<_>>()?;
    // A trace of noise, 90 dB below, avoids a division by zero for perfectly predictable signals.
    let mut residual = autocorrelation[0] * (1.0 + 1e-9);
    let mut filter: Vec<f64> = Vec::with_capacity(order);
    for n in 0..order {
        if residual <= 0.0 {
            return None;
        }
        let predicted: f64 = filter.iter().zip(autocorrelation[1..=n].iter().rev()).map(|(a, r)| a * r).sum();
        let reflection = -(autocorrelation[n + 1] + predicted) / residual;
        let mirrored: Vec<f64> = filter.iter().rev().copied().collect();
        filter.iter_mut().zip(mirrored).for_each(|(a, b)| *a += reflection * b);
        filter.push(reflection);
        residual *= 1.0 - reflection * reflection;
    }
    Some(filter)
}

/// Largest number of iterations of the root finder; none of 25,000 frames of speech needed more than 15 (measured).
const ITERATIONS_MAX: usize = 40;

/// Finds all roots of `z^p + a[0] z^(p - 1) + ...` simultaneously (Aberth, 1967).
fn roots(filter: &[f64]) -> Vec<Complex64> {
    let order = filter.len();
    // Start evenly on a circle near the roots of speech, off the real axis: a start on it would never leave it.
    let mut roots: Vec<Complex64> =
        (0..order).map(|n| Complex64::from_polar(0.9, TAU * (n as f64 + 0.3) / order as f64)).collect();
    for _ in 0..ITERATIONS_MAX {
        let mut largest_step: f64 = 0.0;
        for n in 0..order {
            let at = roots[n];
            let one = Complex64::from(1.0);
            let zero = Complex64::default();
            let (value, slope) =
                filter.iter().fold((one, zero), |(value, slope), a| (value * at + a, slope * at + value));
            let others: Complex64 = roots.iter().filter(|root| **root != at).map(|root| (at - root).inv()).sum();
            let step = value / (slope - value * others);
            if step.is_finite() {
                roots[n] -= step;
                largest_step = largest_step.max(step.norm());
            }
        }
        // A hundred-thousandth of the unit circle is less than one hertz.
        if largest_step < 1e-5 {
            break;
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the coefficients of the filter with the roots `pairs` and their conjugates.
    fn filter_of(pairs: &[Complex64]) -> Vec<f64> {
        let mut filter = vec![1.0];
        for root in pairs {
            let (near, far) = (-2.0 * root.re, root.norm_sqr());
            let at = |n: isize| usize::try_from(n).ok().and_then(|n| filter.get(n)).copied().unwrap_or(0.0);
            filter = (0..filter.len() as isize + 2).map(|n| at(n) + near * at(n - 1) + far * at(n - 2)).collect();
        }
        filter.split_off(1)
    }

    #[test]
    fn all_roots_are_found() {
        let pairs: Vec<Complex64> =
            (0..9).map(|n| Complex64::from_polar(0.80 + 0.02 * n as f64, 0.2 + 0.3 * n as f64)).collect();
        let found = roots(&filter_of(&pairs));
        assert_eq!(found.len(), 18);
        for pair in pairs {
            let nearest = found.iter().map(|root| (root - pair).norm()).fold(1.0, f64::min);
            assert!(nearest < 1e-6, "{pair}: {nearest}");
        }
    }

    #[test]
    fn a_resonance_is_predicted_and_silence_is_not() {
        let filter = filter_of(&[Complex64::from_polar(0.95, 0.5)]);
        let mut rings = vec![1.0, -filter[0]];
        for n in 2..2_000 {
            rings.push(-filter[0] * rings[n - 1] - filter[1] * rings[n - 2]);
        }
        let found = prediction(&rings, 2).unwrap();
        assert!(found.iter().zip(&filter).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {filter:?}");
        assert_eq!(prediction(&[0.0; 100], 2), None);
        assert_eq!(prediction(&[1.0], 2), None);
    }
}
