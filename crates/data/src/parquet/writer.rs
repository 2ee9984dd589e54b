//! Writes Parquet files as `datasets` reads them: rows with audio and texts, not compressed, because audio hardly shrinks.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::MAGIC;
use super::levels::write_runs;
use super::thrift::Writer;

/// Column of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnSpec {
    /// Names from the outermost on, at most two. Columns with an equal first name stand together.
    pub(crate) path: &'static [&'static str],
    pub(crate) kind: CellKind,
}

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellKind {
    Bytes,
    Text,
    F64,
}

/// Values of one column; `None` is null.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// Whether each row has a value.
    levels: Vec<bool>,
    /// Values as they stand in pages, and the row of the first value of each page.
    pages: Vec<Vec<u8>>,
    starts: Vec<usize>,
}

/// Bytes from which on a page is full.
const PAGE_BYTES: usize = 1 << 20;

impl Cells {
    /// Adds bytes or a text.
    pub(crate) fn push_bytes(&mut self, value: Option<&[u8]>) {
        let page = self.open_page(value.is_some());
        if let Some(value) = value {
            page.extend((value.len() as u32).to_le_bytes());
            page.extend_from_slice(value);
        }
    }

    /// Adds a number.
    pub(crate) fn push_number(&mut self, value: f64) {
        self.open_page(true).extend(value.to_le_bytes());
    }

    fn open_page(&mut self, is_there: bool) -> &mut Vec<u8> {
        if self.pages.last().is_none_or(|page| page.len() >= PAGE_BYTES) {
            self.pages.push(Vec::new());
            self.starts.push(self.levels.len());
        }
        self.levels.push(is_there);
        let last = self.pages.len() - 1;
        &mut self.pages[last]
    }
}

/// Writer of a file.
pub(crate) struct ParquetWriter {
    file: BufWriter<File>,
    columns: &'static [ColumnSpec],
    position: u64,
    groups: Vec<Group>,
}

/// Written row group.
struct Group {
    rows: usize,
    start: u64,
    chunks: Vec<Chunk>,
}

/// Written column of a row group.
struct Chunk {
    start: u64,
    length: u64,
}

impl ParquetWriter {
    pub(crate) fn create(path: &Path, columns: &'static [ColumnSpec]) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(MAGIC)?;
        Ok(Self { file, columns, position: MAGIC.len() as u64, groups: Vec::new() })
    }

    /// Returns the number of bytes that are written.
    pub(crate) fn size(&self) -> u64 {
        self.position
    }

    /// Writes rows, which have a value or null in each column.
    pub(crate) fn write_group(&mut self, cells: &[Cells]) -> io::Result<()> {
        let rows = cells.first().map_or(0, |cells| cells.levels.len());
        let (start, mut chunks) = (self.position, Vec::new());
        for (column, cells) in self.columns.iter().zip(cells) {
            let begin = self.position;
            for (number, page) in cells.pages.iter().enumerate() {
                let end = cells.starts.get(number + 1).copied().unwrap_or(rows);
                let level = |&is_there: &bool| if is_there { column.path.len() as u8 } else { 0 };
                let levels: Vec<u8> = cells.levels[cells.starts[number]..end].iter().map(level).collect();
                self.write_page(&levels, page)?;
            }
            chunks.push(Chunk { start: begin, length: self.position - begin });
        }
        self.groups.push(Group { rows, start, chunks });
        Ok(())
    }

    fn write_page(&mut self, levels: &[u8], values: &[u8]) -> io::Result<()> {
        let mut runs = Vec::new();
        write_runs(levels, &mut runs);
        let size = i32::try_from(4 + runs.len() + values.len());
        let size = size.map_err(|_| io::Error::other("an utterance has more than two gigabytes"))?;
        let mut header = Writer::default();
        header.structure(|page| {
            page.i32(1, 0);
            page.i32(2, size);
            page.i32(3, size);
            page.field(5, |data| {
                data.i32(1, levels.len() as i32);
                data.i32(2, PLAIN);
                data.i32(3, RUNS);
                data.i32(4, RUNS);
            });
        });
        self.write(&header.bytes)?;
        self.write(&(runs.len() as u32).to_le_bytes())?;
        self.write(&runs)?;
        self.write(values)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Writes the end of the file, with facts for programs by name. Returns the size of the file.
    pub(crate) fn finish(mut self, facts: &[(&str, String)]) -> io::Result<u64> {
        let footer = self.footer(facts);
        self.write(&footer)?;
        self.write(&(footer.len() as u32).to_le_bytes())?;
        self.write(MAGIC)?;
        let size = self.position;
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok(size)
    }

    fn footer(&self, facts: &[(&str, String)]) -> Vec<u8> {
        let nodes = self.nodes();
        let mut footer = Writer::default();
        footer.structure(|file| {
            file.i32(1, 1);
            file.structures(2, &nodes, |writer, node| node.write(writer));
            file.i64(3, self.groups.iter().map(|group| group.rows as i64).sum());
            file.structures(4, &self.groups, |writer, group| self.write_group_facts(writer, group));
            file.structures(5, facts, |writer, (name, value)| {
                writer.text(1, name);
                writer.text(2, value);
            });
            file.text(6, "plimsoll");
        });
        footer.bytes
    }

    /// Returns the tree of columns: each node is followed by its children.
    fn nodes(&self) -> Vec<Node> {
        let names = self.columns.chunk_by(|a, b| a.path[0] == b.path[0]);
        let mut nodes = vec![Node { name: "schema", column: None, children: names.clone().count() as i32 }];
        for columns in names {
            if columns[0].path.len() > 1 {
                nodes.push(Node { name: columns[0].path[0], column: None, children: columns.len() as i32 });
            }
            nodes.extend(columns.iter().map(|column| {
                let name = column.path[column.path.len() - 1];
                Node { name, column: Some(column.kind), children: 0 }
            }));
        }
        nodes
    }

    fn write_group_facts(&self, writer: &mut Writer, group: &Group) {
        let columns: Vec<_> = self.columns.iter().zip(&group.chunks).collect();
        let length = |chunks: &[Chunk]| chunks.iter().map(|chunk| chunk.length as i64).sum();
        writer.structures(1, &columns, |writer, (column, chunk)| {
            writer.i64(2, chunk.start as i64);
            writer.field(3, |facts| {
                facts.i32(1, column.kind.number());
                facts.numbers(2, &[PLAIN, RUNS]);
                facts.texts(3, column.path);
                facts.i32(4, 0);
                facts.i64(5, group.rows as i64);
                facts.i64(6, chunk.length as i64);
                facts.i64(7, chunk.length as i64);
                facts.i64(9, chunk.start as i64);
            });
        });
        writer.i64(2, length(&group.chunks));
        writer.i64(3, group.rows as i64);
        writer.i64(5, group.start as i64);
        writer.i64(6, length(&group.chunks));
    }
}

/// Encodings: of values, and of levels.
const PLAIN: i32 = 0;
const RUNS: i32 = 3;

/// Node of the tree of columns.
struct Node {
    name: &'static str,
    column: Option<CellKind>,
    children: i32,
}

impl Node {
    fn write(&self, writer: &mut Writer) {
        if let Some(kind) = self.column {
            writer.i32(1, kind.number());
        }
        // Everything but the root may be null.
        if self.column.is_some() || self.name != "schema" {
            writer.i32(3, 1);
        }
        writer.text(4, self.name);
        if self.column.is_none() {
            writer.i32(5, self.children);
        }
        if self.column == Some(CellKind::Text) {
            writer.i32(6, 0);
        }
    }
}

impl CellKind {
    fn number(self) -> i32 {
        if self == Self::F64 { 5 } else { 6 }
    }
}
