//! Which file, environment variables and flags a configuration is read from.

use super::arguments::ConfigArgs;
use super::environment::{self, RESERVED};
use super::file::built_in_name;
use super::load::task_of;
use super::variable::PREFIX;

/// Where a configuration is read from, weakest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSources {
    /// The file, or the name of the built-in one.
    pub file: String,
    /// Whether a file was named that does not exist.
    pub file_is_missing: bool,
    /// Environment variables that begin with [`ConfigSources::PREFIX`], sorted.
    pub variables: Vec<Variable>,
    /// Each flag with the key that it sets.
    pub flags: Vec<(String, String)>,
}

/// An environment variable of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The key that it sets, or what it is for where it sets none.
    pub meaning: String,
}

impl ConfigSources {
    /// What every variable of ours begins with.
    pub const PREFIX: &str = PREFIX;
}

/// The sources that [`load`](super::load) reads for these arguments.
pub fn sources(args: &ConfigArgs, environment: impl Iterator<Item = (String, String)>) -> ConfigSources {
    let environment: Vec<(String, String)> = environment.collect();
    let mut written = environment::read(environment.iter().cloned());
    let flags = args.read(&mut Vec::new());
    written.extend(flags.iter().cloned());
    let mut names: Vec<String> =
        environment.into_iter().map(|(name, _)| name).filter(|name| name.starts_with(PREFIX)).collect();
    names.sort();
    let variable = |name: String| {
        let reserved = RESERVED.iter().find(|(reserved, _)| *reserved == name);
        let meaning = reserved.map_or_else(|| key_of(&name), |(_, what)| format!("no key; {what}"));
        Variable { name, meaning }
    };
    ConfigSources {
        file: args
            .config
            .as_ref()
            .map_or_else(|| built_in_name(task_of(&written)).into(), |path| path.display().to_string()),
        file_is_missing: args.config.as_ref().is_some_and(|path| !path.exists()),
        variables: names.into_iter().map(variable).collect(),
        flags: flags.into_iter().map(|setting| (setting.origin.to_string(), setting.name)).collect(),
    }
}

fn key_of(variable: &str) -> String {
    let one = std::iter::once((variable.to_string(), "?".to_string()));
    environment::read(one).into_iter().map(|setting| setting.name).collect()
}
