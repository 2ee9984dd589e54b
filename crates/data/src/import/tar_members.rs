//! Members of a tar file with their positions, so that audio is read from the middle of a shard without unpacking it.
//!
//! Only headers and small members are read. Reading is bounded for hostile input: names have a limit, and no number in
//! a header allocates memory. It ends at the first damage, because nothing marks where the next member begins.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::issue::IssueKind;
use plimsoll_core::open_regular_file;

/// Size of a header, and the unit of all sizes.
const BLOCK: u64 = 512;

/// Largest member with a long name or with the attributes of another member.
const MAX_NAME_MEMBER: u64 = 64 << 10;

/// File in a tar file.
#[derive(Debug, PartialEq)]
pub(super) struct Member {
    /// Path of the file in the archive; bytes that are not UTF-8 are replaced.
    pub(super) name: String,
    /// Position of the first byte of the content in the archive.
    pub(super) offset: u64,
    /// Number of bytes of the content.
    pub(super) size: u64,
}

/// Reader of the files in a tar file, in order. After an issue it ends.
pub(super) struct TarMembers {
    reader: BufReader<File>,
    size: u64,
    /// Position of the next header.
    position: u64,
    is_finished: bool,
}

/// What headers before a member say about it.
#[derive(Default)]
struct Attributes {
    name: Option<String>,
    size: Option<u64>,
}

impl TarMembers {
    /// Opens a tar file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular_file(path)?;
        let size = file.metadata()?.len();
        // A header and what follows it are small, and the audio behind it is skipped.
        let reader = BufReader::with_capacity(4096, file);
        Ok(Self { reader, size, position: 0, is_finished: false })
    }

    /// Reads the content of a member, at most `most` bytes of it.
    pub(super) fn content(&mut self, member: &Member, most: u64) -> io::Result<Vec<u8>> {
        self.go_to(member.offset)?;
        let mut bytes = Vec::new();
        self.reader.by_ref().take(member.size.min(most)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn go_to(&mut self, position: u64) -> io::Result<()> {
        let now = self.reader.stream_position()?;
        match i64::try_from(i128::from(position) - i128::from(now)) {
            Ok(by) => self.reader.seek_relative(by),
            Err(_) => self.reader.seek(SeekFrom::Start(position)).map(drop),
        }
    }

    /// Reads up to the next file; `None` at the end.
    fn next_file(&mut self) -> Result<Option<Member>, IssueKind> {
        let mut attributes = Attributes::default();
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            let kind = header[156];
            let size = number(&header[124..136]).ok_or_else(|| self.damage("a header without a size"))?;
            // The size in a header is that of the next data; attributes give that of a file beyond 8 GB.
            let size = if matches!(kind, b'x' | b'g' | b'L' | b'K') { size } else { attributes.size.unwrap_or(size) };
            // Links, devices and folders have no content, whatever their size says.
            let content = if (b'1'..=b'6').contains(&kind) { 0 } else { size };
            let offset = self.position + BLOCK;
            let end = offset.checked_add(content).filter(|&end| end <= self.size);
            let Some(end) = end else {
                let name = attributes.name.unwrap_or_else(|| name(&header));
                return Err(self.damage(&format!("the file ends inside `{}`", shown(&name))));
            };
            let here = Member { name: String::new(), offset, size };
            match kind {
                b'L' | b'x' => self.read_attributes(kind, &here, &mut attributes)?,
                b'S' => return Err(self.damage("a sparse file, which cannot be read")),
                _ => {}
            }
            self.position = end.div_ceil(BLOCK) * BLOCK;
            if matches!(kind, b'0' | 0 | b'7') {
                let name = attributes.name.unwrap_or_else(|| name(&header));
                // Old programs mark a folder by its name alone.
                if !name.ends_with('/') {
                    return Ok(Some(Member { name, ..here }));
                }
                attributes = Attributes::default();
            } else if !matches!(kind, b'L' | b'K' | b'x' | b'g') {
                attributes = Attributes::default();
            }
        }
    }

    /// Reads the header at the current position; `None` at the end mark.
    fn header(&mut self) -> Result<Option<[u8; BLOCK as usize]>, IssueKind> {
        if self.size == 0 {
            return Err(self.damage("the file is empty"));
        }
        if self.position >= self.size {
            return Err(self.damage("the file ends without the end mark of tar, so members may be missing"));
        }
        let mut header = [0; BLOCK as usize];
        let read = self.go_to(self.position).and_then(|()| self.reader.read_exact(&mut header));
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof if self.position == 0 => {
                self.damage("no tar file: it is smaller than a header")
            }
            io::ErrorKind::UnexpectedEof => self.damage("the file ends inside a header"),
            _ => IssueKind::Unreadable(error.to_string()),
        })?;
        if header == [0; BLOCK as usize] {
            return Ok(None);
        }
        if number(&header[148..156]) != Some(checksum(&header)) {
            let is_gzip = self.position == 0 && header.starts_with(&[0x1f, 0x8b]);
            let compressed = "it is compressed, and no folder to unpack it into is known (data.unpack_dir); or unpack it with gunzip";
            return Err(self.damage(if is_gzip { compressed } else { "no header of tar" }));
        }
        Ok(Some(header))
    }

    fn read_attributes(&mut self, kind: u8, member: &Member, known: &mut Attributes) -> Result<(), IssueKind> {
        if member.size > MAX_NAME_MEMBER {
            return Err(self.damage("a name that is too long"));
        }
        let bytes = self.content(member, MAX_NAME_MEMBER).map_err(|error| IssueKind::Unreadable(error.to_string()))?;
        match kind {
            b'L' => known.name = Some(text(&bytes)),
            _ => known.read_pax(&bytes),
        }
        Ok(())
    }

    fn damage(&self, problem: &str) -> IssueKind {
        IssueKind::DamagedShard { at: self.position, lost: 0, problem: problem.into() }
    }
}

impl Iterator for TarMembers {
    type Item = Result<Member, IssueKind>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_finished {
            return None;
        }
        let next = self.next_file().transpose();
        self.is_finished = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Attributes {
    /// Reads attributes of pax, each `LENGTH KEY=VALUE` and a line end.
    fn read_pax(&mut self, mut bytes: &[u8]) {
        while let Some(blank) = bytes.iter().position(|&byte| byte == b' ') {
            let length = str::from_utf8(&bytes[..blank]).ok().and_then(|digits| digits.parse::<usize>().ok());
            let Some(record) = length.filter(|&length| length > blank).and_then(|length| bytes.get(blank + 1..length))
            else {
                return;
            };
            let record = record.strip_suffix(b"\n").unwrap_or(record);
            match record.split_at_checked(5) {
                Some((b"path=", name)) => self.name = Some(text(name)),
                Some((b"size=", size)) => self.size = str::from_utf8(size).ok().and_then(|size| size.parse().ok()),
                _ => {}
            }
            bytes = &bytes[length.unwrap_or(bytes.len())..];
        }
    }
}

/// Returns the number in a field of a header: octal digits, or binary for large numbers, as GNU tar writes them.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let (first, rest) = field.split_first()?;
        let digits = std::iter::once(first & 0x7f).chain(rest.iter().copied());
        return digits.into_iter().try_fold(0u64, |sum, byte| sum.checked_mul(256)?.checked_add(byte.into()));
    }
    let digits = str::from_utf8(field).ok()?.trim_matches(['\0', ' ']);
    u64::from_str_radix(digits, 8).ok()
}

/// Computes the checksum of a header, whose own field counts as blanks.
fn checksum(header: &[u8]) -> u64 {
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    sum(&header[..148]) + 8 * u64::from(b' ') + sum(&header[156..])
}

/// Returns the name in a header.
fn name(header: &[u8]) -> String {
    let (bare, prefix) = (text(&header[..100]), text(&header[345..500]));
    // GNU tar has times in the place of the prefix.
    let has_prefix = &header[257..263] == b"ustar\0" && !prefix.is_empty();
    if has_prefix { format!("{prefix}/{bare}") } else { bare }
}

/// Returns the text up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Returns the end of a long name for a message.
fn shown(name: &str) -> &str {
    name.char_indices().rev().nth(99).map_or(name, |(start, _)| &name[start..])
}
