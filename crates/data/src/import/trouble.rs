//! What can be wrong with a corpus: with one line of it, or with all of it.

use std::path::PathBuf;
use std::{fmt, io};

use super::format::Format;

/// A line of a file, or a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, or a folder that cannot be read.
    pub file: PathBuf,
    /// The line, counted from one.
    pub line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// Something in a corpus that cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Where it stands.
    pub place: Place,
    /// The utterance, where so much could be read.
    pub id: Option<String>,
    /// What is wrong.
    pub trouble: Trouble,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, id, trouble } = self;
        match id {
            Some(id) => write!(f, "{place}: `{id}`: {trouble}"),
            None => write!(f, "{place}: {trouble}"),
        }
    }
}

/// Why something in a corpus cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Trouble {
    /// Not a JSON object.
    #[error("a JSON object was expected: {0}")]
    NotJson(String),
    /// A key that cannot be left out.
    #[error("the key `{0}` is missing")]
    MissingKey(&'static str),
    /// A column that cannot be left out is not in the header.
    #[error("the header names no column `{0}`, so nothing of this file can be read")]
    MissingColumn(&'static str),
    /// A list or an object where a text belongs.
    #[error("`{key}` is {found}, and a text was expected")]
    WrongType {
        /// The key.
        key: &'static str,
        /// What stands there.
        found: &'static str,
    },
    /// Too few columns or too many.
    #[error("expected {expected}; columns found: {found}")]
    Columns {
        /// What was expected.
        expected: String,
        /// How many there are.
        found: usize,
    },
    /// A quoted field without an end.
    #[error("a quotation mark opens a field, and none closes it")]
    UnclosedQuote,
    /// An empty id.
    #[error("it has no id")]
    NoId,
    /// No text, or an empty one.
    #[error("it has no text")]
    NoText,
    /// Nothing says where the audio is.
    #[error("it has no audio: {0}")]
    NoAudio(String),
    /// Bytes that are no text.
    #[error("not UTF-8, from byte {0} on")]
    NotUtf8(usize),
    /// Half letters, in a list of the other encoding that is read.
    #[error("not UTF-16, from letter {0} on")]
    NotUtf16(usize),
    /// An id that an earlier utterance has.
    #[error("its id is already that of {0}")]
    DuplicateId(Place),
    /// A time that is none.
    #[error("`{key}` is {value}, and a number of seconds was expected")]
    WrongTime {
        /// What it should be the time of.
        key: &'static str,
        /// What stands there.
        value: String,
    },
    /// An utterance that ends before it begins.
    #[error("it begins at {start} and ends at {end}")]
    WrongEnd {
        /// Where it begins, in seconds.
        start: f64,
        /// Where it ends, in seconds.
        end: f64,
    },
    /// More than anybody writes, so it is not read to its end.
    #[error("the {what} is longer than {most} bytes")]
    TooLong {
        /// What is too long: a line, a text, a name.
        what: &'static str,
        /// How long it may be.
        most: usize,
    },
    /// The system cannot read a file or a folder, or not to its end.
    #[error("it cannot be read from here on: {0}")]
    Unreadable(String),
    /// The audio would come from a program.
    #[error("its audio is made by a command, which is not run: {0}")]
    Command(String),
    /// The audio is a part of a Kaldi archive.
    #[error("its audio is in an archive, which cannot be read: {0}")]
    Archive(String),
    /// The audio is in memory, on the network, or in a tar file.
    #[error("its audio is of type `{0}`, and only files can be read")]
    Source(String),
    /// A Lhotse cut that is no `MonoCut`.
    #[error("a `{0}` is not one stretch of one channel, as a `MonoCut` is")]
    Cut(String),
    /// One channel of a file that has several.
    #[error("it is one of {0} channels of its file, and files are read with their channels mixed")]
    Channel(usize),
    /// The recording is to be changed before it is used.
    #[error("its recording is changed by `{0}`, and files are only read as they are")]
    Transform(String),
}

impl Trouble {
    /// What is wrong without its facts, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotJson(_) => "not JSON",
            Self::MissingKey(_) => "missing key",
            Self::MissingColumn(_) => "missing column",
            Self::WrongType { .. } => "wrong type",
            Self::Columns { .. } => "wrong number of columns",
            Self::UnclosedQuote => "unclosed quotation mark",
            Self::NoId => "no id",
            Self::NoText => "no text",
            Self::NoAudio(_) => "no audio",
            Self::NotUtf8(_) => "not UTF-8",
            Self::NotUtf16(_) => "not UTF-16",
            Self::DuplicateId(_) => "duplicate id",
            Self::WrongTime { .. } | Self::WrongEnd { .. } => "wrong time",
            Self::TooLong { .. } => "too long",
            Self::Unreadable(_) => "unreadable",
            Self::Command(_) => "audio made by a command",
            Self::Archive(_) => "audio in an archive",
            Self::Source(_) => "audio not in a file",
            Self::Cut(_) => "cut of several recordings",
            Self::Channel(_) => "one channel of several",
            Self::Transform(_) => "changed recording",
        }
    }
}

/// Why a corpus cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Neither a file nor a folder.
    #[error("corpus {} does not exist", .0.display())]
    NotFound(PathBuf),
    /// Nothing that we know.
    #[error("{} is no corpus that is known; looked for {}", .0.display(), looked_for())]
    Unknown(PathBuf),
    /// Not what it was said to be.
    #[error("{} is not of the format `{format}`, which has {}", path.display(), format.known_by())]
    NotThis {
        /// The file or folder.
        path: PathBuf,
        /// What it was said to be.
        format: Format,
    },
    /// Tables that we do not read.
    #[error(
        "{} holds only Parquet or Arrow tables, which are not read; save the audio as files with a metadata.csv of \
         `file_name` and `transcription`",
        .0.display()
    )]
    Parquet(PathBuf),
    /// A list is there but cannot be read.
    #[error("cannot read {}", file.display())]
    Unreadable {
        /// The list.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing in it, not even a problem.
    #[error("{} lists no utterance", .0.display())]
    Empty(PathBuf),
}

/// Every format with the files it is known by.
fn looked_for() -> String {
    let each = Format::ALL.map(|format| format!("{} (`{format}`)", format.known_by()));
    each.join("; ")
}
