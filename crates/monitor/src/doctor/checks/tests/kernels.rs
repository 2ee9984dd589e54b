//! Tests of the check of the cache of kernel tuning.

use std::io::{self, ErrorKind};
use std::time::Duration;

use super::*;
use crate::doctor::check::CheckStatus::{Pass, Skip, Warn};
use kernel_cache::CacheState;

fn context() -> CheckContext {
    CheckContext::new(Duration::from_secs(60))
}

fn state(size: Option<Bytes>, versions: &[&str]) -> CacheState {
    CacheState { written: Ok(()), size, versions: versions.iter().map(ToString::to_string).collect() }
}

#[test]
fn a_cache_is_judged_by_place_size_and_version() {
    let cache = KernelCache { file: "/c/default.db".into(), is_disabled: false };
    let check = |state: CacheState, own, status, part: &str| {
        expect(&kernel_cache::judge(&cache, &state, own), status, part);
    };
    let own = Some("0.11.3");
    let mib = Some(Bytes::mib(8));
    check(state(None, &[]), own, Pass, "/c/default.db can be written; the first run compiles and tunes its kernels");
    check(state(mib, &[]), own, Pass, "/c/default.db, 8 MiB");
    check(state(mib, &["0.11.3"]), own, Pass, "8 MiB, from CubeCL 0.11.3");
    check(state(mib, &["0.10.0", "0.11.3"]), own, Pass, "from CubeCL 0.10.0, 0.11.3");
    check(state(mib, &["0.10.0"]), own, Warn, "is from CubeCL 0.10.0, and this program has 0.11.3");
    check(state(mib, &["0.10.0"]), None, Pass, "from CubeCL 0.10.0");
    let refused =
        CacheState { written: Err(io::Error::from(ErrorKind::ReadOnlyFilesystem)), ..state(mib, &["0.11.3"]) };
    check(refused, own, Warn, "cannot write /c/default.db");
    let off = KernelCache { is_disabled: true, ..cache.clone() };
    expect(&kernel_cache::judge(&off, &state(None, &[]), own), Warn, "turned off");
}

#[test]
fn only_gpus_have_kernels_to_tune() {
    let folder = tempfile::tempdir().unwrap();
    let check = |mut facts: MachineFacts, device, status, part: &str| {
        facts.kernel_cache.file = folder.path().join("environment/default.db");
        let options = DoctorOptions { device, ..DoctorOptions::default() };
        expect(&kernel_cache::kernel_cache(&facts, &options, &context()), status, part);
    };
    check(no_gpu(), None, Skip, "there is no GPU");
    check(with_gpus(&one_gpu()), Some(DeviceKind::Cpu), Skip, "the CPU backend");
    check(with_gpus(&one_gpu()), None, Pass, "can be written");
    check(no_gpu(), Some(DeviceKind::Wgpu), Pass, "can be written");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn versions_are_found_wherever_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("default.db");
    assert_eq!(CacheState::read(&path, &context()).size, None);
    // The names lie around the ends of the parts that are read at once.
    for offset in (0..60).map(|back| (1 << 20) - back).chain([0, 7, 3 << 20]) {
        let mut bytes = vec![b'/'; offset];
        bytes.extend(b"autotune/0.11.3/cuda-0/matmul\0autotune/x/y\0autotune/1/\0cuda/0.8.0/ptx\0cuda/x\0autotune/0.9.0-pre.1/\0autotune/0.");
        std::fs::write(&path, &bytes).unwrap();
        std::fs::write(folder.path().join("default.db-wal"), "autotune/0.12.0/a").unwrap();
        let CacheState { written, size, versions } = CacheState::read(&path, &context());
        assert!(written.is_ok() && size == Some(Bytes(bytes.len() as u64 + 17)), "{offset}");
        assert_eq!(versions.iter().collect::<Vec<_>>(), ["0.11.3", "0.12.0", "0.8.0", "0.9.0-pre.1"], "{offset}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}
