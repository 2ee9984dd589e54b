//! Files with columns of values, and what an import asks of them: Parquet and Arrow.

use std::fmt;
use std::io;

use plimsoll_audio::AudioPart;

/// Value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(i64),
    Real(f64),
    Bytes(Vec<u8>),
    /// Place of bytes that are not read.
    Place(AudioPart),
}

/// Column with values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// Names from the outermost on: `["audio", "bytes"]`.
    pub(crate) path: Vec<String>,
    /// Whether a row may have several values.
    pub(crate) is_list: bool,
    /// Index among the columns of the file.
    pub(crate) index: usize,
}

/// Damage of a file, or something in it that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Position in the file.
    pub(crate) at: u64,
    /// Description of the damage.
    pub(crate) problem: String,
}

impl Damage {
    pub(crate) fn new(at: u64, problem: impl fmt::Display) -> Self {
        Self { at, problem: problem.to_string() }
    }

    pub(crate) fn unreadable(at: u64, error: &io::Error) -> Self {
        Self::new(at, error)
    }
}

/// Values of a column, row by row; `None` for null. They end behind an error.
pub(crate) type Values<'a> = Box<dyn Iterator<Item = Result<Option<Value>, Damage>> + 'a>;

/// Open file with columns, whose rows lie in groups.
pub(crate) trait ColumnFile: Send + Sync {
    /// Returns the columns.
    fn leaves(&self) -> &[Leaf];

    /// Returns the number of rows of each group.
    fn groups(&self) -> Vec<u64>;

    /// Returns the text that is kept under a name for programs.
    fn fact(&self, name: &str) -> Option<&str>;

    /// Returns the values of a column in a group.
    fn values<'a>(&'a self, group: usize, leaf: &'a Leaf) -> Values<'a>;

    /// Returns the places of the bytes of a column in a group.
    fn places<'a>(&'a self, group: usize, leaf: &'a Leaf) -> Values<'a>;

    /// Returns the damage that ends the file behind the last group.
    fn damage(&self) -> Option<&Damage> {
        None
    }
}
