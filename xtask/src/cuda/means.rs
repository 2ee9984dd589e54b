//! What this machine can do: which tools start, which address answers, which packages are missing.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::bundle::{Scratch, State};
use super::facts::Facts;
use super::plan::{LlvmWay, Means};
use super::process::{output_within, succeeds_within};

/// Keys with which Debian signs its lists of packages.
pub(super) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Libraries that LLVM of Debian links, and the packages that hold what the linker needs of them.
const LIBRARIES: [(&str, &str); 2] = [("-lzstd", "libzstd-dev"), ("-lz", "zlib1g-dev")];
const LIMIT: Duration = Duration::from_secs(20);

impl Means {
    /// Finds out what this machine can do. What a complete folder of LLVM makes needless is not tried.
    pub(super) fn here(facts: &Facts, llvm: LlvmWay) -> Self {
        let needs_llvm = facts.bundle.state != State::Complete;
        let address = facts.bundle.address(&facts.system.arch);
        Self {
            download: needs_llvm && llvm == LlvmWay::Auto && answers(&address),
            apt: starts("apt-get") && starts("dpkg") && Path::new(KEYRING).exists(),
            root: output_within(Command::new("id").arg("-u"), LIMIT).is_some_and(|id| id.trim() == "0"),
            packages: if needs_llvm || matches!(facts.link, Some(Err(_))) { missing_packages() } else { Vec::new() },
            pip: succeeds_within(Command::new("python3").args(["-m", "pip", "--version"]), LIMIT),
        }
    }
}

fn starts(program: &str) -> bool {
    succeeds_within(Command::new(program).arg("--version"), LIMIT)
}

/// Returns whether an address answers. Without a program that can ask, the download itself finds out.
fn answers(address: &str) -> bool {
    if starts("curl") {
        return succeeds_within(Command::new("curl").args(["-fsIL", "--max-time", "15", address]), LIMIT);
    }
    !starts("wget")
        || succeeds_within(Command::new("wget").args(["-q", "--spider", "-T", "15", "-t", "1", address]), LIMIT)
}

/// Lists the packages of [`LIBRARIES`] with which a program does not link.
fn missing_packages() -> Vec<&'static str> {
    let Ok(scratch) = Scratch::new() else { return Vec::new() };
    let (source, program) = (scratch.0.join("probe.c"), scratch.0.join("probe"));
    if fs::write(&source, "int main(void) { return 0; }\n").is_err() {
        return Vec::new();
    }
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let links = |flag: &str| {
        // Without this, an optimizing linker may leave out a library that it cannot find a use for.
        let command = &mut Command::new(&compiler);
        succeeds_within(command.arg(&source).arg("-o").arg(&program).args(["-Wl,--no-as-needed", flag]), LIMIT)
    };
    LIBRARIES.iter().filter(|(flag, _)| !links(flag)).map(|(_, package)| *package).collect()
}
