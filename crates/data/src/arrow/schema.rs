//! Columns of an Arrow table, and which of the buffers of a batch hold their values.

use super::flatbuffer::Fields;
use crate::columns::Leaf;

/// Deepest nesting of columns that is read.
const MAX_DEPTH: usize = 32;

/// Form of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Whole numbers of a number of bytes.
    Whole { bytes: u8, is_signed: bool },
    /// Real numbers of a number of bytes.
    Real { bytes: u8 },
    /// Texts or bytes, whose places are numbers of a number of bytes.
    Bytes { places: u8 },
    /// Values that are not read.
    Other,
}

/// Where the values of a column lie in each batch.
#[derive(Clone, Debug)]
pub(super) struct ColumnPlace {
    pub(super) form: Form,
    /// Index of its first buffer: the bits that say which values are there.
    pub(super) first: usize,
    /// Such buffers of the structures around the column.
    pub(super) around: Vec<usize>,
}

/// What a file says about its columns.
#[derive(Debug, Default)]
pub(super) struct Schema {
    pub(super) leaves: Vec<Leaf>,
    pub(super) places: Vec<ColumnPlace>,
    /// Number of buffers of a batch.
    pub(super) buffers: usize,
    /// Facts for programs by name, such as `huggingface`.
    pub(super) facts: Vec<(String, String)>,
}

/// Reason why a schema is not read.
pub(super) enum SchemaProblem {
    /// It makes no sense.
    Broken,
    /// It has something that is not read.
    Unread(String),
}

impl Schema {
    /// Reads the table `Schema` of a message.
    pub(super) fn read(fields: Fields<'_>) -> Result<Self, SchemaProblem> {
        if fields.i16(0) != 0 {
            return Err(SchemaProblem::Unread("its numbers begin with their highest byte".into()));
        }
        let mut schema = Self::default();
        for field in fields.tables(1).ok_or(SchemaProblem::Broken)? {
            schema.add(field, &Around::default())?;
        }
        for fact in fields.tables(2).ok_or(SchemaProblem::Broken)? {
            if let (Some(key), Some(value)) = (fact.text(0), fact.text(1)) {
                schema.facts.push((key.into(), value.into()));
            }
        }
        Ok(schema)
    }

    /// Adds a column, and those inside of it, in the order in which their buffers follow each other.
    fn add(&mut self, field: Fields<'_>, around: &Around) -> Result<(), SchemaProblem> {
        let name = field.text(0).unwrap_or_default();
        let mut path = around.path.clone();
        path.push(name.into());
        if path.len() > MAX_DEPTH {
            return Err(SchemaProblem::Broken);
        }
        let first = self.buffers;
        let is_dictionary = field.table(4).is_some();
        let Layout { form, buffers, inside } = if is_dictionary {
            Layout { form: Form::Other, buffers: 2, inside: Inside::Nothing }
        } else {
            Layout::of(field)
                .ok_or_else(|| SchemaProblem::Unread(format!("its column `{name}` has an unknown type")))?
        };
        self.buffers += buffers;
        if inside == Inside::Nothing {
            let (is_list, index) = (around.is_list, self.leaves.len());
            self.leaves.push(Leaf { path, is_list, index });
            self.places.push(ColumnPlace { form, first, around: around.bits.clone() });
            return Ok(());
        }
        let mut bits = around.bits.clone();
        if inside == Inside::Structure {
            bits.push(first);
        }
        let around = Around { path, bits, is_list: around.is_list || inside == Inside::List };
        for child in field.tables(5).ok_or(SchemaProblem::Broken)? {
            self.add(child, &around)?;
        }
        Ok(())
    }
}

/// Columns around a column.
#[derive(Default)]
struct Around {
    path: Vec<String>,
    /// Buffers of structures that say which of their values are there.
    bits: Vec<usize>,
    is_list: bool,
}

/// What a column has inside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    /// Columns with a value for each row.
    Structure,
    /// Columns with any number of values for each row.
    List,
}

/// Buffers of a column without those inside.
struct Layout {
    form: Form,
    buffers: usize,
    inside: Inside,
}

impl Layout {
    /// Returns the layout of a field by the number of its type; `None` for a type whose buffers are not known.
    fn of(field: Fields<'_>) -> Option<Self> {
        let kind = field.table(3);
        let value = |form, buffers| Self { form, buffers, inside: Inside::Nothing };
        let around = |inside, buffers| Self { form: Form::Other, buffers, inside };
        Some(match field.u8(2) {
            // Null.
            1 => value(Form::Other, 0),
            2 => {
                let (bits, is_signed) = kind.map_or((0, false), |kind| (kind.i32(0), kind.u8(1) != 0));
                value(
                    match bits {
                        8 | 16 | 32 | 64 => Form::Whole { bytes: bits as u8 / 8, is_signed },
                        _ => return None,
                    },
                    2,
                )
            }
            3 => {
                let bytes = *[2, 4, 8].get(usize::try_from(kind?.i16(0)).ok()?)?;
                value(Form::Real { bytes }, 2)
            }
            // Bytes and texts.
            4 | 5 => value(Form::Bytes { places: 4 }, 3),
            19 | 20 => value(Form::Bytes { places: 8 }, 3),
            // Truth values, decimal numbers, dates, times and bytes of one length.
            6..=11 | 15 | 18 => value(Form::Other, 2),
            // Lists and maps.
            12 | 17 | 21 => around(Inside::List, 2),
            16 => around(Inside::List, 1),
            13 => around(Inside::Structure, 1),
            _ => return None,
        })
    }
}
