//! Tests of the check of number formats.

use plimsoll_core::Precision::{self, Bf16, Fp16, Fp32};
use proptest::prelude::*;

use super::*;
use crate::doctor::check::CheckStatus::{Pass, Skip, Warn};
use precision::FastFormats;

fn options(device: Option<DeviceKind>, precision: Option<Precision>) -> DoctorOptions {
    DoctorOptions { device, precision, ..DoctorOptions::default() }
}

/// Makes a machine with GPUs of these names and compute capabilities.
fn generations(gpus: &[(&str, u32, u32)]) -> MachineFacts {
    let gpus = gpus.iter().fold(FakeGpus::default(), |all, (name, major, minor)| {
        let mut all = all.with_gpu(name, gpu_memory(16, 15));
        let capability = Version { major: *major, minor: *minor };
        all.inventory.gpus.last_mut().unwrap().compute_capability = (*major > 0).then_some(capability);
        all
    });
    with_gpus(&gpus)
}

#[test]
fn each_generation_has_its_formats() {
    let check = |name: &str, (major, minor), precision, status, part: &str| {
        let facts = generations(&[(name, major, minor)]);
        let outcome = precision::number_formats(&facts, &options(None, precision));
        expect(&outcome, status, part);
        assert_eq!(outcome.details["gpus"][0]["bf16"], major >= 8);
    };
    check("NVIDIA T4", (7, 5), None, Pass, "7.5): fp16 is fast, bf16 and TF32 are not; training.precision is auto");
    check("NVIDIA T4", (7, 5), Some(Fp16), Pass, "training.precision is fp16");
    check("NVIDIA T4", (7, 5), Some(Bf16), Warn, "training.precision is bf16, and GPU 0 has no fast hardware");
    check("NVIDIA T4", (7, 5), Some(Fp32), Warn, "several times as fast in fp16");
    check("NVIDIA GeForce GTX 1660", (7, 5), None, Pass, "without tensor cores");
    check("Tesla V100", (7, 0), Some(Bf16), Warn, "no fast hardware");
    check("NVIDIA A100", (8, 0), None, Pass, "bf16, fp16 and TF32 are fast");
    check("NVIDIA L4", (8, 9), Some(Fp32), Warn, "several times as fast in bf16");
    check("NVIDIA H200", (9, 0), Some(Bf16), Pass, "9.0)");
    check("NVIDIA B200", (10, 0), Some(Fp16), Pass, "training.precision is fp16");
    check("GeForce GTX 1080", (6, 1), Some(Fp32), Pass, "only fp32 is fast");
    check("GeForce GTX 1080", (6, 1), Some(Fp16), Warn, "no fast hardware");
}

#[test]
fn the_device_decides_which_formats_count() {
    let t4 = generations(&[("NVIDIA T4", 7, 5)]);
    let check = |facts: &MachineFacts, device, precision, status, part: &str| {
        expect(&precision::number_formats(facts, &options(device, precision)), status, part);
    };
    for (device, name) in [(DeviceKind::Cpu, "the CPU backend"), (DeviceKind::Wgpu, "the wgpu backend")] {
        for precision in [None, Some(Fp32)] {
            check(&t4, Some(device), precision, Pass, &format!("{name} computes in fp32"));
            check(&no_gpu(), Some(device), precision, Pass, "fp32");
        }
        check(&t4, Some(device), Some(Bf16), Warn, &format!("{name} is fast in fp32 only"));
    }
    check(&no_gpu(), None, Some(Bf16), Skip, "there is no GPU");
    check(&no_gpu(), Some(DeviceKind::Cuda), None, Skip, "there is no GPU");
    check(&generations(&[("NVIDIA T4", 0, 0)]), None, None, Skip, "does not report");
    // Each GPU that CUDA offers counts, and no other.
    let mut both = generations(&[("NVIDIA T4", 7, 5), ("NVIDIA L4", 8, 9)]);
    check(&both, None, Some(Bf16), Warn, "GPU 0 has no fast hardware");
    check(&both, None, Some(Fp16), Pass, "GPU 0 (compute capability 7.5)");
    select(&mut both.machine, Some("1"), Some("PCI_BUS_ID"));
    check(&both, None, Some(Bf16), Pass, "GPU 1 (compute capability 8.9)");
    select(&mut both.machine, Some(""), None);
    check(&both, None, Some(Bf16), Skip, "CUDA offers no GPU");
}

proptest! {
    #[test]
    fn the_fastest_format_never_warns(major in 1_u32..20, minor in 0_u32..10) {
        let formats = FastFormats::of_generation(Version { major, minor });
        prop_assert!(formats.bf16 == formats.tf32 && (formats.fp16 || !formats.bf16), "{formats:?}");
        let facts = generations(&[("a GPU", major, minor)]);
        for precision in [None, Some(formats.fastest())] {
            let outcome = precision::number_formats(&facts, &options(Some(DeviceKind::Cuda), precision));
            prop_assert_eq!(outcome.status, Pass, "{:?}", outcome);
        }
    }
}
