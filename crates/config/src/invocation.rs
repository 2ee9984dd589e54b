//! The name under which a person started the program, so that hints say what the person can type.

use std::sync::OnceLock;

static PROGRAM: OnceLock<String> = OnceLock::new();

/// Sets the name of the program for hints, as it was typed: `cargo xtask`, or `./plimsoll`. The first call counts; without
/// a call, the name is `plimsoll`.
pub fn set_program(name: impl Into<String>) {
    let _ = PROGRAM.set(name.into());
}

/// Returns the command line of the program with `arguments`, to show it to a person.
///
/// ```
/// use plimsoll_config::invocation::command;
/// assert_eq!(command("runs list"), "plimsoll runs list");
/// ```
pub fn command(arguments: &str) -> String {
    format!("{} {arguments}", PROGRAM.get().map_or("plimsoll", String::as_str))
}
