//! Programs of other people that judge what this crate writes. A test without its program is skipped.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::env::{current_exe, split_paths, var_os};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Limit of all waits of the tests. A test waits so long only if it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two questions.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// Returns the path of the first of `names` that is a program here; prints that the test is skipped if there is none.
pub(crate) fn find(names: &[&str]) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = split_paths(&var_os("PATH").unwrap_or_default()).collect();
    let paths = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = paths.into_iter().find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: there is no {} on the PATH", names.join(" or "));
    }
    found
}

/// Returns a Python that has `module`; prints that the test is skipped if there is none.
pub(crate) fn find_python_with(module: &str) -> Option<PathBuf> {
    let python = find(&["python3"])?;
    let tried = Command::new(&python).args(["-c", &format!("import {module}")]).output().ok()?;
    if !tried.status.success() {
        eprintln!("skipped: python3 has no module {module}");
        return None;
    }
    Some(python)
}

/// Builds a library of the folder `testing`, and returns its path.
pub(crate) fn build_library(package: &str) -> PathBuf {
    let this = current_exe().unwrap();
    let target = this.ancestors().nth(3).expect("a test lies in the target folder");
    let cargo = var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let mut build = Command::new(cargo);
    build.args(["build", "--offline", "--quiet", "--package", package]);
    build.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(target);
    assert!(build.status().unwrap().success(), "{package} is not built");
    target.join("debug").join(format!("{DLL_PREFIX}{}{DLL_SUFFIX}", package.replace('-', "_")))
}

/// Asks `poll` until it has an answer. Panics with `what` if it has none in time.
pub(crate) fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = poll() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "in vain: {what}");
        sleep(PAUSE);
    }
}
