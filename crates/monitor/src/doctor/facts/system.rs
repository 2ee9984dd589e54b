//! Facts that the operating system gives: device files, processors, swap and limits.

use std::fs::{File, read_dir, read_to_string};
use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;
use sysinfo::{CpuRefreshKind, System};

use super::space::DiskSpace;

/// Number of NVIDIA among the makers of PCI devices.
const NVIDIA: &str = "0x10de";
/// Class of display controllers on the PCI bus: VGA is `0x0300`, a GPU without display `0x0302`.
const DISPLAY_CLASS: &str = "0x03";

/// Device file of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// Path of the file.
    pub path: PathBuf,
    /// Reason why this process cannot open the file for reading and writing; `None` if it can.
    pub refusal: Option<String>,
}

/// Processors of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuFacts {
    /// Hardware threads of the machine.
    pub installed: usize,
    /// Hardware threads on which the scheduler may run this process; `None` if not reported.
    pub affinity: Option<usize>,
}

/// Swap space of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapFacts {
    /// Size of the swap space; zero without swap.
    pub total: Bytes,
    /// Swap space in use.
    pub used: Bytes,
}

/// Limit of the number of open files. `None` stands for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// Limit of this process.
    pub soft: Option<u64>,
    /// Highest limit that this process can set for itself.
    pub hard: Option<u64>,
}

impl CpuFacts {
    pub(super) fn read() -> Self {
        let mut system = System::new();
        system.refresh_cpu_list(CpuRefreshKind::nothing());
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        Self { installed: system.cpus().len().max(allowed), affinity: affinity(&status) }
    }
}

impl SwapFacts {
    pub(super) fn read() -> Self {
        let mut system = System::new();
        system.refresh_memory();
        Self { total: Bytes(system.total_swap()), used: Bytes(system.used_swap()) }
    }
}

impl OpenFiles {
    pub(super) fn read() -> Option<Self> {
        Self::from_limits(&read_to_string("/proc/self/limits").ok()?)
    }

    /// Reads the limits from the text of `/proc/self/limits`.
    fn from_limits(limits: &str) -> Option<Self> {
        let values = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let mut values = values.split_whitespace().map(|value| match value {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        });
        Some(Self { soft: values.next()??, hard: values.next()?? })
    }
}

/// Counts the hardware threads in the line `Cpus_allowed_list` of `/proc/self/status`, such as `0-3,8`.
fn affinity(status: &str) -> Option<usize> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last] = [first, last].map(|number| number.parse::<usize>().ok());
        last?.checked_sub(first?).map(|more| more + 1)
    };
    list.trim().split(',').map(count).sum()
}

/// Counts the NVIDIA GPUs on the PCI bus; `None` if the bus cannot be read.
pub(super) fn gpus_on_bus(devices: &Path) -> Option<usize> {
    let is_gpu = |device: &Path| {
        let starts = |file, start| read_to_string(device.join(file)).is_ok_and(|text| text.starts_with(start));
        starts("vendor", NVIDIA) && starts("class", DISPLAY_CLASS)
    };
    Some(read_dir(devices).ok()?.flatten().filter(|device| is_gpu(&device.path())).count())
}

/// Opens the device files of the NVIDIA driver in `folder`, as CUDA does.
pub(super) fn device_nodes(folder: &Path) -> Vec<DeviceNode> {
    let is_device = |name: &str| match name.strip_prefix("nvidia") {
        Some(rest) => rest == "ctl" || rest == "-uvm" || (!rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())),
        // The GPU of Windows under WSL.
        None => name == "dxg",
    };
    let files = read_dir(folder).into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_str().is_some_and(is_device)).map(|file| file.path());
    let mut paths: Vec<PathBuf> = files.collect();
    paths.sort();
    let refusal = |path: &Path| File::options().read(true).write(true).open(path).err().map(|error| error.to_string());
    paths.into_iter().map(|path| DeviceNode { refusal: refusal(&path), path }).collect()
}

/// Returns the size of the shared memory of processes; `None` if the system has none.
pub(super) fn shared_memory() -> Option<Bytes> {
    let folder = Path::new("/dev/shm");
    folder.is_dir().then(|| DiskSpace::read(folder))?.map(|space| space.total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_affinity_is_counted() {
        let check = |list: &str, expected| {
            assert_eq!(affinity(&format!("Name:\tx\nCpus_allowed_list:\t{list}\n")), expected, "{list}");
        };
        check("0", Some(1));
        check("0-3", Some(4));
        check("0-3,8,10-11", Some(7));
        check("3-0", None);
        check("", None);
        assert_eq!(affinity("Name:\tx"), None);
    }

    #[test]
    fn limits_are_read() {
        let check = |values: &str, expected| {
            let text = format!("Limit   Soft Limit   Hard Limit   Units\nMax open files   {values}   files\n");
            assert_eq!(OpenFiles::from_limits(&text), expected, "{values}");
        };
        check("1024 524288", Some(OpenFiles { soft: Some(1024), hard: Some(524_288) }));
        check("1024 unlimited", Some(OpenFiles { soft: Some(1024), hard: None }));
        check("many 1", None);
        assert_eq!(OpenFiles::from_limits(""), None);
    }

    #[test]
    fn gpus_on_the_bus_are_counted() {
        let bus = tempfile::tempdir().unwrap();
        let devices = [("a", "0x10de", "0x030000"), ("b", "0x10de", "0x040300"), ("c", "0x8086", "0x030000")];
        for (name, vendor, class) in devices {
            let device = bus.path().join(name);
            std::fs::create_dir(&device).unwrap();
            std::fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
            std::fs::write(device.join("class"), format!("{class}\n")).unwrap();
        }
        assert_eq!(gpus_on_bus(bus.path()), Some(1));
        assert_eq!(gpus_on_bus(&bus.path().join("none")), None);
    }

    #[test]
    fn device_files_are_found_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia", "sda"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let nodes = device_nodes(folder.path());
        let names: Vec<_> = nodes.iter().map(|node| node.path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["nvidia-uvm", "nvidia0", "nvidia12", "nvidiactl"]);
        assert!(nodes.iter().all(|node| node.refusal.is_none()), "{nodes:?}");
    }
}
