//! Checks of the NVIDIA driver.

use super::findings::Findings;
use crate::doctor::check::Outcome;
use crate::doctor::facts::MachineFacts;
use crate::{NoGpu, Version};

/// Oldest CUDA version that the GPU backend runs with.
const CUDA_MIN: Version = Version { major: 12, minor: 0 };
/// Oldest drivers for CUDA 12 on Linux and Windows (CUDA Toolkit Release Notes, table "CUDA Toolkit and Minimum Required
/// Driver Version for CUDA Minor Version Compatibility").
const DRIVER_MIN: &str = "525.60.13 on Linux, 528.33 on Windows";
/// Device files without which CUDA does not start.
const NODES_NEEDED: [&str; 2] = ["nvidiactl", "nvidia-uvm"];

/// Checks that the driver is there, answers, and is new enough.
pub(super) fn driver(facts: &MachineFacts) -> Outcome {
    if let Some(why) = &facts.machine.no_gpu {
        return without_gpu(facts, why);
    }
    let mut findings = Findings::default();
    let driver = facts.machine.driver.as_deref().unwrap_or("of unknown version");
    let cuda = facts.machine.cuda;
    findings.detail("driver", facts.machine.driver.clone());
    findings.detail("cuda", cuda.map(|version| version.to_string()));
    if let Some(cuda) = cuda.filter(|cuda| *cuda < CUDA_MIN) {
        let fix = format!("install driver {DRIVER_MIN}, or a newer one");
        findings.fail(format!("driver {driver} supports CUDA {cuda} at most, and CUDA {CUDA_MIN} is needed"), fix);
    }
    for lost in &facts.machine.lost {
        findings.fail(lost.to_string(), "restart the machine; see `dmesg | grep -i nvrm` for the cause");
    }
    let supports = cuda.map_or(String::new(), |cuda| format!(", CUDA {cuda} at most"));
    let count = match facts.machine.gpus.len() {
        1 => "1 GPU".to_owned(),
        n => format!("{n} GPUs"),
    };
    findings.or(Outcome::pass(format!("driver {driver}{supports}, {count}")))
}

/// Judges a machine on which the driver lists no GPU. It is normal if the machine has none.
fn without_gpu(facts: &MachineFacts, why: &NoGpu) -> Outcome {
    let has_gpu = facts.gpus_on_bus.is_some_and(|count| count > 0) || has_node(facts, "nvidiactl");
    let fix = match why {
        NoGpu::Updated => return Outcome::fail(why.to_string()).with_fix("restart the machine"),
        NoGpu::Refused { .. } => "see `dmesg | grep -i nvrm` for the cause, and restart the machine",
        NoGpu::Library { .. } if facts.machine.process_env.wsl => {
            return Outcome::skip(why.to_string()).with_fix("install the NVIDIA driver in Windows, not in WSL");
        }
        _ if !has_gpu => return Outcome::skip(format!("{why}, which is normal without an NVIDIA GPU")),
        NoGpu::Library { .. } if facts.machine.process_env.container => {
            "start the container with `--gpus all` and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        }
        NoGpu::Library { .. } => "install the NVIDIA driver",
        _ => "load the driver with `modprobe nvidia`, and see `dmesg | grep -i nvrm` for the cause",
    };
    Outcome::fail(format!("the machine has an NVIDIA GPU, and {why}")).with_fix(fix)
}

/// Checks that the device files of the driver exist and can be opened.
pub(super) fn permission(facts: &MachineFacts) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Outcome::skip("only Linux has device files");
    }
    if facts.nodes.is_empty() && facts.machine.no_gpu.is_some() {
        return Outcome::skip("there are no device files of an NVIDIA driver");
    }
    let mut findings = Findings::default();
    let names: Vec<String> = facts.nodes.iter().map(|node| node.path.display().to_string()).collect();
    findings.detail("nodes", names.clone());
    for node in &facts.nodes {
        if let Some(refusal) = &node.refusal {
            let fix = "add the user to the group that owns the file, often `video` or `render`, or ask the administrator \
                       for access to the GPU";
            findings.fail(format!("cannot open {}: {refusal}", node.path.display()), fix);
        }
    }
    let needed = if has_node(facts, "dxg") { &[][..] } else { &NODES_NEEDED };
    for name in needed.iter().filter(|name| !has_node(facts, name)) {
        let fix = "run `nvidia-modprobe -u -c=0`; in a container, pass the device file in, or use the NVIDIA runtime";
        findings.warn(format!("/dev/{name} does not exist, and CUDA needs it"), fix);
    }
    findings.or(Outcome::pass(format!("{} device files can be opened", names.len())))
}

fn has_node(facts: &MachineFacts, name: &str) -> bool {
    facts.nodes.iter().any(|node| node.path.file_name().is_some_and(|file| file == name))
}
