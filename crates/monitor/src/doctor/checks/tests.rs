//! Tests of the checks of the machine, with facts made of plain data.

mod disks;
mod formats;
mod gpus;
mod hosts;
mod kernels;
mod loaders;

use plimsoll_core::Bytes;

use super::*;
use crate::doctor::check::CheckStatus;
use crate::doctor::facts::{CpuFacts, KernelCache, OpenFiles, SwapFacts};
use crate::{FakeGpus, GpuMemory, GpuProcess, Host, Machine, NoGpu, ProcessEnv, Version, WorkKind};

/// Returns a healthy machine without GPU.
fn no_gpu() -> MachineFacts {
    let mut machine = Machine::from_source(Err(NoGpu::Library { reason: "no such file".into() }));
    machine.host = Host { memory: Bytes::gib(64), memory_limit: None, available: Bytes::gib(50), logical_cpus: 16 };
    machine.process_env = ProcessEnv::default();
    let variables = [("LANG", "en_US.UTF-8"), ("TERM", "xterm")];
    MachineFacts {
        machine,
        variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        gpus_on_bus: Some(0),
        nodes: Vec::new(),
        power: Vec::new(),
        shared_memory: Some(Bytes::gib(32)),
        cpus: CpuFacts { installed: 16, affinity: Some(16) },
        swap: SwapFacts::default(),
        open_files: Some(OpenFiles { soft: Some(4096), hard: None }),
        libraries: Vec::new(),
        cuda_home: None,
        libdevice: Vec::new(),
        kernel_cache: KernelCache::default(),
        has_wsl_library: false,
        current_folder: "/home/ann".into(),
        temp_folder: std::env::temp_dir(),
    }
}

/// Returns a machine with these GPUs, all of which CUDA offers.
fn with_gpus(gpus: &FakeGpus) -> MachineFacts {
    let host = no_gpu();
    let mut machine = Machine::from_source(Ok(gpus));
    machine.host = host.machine.host;
    machine.process_env = ProcessEnv::default();
    select(&mut machine, None, None);
    machine.driver = Some("580.82.07".into());
    machine.cuda = Some(Version { major: 13, minor: 0 });
    MachineFacts { machine, gpus_on_bus: Some(gpus.inventory.gpus.len()), ..host }
}

/// Selects GPUs as the environment variables do.
fn select(machine: &mut Machine, list: Option<&str>, order: Option<&str>) {
    machine.environment.visible_devices = list.map(Into::into);
    machine.environment.device_order = order.map(Into::into);
    let gpus: Vec<_> = machine.gpus.iter().map(|report| report.gpu.clone()).collect();
    machine.visible = machine.environment.visible(&gpus);
    for report in &mut machine.gpus {
        report.cuda_index = machine.visible.cuda_index(&report.gpu.uuid);
        for instance in &mut report.instances {
            instance.cuda_index = machine.visible.cuda_index(&instance.uuid);
        }
    }
}

fn gpu_memory(total_gib: u64, free_gib: u64) -> GpuMemory {
    GpuMemory::new(Bytes::gib(total_gib), Bytes(0), Bytes::gib(free_gib))
}

fn one_gpu() -> FakeGpus {
    FakeGpus::default().with_gpu("NVIDIA T4", gpu_memory(16, 15))
}

fn two_gpus() -> FakeGpus {
    one_gpu().with_gpu("NVIDIA H200", gpu_memory(140, 139))
}

fn set(facts: &mut MachineFacts, name: &str, value: &str) {
    facts.variables.insert(name.into(), value.into());
}

/// Checks result and text of an outcome. Only a result that a person should change has a fix.
#[track_caller]
fn expect(outcome: &Outcome, status: CheckStatus, part: &str) {
    assert_eq!(outcome.status, status, "{outcome:?}");
    assert!(outcome.finding.contains(part), "{outcome:?}");
    if matches!(status, CheckStatus::Warn | CheckStatus::Fail) {
        assert!(outcome.fix.is_some(), "{outcome:?}");
    }
    assert!(outcome.status != CheckStatus::Pass || outcome.fix.is_none(), "{outcome:?}");
}

#[test]
fn all_checks_run_on_a_machine_without_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let options = DoctorOptions {
        checkpoint_folder: Some(folder.path().join("run")),
        checkpoint: Some(Bytes::mib(1)),
        cuda_backend: true,
        ..DoctorOptions::default()
    };
    let report = crate::doctor::Doctor::for_machine(&Arc::new(no_gpu()), &options).run(|_| {});
    let skipped = report.checks.iter().filter(|check| check.outcome.status == CheckStatus::Skip);
    // Not every system lists the disk of its temporary folder.
    let skipped: Vec<&str> = skipped.map(|check| &*check.id).filter(|id| *id != "disk-space").collect();
    let expected = [
        "driver",
        "driver-permission",
        "container",
        "wsl",
        "visible-devices",
        "gpu-memory",
        "gpu-clocks",
        "number-formats",
        "nccl",
        "libraries",
        "libdevice",
        "kernel-cache",
    ];
    assert_eq!(skipped, expected);
    assert_eq!(report.checks.len(), 20);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Runs the checks that need what the program knows, on a machine with an older and a newer GPU.
#[test]
#[cfg(target_os = "linux")]
fn the_checks_of_a_program_have_a_page_and_names() {
    use std::time::Duration;

    use crate::doctor::report::{CheckReport, DoctorReport};

    let mut gpus = two_gpus();
    gpus.inventory.gpus[0].compute_capability = Some(Version { major: 7, minor: 5 });
    gpus.inventory.gpus[1].compute_capability = Some(Version { major: 9, minor: 0 });
    let facts = with_gpus(&gpus);
    let precision = Some(plimsoll_core::Precision::Bf16);
    let options = DoctorOptions { precision, replicas: Some(2), cuda_backend: true, ..DoctorOptions::default() };
    let cache = KernelCache { file: "/home/ann/.cache/plimsoll/kernels/default.db".into(), is_disabled: false };
    let versions = ["0.10.0".to_owned()].into();
    let state = kernel_cache::CacheState { written: Ok(()), size: Some(Bytes::mib(6)), versions };
    let outcomes = [
        ("number-formats", precision::number_formats(&facts, &options)),
        ("nccl", libraries::nccl(&facts, &options)),
        ("libdevice", libraries::libdevice(&facts, true)),
        ("kernel-cache", kernel_cache::judge(&cache, &state, Some("0.11.3"))),
        ("loader", LoaderFacts { given: 150.0, needed: 200.0 }.judge()),
    ];
    let second = Duration::from_secs(1);
    let checks = outcomes.map(|(id, outcome)| CheckReport::new(id, "a title", outcome, second)).into();
    let report = DoctorReport::new(1_700_000_000.0, None, checks);
    insta::assert_snapshot!("program_page", report);
    insta::assert_snapshot!("program_json", serde_json::to_string_pretty(&report).unwrap());
}
