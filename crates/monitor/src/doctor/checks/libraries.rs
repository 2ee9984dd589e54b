//! Checks of the libraries that the CUDA backend loads at run time.

use super::findings::{Findings, NO_GPU};
use crate::doctor::check::Outcome;
use crate::doctor::facts::{CudaHome, FoundLibrary, MachineFacts};

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

/// Checks the library with which several GPUs exchange gradients.
pub(super) fn nccl(facts: &MachineFacts) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Outcome::skip("NCCL runs on Linux only");
    }
    if facts.n_visible() < 2 {
        return Outcome::skip("only several GPUs need it");
    }
    let fix = "install NCCL (package `libnccl2`), or add its folder to LD_LIBRARY_PATH";
    match library(facts, "libnccl") {
        None => Outcome::warn("libnccl.so.2 is not found, and several GPUs need it").with_fix(fix),
        Some(FoundLibrary { path, refusal: Some(why), .. }) => {
            Outcome::fail(format!("cannot load {}: {why}", path.display())).with_fix(fix)
        }
        Some(FoundLibrary { path, .. }) => {
            let path = path.display().to_string();
            Outcome::pass(path.clone()).with_detail("path", path)
        }
    }
}
