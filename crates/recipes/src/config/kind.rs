//! What a key takes: the kind of value, its limits, and the words for both.

use std::fmt;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

use config::ValueKind;
use plimsoll_core::{Bytes, Seconds};

/// Limits of a number, each side open, closed or free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval(pub Bound<f64>, pub Bound<f64>);

/// The kind of value a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A file or folder.
    Path,
    /// True or false.
    Switch,
    /// A whole number from the first to the second, both included.
    Whole(u64, u64),
    /// A number.
    Number(Interval),
    /// A list of numbers, not empty.
    Numbers(Interval),
    /// A list of texts.
    Texts,
    /// A stretch of time; the limits are seconds.
    Time(Interval),
    /// An amount of memory, at least this.
    Memory(Bytes),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is of another kind.
    Type,
    /// It is of the right kind and beyond the limits.
    Range,
    /// It is a text, and none of the words.
    Word,
}

/// More than any machine has, and small enough for a TOML integer.
const MEMORY_MOST: Bytes = Bytes(1 << 50);

impl Interval {
    /// Every number above zero.
    pub const POSITIVE: Self = Self(Excluded(0.0), Unbounded);
    /// Every number from zero on.
    pub const NOT_NEGATIVE: Self = Self(Included(0.0), Unbounded);
    /// Zero included, one not.
    pub const BELOW_ONE: Self = Self(Included(0.0), Excluded(1.0));

    /// Whether `number` lies between the limits; infinity and "not a number" never do.
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
    /// A number that a `u32` holds, `least` or more.
    pub const fn count(least: u32) -> Self {
        Self::Whole(least as u64, u32::MAX as u64)
    }

    /// A number that a TOML integer holds, `least` or more.
    pub const fn long_count(least: u64) -> Self {
        Self::Whole(least, i64::MAX as u64)
    }

    /// What is wrong with `value`, if anything is.
    pub(super) fn fault(self, value: &ValueKind) -> Option<Fault> {
        match self {
            Self::Text | Self::Path => unless(matches!(value, ValueKind::String(_)), Fault::Type),
            Self::Switch => unless(matches!(value, ValueKind::Boolean(_)), Fault::Type),
            Self::Whole(least, most) => match whole(value) {
                None => Some(Fault::Type),
                Some(n) => unless((i128::from(least)..=i128::from(most)).contains(&n), Fault::Range),
            },
            Self::Number(limits) => limited(number(value), limits),
            Self::Numbers(limits) => match value {
                ValueKind::Array(items) if items.is_empty() => Some(Fault::Range),
                ValueKind::Array(items) => items.iter().find_map(|item| limited(number(&item.kind), limits)),
                _ => Some(Fault::Type),
            },
            Self::Texts => match value {
                ValueKind::Array(items) => {
                    unless(items.iter().all(|item| matches!(item.kind, ValueKind::String(_))), Fault::Type)
                }
                _ => Some(Fault::Type),
            },
            Self::Time(limits) => limited(time(value), limits),
            Self::Memory(least) => match memory(value) {
                None => Some(Fault::Type),
                Some(n) => unless((i128::from(least.0)..=i128::from(MEMORY_MOST.0)).contains(&n), Fault::Range),
            },
            Self::OneOf(words) => match value {
                ValueKind::String(text) => unless(words.contains(&text.as_str()), Fault::Word),
                _ => Some(Fault::Type),
            },
        }
    }

    /// What was expected in place of `value`: the kind's own words, or the upper limit that they leave out.
    pub(super) fn expected(self, value: &ValueKind) -> String {
        match (self, whole(value)) {
            (Self::Whole(_, most), Some(n)) if n > i128::from(most) => format!("a whole number of at most {most}"),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => write!(f, "a text"),
            Self::Path => write!(f, "a path"),
            Self::Switch => write!(f, "true or false"),
            Self::Whole(least, most) if *most < u64::from(u32::MAX) => {
                write!(f, "a whole number from {least} to {most}")
            }
            Self::Whole(least, _) => write!(f, "a whole number of at least {least}"),
            Self::Number(limits) => write!(f, "a number {limits}"),
            Self::Numbers(limits) => write!(f, "a list of numbers, each {limits}"),
            Self::Texts => write!(f, "a list of texts such as [\"encoder\"]"),
            Self::Time(limits) => write!(f, "a time such as \"90s\" or \"5min\", {limits} seconds"),
            Self::Memory(Bytes(0)) => write!(f, "an amount of memory such as \"8GiB\""),
            Self::Memory(least) => write!(f, "an amount of memory such as \"8GiB\", at least {least}"),
            Self::OneOf(words) => f.write_str(&either(words)),
        }
    }
}

/// `a, b or c`.
pub(super) fn either(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_string(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn unless(fine: bool, fault: Fault) -> Option<Fault> {
    (!fine).then_some(fault)
}

fn limited(number: Option<f64>, limits: Interval) -> Option<Fault> {
    match number {
        None => Some(Fault::Type),
        Some(number) => unless(limits.contains(number), Fault::Range),
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
    fn limits_hold_on_both_sides() {
        let share = Kind::Number(Interval(Excluded(0.0), Excluded(0.9)));
        for (kind, value, fault) in [
            (share, ValueKind::Float(0.1), None),
            (share, ValueKind::Float(0.9), Some(Fault::Range)),
            (share, ValueKind::Float(f64::NAN), Some(Fault::Range)),
            (share, ValueKind::from("0.1"), Some(Fault::Type)),
            (Kind::count(1), ValueKind::I64(0), Some(Fault::Range)),
            (Kind::count(1), ValueKind::I64(1 << 32), Some(Fault::Range)),
            (Kind::count(1), ValueKind::Float(16.0), Some(Fault::Type)),
            (Kind::Time(Interval::POSITIVE), ValueKind::from("5min"), None),
            (Kind::Time(Interval::POSITIVE), ValueKind::I64(-1), Some(Fault::Range)),
            (Kind::Memory(Bytes::mib(1)), ValueKind::I64(8), Some(Fault::Range)),
            (Kind::OneOf(&["a"]), ValueKind::from("b"), Some(Fault::Word)),
        ] {
            assert_eq!(kind.fault(&value), fault, "{kind}: {value}");
        }
    }
}
