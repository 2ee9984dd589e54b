//! A strict parser of the text format of Prometheus, for tests.

use std::collections::{BTreeMap, BTreeSet};

/// Values of one family by their labels.
pub(super) type Families = BTreeMap<String, BTreeMap<Vec<(String, String)>, f64>>;

/// Parses a text, and panics at anything that the format or its conventions do not allow.
pub(super) fn parse(text: &str) -> Families {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line ends");
    let (mut families, mut helped) = (Families::new(), BTreeSet::new());
    let mut current = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(is_name(name) && !help.is_empty() && helped.insert(name.to_string()), "{line}");
            current = (name.into(), String::new());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(name == current.0 && current.1.is_empty(), "{line}");
            assert!(matches!(kind, "counter" | "gauge") && (kind == "counter") == name.ends_with("_total"), "{line}");
            current.1 = kind.into();
            assert!(families.insert(name.into(), BTreeMap::new()).is_none(), "{line}");
        } else {
            let (name, labels, value) = sample(line);
            assert!(name == current.0 && !current.1.is_empty() && name.starts_with("plimsoll_"), "{line}");
            let value: f64 = value.parse().expect("a number");
            assert!(value.is_finite() && (current.1 == "gauge" || value >= 0.0), "{line}");
            let family = families.get_mut(&name).expect("the family has a type");
            assert!(family.insert(labels, value).is_none(), "twice: {line}");
        }
    }
    assert!(families.values().all(|family| !family.is_empty()), "a family without values");
    families
}

/// Splits a line into name, labels and value.
fn sample(line: &str) -> (String, Vec<(String, String)>, String) {
    let end = line.find(['{', ' ']).expect("a value");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label");
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let (value, after) = quoted(after);
            labels.push((label.to_string(), value));
            if let Some(after) = after.strip_prefix(',') {
                rest = after;
            } else {
                rest = after.strip_prefix('}').expect("the labels end");
                break;
            }
        }
        assert!(labels.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len() == labels.len(), "{line}");
    }
    let value = rest.strip_prefix(' ').expect("one space");
    (name.into(), labels, value.into())
}

/// Reads a label value up to its closing quote.
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next().expect("an escaped character").1 {
                'n' => value.push('\n'),
                escaped @ ('\\' | '"') => value.push(escaped),
                other => panic!("`{other}` is escaped"),
            },
            c => value.push(c),
        }
    }
    panic!("a value does not end: {text}")
}

fn is_name(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    name.starts_with(|c: char| rest(c) && !c.is_ascii_digit()) && name.chars().all(rest)
}
