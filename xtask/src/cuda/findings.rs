//! What the facts about a machine mean for a build with CUDA and for its runs.

use std::path::Path;

use super::bundle::State;
use super::facts::{Driver, Facts, Libdevice, Nccl, System};
use super::libdevice::{FILE, Place};
use super::versions::CudaVersion;

/// Oldest CUDA version that the backend runs with.
const CUDA_MIN: CudaVersion = CudaVersion { major: 12, minor: 0 };
/// Oldest driver of Linux for CUDA 12 (NVIDIA, CUDA Toolkit Release Notes).
const DRIVER_MIN: &str = "525.60.13";
/// Command that mends what is missing.
const SETUP: &str = "cargo xtask cuda setup";

/// Judgment of one thing that a build or a run needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Short name, the same on every machine.
    pub(super) name: &'static str,
    pub(super) need: Need,
    pub(super) status: Status,
    pub(super) message: String,
    /// What mends it; empty if nothing has to be mended.
    pub(super) fix: String,
}

/// What needs the thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Compiling the program.
    Build,
    /// Running the program on a GPU.
    Run,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    /// As it should be.
    Pass,
    /// It works, or may not be needed, and something should be known about it.
    Warn,
    /// The build or the run fails.
    Fail,
}

impl Need {
    /// Returns the word for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Run => "run",
        }
    }
}

impl Status {
    /// Returns the word for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// Judges a machine: first what a build needs, then what a run needs.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let build = [("system", system(&facts.system)), ("compiler", compiler(facts)), ("llvm", llvm(facts))];
    let run = [
        ("driver", driver(&facts.driver, &facts.system)),
        ("device-files", device_files(&facts.driver, &facts.system)),
        ("libdevice", libdevice(&facts.libdevice)),
        ("nccl", nccl(&facts.nccl, &facts.driver)),
    ];
    let named = |need: Need| move |(name, verdict): (&'static str, Verdict)| verdict.named(name, need);
    build.into_iter().map(named(Need::Build)).chain(run.into_iter().map(named(Need::Run))).collect()
}

/// Returns the worst status of the findings about `need`.
pub(super) fn worst(findings: &[Finding], need: Need) -> Status {
    let about = findings.iter().filter(|finding| finding.need == need);
    about.map(|finding| finding.status).max().unwrap_or(Status::Pass)
}

/// A finding without its name.
struct Verdict(Status, String, String);

impl Verdict {
    fn pass(message: impl Into<String>) -> Self {
        Self(Status::Pass, message.into(), String::new())
    }

    fn warn(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self(Status::Warn, message.into(), fix.into())
    }

    fn fail(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self(Status::Fail, message.into(), fix.into())
    }

    fn named(self, name: &'static str, need: Need) -> Finding {
        let Self(status, message, fix) = self;
        Finding { name, need, status, message, fix }
    }
}

fn system(system: &System) -> Verdict {
    let System { os, arch, is_wsl, is_container } = system;
    match (os.as_str(), arch.as_str()) {
        ("linux", "x86_64") => {}
        ("linux", "aarch64") => {
            return Verdict::warn("Linux on ARM: no build has been tried there", "report what happens");
        }
        ("windows", _) => return Verdict::fail("the setup knows Linux only", "use WSL2 (docs/gpu.md)"),
        _ => {
            let fix = "use the CPU, or `--backend wgpu` for another GPU";
            return Verdict::fail(format!("{os} on {arch}: NVIDIA has no driver with CUDA 12 for it"), fix);
        }
    }
    let place = match (is_wsl, is_container) {
        (true, _) => ", under WSL",
        (false, true) => ", in a container",
        (false, false) => "",
    };
    Verdict::pass(format!("{os} on {arch}{place}"))
}

fn compiler(facts: &Facts) -> Verdict {
    let missing: Vec<&str> =
        facts.compilers.iter().filter(|tool| tool.version.is_none()).map(|tool| tool.name.as_str()).collect();
    if missing.is_empty() {
        let versions: Vec<&str> = facts.compilers.iter().filter_map(|tool| tool.version.as_deref()).collect();
        return Verdict::pass(versions.join("; "));
    }
    let fix = "install a C and a C++ compiler: `sudo apt-get install build-essential`";
    Verdict::fail(format!("`{}` does not start", missing.join("` and `")), fix)
}

fn llvm(facts: &Facts) -> Verdict {
    let bundle = &facts.bundle;
    let folder = bundle.folder.display();
    match (bundle.state, &facts.link) {
        (State::Missing, _) => {
            let message = format!("there is no LLVM {} in {folder}; a build would download it", bundle.llvm());
            Verdict::warn(message, SETUP)
        }
        (State::Partial, _) => {
            Verdict::warn(format!("{folder} is not complete; a build would download it again"), SETUP)
        }
        (State::Complete, Some(Err(error))) => {
            let fix = "install what the linker misses, often `sudo apt-get install libzstd-dev zlib1g-dev`; or remove \
                       the folder and run `cargo xtask cuda setup`";
            Verdict::fail(format!("a program does not link with {folder}: {error}"), fix)
        }
        (State::Complete, Some(Ok(()))) => Verdict::pass(format!("LLVM {} in {folder} links", bundle.llvm())),
        (State::Complete, None) => Verdict::pass(format!("LLVM {} in {folder}", bundle.llvm())),
    }
}

fn driver(driver: &Driver, system: &System) -> Verdict {
    let Some(library) = &driver.library else { return without_driver(driver, system) };
    if library.components().any(|part| part.as_os_str() == "stubs") {
        let message = format!("{} is a stand-in for builds, and not the driver", library.display());
        return Verdict::fail(message, "remove its folder from LD_LIBRARY_PATH");
    }
    if let (Some(module), Some(file)) = (&driver.module_version, &driver.library_version)
        && module != file
        && !system.is_wsl
    {
        let message = format!("the loaded driver is {module}, and its library is {file}");
        return Verdict::fail(message, "restart the machine; in a container, do not install a driver in the image");
    }
    let version = driver.module_version.as_ref().or(driver.library_version.as_ref());
    let version = version.map_or("of unknown version", String::as_str);
    match driver.cuda {
        Some(cuda) if cuda < CUDA_MIN => {
            let message = format!("driver {version} supports CUDA {cuda} at most, and CUDA {CUDA_MIN} is needed");
            Verdict::fail(message, format!("install driver {DRIVER_MIN} or a newer one"))
        }
        _ if driver.ptx_compiler.is_none() => {
            let message = format!("driver {version}, and libnvidia-ptxjitcompiler.so.1 is not found: kernels need it");
            let fix = "install the whole driver (Debian: `libnvidia-ptxjitcompiler1`); in a container, set \
                       NVIDIA_DRIVER_CAPABILITIES=compute,utility";
            Verdict::warn(message, fix)
        }
        Some(cuda) => Verdict::pass(format!("driver {version}, CUDA {cuda} at most, {}", library.display())),
        None => {
            let message = format!("driver {version}: its version of CUDA is unknown, {CUDA_MIN} is needed");
            Verdict::warn(message, "`nvidia-smi` prints it")
        }
    }
}

fn without_driver(driver: &Driver, system: &System) -> Verdict {
    let has_gpu = driver.gpus_on_bus > 0 || !driver.nodes.is_empty();
    let (message, fix) = match (system.is_wsl, system.is_container, has_gpu) {
        (true, ..) => ("libcuda is not found", "install the NVIDIA driver in Windows, not in WSL".to_owned()),
        (_, true, _) => {
            let fix = "start the container with `--gpus all` and NVIDIA_DRIVER_CAPABILITIES=compute,utility";
            ("the container has no libcuda", fix.to_owned())
        }
        (.., true) => ("there is an NVIDIA GPU, and no libcuda", format!("install the driver, {DRIVER_MIN} or newer")),
        (.., false) => ("there is no NVIDIA GPU, and no libcuda", "the CPU trains too: `--backend cpu`".to_owned()),
    };
    Verdict::fail(message, fix)
}

fn device_files(driver: &Driver, system: &System) -> Verdict {
    let names: Vec<&str> = driver.nodes.iter().filter_map(|node| node.path.file_name()?.to_str()).collect();
    if let Some((node, refusal)) = driver.nodes.iter().find_map(|node| Some((node, node.refusal.as_ref()?))) {
        let fix = "add the user to the group that owns the file, often `video` or `render`";
        return Verdict::fail(format!("cannot open {}: {refusal}", node.path.display()), fix);
    }
    // Under WSL one file stands for all GPUs.
    if names.contains(&"dxg") {
        return Verdict::pass("/dev/dxg");
    }
    let n_gpus = n_gpus(driver);
    if n_gpus == 0 {
        let fix = match (system.is_container, driver.gpus_on_bus) {
            (true, _) => "start the container with `--gpus all`",
            (false, 0) => "the CPU trains too: `--backend cpu`",
            (false, _) => "load the driver: `sudo modprobe nvidia`",
        };
        return Verdict::fail("there is no /dev/nvidia0", fix);
    }
    let missing: Vec<&str> = ["nvidiactl", "nvidia-uvm"].into_iter().filter(|name| !names.contains(name)).collect();
    match missing.as_slice() {
        [] => Verdict::pass(format!("{} and {n_gpus} of GPUs can be opened", "nvidiactl, nvidia-uvm")),
        missing => {
            let fix = "`sudo nvidia-modprobe -u -c=0` makes it; a container must get it from the host";
            Verdict::warn(format!("there is no /dev/{}", missing.join(" and no /dev/")), fix)
        }
    }
}

fn n_gpus(driver: &Driver) -> usize {
    let is_gpu = |name: &str| name.strip_prefix("nvidia").is_some_and(|rest| rest.parse::<u32>().is_ok());
    driver.nodes.iter().filter(|node| node.path.file_name().and_then(|name| name.to_str()).is_some_and(is_gpu)).count()
}

fn libdevice(libdevice: &Libdevice) -> Verdict {
    let Some(found) = &libdevice.found else {
        let fix = format!("`{SETUP}` fetches it; the CUDA toolkit has it too");
        return Verdict::fail("libdevice.10.bc is not found: kernels that call exp or log would not compile", fix);
    };
    let path = found.folder.join(FILE);
    let path = path.display();
    if !libdevice.is_bitcode {
        return Verdict::fail(format!("{path} is not LLVM bitcode"), format!("remove it, then `{SETUP}`"));
    }
    if !libdevice.is_as_noted {
        let fix = format!("`{SETUP} --libdevice pip` fetches it again");
        return Verdict::fail(format!("{path} is not the file that was installed: its checksum differs"), fix);
    }
    let source = libdevice.source.as_ref().map_or(String::new(), |source| format!(", from {source}"));
    match libdevice.cuda_path.as_deref().filter(|_| found.place != Place::CudaPath) {
        Some(named) => Verdict::warn(
            format!("CUDA_PATH is {}, which has no {FILE}; {path} is used{source}", shown(named)),
            "unset CUDA_PATH, or set it to a folder that has the file",
        ),
        None => Verdict::pass(format!("{path}{source}")),
    }
}

fn shown(path: &Path) -> String {
    format!("`{}`", path.display())
}

fn nccl(nccl: &Nccl, driver: &Driver) -> Verdict {
    let several = n_gpus(driver) > 1;
    match (&nccl.loadable, &nccl.versioned) {
        (Some(path), _) => Verdict::pass(path.display().to_string()),
        (None, _) if !several => Verdict::pass("not found; only several GPUs need it"),
        (None, Some(path)) => {
            let fix = "install `libnccl-dev`, or make a link named libnccl.so beside it";
            Verdict::warn(format!("{} is there, and the backend looks for libnccl.so", path.display()), fix)
        }
        (None, None) => {
            let fix = "install `libnccl-dev`; without it, train on one GPU";
            Verdict::warn("libnccl.so is not found, and several GPUs need it", fix)
        }
    }
}
