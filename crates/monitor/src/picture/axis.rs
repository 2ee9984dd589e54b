//! Axes of a heat map: positions and labels of their ticks.

use super::svg::{TEXT_SIZE, fitted, text_width};

/// Maximum number of labels of an axis. The cells of an axis with more of them are numbered instead, as so many labels
/// beside each other cannot be read.
const LABELS_MAX: usize = 80;
/// Maximum width of the label of a row, in pixels.
const ROW_LABEL_WIDTH: f64 = 160.0;
/// Maximum width of the label of a column, in pixels: half of the first label extends into the left margin.
const COLUMN_LABEL_WIDTH: f64 = 76.0;

/// Axis of a heat map.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Quantity along the axis, with its unit.
    pub label: String,
    /// Labels of the cells along the axis.
    pub ticks: Ticks,
}

/// Labels of the cells along an axis.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Ticks {
    /// Linear scale with ticks at round numbers.
    Scale {
        /// Value at the start of the first cell of the axis.
        from: f64,
        /// Value at the end of the last cell of the axis.
        to: f64,
    },
    /// Label of each cell of the axis. More than 80 cells are numbered from 1 instead.
    Labels(Vec<String>),
}

/// Tick of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// Position of the tick, from 0 at the start of the axis to 1 at its end.
    pub(super) at: f64,
    pub(super) label: String,
}

/// Direction of an axis, which decides how much space its labels need.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Across,
    Up,
}

impl Ticks {
    /// Checks that the ticks fit an axis with `n_cells` cells.
    ///
    /// # Panics
    /// If the scale is not finite or is decreasing, or if there are not exactly `n_cells` labels.
    pub(super) fn check(&self, n_cells: usize) {
        match self {
            Self::Scale { from, to } => {
                assert!(from.is_finite() && to.is_finite() && from <= to, "a scale from {from} to {to}");
            }
            Self::Labels(labels) => assert_eq!(labels.len(), n_cells, "one label for each cell"),
        }
    }

    /// Returns whether the axis shows the labels of its cells. An axis with a scale or with more than 80 cells shows
    /// numbers.
    pub(super) fn name_each(&self) -> bool {
        matches!(self, Self::Labels(labels) if labels.len() <= LABELS_MAX)
    }

    /// Computes the ticks of an axis of `length` pixels, spaced so that labels do not touch.
    pub(super) fn place(&self, length: f64, direction: Direction) -> Vec<Tick> {
        match self {
            Self::Scale { from, to } => place_numbers(*from, *to, length, direction),
            Self::Labels(labels) if self.name_each() => place_labels(labels, length, direction),
            // Whole numbers are at the centers of their cells.
            Self::Labels(labels) => place_numbers(0.5, labels.len() as f64 + 0.5, length, direction),
        }
    }
}

fn place_labels(labels: &[String], length: f64, direction: Direction) -> Vec<Tick> {
    let widest = match direction {
        Direction::Across => COLUMN_LABEL_WIDTH,
        Direction::Up => ROW_LABEL_WIDTH,
    };
    let labels: Vec<String> = labels.iter().map(|label| fitted(&visible(label), widest, TEXT_SIZE)).collect();
    let need = match direction {
        Direction::Across => labels.iter().map(|label| text_width(label, TEXT_SIZE)).fold(0.0, f64::max) + 4.0,
        Direction::Up => TEXT_SIZE,
    };
    let cell = length / labels.len() as f64;
    let every = (need / cell).ceil().max(1.0) as usize;
    let at = |index: usize| (index as f64 + 0.5) * cell / length;
    labels.into_iter().enumerate().step_by(every).map(|(index, label)| Tick { at: at(index), label }).collect()
}

/// Makes spaces and invisible characters of a label visible.
fn visible(label: &str) -> String {
    match label {
        // Persian spelling needs the first; within a word both are invisible and needed.
        "\u{200c}" => "ZWNJ".into(),
        "\u{200d}" => "ZWJ".into(),
        _ => label.replace([' ', '\u{a0}'], "\u{2423}"),
    }
}

fn place_numbers(from: f64, to: f64, length: f64, direction: Direction) -> Vec<Tick> {
    let room = match direction {
        Direction::Across => 80.0,
        Direction::Up => 40.0,
    };
    let most = (length / room).max(2.0);
    // Without a length, or with one below the precision of the numbers, ticks cannot differ.
    if to - from <= from.abs().max(to.abs()) * 1e-12 {
        return vec![];
    }
    let (digit, power) = nice_step((to - from) / most);
    let step = digit * 10f64.powi(power);
    // A tick at either end may miss it by the last bits: 1.1 / 0.1 is above 11.
    let first = (from / step - 1e-9).ceil();
    let values = (0..=most as usize).map(|index| (first + index as f64) * step);
    let values: Vec<f64> = values.filter(|&value| value <= to + step * 1e-9).collect();
    let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let tick = |&value: &f64| Tick {
        at: ((value - from) / (to - from)).clamp(0.0, 1.0),
        label: number(value, power, largest),
    };
    values.iter().map(tick).collect()
}

/// Rounds the distance `raw` between ticks up to a number of the form 1, 2 or 5 times a power of ten. Returns the 1, 2
/// or 5, and the exponent of ten.
fn nice_step(raw: f64) -> (f64, i32) {
    let power = raw.log10().floor();
    let leading = raw / 10f64.powf(power);
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| leading <= digit * (1.0 + 1e-9));
    digit.map_or((1.0, power as i32 + 1), |digit| (digit, power as i32))
}

/// Formats the number `value` of a tick. The distance between ticks is 1, 2 or 5 times `10^power`, which decides the
/// number of decimals. If `largest`, the largest absolute value of all ticks, is at least a million, or if more than
/// four decimals are needed, the number has an exponent.
fn number(value: f64, power: i32, largest: f64) -> String {
    let decimals = usize::try_from(-power).unwrap_or(0);
    if value.abs() < 10f64.powi(power) / 2.0 {
        "0".into()
    } else if largest >= 1e6 || decimals > 4 {
        let digits = (largest.log10().floor() as i32 - power).max(0) as usize;
        format!("{value:.digits$e}").replace('-', "\u{2212}")
    } else {
        format!("{value:.decimals$}").replace('-', "\u{2212}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &Ticks, length: f64, direction: Direction) -> String {
        ticks.place(length, direction).into_iter().map(|tick| tick.label).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn numbers_are_round() {
        let check = |from, to, expected: &str| {
            assert_eq!(labels(&Ticks::Scale { from, to }, 400.0, Direction::Across), expected, "{from} to {to}");
        };
        check(0.0, 1.0, "0 0.2 0.4 0.6 0.8 1.0");
        check(0.0, 3.17, "0 1 2 3");
        check(-11.5, 2.1, "−10 −5 0");
        check(1.1, 1.6, "1.1 1.2 1.3 1.4 1.5 1.6");
        check(0.1, 0.3, "0.10 0.15 0.20 0.25 0.30");
        check(0.0, 2e6, "0 5.0e5 1.0e6 1.5e6 2.0e6");
        check(0.0, 4e-7, "0 1e−7 2e−7 3e−7 4e−7");
        check(7.0, 7.0, "");
        check(1e15, 1e15 + 0.125, "");
        check(-1e300, 1e300, "−1.0e300 −5.0e299 0 5.0e299 1.0e300");
    }

    #[test]
    fn labels_are_thinned_to_fit() {
        let ticks = Ticks::Labels(["alpha", "beta", "gamma", "delta"].map(String::from).to_vec());
        assert_eq!(labels(&ticks, 400.0, Direction::Across), "alpha beta gamma delta");
        assert_eq!(labels(&ticks, 100.0, Direction::Across), "alpha gamma");
        assert_eq!(labels(&ticks, 1.0, Direction::Up), "alpha");
        let many = Ticks::Labels(vec!["a".into(); 100]);
        assert_eq!(labels(&many, 200.0, Direction::Up), "20 40 60 80 100");
    }

    #[test]
    fn invisible_characters_become_visible() {
        let ticks = Ticks::Labels([" ", "\u{200c}", "می\u{200c}خواهم", "a b"].map(String::from).to_vec());
        assert_eq!(labels(&ticks, 1000.0, Direction::Across), "␣ ZWNJ می\u{200c}خواهم a␣b");
    }
}
