//! What can be wrong with a configuration, told with the place, the key, what was expected and what was found.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode, SourceSpan};

use super::origin::ValueOrigin;

/// Why there is no configuration to run with.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum ConfigError {
    /// The file is not there.
    #[error("there is no configuration file {}", path.display())]
    #[diagnostic(help("without --config the built-in main job is used; `plimsoll config print` shows it"))]
    Missing {
        /// The path that was given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is there and cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable {
        /// The path that was given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The name of the file says neither TOML nor YAML.
    #[error("the configuration file {} is neither .toml nor .yaml nor .yml", path.display())]
    #[diagnostic(help("rename it by what is written in it"))]
    Extension {
        /// The path that was given.
        path: PathBuf,
    },
    /// The file is not what its name says.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Syntax(Box<Syntax>),
    /// One thing is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    One(Box<Finding>),
    /// Several things are wrong.
    #[error("{} things in the configuration are wrong", .0.len())]
    Several(#[related] Vec<Finding>),
    /// Serde refused what passed every check of the table of keys: the table is out of step with the schema.
    #[error("the merged configuration cannot be read")]
    Refused(#[source] toml::de::Error),
    /// The layers could not be put on top of each other.
    #[error("the layers of the configuration cannot be merged")]
    Merge(#[source] Box<config::ConfigError>),
}

/// A file that is no TOML or no YAML.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{file}:{line}: this cannot be read as {format}: {reason}")]
pub struct Syntax {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What it should be.
    pub format: &'static str,
    /// What the parser said.
    pub reason: String,
    /// The text, to be shown around the mistake.
    #[source_code]
    pub text: NamedSource<Arc<str>>,
    /// Where the parser stopped.
    #[label("here")]
    pub at: Option<SourceSpan>,
}

/// One thing that is wrong, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}{problem}", prefix(origin))]
pub struct Finding {
    /// Where it stands.
    pub origin: ValueOrigin,
    /// What is wrong.
    pub problem: Problem,
    /// The text of the file it stands in, to be shown around the mistake.
    text: Option<NamedSource<Arc<str>>>,
}

/// What is wrong with one key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No section has this name.
    #[error("there is no section `{section}`")]
    UnknownSection {
        /// As written.
        section: String,
        /// The section that may be meant.
        nearest: Option<&'static str>,
    },
    /// No key has this name.
    #[error("there is no key `{key}`")]
    UnknownKey {
        /// As written.
        key: String,
        /// The key that may be meant.
        nearest: Option<&'static str>,
    },
    /// A section was given a value.
    #[error("`{section}` is {found}, expected a section with keys of its own")]
    NotASection {
        /// The section.
        section: String,
        /// The value.
        found: String,
    },
    /// A value of another kind.
    #[error("`{key}` is {found}, expected {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// The value.
        found: String,
        /// What belongs there.
        expected: String,
    },
    /// A value of the right kind, beyond its limits.
    #[error("`{key}` is {found}, expected {expected}")]
    OutOfRange {
        /// The key.
        key: String,
        /// The value.
        found: String,
        /// What belongs there.
        expected: String,
    },
    /// A text that is none of the known words.
    #[error("`{key}` is {found}, expected {expected}")]
    UnknownWord {
        /// The key.
        key: String,
        /// The text.
        found: String,
        /// The words.
        expected: String,
        /// The word that may be meant.
        nearest: Option<&'static str>,
    },
    /// Two keys that exclude each other stand in one layer.
    #[error("`{key}` and `{other}` exclude each other")]
    Exclusive {
        /// The one.
        key: &'static str,
        /// The other.
        other: &'static str,
        /// Where the other stands.
        other_origin: String,
    },
    /// One key stands twice in one layer, under different names.
    #[error("`{key}` is given twice, the first time in {first}")]
    Twice {
        /// The key.
        key: &'static str,
        /// Where it stands first.
        first: String,
    },
    /// Keys that are fine alone do not fit together.
    #[error("{0}")]
    Disagree(String),
    /// `--set` without an equals sign.
    #[error("`{text}` has no `=`, expected section.key=value")]
    NoEquals {
        /// As written.
        text: String,
    },
}

impl ConfigError {
    /// What the program exits with: the same as for a flag that does not exist.
    pub const EXIT_CODE: u8 = 2;

    /// One error from any number of findings, nothing from none.
    pub(super) fn from_findings(mut findings: Vec<Finding>) -> Result<(), Self> {
        match findings.len() {
            0 => Ok(()),
            1 => Err(Self::One(Box::new(findings.remove(0)))),
            _ => Err(Self::Several(findings)),
        }
    }
}

impl Finding {
    pub(super) fn new(origin: &ValueOrigin, problem: Problem) -> Self {
        let text = match origin {
            ValueOrigin::File(file, Some(_)) => Some(NamedSource::new(&file.name, Arc::clone(&file.text))),
            _ => None,
        };
        Self { origin: origin.clone(), problem, text }
    }
}

impl Problem {
    /// What to put under the mistake in the file.
    fn label(&self) -> String {
        match self {
            Self::UnknownSection { .. } | Self::UnknownKey { .. } => "not known".into(),
            Self::NotASection { .. } => "expected a section".into(),
            Self::WrongType { expected, .. }
            | Self::OutOfRange { expected, .. }
            | Self::UnknownWord { expected, .. } => format!("expected {expected}"),
            _ => "here".into(),
        }
    }

    /// Whether the name is the mistake, and not the value.
    fn is_about_name(&self) -> bool {
        matches!(
            self,
            Self::UnknownSection { .. } | Self::UnknownKey { .. } | Self::Exclusive { .. } | Self::Twice { .. }
        )
    }

    fn advice(&self, origin: &ValueOrigin) -> Option<String> {
        match self {
            Self::UnknownSection { nearest: Some(near), .. } => Some(format!("did you mean `{near}`?")),
            Self::UnknownSection { .. } => {
                let names: Vec<&str> = super::keys::KEYS.iter().map(|s| s.name).filter(|n| !n.is_empty()).collect();
                Some(format!("the sections are {}", names.join(", ")))
            }
            Self::UnknownKey { nearest: Some(near), .. } => Some(format!("did you mean `{}`?", origin.spell(near))),
            Self::UnknownKey { .. } => Some("`plimsoll config print` lists every key".into()),
            Self::UnknownWord { nearest: Some(near), .. } => Some(format!("did you mean \"{near}\"?")),
            Self::Exclusive { other_origin, .. } => {
                Some(format!("keep one of them; the other one stands in {other_origin}"))
            }
            Self::NoEquals { .. } => Some("for example: --set training.steps=100".into()),
            _ => None,
        }
    }
}

/// The place with a colon; a default needs no telling.
fn prefix(origin: &ValueOrigin) -> String {
    if *origin == ValueOrigin::Default { String::new() } else { format!("{origin}: ") }
}

impl Diagnostic for Finding {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.problem.advice(&self.origin).map(|text| Box::new(text) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.text.as_ref().map(|text| text as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let ValueOrigin::File(_, Some(spans)) = &self.origin else { return None };
        let span = if self.problem.is_about_name() { &spans.key } else { &spans.value };
        let label = LabeledSpan::new_with_span(Some(self.problem.label()), span.clone());
        Some(Box::new(std::iter::once(label)))
    }
}
