//! Tests of the machine report with GPUs made of plain data.

use plimsoll_core::{Bytes, DeviceMemory, ProbeError};

use super::process_env::Evidence;
use super::*;

const HOME: ProcessEnv = ProcessEnv { container: false, wsl: false, own_pids: false, hides_others: false };
const HOST: Host = Host { memory: Bytes::gib(64), memory_limit: None, available: Bytes::gib(50), logical_cpus: 16 };

fn memory(total_gib: u64, free_gib: u64) -> GpuMemory {
    GpuMemory::new(Bytes::gib(total_gib), Bytes::mib(512), Bytes::gib(free_gib))
}

fn process(pid: u32, kind: WorkKind, memory: Option<Bytes>) -> GpuProcess {
    GpuProcess { pid, kind, memory }
}

/// Returns a GPU with two processes, as in "process 75955 has 14.17 GiB in use".
fn shared_gpu() -> FakeGpus {
    let mut gpus = FakeGpus::default()
        .with_gpu("NVIDIA GeForce RTX 4090", memory(24, 8))
        .with_process(process(812, WorkKind::Graphics, Some(Bytes::mib(420))))
        .with_process(process(75955, WorkKind::Both, Some(Bytes::mib(14510))));
    gpus.inventory.driver = Some("580.82.07".into());
    gpus.inventory.cuda = Some(Version { major: 13, minor: 0 });
    gpus.inventory.gpus[0].bandwidth_per_sec = Some(Bytes(1_008_096_000_000));
    gpus
}

fn two_gpus() -> FakeGpus {
    FakeGpus::default().with_gpu("NVIDIA T4", memory(16, 15)).with_gpu("NVIDIA H200", memory(140, 139))
}

fn with_mig() -> FakeGpus {
    let mut gpus = FakeGpus::default().with_gpu("NVIDIA H200", memory(140, 100));
    let gpu = &mut gpus.inventory.gpus[0];
    gpu.mig = true;
    gpu.instances = vec!["MIG-11aa".into(), "MIG-22bb".into()];
    gpus.memory.insert("MIG-11aa".into(), Ok(memory(18, 17)));
    let reason = "the current user does not have permission to perform this operation".into();
    gpus.memory.insert("MIG-22bb".into(), Err(ProbeError { device: "MIG-22bb".into(), reason }));
    gpus.processes.insert(gpus.inventory.gpus[0].uuid.clone(), Err(Unavailable::Driver));
    gpus
}

fn environment(list: Option<&str>, order: Option<&str>) -> CudaEnvironment {
    CudaEnvironment { visible_devices: list.map(Into::into), device_order: order.map(Into::into) }
}

fn ann(pid: u32) -> ProcessOwner {
    match pid {
        812 => ProcessOwner { user: Ok("root".into()), command: Ok("/usr/lib/xorg/Xorg vt2".into()) },
        _ => {
            ProcessOwner { user: Ok("ann".into()), command: Ok(format!("train\u{1b}[2J --config {}", "a/".repeat(40))) }
        }
    }
}

fn must_not_be_called(pid: u32) -> ProcessOwner {
    panic!("the number {pid} means another process here");
}

fn probe(
    process_env: ProcessEnv,
    list: Option<&str>,
    owner_of: fn(u32) -> ProcessOwner,
    source: Result<&FakeGpus, NoGpu>,
) -> Machine {
    let source = source.map(|gpus| gpus as &dyn GpuSource);
    Probe { host: HOST, process_env, environment: environment(list, None), owner_of: &mut { owner_of } }.run(source)
}

#[test]
fn all_facts_are_known_outside_of_containers() {
    let machine = probe(HOME, None, ann, Ok(&shared_gpu()));
    insta::assert_snapshot!("home", machine.to_string());
    insta::assert_snapshot!("home_json", serde_json::to_string_pretty(&machine).unwrap());
    let rest = Bytes::gib(24 - 8).saturating_sub(Bytes::mib(512 + 420 + 14510));
    assert_eq!(machine.gpus[0].unaccounted, Some(Unaccounted { bytes: rest, exact: true }));
}

#[test]
fn a_container_hides_users_and_commands() {
    let env = ProcessEnv { container: true, own_pids: true, ..HOME };
    let machine = probe(env, None, must_not_be_called, Ok(&shared_gpu()));
    insta::assert_snapshot!("container", machine.to_string());
    let processes = machine.gpus[0].processes.as_ref().unwrap();
    assert!(processes.iter().all(|process| process.command == Err(Unavailable::Container)));
}

#[test]
fn unknown_memory_is_not_zero() {
    let env = ProcessEnv { wsl: true, own_pids: true, ..HOME };
    let gpus = FakeGpus::default()
        .with_gpu("NVIDIA GeForce RTX 3060 Laptop GPU", memory(6, 4))
        .with_process(process(7, WorkKind::Compute, None))
        .with_process(process(9, WorkKind::Compute, Some(Bytes(u64::MAX - 1))))
        .with_process(process(8, WorkKind::Compute, Some(Bytes::mib(512))));
    let machine = probe(env, None, must_not_be_called, Ok(&gpus));
    insta::assert_snapshot!("wsl", machine.to_string());
    let unaccounted = Unaccounted { bytes: Bytes::gib(1), exact: false };
    assert_eq!(machine.gpus[0].unaccounted, Some(unaccounted));
    let json = serde_json::to_value(&machine).unwrap();
    let expected = "Windows manages the GPU and does not report it to WSL";
    assert_eq!(json["cards"][0]["holders"][0]["memory"]["unseen"], expected);
}

#[test]
fn claims_above_the_used_memory_are_inexact() {
    let claim = process(5, WorkKind::Compute, Some(Bytes::gib(10)));
    let gpus = FakeGpus::default().with_gpu("NVIDIA T4", memory(16, 15)).with_process(claim);
    let machine = probe(HOME, None, ann, Ok(&gpus));
    assert_eq!(machine.gpus[0].unaccounted, Some(Unaccounted { bytes: Bytes(0), exact: false }));
}

#[test]
fn mig_and_a_lost_gpu_hide_no_facts() {
    let mut gpus = with_mig();
    gpus.inventory.lost.push(ProbeError { device: "GPU 1".into(), reason: "device fell off the bus".into() });
    insta::assert_snapshot!("mig", probe(HOME, Some("MIG-11"), ann, Ok(&gpus)).to_string());
}

#[test]
fn an_uncertain_order_is_reported() {
    insta::assert_snapshot!("two", probe(HOME, Some("1"), ann, Ok(&two_gpus())).to_string());
}

#[test]
fn a_missing_gpu_is_reported_in_one_sentence() {
    let reason = "libnvidia-ml.so.1: cannot open shared object file".into();
    let env = ProcessEnv { container: true, own_pids: true, ..HOME };
    insta::assert_snapshot!("none", probe(env, None, must_not_be_called, Err(NoGpu::Library { reason })).to_string());
    let empty = probe(HOME, None, must_not_be_called, Ok(&FakeGpus::default()));
    assert_eq!(empty.no_gpu, Some(NoGpu::Empty));
}

#[test]
fn this_machine_can_be_probed() {
    let machine = Machine::probe();
    assert_eq!(machine.gpus.is_empty() && machine.lost.is_empty(), machine.no_gpu.is_some(), "{machine}");
    assert!(serde_json::to_value(&machine).unwrap()["host"]["memory"].as_u64() > Some(0));
}

#[test]
fn the_process_table_finds_this_process() {
    let env = ProcessEnv::detect();
    let own = ProcessTable::open(env).owner_of(std::process::id());
    assert!(own.command.unwrap().contains("plimsoll_monitor"));
    assert!(own.user.is_ok());
    // Above the largest number that Linux gives out.
    let gone = ProcessTable::open(ProcessEnv { hides_others: false, ..env }).owner_of(5_000_000);
    assert_eq!(gone.command, Err(Unavailable::Ended));
    let hidden = ProcessTable::open(ProcessEnv { hides_others: true, ..env }).owner_of(5_000_000);
    assert_eq!(hidden.user, Err(Unavailable::Permission));
}

#[test]
fn a_handle_reports_free_memory() {
    let gpus = two_gpus();
    let handle = GpuHandle::open(&gpus, &gpus.inventory.gpus[1].uuid).unwrap();
    assert_eq!(handle.free(), Ok(Bytes::gib(139)));
    let gpus = with_mig();
    let error = |uuid: &str| GpuHandle::open(&gpus, uuid).unwrap_err().to_string();
    let uuid = &gpus.inventory.gpus[0].uuid;
    assert!(error(uuid).ends_with("MIG is on: name one of its instances in CUDA_VISIBLE_DEVICES"));
    assert_eq!(error("GPU-x"), "cannot read the memory of GPU-x: this machine has no such GPU");
    assert_eq!(GpuHandle::open(&gpus, "MIG-11aa").unwrap().free(), Ok(Bytes::gib(17)));
    assert!(GpuHandle::open(&gpus, "MIG-22bb").unwrap().free().is_err());
}

/// Returns three GPUs: `GPU-abc1`, `GPU-abd2`, and `GPU-fff3`, which is divided in two. The order of NVML differs from
/// the order of the PCI bus.
fn three_gpus() -> Vec<Gpu> {
    let gpus = FakeGpus::default().with_gpu("A", memory(8, 8)).with_gpu("B", memory(8, 8)).with_gpu("C", memory(8, 8));
    let mut gpus = gpus.inventory.gpus;
    for (gpu, uuid) in gpus.iter_mut().zip(["GPU-abc1", "GPU-abd2", "GPU-fff3"]) {
        gpu.uuid = uuid.into();
    }
    gpus[2].mig = true;
    gpus[2].instances = vec!["MIG-11aa".into(), "MIG-22bb".into()];
    gpus.swap(0, 1);
    gpus
}

#[test]
fn cuda_visible_devices_is_read_as_cuda_does() {
    let check = |list: Option<&str>, expected: &[&str], certain: [bool; 2]| {
        for (order, certain) in [None, Some("PCI_BUS_ID")].into_iter().zip(certain) {
            let visible = environment(list, order).visible(&three_gpus());
            assert_eq!(visible.uuids, expected, "{list:?}");
            assert_eq!(visible.order_is_certain, certain, "{list:?} in order {order:?}");
        }
    };
    let guess = [false, true];
    let sure = [true, true];
    let divided = [false, false];
    check(None, &["GPU-abc1", "GPU-abd2", "GPU-fff3"], divided);
    check(Some(""), &[], sure);
    check(Some("-1"), &[], sure);
    check(Some("NoDevFiles"), &[], sure);
    check(Some("none"), &[], sure);
    check(Some("0"), &["GPU-abc1"], guess);
    check(Some(" 1 , 0"), &["GPU-abd2", "GPU-abc1"], guess);
    check(Some("2"), &["GPU-fff3"], divided);
    check(Some("1,-1,0"), &["GPU-abd2"], guess);
    check(Some("1,,0"), &["GPU-abd2"], guess);
    check(Some("1,7,0"), &["GPU-abd2"], guess);
    check(Some("7,0"), &[], sure);
    check(Some("1,1"), &[], sure);
    check(Some("0,1,+0"), &[], sure);
    check(Some("1gpu0,0"), &["GPU-abd2", "GPU-abc1"], guess);
    check(Some("99999999999999999999999"), &[], sure);
    check(Some("1,GPU-abc"), &["GPU-abd2"], guess);
    check(Some("GPU-abd"), &["GPU-abd2"], sure);
    check(Some("GPU-abd2,GPU-abc1"), &["GPU-abd2", "GPU-abc1"], sure);
    check(Some("GPU-ab"), &[], sure);
    check(Some("GPU-abd,GPU-x,GPU-abc"), &["GPU-abd2"], sure);
    check(Some("GPU-abd,0"), &["GPU-abd2"], sure);
    check(Some("GPU-abd,GPU-abd2"), &[], sure);
    check(Some("GPU-fff3"), &["GPU-fff3"], divided);
    check(Some("MIG-22bb"), &["MIG-22bb"], sure);
    check(Some("MIG-22,MIG-11"), &["MIG-22bb"], sure);
    check(Some("MIG-33"), &[], sure);
    check(Some("MIG-11,MIG-11"), &[], sure);
}

#[test]
fn an_index_is_certain_with_a_single_gpu() {
    let gpus = &three_gpus()[..1];
    for list in [None, Some("0"), Some("1")] {
        assert!(environment(list, None).visible(gpus).order_is_certain, "{list:?}");
    }
}

#[test]
fn process_environments_are_detected() {
    let first = Some("pid:[4026531836]");
    let other = Some("pid:[4026532210]");
    let evidence =
        Evidence { kernel: "Linux version 6.8.0-45-generic", first_group: "0::/init.scope", ..Evidence::default() };
    let container = ProcessEnv { container: true, ..HOME };
    let check = |evidence: Evidence<'_>, expected: ProcessEnv| {
        assert_eq!(ProcessEnv::from_evidence(&evidence), expected, "{evidence:?}");
    };
    check(Evidence { pid_namespace: first, ..evidence }, HOME);
    check(evidence, HOME);
    // `docker run`, and `docker run --pid=host`, where the driver's numbers are good.
    let docker = Evidence { has_container_file: true, ..evidence };
    check(Evidence { pid_namespace: other, ..docker }, ProcessEnv { own_pids: true, ..container });
    check(Evidence { pid_namespace: first, ..docker }, container);
    check(docker, ProcessEnv { own_pids: true, ..container });
    // Kubernetes leaves no file, and a version 2 control group no name.
    check(
        Evidence { pid_namespace: other, first_group: "0::/", ..evidence },
        ProcessEnv { own_pids: true, ..container },
    );
    check(
        Evidence { first_group: "4:memory:/kubepods/burstable/pod1", ..evidence },
        ProcessEnv { own_pids: true, ..container },
    );
    let wsl = Evidence { kernel: "Linux version 5.15.153.1-microsoft-standard-WSL2", ..evidence };
    check(Evidence { pid_namespace: other, ..wsl }, ProcessEnv { wsl: true, own_pids: true, ..HOME });
    let hides = |mounts| ProcessEnv::from_evidence(&Evidence { mounts, ..evidence }).hides_others;
    assert!(hides("sysfs /sys sysfs rw 0 0\nproc /proc proc rw,nosuid,hidepid=invisible,gid=20 0 0\n"));
    assert!(hides("proc /proc proc rw,hidepid=2 0 0"));
    assert!(!hides("proc /proc proc rw,hidepid=0 0 0"));
    assert!(!hides("proc /proc proc rw,nosuid 0 0\nproc /chroot/proc proc rw,hidepid=2 0 0"));
}
