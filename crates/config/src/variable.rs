//! The name of the environment variable that sets a key.

/// Prefix of every environment variable that Plimsoll reads.
pub(super) const PREFIX: &str = "PLIMSOLL_";

/// Returns the name of the environment variable that sets `key`.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}
