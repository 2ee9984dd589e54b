//! The end of a Parquet file: its columns, and where their values lie.

use plimsoll_audio::PageCompression;

use super::thrift::Reader;
use crate::columns::Leaf;

/// What a file says about itself.
#[derive(Debug, Default)]
pub(super) struct Footer {
    pub(super) leaves: Vec<Leaf>,
    /// Forms of the values of the columns.
    pub(super) forms: Vec<Form>,
    pub(super) groups: Vec<RowGroup>,
    /// Rows of all groups, as the file says.
    pub(super) rows: u64,
    /// Facts for programs by name, such as `huggingface`.
    pub(super) facts: Vec<(String, String)>,
}

/// Form of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) kind: Kind,
    /// Definition level of a value that is there. A value is null below it.
    pub(super) defined: u8,
}

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    I32,
    I64,
    F32,
    F64,
    Bytes,
    Other,
}

/// Rows that are stored together.
#[derive(Debug)]
pub(super) struct RowGroup {
    pub(super) rows: u64,
    pub(super) chunks: Vec<Chunk>,
}

/// Values of one column in one row group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunk {
    pub(super) codec: Codec,
    pub(super) values: u64,
    pub(super) start: u64,
    pub(super) length: u64,
    /// Whether the values are in another file.
    pub(super) is_elsewhere: bool,
}

/// How pages are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Codec {
    #[default]
    None,
    Packed(PageCompression),
    Unknown(&'static str),
}

impl Codec {
    fn from_number(number: i64) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Packed(PageCompression::Snappy),
            2 => Self::Packed(PageCompression::Gzip),
            6 => Self::Packed(PageCompression::Zstd),
            3 => Self::Unknown("LZO"),
            4 => Self::Unknown("Brotli"),
            5 | 7 => Self::Unknown("LZ4"),
            _ => Self::Unknown("a compression of an unknown number"),
        }
    }
}

/// Node of the tree of columns, as written: a node is followed by its children.
struct Node {
    name: String,
    kind: Option<Kind>,
    /// 0 for a value that is always there, 1 for one that may be null, 2 for a list.
    repetition: i64,
    children: u64,
}

impl Footer {
    /// Reads the footer. `None` if it makes no sense.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (mut nodes, mut facts) = (Vec::new(), Vec::new());
        let (mut rows, mut groups) = (None, None);
        let mut is_signed = false;
        let mut reader = Reader::new(bytes);
        reader.structure(|reader, field| {
            match field.id {
                2 => reader.list(|reader| node(reader).map(|node| nodes.push(node)))?,
                3 => rows = Some(reader.count()?),
                4 => {
                    let groups = groups.insert(Vec::new());
                    reader.list(|reader| group(reader).map(|group| groups.push(group)))?;
                }
                5 => reader.list(|reader| fact(reader).map(|fact| facts.push(fact)))?,
                8 => {
                    is_signed = true;
                    return Some(false);
                }
                _ => return Some(false),
            }
            Some(true)
        })?;
        // Only a signature may follow. Without this check, one damaged byte could hide all rows.
        let is_read = is_signed || reader.position() == bytes.len();
        let mut footer = Self { leaves: Vec::new(), forms: Vec::new(), groups: groups?, rows: rows?, facts };
        let mut nodes = nodes.into_iter();
        let root = nodes.next()?;
        for _ in 0..root.children {
            footer.add_leaves(&mut nodes, &[], (0, false))?;
        }
        let is_whole = footer.groups.iter().all(|group| group.chunks.len() == footer.leaves.len());
        (is_read && is_whole && nodes.next().is_none()).then_some(footer)
    }

    fn add_leaves(
        &mut self,
        nodes: &mut impl Iterator<Item = Node>,
        above: &[String],
        (defined, is_list): (u8, bool),
    ) -> Option<()> {
        let node = nodes.next().filter(|_| above.len() < MAX_DEPTH)?;
        let path = [above, &[node.name]].concat();
        let (defined, is_list) = (defined + u8::from(node.repetition != 0), is_list || node.repetition == 2);
        match node.kind {
            Some(kind) => {
                self.leaves.push(Leaf { path, is_list, index: self.leaves.len() });
                self.forms.push(Form { kind, defined });
            }
            None => {
                for _ in 0..node.children {
                    self.add_leaves(nodes, &path, (defined, is_list))?;
                }
            }
        }
        Some(())
    }
}

/// Largest depth of columns in each other.
const MAX_DEPTH: usize = 32;

fn node(reader: &mut Reader<'_>) -> Option<Node> {
    let mut node = Node { name: String::new(), kind: None, repetition: 0, children: 0 };
    reader.structure(|reader, field| {
        match field.id {
            1 => {
                node.kind = Some(match reader.number()? {
                    1 => Kind::I32,
                    2 => Kind::I64,
                    4 => Kind::F32,
                    5 => Kind::F64,
                    6 => Kind::Bytes,
                    _ => Kind::Other,
                });
            }
            3 => node.repetition = reader.number()?,
            4 => node.name = reader.text()?.to_owned(),
            5 => node.children = reader.count()?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(node)
}

fn group(reader: &mut Reader<'_>) -> Option<RowGroup> {
    let mut group = RowGroup { rows: 0, chunks: Vec::new() };
    reader.structure(|reader, field| {
        match field.id {
            1 => reader.list(|reader| chunk(reader).map(|chunk| group.chunks.push(chunk)))?,
            3 => group.rows = reader.count()?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(group)
}

fn chunk(reader: &mut Reader<'_>) -> Option<Chunk> {
    let mut chunk = Chunk::default();
    reader.structure(|reader, field| {
        match field.id {
            1 => chunk.is_elsewhere = !reader.binary()?.is_empty(),
            3 => chunk_facts(reader, &mut chunk)?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(chunk)
}

fn chunk_facts(reader: &mut Reader<'_>, chunk: &mut Chunk) -> Option<()> {
    let (mut data, mut dictionary) = (0, None);
    reader.structure(|reader, field| {
        match field.id {
            4 => chunk.codec = Codec::from_number(reader.number()?),
            5 => chunk.values = reader.count()?,
            7 => chunk.length = reader.count()?,
            9 => data = reader.count()?,
            // Old writers put 0 where there is no dictionary.
            11 => dictionary = Some(reader.count()?).filter(|&place| place > 0),
            _ => return Some(false),
        }
        Some(true)
    })?;
    chunk.start = dictionary.map_or(data, |dictionary: u64| dictionary.min(data));
    Some(())
}

fn fact(reader: &mut Reader<'_>) -> Option<(String, String)> {
    let mut fact = (String::new(), String::new());
    reader.structure(|reader, field| {
        match field.id {
            1 => fact.0 = String::from_utf8_lossy(reader.binary()?).into_owned(),
            2 => fact.1 = String::from_utf8_lossy(reader.binary()?).into_owned(),
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(fact)
}
