//! Tests of the checks of drivers, GPUs and their libraries.

use std::path::PathBuf;

use plimsoll_core::ProbeError;

use super::*;
use crate::doctor::check::CheckStatus::{Fail, Pass, Skip, Warn};
use crate::doctor::facts::{CudaHome, DeviceNode, FoundLibrary, GpuPower};
use crate::{ProcessReport, Unavailable};

fn node(name: &str, refusal: Option<&str>) -> DeviceNode {
    DeviceNode { path: PathBuf::from("/dev").join(name), refusal: refusal.map(Into::into) }
}

fn mig_gpu() -> FakeGpus {
    let mut gpus = FakeGpus::default().with_gpu("NVIDIA H200", gpu_memory(140, 100));
    let gpu = &mut gpus.inventory.gpus[0];
    gpu.mig = true;
    gpu.instances = vec!["MIG-11aa".into(), "MIG-22bb".into()];
    gpus.memory.insert("MIG-11aa".into(), Ok(gpu_memory(18, 17)));
    gpus.memory.insert("MIG-22bb".into(), Ok(gpu_memory(18, 1)));
    gpus
}

#[test]
fn a_driver_is_judged_by_its_cuda_version() {
    let check = |cuda: Option<(u32, u32)>, status, part: &str| {
        let mut facts = with_gpus(&one_gpu());
        facts.machine.cuda = cuda.map(|(major, minor)| Version { major, minor });
        expect(&driver::driver(&facts), status, part);
    };
    check(Some((13, 0)), Pass, "driver 580.82.07, CUDA 13.0 at most, 1 GPU");
    check(Some((12, 0)), Pass, "CUDA 12.0 at most");
    check(Some((11, 8)), Fail, "supports CUDA 11.8 at most, and CUDA 12.0 is needed");
    check(None, Pass, "driver 580.82.07, 1 GPU");
}

#[test]
fn a_lost_gpu_is_a_failure() {
    let mut facts = with_gpus(&one_gpu());
    facts.machine.lost.push(ProbeError { device: "GPU 1".into(), reason: "the GPU is lost".into() });
    expect(&driver::driver(&facts), Fail, "the GPU is lost");
}

#[test]
fn a_missing_driver_is_normal_only_without_gpu() {
    let check = |why: NoGpu, gpus_on_bus, status, part: &str| {
        let mut facts = no_gpu();
        facts.machine.no_gpu = Some(why);
        facts.gpus_on_bus = gpus_on_bus;
        expect(&driver::driver(&facts), status, part);
    };
    let library = || NoGpu::Library { reason: "x".into() };
    check(library(), Some(0), Skip, "normal without an NVIDIA GPU");
    check(library(), None, Skip, "normal without an NVIDIA GPU");
    check(library(), Some(1), Fail, "the machine has an NVIDIA GPU, and no NVIDIA driver was found");
    check(NoGpu::Driver, Some(0), Skip, "normal without an NVIDIA GPU");
    check(NoGpu::Driver, Some(2), Fail, "installed and not running");
    check(NoGpu::Empty, Some(1), Fail, "finds no GPU");
    check(NoGpu::Updated, None, Fail, "restart the machine");
    check(NoGpu::Refused { reason: "no answer within 20 s".into() }, Some(1), Fail, "no answer within 20 s");
}

#[test]
fn device_files_must_open() {
    let mut facts = with_gpus(&one_gpu());
    let check = |facts: &MachineFacts, status, part: &str| {
        if cfg!(target_os = "linux") {
            expect(&driver::permission(facts), status, part);
        }
    };
    check(&no_gpu(), Skip, "no device files");
    facts.nodes = vec![node("nvidia-uvm", None), node("nvidia0", None), node("nvidiactl", None)];
    check(&facts, Pass, "3 device files can be opened");
    facts.nodes[1].refusal = Some("permission denied".into());
    check(&facts, Fail, "cannot open /dev/nvidia0: permission denied");
    facts.nodes = vec![node("nvidia0", None), node("nvidiactl", None)];
    check(&facts, Warn, "/dev/nvidia-uvm does not exist");
    facts.nodes = vec![node("dxg", None)];
    check(&facts, Pass, "1 device files");
}

#[test]
fn a_selection_must_name_gpus_that_exist() {
    let check = |list: Option<&str>, order, status, part: &str| {
        let mut facts = with_gpus(&two_gpus());
        select(&mut facts.machine, list, order);
        expect(&visible::visible_devices(&facts), status, part);
    };
    let by_bus = Some("PCI_BUS_ID");
    check(None, by_bus, Pass, "2 of 2");
    check(None, None, Warn, "in another order");
    check(Some("1"), by_bus, Pass, "1 of 2");
    check(Some("GPU-1a"), None, Pass, "1 of 2");
    check(Some("0,7"), by_bus, Warn, "there is no GPU `7`");
    check(Some("7"), by_bus, Fail, "there is no GPU `7`");
    check(Some("0,0"), by_bus, Fail, "`0` occurs twice");
    check(Some(""), None, Warn, "hides all GPUs");
    check(Some("-1"), None, Warn, "hides all GPUs");
    expect(&visible::visible_devices(&no_gpu()), Skip, "there is no GPU");
}

#[test]
fn a_divided_gpu_needs_the_name_of_an_instance() {
    let check = |list: Option<&str>, status, part: &str| {
        let mut facts = with_gpus(&mig_gpu());
        select(&mut facts.machine, list, None);
        expect(&visible::visible_devices(&facts), status, part);
    };
    check(None, Warn, "MIG divides a GPU");
    check(Some("MIG-11aa"), Pass, "1 of 2");
    check(Some("MIG-11aa,MIG-22bb"), Warn, "only the first");
    check(Some("MIG-33"), Fail, "there is no GPU `MIG-33`");
}

#[test]
fn memory_of_others_is_named() {
    let check = |free_gib, status, part: &str| {
        let gpus = FakeGpus::default().with_gpu("NVIDIA T4", gpu_memory(100, free_gib)).with_process(GpuProcess {
            pid: 7,
            kind: WorkKind::Compute,
            memory: Some(Bytes::gib(5)),
        });
        let mut facts = with_gpus(&gpus);
        let process = ProcessReport {
            pid: 7,
            kind: WorkKind::Compute,
            memory: Ok(Bytes::gib(5)),
            user: Err(Unavailable::Permission),
            command: Ok("/opt/bin/python train.py --token abc".into()),
        };
        facts.machine.gpus[0].processes = Ok(vec![process]);
        let outcome = gpu::memory(&facts);
        expect(&outcome, status, part);
        assert!(!outcome.finding.contains("abc"), "{outcome:?}");
    };
    check(95, Pass, "95 GiB of 100 GiB free");
    check(50, Warn, "python holds 5 GiB, 45 GiB belongs to processes that are not listed");
    check(5, Fail, "GPU 0");
}

#[test]
fn memory_is_that_of_visible_devices() {
    expect(&gpu::memory(&no_gpu()), Skip, "there is no GPU");
    let mut facts = with_gpus(&two_gpus());
    select(&mut facts.machine, Some("-1"), None);
    expect(&gpu::memory(&facts), Skip, "CUDA offers no GPU");
    let mut facts = with_gpus(&mig_gpu());
    select(&mut facts.machine, Some("MIG-11aa"), None);
    expect(&gpu::memory(&facts), Pass, "17 GiB of 18 GiB");
    select(&mut facts.machine, Some("MIG-22bb"), None);
    expect(&gpu::memory(&facts), Fail, "1 GiB of 18 GiB");
}

#[test]
fn memory_that_cannot_be_read_is_no_zero() {
    let check = |reason: &str, status, part: &str| {
        let mut facts = with_gpus(&one_gpu());
        facts.machine.gpus[0].memory = Err(ProbeError { device: "GPU-0a".into(), reason: reason.into() });
        expect(&gpu::memory(&facts), status, part);
    };
    check("the GPU is lost", Warn, "the GPU is lost");
    check("it shares the machine's memory, which the driver does not report", Pass, "memory of the host");
}

#[test]
fn a_lowered_limit_is_a_warning() {
    let check = |limit, default_limit, clock, default_clock, status, part: &str| {
        let mut facts = with_gpus(&one_gpu());
        facts.power = vec![GpuPower { index: 0, limit, default_limit, clock, default_clock }];
        expect(&gpu::clocks(&facts), status, part);
    };
    check(Some(700_000), Some(700_000), None, None, Pass, "700 W");
    check(Some(699_000), Some(700_000), None, None, Pass, "699 W");
    check(Some(350_000), Some(700_000), None, None, Warn, "the power limit is 350 W, and 700 W by default");
    check(Some(700_000), None, Some(1000), Some(1980), Warn, "at 1000 MHz, and at 1980 MHz");
    check(None, Some(700_000), None, None, Skip, "reports no power limits");
    expect(&gpu::clocks(&no_gpu()), Skip, "there is no GPU");
}

fn library(name: &str, refusal: Option<&str>) -> FoundLibrary {
    FoundLibrary {
        name: name.into(),
        path: format!("/lib/{name}.so").into(),
        refusal: refusal.map(Into::into),
        version: None,
    }
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "the checks know the loader of Linux")]
fn the_cuda_backend_needs_its_libraries() {
    let mut facts = with_gpus(&one_gpu());
    facts.libraries = vec![library("libcuda", None)];
    expect(&libraries::libraries(&facts, false), Skip, "no CUDA backend");
    expect(&libraries::libraries(&no_gpu(), true), Skip, "there is no GPU");
    // No toolkit is needed.
    expect(&libraries::libraries(&facts, true), Pass, "/lib/libcuda.so");
    facts.cuda_home = Some(CudaHome { path: "/opt/cuda".into(), exists: true, ..CudaHome::default() });
    let outcome = libraries::libraries(&facts, true);
    expect(&outcome, Pass, "/lib/libcuda.so");
    assert_eq!(outcome.details["cuda_home"], "/opt/cuda");
    facts.libraries = vec![library("libcuda", Some("it is not a library"))];
    expect(&libraries::libraries(&facts, true), Fail, "cannot load /lib/libcuda.so: it is not a library");
    facts.libraries.clear();
    let outcome = libraries::libraries(&facts, true);
    expect(&outcome, Fail, "libcuda is not found");
    assert_eq!(outcome.fix.as_deref(), Some("install the NVIDIA driver"));
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "the checks know the loader of Linux")]
fn several_gpus_need_nccl() {
    let of = |device, replicas| DoctorOptions { device, replicas, ..DoctorOptions::default() };
    let (none, one, two) = (of(None, None), of(None, Some(1)), of(Some(DeviceKind::Cuda), Some(2)));
    for options in [&none, &one] {
        expect(&libraries::nccl(&with_gpus(&one_gpu()), options), Skip, "only several GPUs");
    }
    expect(&libraries::nccl(&no_gpu(), &two), Skip, "only several GPUs");
    expect(&libraries::nccl(&with_gpus(&one_gpu()), &two), Fail, "`device.replicas` is 2");
    let mut facts = with_gpus(&two_gpus());
    for device in [DeviceKind::Cpu, DeviceKind::Wgpu] {
        expect(&libraries::nccl(&facts, &of(Some(device), Some(2))), Skip, "only NVIDIA GPUs");
    }
    expect(&libraries::nccl(&facts, &none), Warn, "libnccl.so is not found");
    expect(&libraries::nccl(&facts, &two), Fail, "libnccl.so is not found");
    facts.libraries = vec![library("libnccl", Some("it is for another processor"))];
    expect(&libraries::nccl(&facts, &one), Fail, "it is for another processor");
    facts.libraries = vec![library("libnccl", None)];
    expect(&libraries::nccl(&facts, &two), Pass, "/lib/libnccl.so, of unknown version");
    facts.libraries[0].version = Some("2.27.3".into());
    let outcome = libraries::nccl(&facts, &none);
    expect(&outcome, Pass, "/lib/libnccl.so, version 2.27.3");
    assert_eq!(outcome.details["version"], "2.27.3");
    facts.libraries[0].path = "/lib/libnccl.so.2".into();
    expect(&libraries::nccl(&facts, &none), Warn, "the backend looks for libnccl.so");
    expect(&libraries::nccl(&facts, &two), Fail, "the backend looks for libnccl.so");
}

#[test]
fn kernels_need_libdevice() {
    expect(&libraries::libdevice(&no_gpu(), true), Skip, "there is no GPU");
    let mut facts = with_gpus(&one_gpu());
    expect(&libraries::libdevice(&facts, false), Skip, "no CUDA backend");
    let outcome = libraries::libdevice(&facts, true);
    expect(&outcome, Fail, "libdevice.10.bc is not found");
    assert!(outcome.fix.unwrap().contains("cargo xtask cuda setup"));
    facts.libdevice = vec!["/opt/cuda/nvvm/libdevice/libdevice.10.bc".into()];
    expect(&libraries::libdevice(&facts, true), Pass, "/opt/cuda/nvvm/libdevice/libdevice.10.bc");
    set(&mut facts, "CUDA_PATH", "/opt/cuda");
    expect(&libraries::libdevice(&facts, true), Pass, "/opt/cuda");
    // A folder that the variable names hides all others.
    set(&mut facts, "CUDA_PATH", "/old");
    let outcome = libraries::libdevice(&facts, true);
    expect(&outcome, Fail, "CUDA_PATH is `/old`");
    assert_eq!(outcome.fix.as_deref(), Some("set CUDA_PATH=/opt/cuda"));
    facts.libdevice.clear();
    expect(&libraries::libdevice(&facts, true), Fail, "is not found");
}

#[test]
fn a_container_needs_its_settings() {
    expect(&container::container(&no_gpu()), Skip, "no container");
    let check = |gpus: Option<&FakeGpus>, pairs: &[(&str, &str)], shared, status, part: &str| {
        let mut facts = gpus.map_or_else(no_gpu, with_gpus);
        facts.machine.process_env.container = true;
        facts.shared_memory = Some(shared);
        pairs.iter().for_each(|(name, value)| set(&mut facts, name, value));
        expect(&container::container(&facts), status, part);
    };
    let (visible, capabilities) = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES");
    let (one, two, mib64) = (one_gpu(), two_gpus(), Bytes::mib(64));
    check(Some(&one), &[], mib64, Pass, "a container with 1 GPU");
    check(None, &[], mib64, Pass, "a container without GPUs");
    check(None, &[(visible, "void")], mib64, Warn, "keeps all GPUs out");
    check(Some(&one), &[(visible, "void")], mib64, Pass, "with 1 GPU");
    check(Some(&one), &[(capabilities, "compute,utility")], mib64, Pass, "with 1 GPU");
    check(Some(&one), &[(capabilities, "all")], mib64, Pass, "with 1 GPU");
    check(Some(&one), &[(capabilities, "compute")], mib64, Warn, "without utility");
    check(Some(&one), &[(capabilities, "graphics")], mib64, Warn, "without compute and utility");
    check(Some(&two), &[], mib64, Warn, "/dev/shm has 64 MiB");
    check(Some(&two), &[], Bytes::gib(1), Pass, "with 2 GPUs");
}

#[test]
fn windows_gives_its_driver() {
    expect(&container::wsl(&no_gpu()), Skip, "not Linux under Windows");
    let mut facts = no_gpu();
    facts.machine.process_env.wsl = true;
    expect(&container::wsl(&facts), Warn, "no GPU driver");
    expect(&driver::driver(&facts), Skip, "no NVIDIA driver");
    facts.has_wsl_library = true;
    facts.current_folder = "/mnt/c/runs".into();
    expect(&container::wsl(&facts), Warn, "on a disk of Windows");
    facts.current_folder = "/home/ann".into();
    expect(&container::wsl(&facts), Pass, "64 GiB");
}
