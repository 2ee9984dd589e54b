//! Origin of a value: a default, a line of a file, an environment variable or a flag.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A configuration file: its name and its text.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigText {
    /// Path of the file as given, or name of the built-in file.
    pub name: String,
    /// Whole text of the file.
    pub text: Arc<str>,
}

/// Positions of a key and its value in a file, as byte ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans {
    /// Position of the key.
    pub key: Range<usize>,
    /// Position of the value.
    pub value: Range<usize>,
}

/// Place where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Default of the key.
    Default,
    /// A file, and the position of the value if known: the search for keys in YAML does not find every way to write a
    /// key.
    File(Arc<ConfigText>, Option<Spans>),
    /// Environment variable with this name.
    Environment(String),
    /// Named flag such as `--epochs`, or `--set`.
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

/// Origin of the final value of each key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provenance(pub(super) BTreeMap<&'static str, ValueOrigin>);

impl ConfigText {
    /// Returns the number of the line, counted from 1, that holds the byte at `offset`.
    pub fn line(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
    }
}

impl ValueOrigin {
    /// Returns the layer that the value came from.
    pub fn layer(&self) -> Layer {
        match self {
            Self::Default => Layer::Default,
            Self::File(..) => Layer::File,
            Self::Environment(_) => Layer::Environment,
            Self::Flag(_) => Layer::CommandLine,
        }
    }

    /// Returns the name of `key` as written at this origin: as an environment variable in the environment, unchanged
    /// elsewhere.
    pub fn key_name(&self, key: &str) -> String {
        match self {
            Self::Environment(_) => super::variable::variable_name(key),
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
    /// Returns the number of keys whose values do not come from the defaults.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether every key has its default.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the origin of the value of `key`.
    pub fn origin(&self, key: &str) -> &ValueOrigin {
        self.0.get(key).unwrap_or(&ValueOrigin::Default)
    }
}
