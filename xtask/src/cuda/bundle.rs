//! The folder of LLVM that a build with CUDA links: its version, its place, and whether a program can be linked with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::Duration;

use anyhow::{Context, Result};

use super::process::{output_within, run};

/// Crate whose build script looks for the folder, and downloads it where it is missing.
pub(super) const CRATE: &str = "tracel-llvm-bundler";
/// File that marks a complete folder.
const MARK: &str = ".tracel-llvm-installed";
/// Calls one function of LLVM, and those that make code for NVIDIA's GPUs.
const PROBE: &str = "\
void *LLVMContextCreate(void);
void LLVMContextDispose(void *);
void LLVMInitializeNVPTXTargetInfo(void);
void LLVMInitializeNVPTXTarget(void);
void LLVMInitializeNVPTXTargetMC(void);
void LLVMInitializeNVPTXAsmPrinter(void);
int main(void) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  LLVMContextDispose(LLVMContextCreate());
  return 0;
}
";

/// State of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The folder is complete: a build takes it as it is.
    Complete,
    /// The folder exists, and its mark is missing: a build would download it again.
    Partial,
    /// There is no folder.
    Missing,
}

/// The folder of LLVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bundle {
    /// Version of the crate, such as `23.1.0-4`: LLVM's, and a number.
    pub(super) version: String,
    pub(super) folder: PathBuf,
    pub(super) state: State,
}

impl Bundle {
    /// Finds the folder by the version in the text of `Cargo.lock` and the user's data folder.
    ///
    /// # Errors
    /// If the lock file does not name the crate.
    pub(super) fn find(lock: &str, data_home: &Path) -> Result<Self> {
        let version = locked_version(lock, CRATE).with_context(|| format!("Cargo.lock does not name {CRATE}"))?;
        let folder = data_home.join(format!("tracel/tracel-llvm-{version}"));
        let state = match (folder.join(MARK).exists(), folder.exists()) {
            (true, _) => State::Complete,
            (false, true) => State::Partial,
            (false, false) => State::Missing,
        };
        Ok(Self { version, folder, state })
    }

    /// Returns the version of LLVM without the bundle's number, such as `23.1.0`.
    pub(super) fn llvm(&self) -> &str {
        self.version.split('-').next().unwrap_or_default()
    }

    /// Returns the address of the list of checksums, which the download reads first.
    pub(super) fn address(&self, arch: &str) -> String {
        let platform = if arch == "aarch64" { "linux-AArch64" } else { "linux-x64" };
        let releases = "https://github.com/tracel-ai/tracel-llvm/releases/download";
        format!("{releases}/v{}/{platform}.checksums.json", self.version)
    }

    /// Links a small program with LLVM, which shows in seconds what would end a build after minutes.
    ///
    /// # Errors
    /// If the program does not link; the error names what the linker misses.
    pub(super) fn link(&self) -> Result<()> {
        let config = self.folder.join("bin/llvm-config");
        let ask = |question: &str| {
            let mut command = Command::new(&config);
            let text = output_within(command.args(["--link-static", question]), Duration::from_secs(20));
            text.with_context(|| format!("`{} {question}` fails", config.display()))
        };
        let (folder, libraries, system) = (ask("--libdir")?, ask("--libs")?, ask("--system-libs")?);
        let scratch = Scratch::new()?;
        let (source, program) = (scratch.0.join("probe.c"), scratch.0.join("probe"));
        fs::write(&source, PROBE).with_context(|| format!("cannot write {}", source.display()))?;
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler.arg(&source).arg("-o").arg(&program).arg(format!("-L{}", folder.trim()));
        compiler.arg("-Wl,--start-group").args(libraries.split_whitespace()).arg("-Wl,--end-group");
        compiler.args(system.split_whitespace()).arg("-lstdc++");
        run("linking a small program with LLVM", &mut compiler, || None).map(|_| ())
    }
}

/// Returns the version of a crate in the text of `Cargo.lock`.
pub(super) fn locked_version(lock: &str, name: &str) -> Option<String> {
    let lock: toml::Table = lock.parse().ok()?;
    let packages = lock.get("package")?.as_array()?;
    let package = packages.iter().find(|package| package.get("name").and_then(toml::Value::as_str) == Some(name))?;
    Some(package.get("version")?.as_str()?.to_owned())
}

/// Folder for temporary files, removed when dropped.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    /// # Errors
    /// If the folder cannot be created.
    pub(super) fn new() -> Result<Self> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("plimsoll-cuda-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "\
version = 4

[[package]]
name = \"anyhow\"
version = \"1.0.104\"

[[package]]
name = \"tracel-llvm-bundler\"
version = \"23.1.0-4\"
dependencies = [\"anyhow\"]
";

    #[test]
    fn the_lock_file_decides_the_folder() {
        let scratch = Scratch::new().unwrap();
        let state = || Bundle::find(LOCK, &scratch.0).unwrap();
        let bundle = state();
        assert_eq!(bundle.folder, scratch.0.join("tracel/tracel-llvm-23.1.0-4"));
        assert_eq!((bundle.llvm(), bundle.state), ("23.1.0", State::Missing));
        assert!(bundle.address("x86_64").ends_with("/v23.1.0-4/linux-x64.checksums.json"));
        assert!(bundle.address("aarch64").ends_with("/linux-AArch64.checksums.json"));
        fs::create_dir_all(&bundle.folder).unwrap();
        assert_eq!(state().state, State::Partial);
        fs::write(bundle.folder.join(MARK), "").unwrap();
        assert_eq!(state().state, State::Complete);
    }

    #[test]
    fn a_lock_file_without_the_crate_is_an_error() {
        for lock in ["", "version = 4", "[[package]]\nname = \"anyhow\"\nversion = \"1\"\n", "not toml ="] {
            let error = Bundle::find(lock, Path::new("/data")).unwrap_err().to_string();
            assert!(error.contains("tracel-llvm-bundler"), "{error}");
        }
    }
}
