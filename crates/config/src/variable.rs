//! The name of the environment variable that sets a key.

use std::path::PathBuf;

/// Prefix of every environment variable that Plimsoll reads.
pub(super) const PREFIX: &str = "PLIMSOLL_";

/// Returns the name of the environment variable that sets `key`.
pub fn variable_name(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}

/// Returns the folder of the runs where no configuration is read: `runs`, or that which `PLIMSOLL_RUNS_DIR` names.
pub fn runs_folder() -> PathBuf {
    std::env::var_os(variable_name("runs_dir")).map_or_else(|| "runs".into(), PathBuf::from)
}
