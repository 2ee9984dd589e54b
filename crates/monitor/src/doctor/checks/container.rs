//! Checks of a container and of Linux under Windows.

use plimsoll_core::Bytes;

use super::findings::Findings;
use crate::doctor::check::Outcome;
use crate::doctor::facts::MachineFacts;

/// Parts of the driver that the program needs in a container: `utility` is the library that lists GPUs.
const CAPABILITIES: [&str; 2] = ["compute", "utility"];
/// Least shared memory for several GPUs. Docker gives 64 MiB; NVIDIA asks for 1 GiB in the documentation of NCCL
/// (section "Sharing Data").
const SHARED_MEMORY_MIN: Bytes = Bytes::gib(1);

/// Checks the settings with which a container was started.
pub(super) fn container(facts: &MachineFacts) -> Outcome {
    if !facts.machine.process_env.container {
        return Outcome::skip("this process is in no container");
    }
    let mut findings = Findings::default();
    let visible = facts.variable("NVIDIA_VISIBLE_DEVICES");
    let capabilities = facts.variable("NVIDIA_DRIVER_CAPABILITIES");
    findings.detail("visible_devices", visible);
    findings.detail("driver_capabilities", capabilities);
    findings.detail("shared_memory", facts.shared_memory.map(|bytes| bytes.0));
    // An image may set `void` while the engine passes GPUs in another way, so working GPUs decide.
    let has_gpus = !facts.machine.gpus.is_empty();
    if let Some(value @ ("void" | "none" | "")) = visible.filter(|_| !has_gpus) {
        let text = format!("NVIDIA_VISIBLE_DEVICES is `{value}`, which keeps all GPUs out of the container");
        findings.warn(text, "start the container with `--gpus all` or NVIDIA_VISIBLE_DEVICES=all");
    }
    if let Some(list) = capabilities {
        let given: Vec<&str> = list.split(',').map(str::trim).collect();
        let missing: Vec<&str> = CAPABILITIES.into_iter().filter(|need| !given.contains(need)).collect();
        if !given.contains(&"all") && !missing.is_empty() {
            let text = format!("NVIDIA_DRIVER_CAPABILITIES is `{list}`, without {}", missing.join(" and "));
            findings.warn(text, "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility");
        }
    }
    if let Some(size) = facts.shared_memory.filter(|size| *size < SHARED_MEMORY_MIN && facts.n_visible() > 1) {
        let text = format!("/dev/shm has {size}, and several GPUs exchange gradients through it");
        findings.warn(text, "start the container with `--shm-size=1g` or `--ipc=host`");
    }
    let gpus = match facts.machine.gpus.len() {
        0 => "without GPUs".to_owned(),
        1 => "with 1 GPU".to_owned(),
        n => format!("with {n} GPUs"),
    };
    let pids = if facts.machine.process_env.own_pids { "; it cannot name the processes of others" } else { "" };
    findings.or(Outcome::pass(format!("a container {gpus}{pids}")))
}

/// Gives hints for Linux under Windows.
pub(super) fn wsl(facts: &MachineFacts) -> Outcome {
    if !facts.machine.process_env.wsl {
        return Outcome::skip("this is not Linux under Windows");
    }
    let mut findings = Findings::default();
    if !facts.has_wsl_library {
        let text = "Windows gives no GPU driver to this distribution";
        findings.warn(text, "install the NVIDIA driver in Windows, then run `wsl --update` and `wsl --shutdown`");
    }
    if is_windows_folder(&facts.current_folder.to_string_lossy()) {
        let text = "the current folder is on a disk of Windows, which is slow from Linux";
        findings.warn(text, "keep data and checkpoints in the home folder of Linux");
    }
    let memory = facts.machine.host.memory;
    findings.or(Outcome::pass(format!("WSL has {memory} of memory; the key `memory` in .wslconfig changes it")))
}

/// Whether `folder` is on a disk of Windows: WSL mounts drive C at `/mnt/c`.
fn is_windows_folder(folder: &str) -> bool {
    let drive = folder.strip_prefix("/mnt/").and_then(|rest| rest.split('/').next());
    drive.is_some_and(|drive| drive.len() == 1 && drive.bytes().all(|byte| byte.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_of_windows_are_known() {
        let check = |folder, expected| assert_eq!(is_windows_folder(folder), expected, "{folder}");
        check("/mnt/c", true);
        check("/mnt/d/runs", true);
        check("/mnt/data/runs", false);
        check("/home/c", false);
    }
}
