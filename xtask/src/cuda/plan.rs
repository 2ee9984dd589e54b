//! What `cargo xtask cuda setup` will do, decided from facts.

use std::path::PathBuf;

use super::bundle::State;
use super::facts::Facts;
use super::libdevice::Place;

/// Package of PyPI that holds `libdevice.10.bc`. It is NVIDIA's, and under NVIDIA's license.
pub(super) const WHEEL: &str = "nvidia-cuda-nvcc-cu12";

/// Way to LLVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LlvmWay {
    /// The download where its address answers, else the packages.
    Auto,
    /// The download of the crate that links LLVM.
    Download,
    /// The packages of Debian's unstable distribution.
    Debian,
}

/// Way to `libdevice.10.bc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LibdeviceWay {
    /// A file that the search finds, else [`WHEEL`].
    Auto,
    /// [`WHEEL`].
    Pip,
    /// A file, or a folder of a toolkit that holds it.
    Path(PathBuf),
}

/// What this machine can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Means {
    /// Whether the address of the download answers.
    pub(super) download: bool,
    /// Whether the tools of Debian's packages are installed.
    pub(super) apt: bool,
    /// Whether this user may install packages.
    pub(super) root: bool,
    /// Packages that a program needs to link with LLVM, and that are not installed.
    pub(super) packages: Vec<&'static str>,
    /// Whether `python3 -m pip` starts.
    pub(super) pip: bool,
}

/// A step of the setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Install packages; needs root.
    Packages(Vec<&'static str>),
    /// Download LLVM.
    LlvmDownload,
    /// Unpack LLVM from Debian's packages.
    LlvmDebian,
    /// Fetch [`WHEEL`] and unpack `libdevice.10.bc`.
    LibdevicePip,
    /// Copy `libdevice.10.bc`.
    LibdeviceCopy(PathBuf),
}

/// What the setup will do, what is there already, and what the user has to do first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) done: Vec<String>,
    pub(super) blocked: Vec<Blocked>,
}

/// Something that the setup cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) what: String,
    pub(super) fix: String,
}

impl Step {
    /// Returns what the step does, for the user.
    pub(super) fn about(&self, facts: &Facts) -> String {
        let folder = facts.bundle.folder.display();
        let llvm = facts.bundle.llvm();
        let data = facts.libdevice.data_folder.clone().unwrap_or_default();
        let data = data.display();
        match self {
            Self::Packages(packages) => format!("install {} with apt-get", packages.join(" and ")),
            Self::LlvmDownload => format!("download LLVM {llvm} into {folder}, as a build would"),
            Self::LlvmDebian => {
                format!("unpack LLVM {llvm} from Debian's package llvm-{}-dev into {folder}", major(llvm))
            }
            Self::LibdevicePip => {
                format!("fetch libdevice.10.bc from the package {WHEEL} (NVIDIA's license) into {data}")
            }
            Self::LibdeviceCopy(path) => format!("copy libdevice.10.bc from {} into {data}", path.display()),
        }
    }
}

/// Returns the first number of a version.
pub(super) fn major(version: &str) -> &str {
    version.split('.').next().unwrap_or_default()
}

/// Decides what to do.
pub(super) fn plan(facts: &Facts, llvm: LlvmWay, libdevice: &LibdeviceWay, means: &Means) -> Plan {
    let mut plan = Plan::default();
    if facts.system.os != "linux" {
        plan.block(format!("the setup knows Linux, and this is {}", facts.system.os), "on Windows, use WSL2");
        return plan;
    }
    let missing: Vec<&str> =
        facts.compilers.iter().filter(|tool| tool.version.is_none()).map(|tool| tool.name.as_str()).collect();
    if missing.is_empty() {
        plan.add_llvm(facts, llvm, means);
    } else {
        plan.block(format!("`{}` does not start", missing.join("` and `")), "`sudo apt-get install build-essential`");
    }
    plan.add_libdevice(facts, libdevice, means);
    plan
}

impl Plan {
    fn block(&mut self, what: impl Into<String>, fix: impl Into<String>) {
        self.blocked.push(Blocked { what: what.into(), fix: fix.into() });
    }

    fn add_llvm(&mut self, facts: &Facts, way: LlvmWay, means: &Means) {
        let bundle = &facts.bundle;
        if bundle.state == State::Complete {
            self.done.push(format!("LLVM {} is in {}", bundle.llvm(), bundle.folder.display()));
            if matches!(facts.link, Some(Err(_))) {
                self.add_packages(means);
            }
            return;
        }
        match (way, means.download, means.apt) {
            (LlvmWay::Download, ..) | (LlvmWay::Auto, true, _) => self.steps.push(Step::LlvmDownload),
            (LlvmWay::Debian, _, true) | (LlvmWay::Auto, false, true) => {
                // An archive of LLVM without these does not link: to unpack it first would only hide that.
                if self.add_packages(means) {
                    self.steps.push(Step::LlvmDebian);
                }
            }
            (LlvmWay::Debian, _, false) => {
                self.block("`apt-get`, `dpkg` or Debian's keyring is missing here", "use `--llvm download`");
            }
            (LlvmWay::Auto, false, false) => {
                let what = format!("{} does not answer, and there is no apt-get", bundle.address(&facts.system.arch));
                let fix = format!("copy {} from a machine that has it", bundle.folder.display());
                self.block(what, fix);
            }
        }
    }

    /// Adds the missing packages as a step, or as something for the user. Returns whether the steps after it can run.
    fn add_packages(&mut self, means: &Means) -> bool {
        if means.packages.is_empty() {
            return true;
        }
        let names = means.packages.join(" ");
        if means.root && means.apt {
            self.steps.push(Step::Packages(means.packages.clone()));
            return true;
        }
        let what = format!("LLVM links with {names}, which are not installed, and only root can install them");
        self.block(what, format!("`sudo apt-get install {names}`, then this command again"));
        false
    }

    fn add_libdevice(&mut self, facts: &Facts, way: &LibdeviceWay, means: &Means) {
        let libdevice = &facts.libdevice;
        let is_whole = libdevice.is_bitcode && libdevice.is_as_noted;
        match (way, libdevice.found.as_ref()) {
            (LibdeviceWay::Path(path), _) => self.steps.push(Step::LibdeviceCopy(path.clone())),
            (LibdeviceWay::Auto, Some(found)) if is_whole => {
                self.done.push(format!("libdevice.10.bc is in {}", found.folder.display()));
            }
            (LibdeviceWay::Pip, Some(found)) if is_whole && found.place == Place::Data => {
                self.done.push(format!("libdevice.10.bc is in {}", found.folder.display()));
            }
            // A new file in the data folder would not be found: the broken one is found first.
            (_, Some(found)) if !is_whole && found.place != Place::Data => {
                let what = format!("libdevice.10.bc in {} is broken", found.folder.display());
                self.block(what, "repair or remove that toolkit, or unset CUDA_PATH");
            }
            _ if means.pip => self.steps.push(Step::LibdevicePip),
            _ => {
                let fix = "`sudo apt-get install python3-pip`, or `--libdevice PATH` with a CUDA toolkit or the file";
                self.block("libdevice.10.bc is fetched with `python3 -m pip`, which does not start", fix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings_tests::machine;
    use super::super::libdevice::Found;
    use super::*;

    const ALL: Means = Means { download: true, apt: true, root: true, packages: Vec::new(), pip: true };

    /// Returns a machine without LLVM and without libdevice.
    fn bare() -> Facts {
        let mut facts = machine(1);
        facts.bundle.state = State::Missing;
        facts.link = None;
        (facts.libdevice.found, facts.libdevice.source) = (None, None);
        facts
    }

    fn steps(facts: &Facts, llvm: LlvmWay, libdevice: &LibdeviceWay, means: &Means) -> Vec<Step> {
        plan(facts, llvm, libdevice, means).steps
    }

    #[test]
    fn a_machine_with_everything_needs_nothing() {
        for llvm in [LlvmWay::Auto, LlvmWay::Download, LlvmWay::Debian] {
            for libdevice in [LibdeviceWay::Auto, LibdeviceWay::Pip] {
                let nothing = Means { download: false, apt: false, root: false, pip: false, packages: vec!["a"] };
                for means in [&ALL, &nothing] {
                    let plan = plan(&machine(1), llvm, &libdevice, means);
                    assert_eq!((plan.steps.len(), plan.done.len(), plan.blocked.len()), (0, 2, 0), "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn the_download_is_first_and_packages_are_second() {
        let debian = vec![Step::LlvmDebian, Step::LibdevicePip];
        let download = vec![Step::LlvmDownload, Step::LibdevicePip];
        let offline = Means { download: false, ..ALL };
        for (way, means, expected) in [
            (LlvmWay::Auto, &ALL, &download),
            (LlvmWay::Auto, &offline, &debian),
            (LlvmWay::Debian, &ALL, &debian),
            (LlvmWay::Download, &offline, &download),
        ] {
            assert_eq!(&steps(&bare(), way, &LibdeviceWay::Auto, means), expected, "{way:?}");
        }
    }

    #[test]
    fn every_machine_gets_steps_or_reasons() {
        let ways = [LibdeviceWay::Auto, LibdeviceWay::Pip, LibdeviceWay::Path("/a.bc".into())];
        for bits in 0_u32..1 << 7 {
            let bit = |idx: u32| bits & (1 << idx) != 0;
            let packages = if bit(4) { vec!["zlib1g-dev"] } else { Vec::new() };
            let means = Means { download: bit(0), apt: bit(1), root: bit(2), pip: bit(3), packages };
            let mut facts = if bit(5) { bare() } else { machine(1) };
            if bit(6) {
                facts.compilers[0].version = None;
            }
            for llvm in [LlvmWay::Auto, LlvmWay::Download, LlvmWay::Debian] {
                for libdevice in &ways {
                    let plan = plan(&facts, llvm, libdevice, &means);
                    let has_llvm = plan.steps.iter().any(|step| matches!(step, Step::LlvmDownload | Step::LlvmDebian));
                    let debian = plan.steps.iter().position(|step| *step == Step::LlvmDebian);
                    let packages = plan.steps.iter().position(|step| matches!(step, Step::Packages(_)));
                    assert!(packages.is_none() || means.root, "only root installs packages: {plan:?}");
                    assert!(packages.is_none() || packages < debian, "packages come first: {plan:?}");
                    assert!(debian.is_none() || means.apt && (means.packages.is_empty() || packages.is_some()));
                    assert!(!plan.steps.contains(&Step::LibdevicePip) || means.pip);
                    // LLVM is there, will be there, or there is a reason why not.
                    assert!(has_llvm || !plan.blocked.is_empty() || facts.bundle.state == State::Complete, "{plan:?}");
                    assert!(plan.blocked.iter().all(|blocked| !blocked.fix.is_empty()));
                    for step in &plan.steps {
                        assert!(!step.about(&facts).is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn packages_are_for_root_or_for_the_user() {
        let means = Means { download: false, packages: vec!["libzstd-dev", "zlib1g-dev"], ..ALL };
        let expected = [Step::Packages(vec!["libzstd-dev", "zlib1g-dev"]), Step::LlvmDebian, Step::LibdevicePip];
        assert_eq!(steps(&bare(), LlvmWay::Auto, &LibdeviceWay::Auto, &means), expected);
        let user = plan(&bare(), LlvmWay::Auto, &LibdeviceWay::Auto, &Means { root: false, ..means.clone() });
        assert_eq!(user.steps, [Step::LibdevicePip]);
        assert!(user.blocked[0].fix.contains("sudo apt-get install libzstd-dev zlib1g-dev"), "{user:?}");
        let mut unlinked = machine(1);
        unlinked.link = Some(Err("cannot find -lz".into()));
        let repaired = plan(&unlinked, LlvmWay::Auto, &LibdeviceWay::Auto, &means);
        assert_eq!(repaired.steps, [Step::Packages(vec!["libzstd-dev", "zlib1g-dev"])]);
    }

    #[test]
    fn a_broken_libdevice_is_fetched_again_where_it_is_ours() {
        let mut facts = machine(1);
        facts.libdevice.is_as_noted = false;
        assert_eq!(steps(&facts, LlvmWay::Auto, &LibdeviceWay::Auto, &ALL), [Step::LibdevicePip]);
        facts.libdevice.found = Some(Found { folder: "/usr/local/cuda".into(), place: Place::Toolkit });
        let plan = plan(&facts, LlvmWay::Auto, &LibdeviceWay::Auto, &ALL);
        assert!(plan.steps.is_empty() && plan.blocked[0].what.contains("/usr/local/cuda"), "{plan:?}");
    }

    #[test]
    fn other_systems_are_refused() {
        for os in ["windows", "macos"] {
            let mut facts = bare();
            facts.system.os = os.into();
            let plan = plan(&facts, LlvmWay::Auto, &LibdeviceWay::Auto, &ALL);
            assert!(plan.steps.is_empty() && plan.blocked[0].fix.contains("WSL2"), "{plan:?}");
        }
    }
}
