//! Tests of the checks of disks.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::doctor::check::CheckContext;
use crate::doctor::check::CheckStatus::{Fail, Pass, Skip, Warn};
use crate::doctor::facts::DiskSpace;

fn disk(free: Bytes) -> DiskSpace {
    DiskSpace { total: Bytes::gib(500), free, file_system: "ext4".into(), read_only: false }
}

#[test]
fn free_space_is_judged_by_the_checkpoint() {
    let check = |free, checkpoint, status, part: &str| {
        expect(&disk::judge_space(&disk(free), checkpoint), status, part);
    };
    check(Bytes::gib(400), None, Pass, "400 GiB of 500 GiB free on ext4");
    check(Bytes::gib(2), None, Warn, "2 GiB");
    check(Bytes::mib(2), None, Fail, "2 MiB");
    check(Bytes::gib(2), Some(Bytes::mib(500)), Pass, "a checkpoint takes 500 MiB");
    check(Bytes::gib(2), Some(Bytes::gib(1)), Warn, "a checkpoint takes 1 GiB");
    check(Bytes::gib(2), Some(Bytes::gib(3)), Fail, "a checkpoint takes 3 GiB");
    let read_only = DiskSpace { read_only: true, ..disk(Bytes::gib(400)) };
    expect(&disk::judge_space(&read_only, None), Fail, "read-only");
    expect(&disk::space(None, None), Skip, "no folder");
}

#[test]
fn a_slow_disk_is_a_warning() {
    let check = |megabytes_per_second: u64, checkpoint, status, part: &str| {
        let bytes = Bytes(64_000_000);
        let write = Duration::from_micros(64_000_000 / megabytes_per_second);
        let speed = disk::DiskSpeed { bytes, write, read: Duration::from_millis(64) };
        expect(&disk::judge_speed(&speed, checkpoint), status, part);
    };
    check(500, None, Pass, "writes 500 MB/s, reads 1000 MB/s");
    check(500, Some(Bytes(250_000_000)), Pass, "about 0.5 s");
    check(100, Some(Bytes(5_000_000_000)), Pass, "about 50 s");
    check(100, Some(Bytes(60_000_000_000)), Warn, "about 10 min");
    check(20, None, Warn, "writes 20 MB/s");
    let context = CheckContext::new(Duration::from_secs(1));
    expect(&disk::speed(None, None, &context), Skip, "no folder");
}

#[test]
fn a_disk_is_measured_and_left_clean() {
    let folder = tempfile::tempdir().unwrap();
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    let speed = disk::measure(folder.path(), Bytes::mib(3), &CheckContext::new(Duration::from_secs(60))).unwrap();
    assert_eq!((speed.bytes, entries()), (Bytes::mib(3), 0));
    // Without any time left, one piece is written, so that there is a speed.
    let speed = disk::measure(folder.path(), Bytes::mib(3), &CheckContext::new(Duration::ZERO)).unwrap();
    assert!(speed.bytes >= Bytes::mib(1), "{speed:?}");
    assert_eq!(entries(), 0);
    let context = CheckContext::new(Duration::from_secs(60));
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(disk::measure(&file, Bytes::mib(1), &context).is_err());
}

#[test]
fn a_panic_removes_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let caught = std::panic::catch_unwind(move || {
        let _temp = temp_file::TempFile::create(&path).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
        panic!("on purpose");
    });
    assert!(caught.is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

proptest! {
    #[test]
    fn more_free_space_is_never_worse(
        free in 0..1_u64 << 40, more in 0..1_u64 << 40,
        size in proptest::option::of(1..1_u64 << 38),
    ) {
        let status = |free| disk::judge_space(&disk(Bytes(free)), size.map(Bytes)).status;
        prop_assert!(status(free + more) <= status(free));
    }
}
