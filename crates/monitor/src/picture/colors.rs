//! Colors of values: viridis, and gray for NaN.

/// Every fifth of the 256 colors of matplotlib's `viridis` (Smith and van der Walt, CC0).
///
/// Linear interpolation between these colors is off by at most 1 of 255 per channel.
const VIRIDIS: [u32; 52] = [
    0x440154, 0x46085c, 0x471063, 0x481769, 0x481d6f, 0x482475, 0x472a7a, 0x46307e, 0x453781, 0x433d84, 0x414287,
    0x3f4889, 0x3d4e8a, 0x3a538b, 0x38598c, 0x355e8d, 0x33638d, 0x31688e, 0x2e6d8e, 0x2c718e, 0x2a768e, 0x297b8e,
    0x27808e, 0x25848e, 0x23898e, 0x218e8d, 0x20928c, 0x1f978b, 0x1e9c89, 0x1fa188, 0x21a585, 0x24aa83, 0x28ae80,
    0x2eb37c, 0x35b779, 0x3dbc74, 0x46c06f, 0x50c46a, 0x5ac864, 0x65cb5e, 0x70cf57, 0x7cd250, 0x89d548, 0x95d840,
    0xa2da37, 0xb0dd2f, 0xbddf26, 0xcae11f, 0xd8e219, 0xe5e419, 0xf1e51d, 0xfde725,
];

/// Number of palette entries for numbers, which come first in the palette.
pub(super) const PALETTE_LEN: u8 = 255;
/// Palette entry for NaN, which follows the entries for numbers.
const NAN: u8 = PALETTE_LEN;
const GRAY: [u8; 3] = [0xbd, 0xbd, 0xbd];

/// Returns red, green and blue of all palette entries.
pub(super) fn palette() -> Vec<u8> {
    let last = f64::from(PALETTE_LEN - 1);
    (0..PALETTE_LEN).flat_map(|index| viridis(f64::from(index) / last)).chain(GRAY).collect()
}

/// Computes the color at `share` of the range from the darkest to the brightest color.
fn viridis(share: f64) -> [u8; 3] {
    let at = share * (VIRIDIS.len() - 1) as f64;
    let index = (at as usize).min(VIRIDIS.len() - 2);
    let [from, to] = [VIRIDIS[index].to_be_bytes(), VIRIDIS[index + 1].to_be_bytes()];
    [1, 2, 3].map(|channel| {
        let [from, to] = [f64::from(from[channel]), f64::from(to[channel])];
        (from + (to - from) * (at - index as f64)).round() as u8
    })
}

/// Range of values that the colors cover.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Colors {
    /// Value of the darkest color.
    pub(super) low: f64,
    /// Value of the brightest color, above `low`.
    pub(super) high: f64,
}

impl Colors {
    /// Computes the range from the smallest to the largest finite number of `values`.
    pub(super) fn from_values<'a>(values: impl Iterator<Item = &'a f32>) -> Self {
        let finite = values.filter(|value| value.is_finite()).map(|&value| f64::from(value));
        let (low, high) =
            finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low < high {
            Self { low, high }
        } else if low == high {
            // A single value has no range; it gets the middle color.
            let around = (low.abs() / 10.0).max(0.5);
            Self { low: low - around, high: low + around }
        } else {
            Self { low: 0.0, high: 1.0 }
        }
    }

    /// Returns the palette entry of `value`.
    pub(super) fn index(self, value: f32) -> u8 {
        if value.is_nan() {
            return NAN;
        }
        let share = (f64::from(value) - self.low) / (self.high - self.low);
        (share.clamp(0.0, 1.0) * f64::from(PALETTE_LEN - 1)).round() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_match_matplotlib() {
        // Entries 0, 51, 128, 200 and 255 of `matplotlib.colormaps["viridis"]`, version 3.11.2.
        let theirs = [(0, [68, 1, 84]), (51, [65, 66, 135]), (128, [33, 145, 140]), (200, [112, 207, 87])];
        for (index, expected) in theirs.into_iter().chain([(255, [253, 231, 37])]) {
            let ours = viridis(f64::from(index) / 255.0);
            assert!(ours.iter().zip(expected).all(|(ours, theirs)| ours.abs_diff(theirs) <= 1), "{index}: {ours:?}");
        }
        assert_eq!(palette().len(), 256 * 3);
    }

    #[test]
    fn every_value_has_a_color() {
        let check = |values: &[f32], expected: &[u8]| {
            let colors = Colors::from_values(values.iter());
            let found: Vec<u8> = values.iter().map(|&value| colors.index(value)).collect();
            assert_eq!(found, expected, "{values:?}");
        };
        check(&[-2.0, 0.0, 2.0], &[0, 127, 254]);
        check(&[3.0, 3.0], &[127, 127]);
        check(&[1e30], &[127]);
        check(&[f32::NAN, 0.0, 1.0], &[255, 0, 254]);
        check(&[f32::NAN], &[255]);
        check(&[f32::NEG_INFINITY, 0.0, 1.0, f32::INFINITY], &[0, 0, 254, 254]);
        check(&[f32::MIN, 0.0, f32::MAX], &[0, 127, 254]);
        check(&[], &[]);
    }
}
