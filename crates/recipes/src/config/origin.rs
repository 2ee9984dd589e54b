//! Where a value came from: a default, a line of a file, an environment variable or a flag.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The text of a configuration file and the name people know it by.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigText {
    /// The path as given, or the name of the built-in file.
    pub name: String,
    /// What stands in it.
    pub text: Arc<str>,
}

/// Where in a file a key and its value stand, in bytes.
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
    /// Nobody set it.
    Default,
    /// A file, and where in it; some YAML writes keys where a simple search does not find them.
    File(Arc<ConfigText>, Option<Spans>),
    /// An environment variable.
    Environment(String),
    /// A named flag such as `--epochs`, or `--set`.
    Flag(String),
}

/// The layer a place belongs to, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Built-in defaults.
    Default,
    /// The configuration file.
    File,
    /// Environment variables.
    Environment,
    /// Flags of the command line.
    CommandLine,
}

/// For each key, where its final value came from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provenance(pub(super) BTreeMap<&'static str, ValueOrigin>);

impl ConfigText {
    /// The line, counted from 1, that holds the byte at `offset`.
    pub fn line(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
    }
}

impl ValueOrigin {
    /// The layer it belongs to.
    pub fn layer(&self) -> Layer {
        match self {
            Self::Default => Layer::Default,
            Self::File(..) => Layer::File,
            Self::Environment(_) => Layer::Environment,
            Self::Flag(_) => Layer::CommandLine,
        }
    }

    /// How `key` is written in this place.
    pub fn spell(&self, key: &str) -> String {
        match self {
            Self::Environment(_) => super::variable::variable(key),
            _ => key.to_string(),
        }
    }
}

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
    /// Number of keys that were set somewhere.
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
