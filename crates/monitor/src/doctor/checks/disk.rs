//! Checks of the disk that holds checkpoints.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_core::Bytes;

use super::findings::Findings;
use super::temp_file::TempFile;
use crate::doctor::check::{CheckContext, Outcome};
use crate::doctor::facts::{DiskSpace, nearest_existing};

/// Checkpoints that should fit: the last, the best, and one that is being written.
const CHECKPOINTS: u64 = 3;
/// Least free space when the size of a checkpoint is not known.
const FREE_WARN: Bytes = Bytes::gib(5);
const FREE_FAIL: Bytes = Bytes::mib(100);
/// Bytes of the file that is written and read.
const FILE: Bytes = Bytes::mib(64);
/// Bytes of one write.
const CHUNK: usize = 1 << 20;
/// Speed below which a disk counts as slow: half of a hard disk's.
const SPEED_WARN: f64 = 50e6;
/// Time of a checkpoint above which it delays training.
const CHECKPOINT_SECONDS_WARN: f64 = 60.0;

/// Measured speed of a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskSpeed {
    /// Bytes that were written: fewer than asked if the disk is very slow.
    pub(super) bytes: Bytes,
    /// Time until the bytes were on the disk.
    pub(super) write: Duration,
    /// Time until the bytes were read, mostly from the page cache of the system.
    pub(super) read: Duration,
}

/// Checks the free space for checkpoints.
pub(super) fn space(folder: Option<&Path>, checkpoint: Option<Bytes>) -> Outcome {
    let Some(folder) = folder else { return Outcome::skip("no folder for checkpoints is given") };
    match DiskSpace::read(folder) {
        Some(space) => judge_space(&space, checkpoint),
        None => Outcome::skip(format!("the system does not list the disk of {}", folder.display())),
    }
}

pub(super) fn judge_space(space: &DiskSpace, checkpoint: Option<Bytes>) -> Outcome {
    let mut findings = Findings::default();
    let DiskSpace { total, free, file_system, read_only } = space;
    findings.detail("free", free.0);
    findings.detail("total", total.0);
    findings.detail("file_system", file_system.clone());
    if *read_only {
        findings.fail("the disk is read-only", "choose another folder for the run");
    }
    let enough = checkpoint.map_or(FREE_WARN, |size| Bytes(size.0.saturating_mul(CHECKPOINTS)));
    let needed = checkpoint.unwrap_or(FREE_FAIL);
    let text = match checkpoint {
        Some(size) => format!("{free} of {total} free on {file_system}; a checkpoint takes {size}"),
        None => format!("{free} of {total} free on {file_system}"),
    };
    let fix = format!("free {} on the disk, or choose another folder for the run", enough.saturating_sub(*free));
    if *free < needed {
        findings.fail(text.clone(), fix);
    } else if *free < enough {
        findings.warn(text.clone(), fix);
    }
    findings.or(Outcome::pass(text))
}

/// Checks how fast the disk writes a checkpoint.
pub(super) fn speed(folder: Option<&Path>, checkpoint: Option<Bytes>, context: &CheckContext) -> Outcome {
    let Some(folder) = folder else { return Outcome::skip("no folder for checkpoints is given") };
    let folder = nearest_existing(folder);
    match measure(&folder, FILE, context) {
        Ok(speed) => judge_speed(&speed, checkpoint),
        Err(error) => Outcome::fail(format!("cannot write to {}: {error}", folder.display()))
            .with_fix("choose a folder for the run that this user can write"),
    }
}

pub(super) fn judge_speed(speed: &DiskSpeed, checkpoint: Option<Bytes>) -> Outcome {
    let per_second = |time: Duration| speed.bytes.0 as f64 / time.as_secs_f64().max(1e-6);
    let (write, read) = (per_second(speed.write), per_second(speed.read));
    let mut findings = Findings::default();
    findings.detail("bytes", speed.bytes.0);
    findings.detail("write_bytes_per_second", write.round());
    findings.detail("read_bytes_per_second", read.round());
    let seconds = checkpoint.map(|size| size.0 as f64 / write);
    findings.detail("checkpoint_seconds", seconds);
    let time = seconds.map_or(String::new(), |seconds| format!("; a checkpoint takes about {}", duration(seconds)));
    let text =
        format!("writes {:.0} MB/s, reads {:.0} MB/s with the cache of the system{time}", write / 1e6, read / 1e6);
    let fix = "choose a folder on a local disk, or write checkpoints less often";
    if write < SPEED_WARN || seconds.is_some_and(|seconds| seconds > CHECKPOINT_SECONDS_WARN) {
        findings.warn(text.clone(), fix);
    }
    findings.or(Outcome::pass(text))
}

fn duration(seconds: f64) -> String {
    match seconds {
        ..0.95 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        _ => format!("{:.0} min", seconds / 60.0),
    }
}

/// Writes up to `size` bytes to a file in `folder` and reads them again. Writing stops when half of the time is over, so
/// that a very slow disk has a speed too.
pub(super) fn measure(folder: &Path, size: Bytes, context: &CheckContext) -> io::Result<DiskSpeed> {
    let mut temp = TempFile::create(folder)?;
    let half = context.remaining() / 2;
    let chunk = noise();
    let begin = Instant::now();
    let mut written = 0;
    while written < size.0 {
        temp.file.write_all(&chunk)?;
        written += CHUNK as u64;
        // Each write alone may end in the cache, and the slow part would come as one piece at the end.
        if written.is_multiple_of(8 * CHUNK as u64) {
            temp.file.sync_data()?;
        }
        if context.remaining() < half {
            break;
        }
    }
    temp.file.sync_all()?;
    let write = begin.elapsed();
    let begin = Instant::now();
    temp.file.seek(SeekFrom::Start(0))?;
    let mut buffer = vec![0; CHUNK];
    let mut left = written;
    while left > 0 {
        temp.file.read_exact(&mut buffer)?;
        left -= CHUNK as u64;
    }
    Ok(DiskSpeed { bytes: Bytes(written), write, read: begin.elapsed() })
}

/// Returns bytes that a disk cannot compress (xorshift; Marsaglia 2003).
fn noise() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..CHUNK / 8).flat_map(|_| next()).collect()
}
