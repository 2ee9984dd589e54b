//! The rules of `promtool check metrics`, as a test: <https://prometheus.io/docs/practices/naming/>.

use super::exposition::parse;
use super::prometheus::prometheus_text;
use crate::live::RunView;
use crate::live::tests::{running, running_on_gpu};

/// Units in which Prometheus stores values.
const BASE_UNITS: [&str; 10] =
    ["amperes", "bytes", "celsius", "grams", "hertz", "joules", "meters", "ratio", "seconds", "watts"];
/// Other units of the same values.
const OTHER_UNITS: [&str; 20] = [
    "minutes",
    "hours",
    "days",
    "weeks",
    "kelvins",
    "fahrenheit",
    "bits",
    "calories",
    "pounds",
    "ounces",
    "inches",
    "yards",
    "miles",
    "feet",
    "percent",
    "s",
    "ms",
    "sec",
    "mb",
    "gb",
];
const PREFIXES: [&str; 16] = [
    "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega", "mebi", "giga", "gibi",
    "tera", "tebi",
];
/// Names of kinds, and parts of names that histograms and summaries have.
const KINDS: [&str; 8] = ["counter", "gauge", "histogram", "summary", "bucket", "count", "sum", "created"];

/// Returns what is wrong with the name of a family.
fn faults(name: &str, kind: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_plain) || name.contains("__") {
        faults.push("is not in snake case".into());
    }
    if (kind == "counter") != name.ends_with("_total") {
        faults.push("ends in `_total` and is no counter, or the other way round".into());
    }
    if name.ends_with("_info") && kind != "gauge" {
        faults.push("is a fact and no gauge".into());
    }
    for word in name.split('_') {
        let is_prefixed = PREFIXES.iter().any(|prefix| {
            word.strip_prefix(prefix).is_some_and(|unit| BASE_UNITS.iter().any(|base| unit == *base || unit == "bits"))
        });
        if is_prefixed || OTHER_UNITS.contains(&word) {
            faults.push(format!("has the unit `{word}`"));
        }
        if KINDS.contains(&word) {
            faults.push(format!("has the kind `{word}`"));
        }
    }
    // A rate is written as bytes per second: the unit is two words.
    let words = name.trim_end_matches("_total").replace("_bytes_per_second", "_bytes");
    let unit = words.split('_').position(|word| BASE_UNITS.contains(&word));
    if unit.is_some_and(|at| at + 1 != words.split('_').count()) {
        faults.push("has its unit in the middle".into());
    }
    faults
}

fn check(run: &RunView) {
    let text = prometheus_text(run);
    let families = parse(&text);
    for (name, values) in &families {
        let kind = text.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} "))).unwrap();
        assert_eq!(faults(name, kind), Vec::<String>::new(), "{name}");
        let help = text.lines().find_map(|line| line.strip_prefix(&format!("# HELP {name} "))).unwrap();
        assert!(help.ends_with('.'), "{name}: {help}");
        for (labels, value) in values {
            assert!(!name.ends_with("_info") || *value == 1.0, "{name} {value}");
            for (label, _) in labels {
                let is_plain = label.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                let is_reserved = ["le", "quantile", "job", "instance"].contains(&&**label) || label.starts_with("__");
                assert!(is_plain && !is_reserved, "{name}: {label}");
            }
        }
    }
    assert_eq!(text.lines().filter(|line| line.starts_with('#')).count(), families.len() * 2, "no other comments");
}

#[test]
fn metrics_keep_the_rules_of_promtool() {
    [RunView::default(), RunView::new("a"), running(), running_on_gpu()].iter().for_each(check);
}

#[test]
fn a_name_that_breaks_a_rule_is_found() {
    for (name, kind) in [
        ("plimsoll_stepSeconds", "gauge"),
        ("plimsoll:step", "gauge"),
        ("plimsoll_steps", "counter"),
        ("plimsoll_steps_total", "gauge"),
        ("plimsoll_run_info", "counter"),
        ("plimsoll_step_milliseconds", "gauge"),
        ("plimsoll_memory_mebibytes", "gauge"),
        ("plimsoll_step_ms", "gauge"),
        ("plimsoll_use_percent", "gauge"),
        ("plimsoll_steps_count", "gauge"),
        ("plimsoll_gauge_loss", "gauge"),
        ("plimsoll_seconds_left", "gauge"),
    ] {
        assert_ne!(faults(name, kind), Vec::<String>::new(), "{name}");
    }
}
