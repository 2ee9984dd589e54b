//! Values of the attributes of `prosody` and `break`.

/// Longest pause.
const MOST_SECONDS: f64 = 10.0;

/// How a text is spoken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prosody {
    pub(super) rate: f64,
    pub(super) pitch: f64,
    pub(super) volume: f64,
}

impl Prosody {
    /// The usual way.
    pub(super) const USUAL: Self = Self { rate: 1.0, pitch: 0.0, volume: 0.0 };

    /// Applies an attribute of `prosody`; `None` if its value is not understood.
    pub(super) fn with(self, attribute: &str, value: &str) -> Option<Self> {
        match attribute {
            "rate" => Some(Self { rate: (self.rate * rate(value)?).clamp(0.2, 5.0), ..self }),
            "pitch" => Some(Self { pitch: (self.pitch + pitch(value)?).clamp(-24.0, 24.0), ..self }),
            "volume" => Some(Self { volume: (self.volume + volume(value)?).clamp(-96.0, 24.0), ..self }),
            _ => None,
        }
    }
}

/// Parses a finite number.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Parses a rate: a word, a factor, a share such as `80%`, or a change such as `+10%`.
fn rate(value: &str) -> Option<f64> {
    let factor = match value {
        "x-slow" => 0.5,
        "slow" => 0.75,
        "medium" | "default" => 1.0,
        "fast" => 1.25,
        "x-fast" => 1.5,
        _ => match value.strip_suffix('%') {
            Some(share) if share.starts_with(['+', '-']) => 1.0 + number(share)? / 100.0,
            Some(share) => number(share)? / 100.0,
            None => number(value)?,
        },
    };
    (factor > 0.0).then_some(factor)
}

/// Parses a pitch: a word, semitones such as `+2st`, or a change such as `+10%`.
fn pitch(value: &str) -> Option<f64> {
    match value {
        "x-low" => Some(-6.0),
        "low" => Some(-3.0),
        "medium" | "default" => Some(0.0),
        "high" => Some(3.0),
        "x-high" => Some(6.0),
        _ => match (value.strip_suffix("st"), value.strip_suffix('%')) {
            (Some(semitones), _) => number(semitones),
            (_, Some(change)) => {
                let factor = 1.0 + number(change)? / 100.0;
                (factor > 0.0).then(|| 12.0 * factor.log2())
            }
            _ => None,
        },
    }
}

/// Parses a volume: a word, or decibels such as `-6dB`.
fn volume(value: &str) -> Option<f64> {
    match value {
        "silent" => Some(-96.0),
        "x-soft" => Some(-12.0),
        "soft" => Some(-6.0),
        "medium" | "default" => Some(0.0),
        "loud" => Some(6.0),
        "x-loud" => Some(12.0),
        _ => number(value.strip_suffix("dB")?),
    }
}

/// Parses the time of a break, such as `500ms` or `1.5s`, in seconds.
pub(super) fn time(value: &str) -> Option<f64> {
    let seconds = match value.strip_suffix("ms") {
        Some(milliseconds) => number(milliseconds)? / 1000.0,
        None => number(value.strip_suffix('s')?)?,
    };
    (seconds >= 0.0).then_some(seconds.min(MOST_SECONDS))
}

/// Parses the strength of a break, in seconds.
pub(super) fn strength(value: &str) -> Option<f64> {
    match value {
        "none" => Some(0.0),
        "x-weak" => Some(0.1),
        "weak" => Some(0.25),
        "medium" => Some(0.5),
        "strong" => Some(1.0),
        "x-strong" => Some(1.5),
        _ => None,
    }
}
