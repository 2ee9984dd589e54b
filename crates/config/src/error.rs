//! Mistakes in a configuration. Each message names the place, the key, the found value and the expected values.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode, SourceSpan};

use super::bounds::is_shown;
use super::origin::ValueOrigin;
use crate::invocation::command;

/// Largest number of issues that are reported at once.
const MAX_ISSUES: usize = 50;

/// Error of loading a configuration.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[non_exhaustive]
pub enum ConfigError {
    /// The configuration file does not exist.
    #[error("there is no configuration file {}", path.display())]
    #[diagnostic(help("without --config the built-in configuration is used; `{}` shows it", command("config print")))]
    Missing {
        /// Path of the configuration file, as given.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The configuration file exists but cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable {
        /// Path of the configuration file, as given.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The configuration file is too large to be one.
    #[error("the configuration file {} is larger than {} KiB", path.display(), most >> 10)]
    TooLarge {
        /// Path of the configuration file, as given.
        path: PathBuf,
        /// Largest size of a configuration file, in bytes.
        most: u64,
    },
    /// The extension of the configuration file stands for neither TOML nor YAML.
    #[error("the configuration file {} is neither .toml nor .yaml nor .yml", path.display())]
    #[diagnostic(help("give it the extension of its format"))]
    Extension {
        /// Path of the configuration file, as given.
        path: PathBuf,
    },
    /// The configuration file cannot be parsed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Syntax(Box<SyntaxError>),
    /// One setting is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Issue(Box<ConfigIssue>),
    /// Several settings are wrong.
    #[error("the configuration has {count} errors{}", if issues.len() < *count { format!("; the first {}:", issues.len()) } else { String::new() })]
    Issues {
        /// Number of wrong settings.
        count: usize,
        /// The first of them.
        #[related]
        issues: Vec<ConfigIssue>,
    },
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
    /// Name of the configuration file.
    pub file: String,
    /// Line of the syntax error, counted from 1.
    pub line: usize,
    /// Format of the file by its extension: `TOML` or `YAML`.
    pub format: &'static str,
    /// Message of the parser.
    pub reason: String,
    /// Text of the file, to show the lines around the syntax error.
    #[source_code]
    pub text: NamedSource<Arc<str>>,
    /// Position at which the parser stopped; `None` if the parser reports none.
    #[label("here")]
    pub at: Option<SourceSpan>,
}

/// A mistake in a configuration, with its place.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", prefix(origin))]
pub struct ConfigIssue {
    /// Place where the setting was written.
    pub origin: ValueOrigin,
    /// Kind of the mistake.
    pub kind: IssueKind,
    /// Text of the file in which the setting was written, to show the lines around it; `None` for other origins.
    text: Option<NamedSource<Arc<str>>>,
}

/// Kind of mistake in a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IssueKind {
    /// There is no section of the written name.
    #[error("there is no section `{section}`")]
    UnknownSection {
        /// Name of the section as written.
        section: String,
        /// Most similar section; `None` if no section is similar enough.
        nearest: Option<&'static str>,
    },
    /// There is no key of the written name.
    #[error("there is no key `{key}`")]
    UnknownKey {
        /// Name of the key as written.
        key: String,
        /// Most similar key; `None` if no key is similar enough.
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
        /// Values that the key accepts.
        expected: String,
    },
    /// The value has the right type but is outside of the key's limits.
    #[error("`{key}` is {found}, expected {expected}")]
    OutOfRange {
        /// Name of the key.
        key: String,
        /// Value as written.
        found: String,
        /// Values that the key accepts.
        expected: String,
    },
    /// The value is none of the key's accepted words.
    #[error("`{key}` is {found}, expected {expected}")]
    UnknownWord {
        /// Name of the key.
        key: String,
        /// Value as written.
        found: String,
        /// Accepted words of the key.
        expected: String,
        /// Most similar accepted word; `None` if no word is similar enough.
        nearest: Option<&'static str>,
    },
    /// Two keys that exclude each other are set in one layer.
    #[error("`{key}` and `{other}` exclude each other")]
    Exclusive {
        /// Name of the first key.
        key: &'static str,
        /// Name of the second key.
        other: &'static str,
        /// Place where the second key is set.
        other_origin: String,
    },
    /// One key is set twice in one layer, under different names.
    #[error("`{key}` is given twice, the first time in {first}")]
    Duplicate {
        /// Name of the key.
        key: &'static str,
        /// Place where the key is set first.
        first: String,
    },
    /// Values that are valid alone do not fit together; the text names the values and the reason.
    #[error("{0}")]
    Conflict(String),
    /// An argument of `--set` has no equals sign.
    #[error("`{text}` has no `=`, expected section.key=value")]
    MissingEquals {
        /// Argument of `--set` as written.
        text: String,
    },
}

impl ConfigError {
    /// Exit code of the program for a wrong configuration, equal to the code for an unknown flag.
    pub const EXIT_CODE: u8 = 2;

    /// Returns an error that holds all `issues`, or `Ok` if there are none.
    pub(super) fn from_issues(mut issues: Vec<ConfigIssue>) -> Result<(), Self> {
        match issues.len() {
            0 => Ok(()),
            1 => Err(Self::Issue(Box::new(issues.remove(0)))),
            count => {
                issues.truncate(MAX_ISSUES);
                Err(Self::Issues { count, issues })
            }
        }
    }
}

impl ConfigIssue {
    pub(super) fn new(origin: &ValueOrigin, kind: IssueKind) -> Self {
        let text = match origin {
            ValueOrigin::File(file, Some(spans))
                if is_shown(&file.text, &spans.key) && is_shown(&file.text, &spans.value) =>
            {
                Some(NamedSource::new(&file.name, Arc::clone(&file.text)))
            }
            _ => None,
        };
        Self { origin: origin.clone(), kind, text }
    }
}

impl IssueKind {
    /// Returns the short text that an error message prints below the part of the configuration file that it underlines.
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

    /// Returns whether to underline the name of the key, and not its value.
    fn is_about_name(&self) -> bool {
        matches!(
            self,
            Self::UnknownSection { .. } | Self::UnknownKey { .. } | Self::Exclusive { .. } | Self::Duplicate { .. }
        )
    }

    /// Returns a hint how to correct the mistake; `None` if there is no hint for it.
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
            Self::UnknownKey { .. } => Some(format!("`{}` lists every key", command("config print"))),
            Self::UnknownWord { nearest: Some(nearest), .. } => Some(format!("did you mean \"{nearest}\"?")),
            Self::Exclusive { other_origin, .. } => {
                Some(format!("keep one of them; the other is set in {other_origin}"))
            }
            Self::MissingEquals { .. } => Some("for example: --set training.steps=100".into()),
            _ => None,
        }
    }
}

/// Returns the place of a value with a colon, or an empty text for a default, which has no place.
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
        let (Some(_), ValueOrigin::File(_, Some(spans))) = (&self.text, &self.origin) else { return None };
        let span = if self.kind.is_about_name() { &spans.key } else { &spans.value };
        let label = LabeledSpan::new_with_span(Some(self.kind.label()), span.clone());
        Some(Box::new(std::iter::once(label)))
    }
}
