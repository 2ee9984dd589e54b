//! Deserialization of fields that JSON cannot represent directly, or that older programs wrote in another form.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serializer};

use crate::{Measure, MeasureUnit, Position};

/// Returns NaN, the default of a number field that a line of the record does not contain.
pub(super) fn nan() -> f64 {
    f64::NAN
}

/// Deserializes a number; `null` in JSON becomes NaN.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Deserializes numbers by name; `null` in JSON becomes NaN.
pub(super) fn numbers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Cow<'static, str>, f64>, D::Error> {
    let all = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
    Ok(all.into_iter().map(|(name, value)| (name.into(), value.unwrap_or(f64::NAN))).collect())
}

/// Deserializes a position whose fields may be missing or unknown. [`Position`] itself is strict, as a checkpoint must
/// be exact.
pub(super) fn position<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Position, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Lenient {
        epoch: u64,
        batch: u64,
        window: u64,
        within: u64,
    }
    let Lenient { epoch, batch, window, within } = Lenient::deserialize(deserializer)?;
    Ok(Position { epoch, batch, window, within })
}

/// Deserializes scores, each given as a [`Measure`] or, in the form of the first programs, as a pair of name and value.
pub(super) fn scores<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Measure>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Score {
        Measure(Measure),
        Pair(String, Option<f64>),
    }
    let measure = |score| match score {
        Score::Measure(measure) => measure,
        // Only error rates were written so.
        Score::Pair(name, value) => Measure {
            label: name.clone().into(),
            name: name.into(),
            value: value.unwrap_or(f64::NAN),
            unit: MeasureUnit::Share,
        },
    };
    Ok(Vec::<Score>::deserialize(deserializer)?.into_iter().map(measure).collect())
}

/// Serializes a path as text. Serde's standard form fails for a path that is not Unicode, but a record must always be
/// written.
pub(super) fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}
