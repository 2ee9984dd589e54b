//! Facts about this machine that decide whether a build with CUDA and its runs work, as plain data.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::bundle::{Bundle, State};
use super::libdevice::{self, Found};
use super::loader::Loader;
use super::process::output_within;
use super::versions::{self, CudaVersion};
use super::{record, sha256};
use crate::cargo::root;

/// Facts about a machine. The findings judge them, and a test gives facts of its own.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) system: System,
    pub(super) driver: Driver,
    pub(super) compilers: Vec<Tool>,
    pub(super) bundle: Bundle,
    /// Result of linking with LLVM; `None` if there is no complete folder of it, or no compiler.
    pub(super) link: Option<Result<(), String>>,
    pub(super) libdevice: Libdevice,
    pub(super) nccl: Nccl,
}

/// The system.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) os: String,
    pub(super) arch: String,
    pub(super) is_wsl: bool,
    pub(super) is_container: bool,
}

/// NVIDIA's driver.
#[derive(Clone, Debug, Default)]
pub(super) struct Driver {
    /// `libcuda`, as the backend would load it.
    pub(super) library: Option<PathBuf>,
    /// Version in the name of the library's file.
    pub(super) library_version: Option<String>,
    /// Version of the kernel module, or that which `nvidia-smi` prints.
    pub(super) module_version: Option<String>,
    /// Newest CUDA version that the driver supports.
    pub(super) cuda: Option<CudaVersion>,
    /// The driver's compiler from PTX, the form of the backend's kernels, to the GPU's own code.
    pub(super) ptx_compiler: Option<PathBuf>,
    /// Number of NVIDIA GPUs on the PCI bus. WSL shows none.
    pub(super) gpus_on_bus: usize,
    pub(super) nodes: Vec<Node>,
}

/// Device file of the driver.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) path: PathBuf,
    /// Reason why the file cannot be opened.
    pub(super) refusal: Option<String>,
}

/// A compiler.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    /// First line of what `--version` prints; `None` if the compiler does not start.
    pub(super) version: Option<String>,
}

/// The library of mathematical functions for GPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Libdevice {
    pub(super) found: Option<Found>,
    /// Value of `CUDA_PATH`.
    pub(super) cuda_path: Option<PathBuf>,
    /// Folder of Plimsoll for the file; `None` without a home folder.
    pub(super) data_folder: Option<PathBuf>,
    /// Whether the found file begins as bitcode does.
    pub(super) is_bitcode: bool,
    /// Source in the note beside the file.
    pub(super) source: Option<String>,
    /// Whether the file still has the checksum in the note beside it. `true` without a note.
    pub(super) is_as_noted: bool,
}

/// The library with which several GPUs exchange data.
#[derive(Clone, Debug, Default)]
pub(super) struct Nccl {
    /// File that the backend loads.
    pub(super) loadable: Option<PathBuf>,
    /// File of which the backend does not try the name.
    pub(super) versioned: Option<PathBuf>,
}

impl Facts {
    /// Reads the facts of this machine.
    ///
    /// # Errors
    /// If there is no home folder, or `Cargo.lock` cannot be read.
    pub(super) fn read() -> Result<Self> {
        let loader = Loader::here();
        let (xdg, home) = (variable("XDG_DATA_HOME"), variable("HOME"));
        let data_home = libdevice::data_home(xdg.as_deref(), home.as_deref()).context("HOME is not set")?;
        let lock = root().join("Cargo.lock");
        let lock = fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
        let bundle = Bundle::find(&lock, &data_home)?;
        let compilers = vec![tool("CC", "cc"), tool("CXX", "c++")];
        let can_link = bundle.state == State::Complete && compilers.iter().all(|tool| tool.version.is_some());
        let link = can_link.then(|| bundle.link().map_err(|error| format!("{error:#}")));
        let data_folder = libdevice::data_folder(xdg.as_deref(), home.as_deref());
        Ok(Self {
            system: System::here(),
            driver: Driver::here(&loader),
            compilers,
            bundle,
            link,
            libdevice: Libdevice::here(data_folder),
            nccl: Nccl::here(&loader),
        })
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn tool(variable: &str, usual: &str) -> Tool {
    let name = env::var(variable).unwrap_or_else(|_| usual.into());
    let text = output_within(Command::new(&name).arg("--version"), Duration::from_secs(10));
    let version = text.map(|text| text.lines().next().unwrap_or_default().to_owned());
    Tool { name, version }
}

impl System {
    fn here() -> Self {
        let kernel = fs::read_to_string("/proc/version").unwrap_or_default().to_lowercase();
        let marks = ["/.dockerenv", "/run/.containerenv"];
        Self {
            os: env::consts::OS.into(),
            arch: env::consts::ARCH.into(),
            is_wsl: kernel.contains("microsoft"),
            is_container: env::var_os("container").is_some() || marks.iter().any(|mark| Path::new(mark).exists()),
        }
    }
}

impl Driver {
    fn here(loader: &Loader) -> Self {
        let library = loader.find(&["libcuda.so", "libcuda.so.1"]);
        let file = library.as_ref().and_then(|path| fs::canonicalize(path).ok());
        let name = file.as_ref().and_then(|path| path.file_name()?.to_str().map(str::to_owned));
        let library_version = name.and_then(|name| versions::driver_of_library(&name));
        let module = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        let smi = ["nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"]
            .iter()
            .find_map(|program| output_within(&mut Command::new(program), Duration::from_secs(20)));
        let (smi_driver, smi_cuda) = versions::of_smi(&smi.unwrap_or_default());
        let module_version = versions::driver_of_module(&module).or(smi_driver);
        let newest = module_version.as_ref().or(library_version.as_ref());
        Self {
            cuda: smi_cuda.or_else(|| versions::cuda_of_driver(newest?)),
            library,
            library_version,
            module_version,
            ptx_compiler: loader.find(&["libnvidia-ptxjitcompiler.so.1"]),
            gpus_on_bus: gpus_on_bus(Path::new("/sys/bus/pci/devices")),
            nodes: nodes(Path::new("/dev")),
        }
    }
}

/// Counts the display controllers of NVIDIA in the folder in which Linux lists the devices of the bus.
fn gpus_on_bus(folder: &Path) -> usize {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| read(path.join("vendor")).trim() == "0x10de" && read(path.join("class")).starts_with("0x03"))
        .count()
}

/// Opens the device files of the driver, as CUDA does: those of the GPUs, and the two or the one that control them.
fn nodes(folder: &Path) -> Vec<Node> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_node));
    paths.sort();
    let open = |path: &PathBuf| File::options().read(true).write(true).open(path).err().map(|error| error.to_string());
    paths.into_iter().map(|path| Node { refusal: open(&path), path }).collect()
}

fn is_node(name: &str) -> bool {
    let is_gpu = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    matches!(name, "nvidiactl" | "nvidia-uvm" | "dxg") || name.strip_prefix("nvidia").is_some_and(is_gpu)
}

impl Libdevice {
    /// Searches the file on this machine.
    fn here(data_folder: Option<PathBuf>) -> Self {
        let cuda_path = variable("CUDA_PATH");
        let found = libdevice::search(cuda_path.as_deref(), data_folder.as_deref(), Path::is_file);
        let path = found.as_ref().map(|found| found.folder.join(libdevice::FILE));
        let bytes = path.as_ref().and_then(|path| fs::read(path).ok()).unwrap_or_default();
        let record = path.and_then(|path| record::Record::read(&path));
        Self {
            found,
            cuda_path,
            data_folder,
            is_bitcode: libdevice::is_bitcode(&bytes),
            is_as_noted: record.as_ref().is_none_or(|record| record.sha256 == sha256::hex(&bytes)),
            source: record.map(|record| record.source),
        }
    }
}

impl Nccl {
    fn here(loader: &Loader) -> Self {
        // The names that cudarc 0.19 tries end in the numbers of CUDA's versions, and not in NCCL's own 2.
        Self { loadable: loader.find(&["libnccl.so"]), versioned: loader.find(&["libnccl.so.2"]) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bundle::Scratch;
    use super::*;

    #[test]
    fn device_files_are_known_by_name() {
        for (name, expected) in [
            ("nvidia0", true),
            ("nvidia15", true),
            ("nvidiactl", true),
            ("nvidia-uvm", true),
            ("dxg", true),
            ("nvidia", false),
            ("nvidia-modeset", false),
            ("nvidia-uvm-tools", false),
            ("nvidia-caps", false),
            ("null", false),
        ] {
            assert_eq!(is_node(name), expected, "{name}");
        }
    }

    #[test]
    fn the_bus_lists_gpus_of_nvidia() {
        let scratch = Scratch::new().unwrap();
        let devices = [
            ("a", "0x10de", "0x030000"), // A GPU with a display.
            ("b", "0x10de", "0x030200"), // A GPU without.
            ("c", "0x10de", "0x040300"), // Its sound.
            ("d", "0x8086", "0x030000"), // A GPU of Intel.
        ];
        for (name, vendor, class) in devices {
            let folder = scratch.0.join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(folder.join("class"), format!("{class}\n")).unwrap();
        }
        assert_eq!(gpus_on_bus(&scratch.0), 2);
        assert_eq!(gpus_on_bus(&scratch.0.join("none")), 0);
    }
}
