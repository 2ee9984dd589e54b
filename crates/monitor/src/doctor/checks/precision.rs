//! Check of the number formats that the device computes fast.

use plimsoll_core::Precision;
use serde_json::json;

use super::findings::{Findings, NO_GPU};
use super::options::{DeviceKind, DoctorOptions};
use crate::doctor::check::Outcome;
use crate::doctor::facts::MachineFacts;
use crate::{Gpu, GpuReport, Version};

/// Key of the configuration that chooses the format.
const KEY: &str = "training.precision";
/// Start of the names of GPUs of Turing's generation without tensor cores.
const WITHOUT_TENSOR_CORES: &str = "GTX 16";

/// Formats that a device computes matrix products in faster than in fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FastFormats {
    pub(super) fp16: bool,
    pub(super) bf16: bool,
    /// fp32 with a mantissa of 10 bits, inside of matrix products.
    pub(super) tf32: bool,
}

impl FastFormats {
    /// Returns the formats of a generation of GPUs: fp16 since Volta, bf16 and TF32 since Ampere (CUDA C++ Programming
    /// Guide, "Compute Capabilities").
    pub(super) fn of_generation(capability: Version) -> Self {
        let is_ampere = capability.major >= 8;
        Self { fp16: capability.major >= 7, bf16: is_ampere, tf32: is_ampere }
    }

    fn has(self, precision: Precision) -> bool {
        match precision {
            Precision::Fp32 => true,
            Precision::Bf16 => self.bf16,
            Precision::Fp16 => self.fp16,
        }
    }

    /// Returns the fastest format that is safe for training.
    pub(super) fn fastest(self) -> Precision {
        match self {
            Self { bf16: true, .. } => Precision::Bf16,
            Self { fp16: true, .. } => Precision::Fp16,
            _ => Precision::Fp32,
        }
    }
}

/// Checks that the configured format has fast hardware, on all GPUs that CUDA offers.
pub(super) fn number_formats(facts: &MachineFacts, options: &DoctorOptions) -> Outcome {
    match options.device {
        Some(DeviceKind::Cpu) => return without_formats("the CPU backend", options.precision),
        Some(DeviceKind::Wgpu) => return without_formats("the wgpu backend", options.precision),
        Some(DeviceKind::Cuda) | None => {}
    }
    if facts.machine.no_gpu.is_some() {
        return Outcome::skip(NO_GPU);
    }
    let is_visible = |report: &&GpuReport| {
        report.cuda_index.is_some() || report.instances.iter().any(|instance| instance.cuda_index.is_some())
    };
    let gpus: Vec<&Gpu> = facts.machine.gpus.iter().filter(is_visible).map(|report| &report.gpu).collect();
    let known: Vec<(&Gpu, Version)> = gpus.iter().filter_map(|gpu| Some((*gpu, gpu.compute_capability?))).collect();
    match (gpus.is_empty(), known.is_empty()) {
        (true, _) => Outcome::skip("CUDA offers no GPU to this process"),
        (_, true) => Outcome::skip("the driver does not report the compute capability"),
        _ => judge(&known, options.precision),
    }
}

fn judge(gpus: &[(&Gpu, Version)], precision: Option<Precision>) -> Outcome {
    let mut findings = Findings::default();
    let (mut texts, mut details) = (Vec::new(), Vec::new());
    for &(gpu, capability) in gpus {
        let formats = FastFormats::of_generation(capability);
        let FastFormats { fp16, bf16, tf32 } = formats;
        let (index, capability) = (gpu.index, capability.to_string());
        details
            .push(json!({ "gpu": index, "compute_capability": capability, "fp16": fp16, "bf16": bf16, "tf32": tf32 }));
        texts.push(format!("GPU {index} (compute capability {capability}): {}", listed(gpu, formats)));
        if let Some(precision) = precision {
            judge_format(&mut findings, gpu, formats, precision);
        }
    }
    findings.detail("gpus", details);
    findings.detail("precision", precision.map(name));
    let chosen = precision.map_or("auto", name);
    findings.or(Outcome::pass(format!("{}; {KEY} is {chosen}", texts.join("; "))))
}

fn judge_format(findings: &mut Findings, gpu: &Gpu, formats: FastFormats, precision: Precision) {
    let (index, fastest, chosen) = (gpu.index, formats.fastest(), name(precision));
    let fix = format!("set {KEY} to `auto` or `{}`", name(fastest));
    if !formats.has(precision) {
        findings.warn(format!("{KEY} is {chosen}, and GPU {index} has no fast hardware for it"), fix);
    } else if precision == Precision::Fp32 && fastest != Precision::Fp32 {
        let text = format!(
            "{KEY} is fp32, and GPU {index} computes matrix products several times as fast in {}",
            name(fastest)
        );
        findings.warn(text, fix);
    }
}

fn listed(gpu: &Gpu, formats: FastFormats) -> String {
    match formats {
        FastFormats { bf16: true, .. } => "bf16, fp16 and TF32 are fast".into(),
        FastFormats { fp16: true, .. } if gpu.name.contains(WITHOUT_TENSOR_CORES) => {
            "fp16 is faster than fp32, without tensor cores".into()
        }
        FastFormats { fp16: true, .. } => "fp16 is fast, bf16 and TF32 are not".into(),
        _ => "only fp32 is fast".into(),
    }
}

/// Judges a backend that computes in fp32.
fn without_formats(backend: &str, precision: Option<Precision>) -> Outcome {
    match precision {
        None | Some(Precision::Fp32) => Outcome::pass(format!("{backend} computes in fp32")),
        Some(precision) => {
            let text = format!("{KEY} is {}, and {backend} is fast in fp32 only", name(precision));
            Outcome::warn(text).with_fix(format!("set {KEY} to `auto` or `fp32`"))
        }
    }
    .with_detail("precision", precision.map(name))
}

fn name(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "fp32",
        Precision::Bf16 => "bf16",
        Precision::Fp16 => "fp16",
    }
}
