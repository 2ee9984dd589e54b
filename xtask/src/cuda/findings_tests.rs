//! Judgments of made-up machines.

use std::path::{Path, PathBuf};

use super::bundle::{Bundle, State};
use super::facts::{Driver, Facts, Libdevice, Nccl, Node, System, Tool};
use super::findings::{Finding, Need, Status, judge, worst};
use super::libdevice::{Found, Place};
use super::versions::CudaVersion;

/// Returns a machine on which all is well, with this number of GPUs.
pub(super) fn machine(n_gpus: usize) -> Facts {
    let gpus = (0..n_gpus).map(|idx| format!("/dev/nvidia{idx}"));
    let paths = gpus.chain(["/dev/nvidiactl".into(), "/dev/nvidia-uvm".into()]);
    Facts {
        system: System { os: "linux".into(), arch: "x86_64".into(), is_wsl: false, is_container: false },
        driver: Driver {
            library: Some("/usr/lib/x86_64-linux-gnu/libcuda.so.1".into()),
            library_version: Some("550.54.15".into()),
            module_version: Some("550.54.15".into()),
            cuda: Some(CudaVersion { major: 12, minor: 4 }),
            ptx_compiler: Some("/usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.1".into()),
            gpus_on_bus: n_gpus,
            nodes: paths.map(|path| Node { path: path.into(), refusal: None }).collect(),
        },
        compilers: ["cc", "c++"].map(|name| Tool { name: name.into(), version: Some(format!("{name} 12.2.0")) }).into(),
        bundle: Bundle {
            version: "23.1.0-4".into(),
            folder: "/data/tracel/tracel-llvm-23.1.0-4".into(),
            state: State::Complete,
        },
        link: Some(Ok(())),
        libdevice: Libdevice {
            found: Some(Found { folder: "/data/plimsoll/cuda".into(), place: Place::Data }),
            cuda_path: None,
            data_folder: Some("/data/plimsoll/cuda".into()),
            is_bitcode: true,
            source: Some("nvidia-cuda-nvcc-cu12 12.9.86".into()),
            is_as_noted: true,
        },
        nccl: Nccl { loadable: Some("/usr/lib/libnccl.so".into()), versioned: None },
    }
}

fn finding(facts: &Facts, name: &str) -> Finding {
    judge(facts).into_iter().find(|finding| finding.name == name).expect("every machine has every finding")
}

/// Compares the status of one finding after a change of the machine, and looks for a word in message and fix.
fn check(name: &str, change: impl FnOnce(&mut Facts), status: Status, word: &str) {
    let mut facts = machine(1);
    change(&mut facts);
    let found = finding(&facts, name);
    assert_eq!(found.status, status, "{found:?}");
    assert!(format!("{} {}", found.message, found.fix).contains(word), "{word}: {found:?}");
}

#[test]
fn a_machine_with_everything_passes() {
    for n_gpus in 1..=16 {
        let findings = judge(&machine(n_gpus));
        assert!(
            findings.iter().all(|finding| finding.status == Status::Pass && finding.fix.is_empty()),
            "{findings:?}"
        );
    }
}

#[test]
fn what_does_not_pass_has_a_fix() {
    // Each bit takes one thing away or breaks it.
    let changes: [fn(&mut Facts); 12] = [
        |facts| facts.system.os = "macos".into(),
        |facts| facts.system.is_wsl = true,
        |facts| facts.system.is_container = true,
        |facts| facts.compilers[1].version = None,
        |facts| facts.bundle.state = State::Missing,
        |facts| facts.link = Some(Err("undefined reference to `compress2`".into())),
        |facts| facts.driver.library = None,
        |facts| facts.driver.cuda = None,
        |facts| facts.driver.nodes.clear(),
        |facts| facts.libdevice.found = None,
        |facts| facts.libdevice.cuda_path = Some("/opt/other".into()),
        |facts| facts.nccl = Nccl::default(),
    ];
    for subset in 0_u32..1 << changes.len() {
        let mut facts = machine(2);
        for (idx, change) in changes.iter().enumerate() {
            if subset & (1 << idx) != 0 {
                change(&mut facts);
            }
        }
        for finding in judge(&facts) {
            assert_eq!(finding.status == Status::Pass, finding.fix.is_empty(), "{finding:?}");
            assert!(!finding.message.is_empty() && !finding.message.ends_with('.'), "{finding:?}");
        }
    }
}

#[test]
fn builds_need_no_gpu() {
    let mut facts = machine(0);
    facts.driver = Driver::default();
    facts.libdevice = Libdevice::default();
    let findings = judge(&facts);
    assert_eq!((worst(&findings, Need::Build), worst(&findings, Need::Run)), (Status::Pass, Status::Fail));
}

#[test]
fn compilers_and_llvm_decide_the_build() {
    check("compiler", |facts| facts.compilers[0].version = None, Status::Fail, "build-essential");
    check("llvm", |facts| facts.bundle.state = State::Missing, Status::Warn, "cuda setup");
    check("llvm", |facts| facts.bundle.state = State::Partial, Status::Warn, "not complete");
    check("llvm", |facts| facts.link = Some(Err("cannot find -lzstd".into())), Status::Fail, "libzstd-dev");
    check("llvm", |facts| facts.link = None, Status::Pass, "23.1.0");
    check("system", |facts| facts.system.os = "windows".into(), Status::Fail, "WSL2");
    check("system", |facts| facts.system.arch = "aarch64".into(), Status::Warn, "ARM");
}

#[test]
fn drivers_are_judged_by_their_cuda_version() {
    for major in 9..=14 {
        for minor in 0..=9 {
            let status = if major < 12 { Status::Fail } else { Status::Pass };
            check("driver", |facts| facts.driver.cuda = Some(CudaVersion { major, minor }), status, "CUDA");
        }
    }
    check("driver", |facts| facts.driver.cuda = None, Status::Warn, "unknown");
    check("driver", |facts| facts.driver.library_version = Some("570.86.10".into()), Status::Fail, "restart");
    check("driver", |facts| facts.driver.ptx_compiler = None, Status::Warn, "compute,utility");
    let stub = PathBuf::from("/usr/local/cuda/lib64/stubs/libcuda.so");
    check("driver", |facts| facts.driver.library = Some(stub), Status::Fail, "LD_LIBRARY_PATH");
}

#[test]
fn a_missing_driver_has_a_fix_for_its_place() {
    let without = |change: fn(&mut Facts), word: &str| {
        let mut facts = machine(1);
        facts.driver.library = None;
        change(&mut facts);
        let found = finding(&facts, "driver");
        assert!(found.status == Status::Fail && found.fix.contains(word), "{found:?}");
    };
    without(|facts| facts.system.is_wsl = true, "in Windows");
    without(|facts| facts.system.is_container = true, "--gpus all");
    without(|_| {}, "install the driver");
    without(|facts| (facts.driver.gpus_on_bus, facts.driver.nodes) = (0, Vec::new()), "--backend cpu");
}

#[test]
fn device_files_must_open() {
    let refuse = |facts: &mut Facts| facts.driver.nodes[0].refusal = Some("permission denied".into());
    check("device-files", refuse, Status::Fail, "video");
    check("device-files", |facts| facts.driver.nodes.clear(), Status::Fail, "modprobe");
    let without_uvm = |facts: &mut Facts| facts.driver.nodes.retain(|node| !node.path.ends_with("nvidia-uvm"));
    check("device-files", without_uvm, Status::Warn, "nvidia-modprobe");
    let wsl = |facts: &mut Facts| facts.driver.nodes = vec![Node { path: "/dev/dxg".into(), refusal: None }];
    check("device-files", wsl, Status::Pass, "dxg");
}

#[test]
fn libdevice_must_be_found_and_whole() {
    check("libdevice", |facts| facts.libdevice.found = None, Status::Fail, "cuda setup");
    check("libdevice", |facts| facts.libdevice.is_bitcode = false, Status::Fail, "bitcode");
    check("libdevice", |facts| facts.libdevice.is_as_noted = false, Status::Fail, "checksum");
    check("libdevice", |facts| facts.libdevice.cuda_path = Some("/opt/other".into()), Status::Warn, "/opt/other");
    let named = |facts: &mut Facts| {
        facts.libdevice.cuda_path = Some("/cuda".into());
        facts.libdevice.found = Some(Found { folder: Path::new("/cuda").into(), place: Place::CudaPath });
    };
    check("libdevice", named, Status::Pass, "/cuda/nvvm/libdevice");
}

#[test]
fn only_several_gpus_need_nccl() {
    for n_gpus in 1..=8 {
        for versioned in [None, Some(PathBuf::from("/usr/lib/libnccl.so.2"))] {
            let mut facts = machine(n_gpus);
            facts.nccl = Nccl { loadable: None, versioned };
            let expected = if n_gpus > 1 { Status::Warn } else { Status::Pass };
            assert_eq!(finding(&facts, "nccl").status, expected);
        }
    }
}
