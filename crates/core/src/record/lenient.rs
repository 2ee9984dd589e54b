//! Reading of fields that JSON cannot hold as they are, or that older programs wrote in another form.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serializer};

use crate::{Measure, MeasureUnit, Position};

/// The number of a line that does not have one.
pub(super) fn nan() -> f64 {
    f64::NAN
}

/// A number, or NaN where JSON has `null`.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Numbers by name, NaN where JSON has `null`.
pub(super) fn numbers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Cow<'static, str>, f64>, D::Error> {
    let all = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
    Ok(all.into_iter().map(|(name, value)| (name.into(), value.unwrap_or(f64::NAN))).collect())
}

/// A position whose fields may be missing or unknown. [`Position`] itself is strict, as a checkpoint must be exact.
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

/// Scores, each as a [`Measure`] or, as the first programs wrote it, as a pair of name and value.
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

/// A path as text. The standard form fails for a path that is not Unicode, and a record must not.
pub(super) fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}
