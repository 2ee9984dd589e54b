//! Families of metrics in the text format of Prometheus.

use std::fmt::Write;

/// Kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A value that only grows. Its name ends in `_total`.
    Counter,
    /// A value that rises and falls.
    Gauge,
}

/// Text of families of metrics. A value that is missing, and a family without values, are left out.
#[derive(Default)]
pub(super) struct Exposition(String);

/// Value with its labels.
pub(super) type Labeled<'a> = (Vec<(&'a str, String)>, Option<f64>);

impl Exposition {
    /// Adds a family with one value.
    pub(super) fn one(&mut self, kind: Kind, name: &str, help: &str, value: Option<f64>) {
        self.family(kind, name, help, [(Vec::new(), value)]);
    }

    /// Adds a family of values with labels.
    pub(super) fn family<'a>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = Labeled<'a>>,
    ) {
        let values: Vec<(String, f64)> = values
            .into_iter()
            .filter_map(|(labels, value)| Some((labels_text(&labels), value.filter(|value| value.is_finite())?)))
            .collect();
        if values.is_empty() {
            return;
        }
        let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(self.0, "# HELP plimsoll_{name} {help}\n# TYPE plimsoll_{name} {kind}\n");
        for (labels, value) in values {
            let _ = writeln!(self.0, "plimsoll_{name}{labels} {value}");
        }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

fn labels_text(labels: &[(&str, String)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", labels.join(","))
}
