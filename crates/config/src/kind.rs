//! The values that a key accepts: their type, their limits, and how messages describe both.

use std::fmt;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

use config::ValueKind;
use plimsoll_core::{Bytes, Seconds};

/// Lower and upper limit of a number; each may be included, excluded or absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval(pub Bound<f64>, pub Bound<f64>);

/// The type and the limits of the values that a key accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// Any text.
    Text,
    /// Path of a file or folder.
    Path,
    /// True or false.
    Bool,
    /// Whole number, from the first to the second limit inclusive.
    Integer(u64, u64),
    /// Number within an interval.
    Number(Interval),
    /// List of numbers within an interval; not empty.
    Numbers(Interval),
    /// List of texts.
    Texts,
    /// Duration; the limits are in seconds.
    Time(Interval),
    /// Amount of memory of at least this number of bytes.
    Memory(Bytes),
    /// One of the listed words.
    OneOf(&'static [&'static str]),
    /// One of the listed words, or a whole number from the first to the second limit inclusive.
    OneOfOrInteger(&'static [&'static str], u32, u32),
}

/// Reason why a key does not accept a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The value has another type.
    Type,
    /// The value has the right type but is outside of the limits.
    Range,
    /// The value is a text, but none of the accepted words.
    Word,
}

/// Largest amount of memory: more than any machine has, and small enough for a TOML integer.
const MEMORY_MAX: Bytes = Bytes(1 << 50);

impl Interval {
    /// Every number above zero.
    pub const POSITIVE: Self = Self(Excluded(0.0), Unbounded);
    /// Zero and every number above it.
    pub const NOT_NEGATIVE: Self = Self(Included(0.0), Unbounded);
    /// Zero and every number between zero and one.
    pub const BELOW_ONE: Self = Self(Included(0.0), Excluded(1.0));

    /// Returns whether `number` is within the limits. Infinity and NaN never are.
    pub fn contains(self, number: f64) -> bool {
        number.is_finite() && std::ops::RangeBounds::contains(&(self.0, self.1), &number)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Included(least), Included(most)) => write!(f, "from {least} to {most}"),
            (Included(least), Excluded(most)) => write!(f, "of at least {least} and below {most}"),
            (Included(least), Unbounded) => write!(f, "of at least {least}"),
            (Excluded(least), Included(most)) => write!(f, "above {least} and at most {most}"),
            (Excluded(least), Excluded(most)) => write!(f, "above {least} and below {most}"),
            (Excluded(least), Unbounded) => write!(f, "above {least}"),
            (Unbounded, Included(most)) => write!(f, "of at most {most}"),
            (Unbounded, Excluded(most)) => write!(f, "below {most}"),
            (Unbounded, Unbounded) => write!(f, "of any size"),
        }
    }
}

impl Kind {
    /// Returns the kind of whole numbers of at least `least` that fit into a `u32`.
    pub const fn count(least: u32) -> Self {
        Self::Integer(least as u64, u32::MAX as u64)
    }

    /// Returns the kind of whole numbers of at least `least` that fit into a TOML integer.
    pub const fn long_count(least: u64) -> Self {
        Self::Integer(least, i64::MAX as u64)
    }

    /// Returns the reason why `value` is not accepted; `None` if it is accepted.
    pub(super) fn mismatch(self, value: &ValueKind) -> Option<Mismatch> {
        match self {
            Self::Text | Self::Path => unless(matches!(value, ValueKind::String(_)), Mismatch::Type),
            Self::Bool => unless(matches!(value, ValueKind::Boolean(_)), Mismatch::Type),
            Self::Integer(least, most) => match whole(value) {
                None => Some(Mismatch::Type),
                Some(n) => unless((i128::from(least)..=i128::from(most)).contains(&n), Mismatch::Range),
            },
            Self::Number(limits) => limited(number(value), limits),
            Self::Numbers(limits) => match value {
                ValueKind::Array(items) if items.is_empty() => Some(Mismatch::Range),
                ValueKind::Array(items) => items.iter().find_map(|item| limited(number(&item.kind), limits)),
                _ => Some(Mismatch::Type),
            },
            Self::Texts => match value {
                ValueKind::Array(items) => {
                    unless(items.iter().all(|item| matches!(item.kind, ValueKind::String(_))), Mismatch::Type)
                }
                _ => Some(Mismatch::Type),
            },
            Self::Time(limits) => limited(time(value), limits),
            Self::Memory(least) => match memory(value) {
                None => Some(Mismatch::Type),
                Some(n) => unless((i128::from(least.0)..=i128::from(MEMORY_MAX.0)).contains(&n), Mismatch::Range),
            },
            Self::OneOf(words) => match value {
                ValueKind::String(text) => unless(words.contains(&text.as_str()), Mismatch::Word),
                _ => Some(Mismatch::Type),
            },
            Self::OneOfOrInteger(words, least, most) => match value {
                ValueKind::String(_) => Self::OneOf(words).mismatch(value),
                _ => Self::Integer(u64::from(least), u64::from(most)).mismatch(value),
            },
        }
    }

    /// Describes the accepted values for a message about `value`. Names the upper limit, which `Display` leaves out, if
    /// `value` is above that limit.
    pub(super) fn expected(self, value: &ValueKind) -> String {
        match (self, whole(value)) {
            (Self::Integer(_, most), Some(n)) if n > i128::from(most) => format!("a whole number of at most {most}"),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => write!(f, "a text"),
            Self::Path => write!(f, "a path"),
            Self::Bool => write!(f, "true or false"),
            Self::Integer(least, most) if *most < u64::from(u32::MAX) => {
                write!(f, "a whole number from {least} to {most}")
            }
            Self::Integer(least, _) => write!(f, "a whole number of at least {least}"),
            Self::Number(limits) => write!(f, "a number {limits}"),
            Self::Numbers(limits) => write!(f, "a list of numbers, each {limits}"),
            Self::Texts => write!(f, "a list of texts such as [\"encoder\"]"),
            Self::Time(limits) => write!(f, "a time such as \"90s\" or \"5min\", {limits} seconds"),
            Self::Memory(Bytes(0)) => write!(f, "an amount of memory such as \"8GiB\""),
            Self::Memory(least) => write!(f, "an amount of memory such as \"8GiB\", at least {least}"),
            Self::OneOf(words) => f.write_str(&either(words)),
            Self::OneOfOrInteger(words, least, most) => {
                write!(f, "{}, or a whole number from {least} to {most}", either(words))
            }
        }
    }
}

/// Joins words as in `a, b or c`.
pub(super) fn either(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_string(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn unless(accepted: bool, mismatch: Mismatch) -> Option<Mismatch> {
    (!accepted).then_some(mismatch)
}

fn limited(number: Option<f64>, limits: Interval) -> Option<Mismatch> {
    match number {
        None => Some(Mismatch::Type),
        Some(number) => unless(limits.contains(number), Mismatch::Range),
    }
}

fn whole(value: &ValueKind) -> Option<i128> {
    match value {
        ValueKind::I64(n) => Some(i128::from(*n)),
        ValueKind::U64(n) => Some(i128::from(*n)),
        ValueKind::I128(n) => Some(*n),
        _ => None,
    }
}

fn number(value: &ValueKind) -> Option<f64> {
    match value {
        ValueKind::Float(n) => Some(*n),
        _ => whole(value).map(|n| n as f64),
    }
}

fn time(value: &ValueKind) -> Option<f64> {
    match value {
        ValueKind::String(text) => text.parse::<Seconds>().ok().map(|time| time.0),
        _ => number(value),
    }
}

fn memory(value: &ValueKind) -> Option<i128> {
    match value {
        ValueKind::String(text) => text.parse::<Bytes>().ok().map(|amount| i128::from(amount.0)),
        _ => whole(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_the_limits_are_rejected() {
        let share = Kind::Number(Interval(Excluded(0.0), Excluded(0.9)));
        for (kind, value, mismatch) in [
            (share, ValueKind::Float(0.1), None),
            (share, ValueKind::Float(0.9), Some(Mismatch::Range)),
            (share, ValueKind::Float(f64::NAN), Some(Mismatch::Range)),
            (share, ValueKind::from("0.1"), Some(Mismatch::Type)),
            (Kind::count(1), ValueKind::I64(0), Some(Mismatch::Range)),
            (Kind::count(1), ValueKind::I64(1 << 32), Some(Mismatch::Range)),
            (Kind::count(1), ValueKind::Float(16.0), Some(Mismatch::Type)),
            (Kind::Time(Interval::POSITIVE), ValueKind::from("5min"), None),
            (Kind::Time(Interval::POSITIVE), ValueKind::I64(-1), Some(Mismatch::Range)),
            (Kind::Memory(Bytes::mib(1)), ValueKind::I64(8), Some(Mismatch::Range)),
            (Kind::OneOf(&["a"]), ValueKind::from("b"), Some(Mismatch::Word)),
            (Kind::OneOfOrInteger(&["a"], 1, 9), ValueKind::from("a"), None),
            (Kind::OneOfOrInteger(&["a"], 1, 9), ValueKind::from("b"), Some(Mismatch::Word)),
            (Kind::OneOfOrInteger(&["a"], 1, 9), ValueKind::I64(9), None),
            (Kind::OneOfOrInteger(&["a"], 1, 9), ValueKind::I64(10), Some(Mismatch::Range)),
            (Kind::OneOfOrInteger(&["a"], 1, 9), ValueKind::Boolean(true), Some(Mismatch::Type)),
        ] {
            assert_eq!(kind.mismatch(&value), mismatch, "{kind}: {value}");
        }
    }
}
