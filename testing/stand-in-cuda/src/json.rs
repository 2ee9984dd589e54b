//! Writing JSON.

use std::fmt::{Display, Write};

/// Writes an object of values that are JSON already.
pub(crate) fn object<K: AsRef<str>>(members: impl IntoIterator<Item = (K, String)>) -> String {
    let members = members.into_iter().map(|(name, value)| format!("{}: {value}", text(name.as_ref())));
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

/// Writes an array of values that are JSON already.
pub(crate) fn array<T: Display>(values: impl IntoIterator<Item = T>, separator: &str) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    format!("[{}]", values.join(separator))
}

/// Writes a text.
pub(crate) fn text(text: &str) -> String {
    let mut out = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            control if control < ' ' => _ = write!(out, "\\u{:04x}", u32::from(control)),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let members = [("a\"\\\n\u{1}é", text("b\t\"")), ("c", array([1, 2], ", "))];
        let found: serde_json::Value = serde_json::from_str(&object(members)).unwrap();
        assert_eq!(found, serde_json::json!({"a\"\\\n\u{1}é": "b\t\"", "c": [1, 2]}));
    }
}
