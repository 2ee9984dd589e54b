//! Check of the file in which CubeCL keeps compiled kernels and the results of tuning them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use plimsoll_core::Bytes;

use super::findings::{Findings, NO_GPU};
use super::options::{DeviceKind, DoctorOptions};
use super::temp_file::TempFile;
use crate::doctor::check::{CheckContext, Outcome};
use crate::doctor::facts::{KernelCache, MachineFacts, nearest_existing};

/// Starts of the names of the tables of compiled kernels and of results of tuning. The version of CubeCL follows, and a slash.
const TABLES: [&[u8]; 2] = [b"cuda/", b"autotune/"];
/// Length of the longest start.
const LONGEST: usize = TABLES[1].len();
/// Largest number of characters of a version.
const VERSION_MAX: usize = 32;
/// Bytes of one read.
const CHUNK: usize = 1 << 20;
/// Ending of the file with the write-ahead log of the database.
const LOG: &str = "-wal";

/// State of the file.
#[derive(Debug)]
pub(super) struct CacheState {
    /// Whether the file, or its folder if there is no file, can be written.
    pub(super) written: io::Result<()>,
    /// Size with the log of the database; `None` if there is no file yet.
    pub(super) size: Option<Bytes>,
    /// Versions of CubeCL whose results the file holds.
    pub(super) versions: BTreeSet<String>,
}

/// Checks that compiled kernels are kept, and who wrote them.
pub(super) fn kernel_cache(facts: &MachineFacts, options: &DoctorOptions, context: &CheckContext) -> Outcome {
    match options.device {
        Some(DeviceKind::Cpu) => return Outcome::skip("the CPU backend compiles no kernels"),
        Some(_) => {}
        None if facts.machine.no_gpu.is_some() => return Outcome::skip(NO_GPU),
        None => {}
    }
    let state = CacheState::read(&facts.kernel_cache.file, context);
    judge(&facts.kernel_cache, &state, options.cubecl_version.as_deref())
}

impl CacheState {
    /// Reads the state of the file at `path`. Looking for versions ends when half of the time is over.
    pub(super) fn read(path: &Path, context: &CheckContext) -> Self {
        let cache = KernelCache { file: path.into(), is_disabled: false };
        let (log, size) = (cache.part(LOG), cache.size());
        let mut versions = BTreeSet::new();
        for path in [path, &log] {
            // A file that cannot be read names no version.
            let _ = File::open(path).and_then(|file| find_versions(file, &mut versions, context));
        }
        let folder = path.parent().unwrap_or(path);
        let written = match File::options().write(true).open(path) {
            Ok(_) => TempFile::create(folder).map(drop),
            Err(error) if error.kind() == ErrorKind::NotFound => TempFile::create(&nearest_existing(folder)).map(drop),
            Err(error) => Err(error),
        };
        Self { written, size, versions }
    }
}

pub(super) fn judge(cache: &KernelCache, state: &CacheState, own: Option<&str>) -> Outcome {
    let CacheState { written, size, versions } = state;
    let shown = cache.file.display();
    let mut findings = Findings::default();
    findings.detail("file", shown.to_string());
    findings.detail("size", size.map(|size| size.0));
    findings.detail("versions", versions.iter().cloned().collect::<Vec<_>>());
    if cache.is_disabled {
        let fix = "remove `disable_cache` from cubecl.toml, and the variable CUBECL_AUTOTUNE_CACHE";
        findings.warn("the cache of kernel tuning is turned off, so each start tunes again", fix);
    } else if let Err(error) = written {
        let fix = "make the folder writable, or choose another in cubecl.toml: `[environment]` with `path = { directory = \
                   \"/a/folder\" }`";
        findings.warn(format!("cannot write {shown}: {error}, so each start compiles its kernels again"), fix);
    }
    let of_others = !versions.is_empty() && own.is_some_and(|own| !versions.contains(own));
    let list = versions.iter().cloned().collect::<Vec<_>>().join(", ");
    if of_others {
        let text = format!("{shown} is from CubeCL {list}, and this program has {}", own.unwrap_or_default());
        findings.warn(
            text,
            "no action is needed: the first run tunes and compiles its kernels again; remove the file to free its space",
        );
    }
    findings.or(Outcome::pass(match size {
        None => format!("{shown} can be written; the first run compiles and tunes its kernels"),
        Some(size) if list.is_empty() => format!("{shown}, {size}"),
        Some(size) => format!("{shown}, {size}, from CubeCL {list}"),
    }))
}

/// Finds the versions in the names of the tables. The file is a database that keeps names as they are.
fn find_versions(mut file: impl Read, versions: &mut BTreeSet<String>, context: &CheckContext) -> io::Result<()> {
    let half = context.remaining() / 2;
    let overlap = LONGEST + VERSION_MAX + 1;
    let mut buffer = Vec::with_capacity(CHUNK + overlap);
    loop {
        let kept = buffer.len().min(overlap);
        buffer.drain(..buffer.len() - kept);
        let read = file.by_ref().take(CHUNK as u64).read_to_end(&mut buffer)?;
        for table in TABLES {
            let starts = buffer.windows(table.len()).enumerate().filter(|(_, window)| *window == table);
            versions.extend(starts.filter_map(|(at, _)| version(&buffer[at + table.len()..])));
        }
        if read == 0 || context.remaining() < half {
            return Ok(());
        }
    }
}

/// Reads a version such as `0.11.3` before a slash.
fn version(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().take(VERSION_MAX + 1).position(|byte| *byte == b'/')?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let is_version = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.');
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || ['.', '-', '+'].contains(&c));
    (is_version && is_plain).then(|| text.into())
}
