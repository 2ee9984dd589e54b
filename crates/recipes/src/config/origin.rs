//! Where a value came from: a default, a line of a file, an environment variable or a flag.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A configuration file: its name and its text.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigText {
    /// The path as given, or the name of the built-in file.
    pub name: String,
    /// The whole text.
    pub text: Arc<str>,
}

/// Positions of a key and its value in a file, as byte ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans {
    /// The key.
    pub key: Range<usize>,
    /// The value.
    pub value: Range<usize>,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The value is the key's default.
    Default,
    /// A file, and the position in it if it is known: the search for keys in YAML does not find every way to write them.
    File(Arc<ConfigText>, Option<Spans>),
    /// The environment variable of this name.
    Environment(String),
    /// A named flag such as `--epochs`, or `--set`.
    Flag(String),
}

/// The layers of a configuration, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Defaults of the keys.
    Default,
    /// The configuration file.
    File,
    /// Environment variables.
    Environment,
    /// Flags on the command line.
    CommandLine,
}

/// Where the final value of each key came from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provenance(pub(super) BTreeMap<&'static str, ValueOrigin>);

impl ConfigText {
    /// Number of the line, counted from 1, that holds the byte at `offset`.
    pub fn line(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
    }
}

impl ValueOrigin {
    /// The layer that the value came from.
    pub fn layer(&self) -> Layer {
        match self {
            Self::Default => Layer::Default,
            Self::File(..) => Layer::File,
            Self::Environment(_) => Layer::Environment,
            Self::Flag(_) => Layer::CommandLine,
        }
    }

    /// How `key` is written at this origin: as an environment variable in the environment, as its own name elsewhere.
    pub fn key_name(&self, key: &str) -> String {
        match self {
            Self::Environment(_) => super::variable::variable(key),
            _ => key.to_string(),
        }
    }
}

/// Writes the origin as messages show it, such as `run.toml:3`, `PLIMSOLL_SEED` or `--steps`.
impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(file, None) => f.write_str(&file.name),
            Self::File(file, Some(spans)) => write!(f, "{}:{}", file.name, file.line(spans.key.start)),
            Self::Environment(variable) => f.write_str(variable),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

impl Provenance {
    /// Number of keys that are set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether every key has its default.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the value of `key` came from.
    pub fn origin(&self, key: &str) -> &ValueOrigin {
        self.0.get(key).unwrap_or(&ValueOrigin::Default)
    }
}
