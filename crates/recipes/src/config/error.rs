//! What can be wrong with a configuration. Each message names the place, the key, what was found and what was expected.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode, SourceSpan};

use super::origin::ValueOrigin;

/// Why a configuration cannot be loaded.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file does not exist.
    #[error("there is no configuration file {}", path.display())]
    #[diagnostic(help("without --config the built-in configuration is used; `plimsoll config print` shows it"))]
    Missing {
        /// The given path.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file exists but cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable {
        /// The given path.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The extension of the file is neither that of TOML nor that of YAML.
    #[error("the configuration file {} is neither .toml nor .yaml nor .yml", path.display())]
    #[diagnostic(help("give it the extension of its format"))]
    Extension {
        /// The given path.
        path: PathBuf,
    },
    /// The file cannot be parsed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Syntax(Box<SyntaxError>),
    /// One setting is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Issue(Box<ConfigIssue>),
    /// Several settings are wrong.
    #[error("the configuration has {} errors", .0.len())]
    Issues(#[related] Vec<ConfigIssue>),
    /// Serde rejects values that passed every check. This is a bug: the table of keys does not match the schema.
    #[error("the merged configuration cannot be read")]
    Deserialize(#[source] toml::de::Error),
    /// The layers cannot be merged. This is a bug.
    #[error("the layers of the configuration cannot be merged")]
    Merge(#[source] Box<config::ConfigError>),
}

/// A file that is not valid TOML or YAML.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{file}:{line}: this cannot be read as {format}: {reason}")]
pub struct SyntaxError {
    /// Name of the file.
    pub file: String,
    /// Line of the error, counted from 1.
    pub line: usize,
    /// Format of the file by its extension: `TOML` or `YAML`.
    pub format: &'static str,
    /// Message of the parser.
    pub reason: String,
    /// Text of the file, to show the lines around the error.
    #[source_code]
    pub text: NamedSource<Arc<str>>,
    /// Where the parser stopped.
    #[label("here")]
    pub at: Option<SourceSpan>,
}

/// One thing that is wrong with a configuration, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", prefix(origin))]
pub struct ConfigIssue {
    /// Where it was written.
    pub origin: ValueOrigin,
    /// What is wrong.
    pub kind: IssueKind,
    /// Text of the file it was written in, to show the lines around it.
    text: Option<NamedSource<Arc<str>>>,
}

/// What is wrong with a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IssueKind {
    /// There is no section of this name.
    #[error("there is no section `{section}`")]
    UnknownSection {
        /// Name as written.
        section: String,
        /// The most similar section, if one is similar enough.
        nearest: Option<&'static str>,
    },
    /// There is no key of this name.
    #[error("there is no key `{key}`")]
    UnknownKey {
        /// Name as written.
        key: String,
        /// The most similar key, if one is similar enough.
        nearest: Option<&'static str>,
    },
    /// A section is set to a value.
    #[error("`{section}` is {found}, expected a section with keys of its own")]
    NotASection {
        /// Name of the section.
        section: String,
        /// Value as written.
        found: String,
    },
    /// The value has the wrong type.
    #[error("`{key}` is {found}, expected {expected}")]
    WrongType {
        /// Name of the key.
        key: String,
        /// Value as written.
        found: String,
        /// What the key accepts.
        expected: String,
    },
    /// The value has the right type but is outside of its limits.
    #[error("`{key}` is {found}, expected {expected}")]
    OutOfRange {
        /// Name of the key.
        key: String,
        /// Value as written.
        found: String,
        /// What the key accepts.
        expected: String,
    },
    /// The value is none of the accepted words.
    #[error("`{key}` is {found}, expected {expected}")]
    UnknownWord {
        /// Name of the key.
        key: String,
        /// Value as written.
        found: String,
        /// The accepted words.
        expected: String,
        /// The most similar word, if one is similar enough.
        nearest: Option<&'static str>,
    },
    /// Two keys that exclude each other are set in one layer.
    #[error("`{key}` and `{other}` exclude each other")]
    Exclusive {
        /// Name of the first key.
        key: &'static str,
        /// Name of the second key.
        other: &'static str,
        /// Where the second key is set.
        other_origin: String,
    },
    /// One key is set twice in one layer, under different names.
    #[error("`{key}` is given twice, the first time in {first}")]
    Duplicate {
        /// Name of the key.
        key: &'static str,
        /// Where it is set first.
        first: String,
    },
    /// Values that are valid alone do not fit together; the text says which and why.
    #[error("{0}")]
    Conflict(String),
    /// An argument of `--set` has no equals sign.
    #[error("`{text}` has no `=`, expected section.key=value")]
    MissingEquals {
        /// Argument as written.
        text: String,
    },
}

impl ConfigError {
    /// Exit code of the program for a wrong configuration; the same as for an unknown flag.
    pub const EXIT_CODE: u8 = 2;

    /// An error that holds all `issues`, or `Ok` if there are none.
    pub(super) fn from_issues(mut issues: Vec<ConfigIssue>) -> Result<(), Self> {
        match issues.len() {
            0 => Ok(()),
            1 => Err(Self::Issue(Box::new(issues.remove(0)))),
            _ => Err(Self::Issues(issues)),
        }
    }
}

impl ConfigIssue {
    pub(super) fn new(origin: &ValueOrigin, kind: IssueKind) -> Self {
        let text = match origin {
            ValueOrigin::File(file, Some(_)) => Some(NamedSource::new(&file.name, Arc::clone(&file.text))),
            _ => None,
        };
        Self { origin: origin.clone(), kind, text }
    }
}

impl IssueKind {
    /// The text below the underlined part of the file.
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

    /// Whether to underline the name of the key, and not its value.
    fn is_about_name(&self) -> bool {
        matches!(
            self,
            Self::UnknownSection { .. } | Self::UnknownKey { .. } | Self::Exclusive { .. } | Self::Duplicate { .. }
        )
    }

    /// What would help.
    fn help(&self, origin: &ValueOrigin) -> Option<String> {
        match self {
            Self::UnknownSection { nearest: Some(nearest), .. } => Some(format!("did you mean `{nearest}`?")),
            Self::UnknownSection { .. } => {
                let sections = super::keys::SECTIONS.iter();
                let names: Vec<&str> = sections.map(|section| section.name).filter(|name| !name.is_empty()).collect();
                Some(format!("the sections are {}", names.join(", ")))
            }
            Self::UnknownKey { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{}`?", origin.key_name(nearest)))
            }
            Self::UnknownKey { .. } => Some("`plimsoll config print` lists every key".into()),
            Self::UnknownWord { nearest: Some(nearest), .. } => Some(format!("did you mean \"{nearest}\"?")),
            Self::Exclusive { other_origin, .. } => {
                Some(format!("keep one of them; the other is set in {other_origin}"))
            }
            Self::MissingEquals { .. } => Some("for example: --set training.steps=100".into()),
            _ => None,
        }
    }
}

/// The place with a colon; nothing for a default, which has no place.
fn prefix(origin: &ValueOrigin) -> String {
    if *origin == ValueOrigin::Default { String::new() } else { format!("{origin}: ") }
}

impl Diagnostic for ConfigIssue {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.kind.help(&self.origin).map(|text| Box::new(text) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.text.as_ref().map(|text| text as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let ValueOrigin::File(_, Some(spans)) = &self.origin else { return None };
        let span = if self.kind.is_about_name() { &spans.key } else { &spans.value };
        let label = LabeledSpan::new_with_span(Some(self.kind.label()), span.clone());
        Some(Box::new(std::iter::once(label)))
    }
}
