//! Check of the variables that select GPUs.

use super::findings::{Findings, NO_GPU};
use crate::CudaEnvironment;
use crate::Gpu;
use crate::doctor::check::Outcome;
use crate::doctor::facts::MachineFacts;

/// Checks that the selection names GPUs that exist, and that the order of the GPUs is certain where it matters.
pub(super) fn visible_devices(facts: &MachineFacts) -> Outcome {
    if facts.machine.no_gpu.is_some() {
        return Outcome::skip(NO_GPU);
    }
    let gpus: Vec<Gpu> = facts.machine.gpus.iter().map(|report| report.gpu.clone()).collect();
    let visible = &facts.machine.visible;
    let mut findings = Findings::default();
    findings.detail("visible", visible.uuids.clone());
    findings.detail("cuda_visible_devices", facts.machine.environment.visible_devices.clone());
    findings.detail("order_is_certain", visible.order_is_certain);
    if let Some(list) = facts.machine.environment.visible_devices.as_deref() {
        judge_list(&mut findings, list, &gpus);
    }
    let shown: Vec<&Gpu> = gpus.iter().filter(|gpu| visible.uuids.contains(&gpu.uuid)).collect();
    let differ = gpus.windows(2).any(|pair| pair[0].name != pair[1].name);
    if !visible.order_is_certain && differ {
        let text = "the GPUs differ, and CUDA counts them in another order than `nvidia-smi`";
        findings.warn(text, "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID in CUDA_VISIBLE_DEVICES");
    }
    if shown.iter().any(|gpu| gpu.mig) {
        let text = "MIG divides a GPU, and a process can use a single instance";
        findings.warn(text, "name a MIG instance in CUDA_VISIBLE_DEVICES by its UUID");
    }
    findings.or(Outcome::pass(format!("{} of {} GPUs and instances", visible.uuids.len(), n_devices(&gpus))))
}

/// Number of devices that CUDA could offer: MIG instances stand for a divided GPU.
fn n_devices(gpus: &[Gpu]) -> usize {
    gpus.iter().map(|gpu| if gpu.mig { gpu.instances.len() } else { 1 }).sum()
}

/// Judges a value of `CUDA_VISIBLE_DEVICES`.
fn judge_list(findings: &mut Findings, list: &str, gpus: &[Gpu]) {
    let fix = "correct CUDA_VISIBLE_DEVICES, or remove it; `nvidia-smi -L` lists the GPUs";
    let entries: Vec<&str> = list.split(',').collect();
    let offered = |count: usize| {
        let visible_devices = Some(entries[..count].join(","));
        CudaEnvironment { visible_devices, device_order: None }.visible(gpus).uuids.len()
    };
    if ["", "-1", "NoDevFiles"].contains(&list.trim()) {
        return findings.warn(format!("CUDA_VISIBLE_DEVICES is `{list}`, which hides all GPUs"), fix);
    }
    if list.starts_with("MIG-") && entries.len() > 1 && offered(1) == 1 {
        return findings
            .warn("CUDA offers only the first MIG instance of the list", "name one MIG instance per process");
    }
    let Some(bad) = (1..=entries.len()).find(|&count| offered(count) < count) else { return };
    let entry = entries[bad - 1].trim();
    let text = match entries[..bad - 1].iter().any(|earlier| earlier.trim() == entry) {
        true => format!("CUDA_VISIBLE_DEVICES is `{list}`: `{entry}` occurs twice, which hides all GPUs"),
        false => format!("CUDA_VISIBLE_DEVICES is `{list}`: there is no GPU `{entry}`, and the list ends there"),
    };
    match offered(entries.len()) {
        0 => findings.fail(text, fix),
        _ => findings.warn(text, fix),
    }
}
