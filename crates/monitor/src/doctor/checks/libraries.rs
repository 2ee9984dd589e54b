//! Checks of the libraries that the CUDA backend loads at run time.

use std::path::Path;

use super::findings::{Findings, NO_GPU};
use super::options::{DeviceKind, DoctorOptions};
use crate::doctor::check::Outcome;
use crate::doctor::facts::{CudaHome, FoundLibrary, LIBDEVICE, MachineFacts};

/// Checks the libraries and headers that compile kernels for a GPU.
pub(super) fn libraries(facts: &MachineFacts, cuda_backend: bool) -> Outcome {
    if !cuda_backend {
        return Outcome::skip("the program has no CUDA backend");
    }
    if facts.machine.no_gpu.is_some() {
        return Outcome::skip(NO_GPU);
    }
    let mut findings = Findings::default();
    judge_home(&mut findings, facts.cuda_home.as_ref());
    if !cfg!(target_os = "linux") {
        return findings.or(Outcome::skip("only Linux's search for libraries is known"));
    }
    judge_library(&mut findings, facts, "libcuda", "install the NVIDIA driver");
    let fix = match facts.cuda_home.as_ref().and_then(|home| home.nvrtc_folder.as_ref()) {
        Some(folder) => format!("add `{}` to LD_LIBRARY_PATH", folder.display()),
        None => "install the CUDA toolkit, or its package of NVRTC".into(),
    };
    judge_library(&mut findings, facts, "libnvrtc", &fix);
    let home = facts.cuda_home.as_ref().map(|home| home.path.display().to_string()).unwrap_or_default();
    findings.or(Outcome::pass(format!("the CUDA toolkit is in {home}")))
}

fn judge_home(findings: &mut Findings, home: Option<&CudaHome>) {
    let fix = "install the CUDA toolkit, and set CUDA_PATH to its folder";
    findings.detail("cuda_home", home.map(|home| home.path.display().to_string()));
    findings.detail("libdevice", home.is_some_and(|home| home.has_libdevice));
    match home {
        None => findings.fail("the CUDA toolkit is not found", fix),
        Some(home) if !home.exists => {
            findings.fail(format!("CUDA_PATH is `{}`, and there is no such folder", home.path.display()), fix);
        }
        Some(home) if !home.has_headers => {
            findings.fail(format!("there is no include/cuda_fp16.h in {}", home.path.display()), fix);
        }
        Some(_) => {}
    }
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
    let fix = "install NCCL (package `libnccl2`), or add its folder to LD_LIBRARY_PATH";
    match library(facts, "libnccl") {
        None if replicas > 1 => {
            Outcome::fail(format!("libnccl.so.2 is not found, and `device.replicas` is {replicas}")).with_fix(fix)
        }
        None => Outcome::warn("libnccl.so.2 is not found, and several GPUs need it").with_fix(fix),
        Some(FoundLibrary { path, refusal: Some(why), .. }) => {
            Outcome::fail(format!("cannot load {}: {why}", path.display())).with_fix(fix)
        }
        Some(FoundLibrary { path, version, .. }) => {
            let path = path.display().to_string();
            let known = version.as_ref().map_or("of unknown version".into(), |version| format!("version {version}"));
            Outcome::pass(format!("{path}, {known}")).with_detail("path", path).with_detail("version", version.clone())
        }
    }
}
