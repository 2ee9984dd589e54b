//! Amounts with units: bytes, frames, samples and seconds, with parsing and printing.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

/// Amount of memory in bytes.
///
/// Parses `8GiB`, `512 MB`, `1.5g` or a plain number of bytes; `k`, `m`, `g` and `t` mean binary units. Prints binary
/// units with three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Number of feature frames: the columns of a spectrogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Frames(pub u32);

/// Number of audio samples of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Samples(pub u64);

/// Duration in seconds. Parses `11.6s`, `250ms`, `5min`, `2h` or a plain number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Seconds(pub f64);

/// Speed at which audio is read, learned or written: seconds of audio a second. Prints `214x real time`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct AudioSpeed(pub f64);

/// Error for a text that is not a valid amount.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{text}` is not {expected}, such as `{example}`")]
pub struct UnitError {
    text: String,
    expected: &'static str,
    example: &'static str,
}

const BYTE_UNITS: &[(&str, f64)] = &[
    ("b", 1.0),
    ("k", 1024.0),
    ("kb", 1e3),
    ("kib", 1024.0),
    ("m", 1048576.0),
    ("mb", 1e6),
    ("mib", 1048576.0),
    ("g", 1073741824.0),
    ("gb", 1e9),
    ("gib", 1073741824.0),
    ("t", 1099511627776.0),
    ("tb", 1e12),
    ("tib", 1099511627776.0),
    ("pib", 1125899906842624.0),
];
const TIME_UNITS: &[(&str, f64)] = &[
    ("s", 1.0),
    ("sec", 1.0),
    ("seconds", 1.0),
    ("ms", 1e-3),
    ("m", 60.0),
    ("min", 60.0),
    ("minutes", 60.0),
    ("h", 3600.0),
    ("hours", 3600.0),
];

impl Bytes {
    /// Computes the memory of `count` values of type `T`.
    pub fn for_values<T>(count: u64) -> Self {
        Self(count * size_of::<T>() as u64)
    }

    /// Creates an amount of `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Creates an amount of `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// Computes `self - other`, or zero if `other` is larger.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Samples {
    /// Computes the duration of these samples at a sample rate of `rate` Hz.
    pub fn at(self, rate: u32) -> Seconds {
        Seconds(self.0 as f64 / f64::from(rate))
    }
}

impl Seconds {
    /// Describes the time as a length of speech: `0.76s of speech`, where a duration of that many seconds is `760ms`, which reads as
    /// computing time.
    pub fn of_speech(self) -> String {
        match self.0 > 0.0 && self.0 < 1.0 {
            true => format!("{}s of speech", trimmed(self.0, 2)),
            false => format!("{self} of speech"),
        }
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let amount = parse(text, BYTE_UNITS, "an amount of memory", "8GiB")?;
        Ok(Self(amount.round() as u64))
    }
}

impl FromStr for Seconds {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, TIME_UNITS, "a time", "11.6s").map(Self)
    }
}

impl FromStr for Frames {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (expected, example) = ("a number of frames", "1200");
        let error = || UnitError { text: text.into(), expected, example };
        text.trim().trim_end_matches("frames").trim().parse().map(Self).map_err(|_| error())
    }
}

impl FromStr for Samples {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (expected, example) = ("a number of samples", "16000");
        let error = || UnitError { text: text.into(), expected, example };
        text.trim().trim_end_matches("samples").trim().parse().map(Self).map_err(|_| error())
    }
}

/// Parses a non-negative number with a unit. `units` holds the name and the factor of each unit; a number without a
/// unit has the first of them. `expected` and `example` are for the error message.
fn parse(text: &str, units: &[(&str, f64)], expected: &'static str, example: &'static str) -> Result<f64, UnitError> {
    let error = || UnitError { text: text.into(), expected, example };
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let unit = if unit.is_empty() { units[0].0 } else { &unit };
    let number: f64 = number.parse().map_err(|_| error())?;
    let &(_, scale) = units.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
    Ok(number * scale)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut amount = self.0 as f64;
        let mut name = 0;
        // 1023.5 would print as 1024, so the next unit begins there.
        while amount >= 1023.5 && name + 1 < NAMES.len() {
            amount /= 1024.0;
            name += 1;
        }
        if name == 0 {
            return f.pad(&format!("{} B", self.0));
        }
        f.pad(&format!("{} {}", significant(amount), NAMES[name]))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0;
        let text = if secs >= 3600.0 {
            format!("{}h{:02}m", (secs / 3600.0).floor(), ((secs % 3600.0) / 60.0).floor())
        } else if secs >= 100.0 {
            format!("{}m{:02}s", (secs / 60.0).floor(), (secs % 60.0).floor())
        } else if secs >= 1.0 || secs == 0.0 {
            format!("{}s", trimmed(secs, 1))
        } else {
            format!("{}ms", trimmed(secs * 1e3, 1))
        };
        f.pad(&text)
    }
}

impl fmt::Display for AudioSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.0 < 9.95 { 1 } else { 0 };
        f.pad(&format!("{:.digits$}x real time", self.0))
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} frames", self.0))
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} samples", self.0))
    }
}

/// Formats a number with three significant digits, without trailing zeros after the point.
fn significant(amount: f64) -> String {
    let places = if amount >= 99.95 {
        0
    } else if amount >= 9.995 {
        1
    } else {
        2
    };
    trimmed(amount, places)
}

/// Formats `amount` with `places` decimal places, without trailing zeros.
fn trimmed(amount: f64, places: usize) -> String {
    let text = format!("{amount:.places$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Deserializes an amount from a number or from a text with a unit: configuration files may use both.
macro_rules! deserialize {
    ($name:ident, $what:literal, $from_number:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                        self.visit_f64(number as f64)
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        self.visit_f64(number as f64)
                    }
                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$name, E> {
                        let from: fn(f64) -> Option<$name> = $from_number;
                        from(number).ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), &self))
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

/// Returns `number` if it is an integer from 0 to `limit`; `None` otherwise.
fn integer(number: f64, limit: f64) -> Option<f64> {
    (number >= 0.0 && number <= limit && number.fract() == 0.0).then_some(number)
}

deserialize!(Bytes, "an amount of memory such as \"8GiB\"", |n| integer(n, 1e18).map(|n| Bytes(n as u64)));
deserialize!(Frames, "a number of frames", |n| integer(n, f64::from(u32::MAX)).map(|n| Frames(n as u32)));
deserialize!(Samples, "a number of samples", |n| integer(n, 1e18).map(|n| Samples(n as u64)));
deserialize!(Seconds, "a time such as \"11.6s\" or a number of seconds", |n| (n >= 0.0).then_some(Seconds(n)));

macro_rules! sums {
    ($($name:ident)*) => {$(
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
                amounts.fold(Self::default(), Add::add)
            }
        }
    )*};
}
sums!(Bytes Frames Samples Seconds);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_parse_and_print() {
        for (text, bytes, printed) in [
            ("8GiB", 8 << 30, "8 GiB"),
            ("8 gib", 8 << 30, "8 GiB"),
            ("11.6s", 0, ""),
            ("1.5g", 3 << 29, "1.5 GiB"),
            ("512", 512, "512 B"),
            ("16GB", 16_000_000_000, "14.9 GiB"),
            ("1023.9MiB", 1_073_636_966, "1 GiB"),
            ("-1GiB", 0, ""),
            ("GiB", 0, ""),
            ("", 0, ""),
        ] {
            let read = text.parse::<Bytes>();
            assert_eq!(read.clone().ok(), (!printed.is_empty()).then_some(Bytes(bytes)), "{text}: {read:?}");
            if let Ok(read) = read {
                assert_eq!(read.to_string(), printed);
            }
        }
    }

    #[test]
    fn a_length_of_speech_is_never_in_milliseconds() {
        for (seconds, printed) in
            [(0.0, "0s"), (0.7635, "0.76s"), (0.004, "0s"), (1.0, "1s"), (79.46, "79.5s"), (5000.0, "1h23m")]
        {
            assert_eq!(Seconds(seconds).of_speech(), format!("{printed} of speech"));
        }
    }

    #[test]
    fn seconds_parse_and_print() {
        for (text, secs, printed) in [
            ("11.6s", 11.6, "11.6s"),
            ("250ms", 0.25, "250ms"),
            ("5min", 300.0, "5m00s"),
            ("2h", 7200.0, "2h00m"),
            ("0", 0.0, "0s"),
            ("90", 90.0, "90s"),
        ] {
            let read: Seconds = text.parse().expect("a time");
            assert_eq!((read.0, read.to_string().as_str()), (secs, printed));
        }
        assert_eq!("soon".parse::<Seconds>().unwrap_err().to_string(), "`soon` is not a time, such as `11.6s`");
    }

    #[test]
    fn amounts_deserialize_from_numbers_and_texts() {
        let read = |json: &str| serde_json::from_str::<Bytes>(json);
        assert_eq!(read("\"8GiB\"").unwrap(), read("8589934592").unwrap());
        assert!(read("-1").is_err() && read("1.5").is_err() && read("\"eight\"").is_err());
        assert_eq!(serde_json::to_string(&Bytes::gib(1)).unwrap(), "1073741824");
    }

    proptest::proptest! {
        #[test]
        fn printed_bytes_parse_again(bytes in 0u64..1 << 50) {
            let again: Bytes = Bytes(bytes).to_string().parse().unwrap();
            let error = again.0.abs_diff(bytes) as f64;
            proptest::prop_assert!(error <= bytes as f64 * 0.006);
        }
    }
}
