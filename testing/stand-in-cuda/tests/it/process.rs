//! Runs each test in a process of its own: the library has one machine in a process, and takes its scenario from the
//! environment.

use std::any::type_name_of_val;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::env::{current_exe, var_os};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;

use crate::cuda::Cuda;

/// Variable with the path of the library, in a process that runs a test.
const LIBRARY_VARIABLE: &str = "STAND_IN_CUDA_LIBRARY";

/// Path of the library, which is built once.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let this = current_exe().unwrap();
    let target = this.ancestors().nth(3).expect("a test lies in the target folder");
    let cargo = var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let mut build = Command::new(cargo);
    build.args(["build", "--offline", "--quiet", "--package", "stand-in-cuda"]);
    build.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(target);
    assert!(build.status().unwrap().success(), "the library is not built");
    target.join("debug").join(format!("{DLL_PREFIX}stand_in_cuda{DLL_SUFFIX}"))
});

/// What a process left behind.
#[derive(Default)]
pub(crate) struct Remains {
    pub(crate) stderr: String,
    /// Books at the end; null if there are none.
    pub(crate) books: Value,
    pub(crate) trace: String,
}

/// Scenario with one GPU of 1 GiB, and further lines about it.
pub(crate) fn one_gpu(lines: &str) -> String {
    format!("gpu Stand-in\nmemory 1GiB\ncapability 8.6\n{lines}\n")
}

/// Runs a test on the machine of a scenario in a new process, which finds the test by the name of its function.
/// Returns what is left of that process, and nothing in the process itself.
pub(crate) fn on<F: FnOnce(&Cuda)>(scenario: &str, test: F) -> Option<Remains> {
    if let Some(library) = var_os(LIBRARY_VARIABLE) {
        test(&Cuda::open(Path::new(&library)));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let head = format!("books {}\ntrace {}\n", path("books").display(), path("trace").display());
    std::fs::write(path("scenario"), format!("{head}{scenario}")).unwrap();
    let name = type_name_of_val(&test).split("::").skip(1).take_while(|part| !part.starts_with('{'));
    let mut child = Command::new(current_exe().unwrap());
    child.args(["--exact", &name.collect::<Vec<_>>().join("::"), "--nocapture", "--test-threads=1"]);
    child.env(LIBRARY_VARIABLE, &*LIBRARY).env("STAND_IN_CUDA", path("scenario"));
    let Output { status, stdout, stderr } = child.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr).into_owned());
    assert!(status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap_or_default();
    let books = serde_json::from_str(&read("books")).unwrap_or_default();
    Some(Remains { stderr, books, trace: read("trace") })
}

impl Remains {
    /// Returns a number of the first GPU.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.books["gpus"][0][name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.books))
    }
}
