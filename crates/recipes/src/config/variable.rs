//! The environment variable of a key.

/// What every variable of ours begins with.
pub(super) const PREFIX: &str = "PLIMSOLL_";

/// The variable that sets `key`.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}
