//! Lists the file, the environment variables and the flags that a configuration is read from.

use super::arguments::ConfigArgs;
use super::environment::{self, RESERVED_VARIABLES};
use super::file::built_in_name;
use super::load::task_of;
use super::variable::PREFIX;

/// The sources of a configuration, weakest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSources {
    /// Path of the configuration file, or name of the built-in file.
    pub file: String,
    /// Whether a configuration file is given that does not exist.
    pub file_is_missing: bool,
    /// Environment variables that begin with [`ConfigSources::PREFIX`], sorted by name.
    pub variables: Vec<Variable>,
    /// Flags that are given, each with the key that it sets.
    pub flags: Vec<(String, String)>,
}

/// An environment variable that Plimsoll reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name of the environment variable.
    pub name: String,
    /// Key that the variable sets, or the variable's purpose if it sets no key.
    pub meaning: String,
}

impl ConfigSources {
    /// Prefix of every environment variable that Plimsoll reads.
    pub const PREFIX: &str = PREFIX;
}

/// Lists the sources that [`load`](super::load) reads for the same arguments.
pub fn sources(args: &ConfigArgs, environment: impl Iterator<Item = (String, String)>) -> ConfigSources {
    let environment: Vec<(String, String)> = environment.collect();
    let mut overrides = environment::read(environment.iter().cloned());
    let flags = args.read(&mut Vec::new());
    overrides.extend(flags.iter().cloned());
    let mut names: Vec<String> =
        environment.into_iter().map(|(name, _)| name).filter(|name| name.starts_with(PREFIX)).collect();
    names.sort();
    let variable = |name: String| {
        let reserved = RESERVED_VARIABLES.iter().find(|(reserved, _)| *reserved == name);
        let meaning = reserved.map_or_else(|| key_of(&name), |(_, purpose)| format!("sets no key; {purpose}"));
        Variable { name, meaning }
    };
    ConfigSources {
        file: args
            .config
            .as_ref()
            .map_or_else(|| built_in_name(task_of(&overrides)).into(), |path| path.display().to_string()),
        file_is_missing: args.config.as_ref().is_some_and(|path| !path.exists()),
        variables: names.into_iter().map(variable).collect(),
        flags: flags.into_iter().map(|setting| (setting.origin.to_string(), setting.name)).collect(),
    }
}

/// Returns the key that `variable` sets, as its name says; the key may not exist.
fn key_of(variable: &str) -> String {
    let one = std::iter::once((variable.to_string(), "?".to_string()));
    environment::read(one).into_iter().map(|setting| setting.name).collect()
}
