//! Checks of the libraries that the CUDA backend loads at run time.

use std::path::Path;

use super::findings::{Findings, NO_GPU};
use super::options::{DeviceKind, DoctorOptions};
use crate::doctor::check::Outcome;
use crate::doctor::facts::{FoundLibrary, LIBDEVICE, MachineFacts};

/// Checks the library of the driver, which also compiles kernels for the GPU. CubeCL writes them with an LLVM of its own, so
/// no CUDA toolkit is needed but one file, which [`libdevice`] looks for.
pub(super) fn libraries(facts: &MachineFacts, cuda_backend: bool) -> Outcome {
    if !cuda_backend {
        return Outcome::skip("the program has no CUDA backend");
    }
    if facts.machine.no_gpu.is_some() {
        return Outcome::skip(NO_GPU);
    }
    let mut findings = Findings::default();
    let home = facts.cuda_home.as_ref().filter(|home| home.exists);
    findings.detail("cuda_home", home.map(|home| home.path.display().to_string()));
    if !cfg!(target_os = "linux") {
        return findings.or(Outcome::skip("only Linux's search for libraries is known"));
    }
    judge_library(&mut findings, facts, "libcuda", "install the NVIDIA driver");
    let path = library(facts, "libcuda").map(|library| library.path.display().to_string()).unwrap_or_default();
    findings.or(Outcome::pass(format!("the driver's library is {path}; no CUDA toolkit is needed")))
}

fn judge_library(findings: &mut Findings, facts: &MachineFacts, name: &'static str, fix: &str) {
    let found = library(facts, name);
    findings.detail(name, found.map(|library| library.path.display().to_string()));
    match found {
        None => findings.fail(format!("{name} is not found"), fix),
        Some(FoundLibrary { path, refusal: Some(why), .. }) => {
            findings.fail(format!("cannot load {}: {why}", path.display()), fix);
        }
        Some(_) => {}
    }
}

fn library<'a>(facts: &'a MachineFacts, name: &str) -> Option<&'a FoundLibrary> {
    facts.libraries.iter().find(|library| library.name == name)
}

/// Checks the library of mathematical functions for GPUs. A kernel that needs it is compiled in the middle of a run.
pub(super) fn libdevice(facts: &MachineFacts, cuda_backend: bool) -> Outcome {
    if !cuda_backend {
        return Outcome::skip("the program has no CUDA backend");
    }
    if facts.machine.no_gpu.is_some() {
        return Outcome::skip(NO_GPU);
    }
    let first = facts.libdevice.first();
    let path = first.map(|path| path.display().to_string());
    let outcome = match (facts.variable("CUDA_PATH"), first) {
        (None, Some(path)) => Outcome::pass(path.display().to_string()),
        // CubeCL looks nowhere else if the variable is set.
        (Some(named), _) if facts.libdevice.contains(&Path::new(named).join(LIBDEVICE)) => {
            Outcome::pass(format!("{named}/{LIBDEVICE}"))
        }
        (Some(named), Some(path)) => {
            let folder = path.ancestors().nth(3).unwrap_or(path).display();
            Outcome::fail(format!("CUDA_PATH is `{named}`, which has no {LIBDEVICE}, and hides that of {folder}"))
                .with_fix(format!("set CUDA_PATH={folder}"))
        }
        (_, None) => Outcome::fail("libdevice.10.bc is not found, and kernels with mathematical functions need it")
            .with_fix("`cargo xtask cuda setup` gets it; or install the CUDA toolkit, and set CUDA_PATH to its folder"),
    };
    outcome.with_detail("path", path)
}

/// Checks the library with which several GPUs exchange gradients.
pub(super) fn nccl(facts: &MachineFacts, options: &DoctorOptions) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Outcome::skip("NCCL runs on Linux only");
    }
    if matches!(options.device, Some(DeviceKind::Cpu | DeviceKind::Wgpu)) {
        return Outcome::skip("only NVIDIA GPUs need it");
    }
    let replicas = options.replicas.unwrap_or(1);
    if facts.n_visible() < 2 && (replicas < 2 || facts.machine.no_gpu.is_some()) {
        return Outcome::skip("only several GPUs need it");
    }
    let fix = "install NCCL (package `libnccl-dev`), or add its folder to LD_LIBRARY_PATH";
    match library(facts, "libnccl") {
        None if replicas > 1 => {
            Outcome::fail(format!("libnccl.so is not found, and `device.replicas` is {replicas}")).with_fix(fix)
        }
        None => Outcome::warn("libnccl.so is not found, and several GPUs need it").with_fix(fix),
        Some(FoundLibrary { path, refusal: Some(why), .. }) => {
            Outcome::fail(format!("cannot load {}: {why}", path.display())).with_fix(fix)
        }
        // The backend looks for the name without a version.
        Some(FoundLibrary { path, .. }) if path.file_name().is_some_and(|name| name != "libnccl.so") => {
            let missing = format!("{} is there, and the backend looks for libnccl.so", path.display());
            let link = "install the package `libnccl-dev`, or make a link of that name to the library";
            if replicas > 1 { Outcome::fail(missing).with_fix(link) } else { Outcome::warn(missing).with_fix(link) }
        }
        Some(FoundLibrary { path, version, .. }) => {
            let path = path.display().to_string();
            let known = version.as_ref().map_or("of unknown version".into(), |version| format!("version {version}"));
            Outcome::pass(format!("{path}, {known}")).with_detail("path", path).with_detail("version", version.clone())
        }
    }
}
