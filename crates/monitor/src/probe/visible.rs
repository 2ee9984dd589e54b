//! GPUs that CUDA offers to this process, and their order in CUDA.

use serde::Serialize;

use super::gpu::Gpu;

/// Environment variables with which a user selects GPUs for CUDA.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CudaEnvironment {
    /// Value of `CUDA_VISIBLE_DEVICES`: indices, or prefixes of UUIDs. `None` if the variable is not set: all GPUs are
    /// visible.
    pub visible_devices: Option<String>,
    /// Value of `CUDA_DEVICE_ORDER`: `FASTEST_FIRST` or `PCI_BUS_ID`. `None` if the variable is not set: CUDA uses
    /// `FASTEST_FIRST`.
    pub device_order: Option<String>,
}

/// GPUs that CUDA offers to this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VisibleGpus {
    /// UUIDs of the visible GPUs, or of a MIG instance if one is named. CUDA's device 0 comes first.
    pub uuids: Vec<String>,
    /// Whether the order of the GPUs is certain. By default CUDA starts with the GPU that it ranks fastest, and NVML
    /// does not report this ranking. Indices are certain with `CUDA_DEVICE_ORDER=PCI_BUS_ID` or a single GPU, and UUIDs
    /// always.
    pub order_is_certain: bool,
}

impl CudaEnvironment {
    /// Reads the environment variables of this process.
    pub fn from_env() -> Self {
        let read = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self { visible_devices: read("CUDA_VISIBLE_DEVICES"), device_order: read("CUDA_DEVICE_ORDER") }
    }

    /// Returns the GPUs of `gpus` that CUDA offers in this environment.
    ///
    /// The rules follow PyTorch's `torch/cuda/__init__.py`: the first entry decides whether the list has indices, GPUs
    /// or MIG instances; the list ends at the first entry that matches nothing; a repeated entry makes the whole list
    /// invalid. Of several MIG instances CUDA offers the first.
    pub fn visible(&self, gpus: &[Gpu]) -> VisibleGpus {
        let mut gpus: Vec<&Gpu> = gpus.iter().collect();
        gpus.sort_by(|a, b| a.pci_bus_id.cmp(&b.pci_bus_id));
        let list = self.visible_devices.as_deref().map(List::read);
        let uuids = match &list {
            None => gpus.iter().map(|gpu| gpu.uuid.clone()).collect(),
            Some(list) => list.resolve(&gpus),
        };
        let by_index = matches!(list, None | Some(List::Indices(_)));
        let in_order = self.device_order.as_deref() == Some("PCI_BUS_ID") || gpus.len() == 1;
        // Nor does NVML know which instance of a divided GPU CUDA takes.
        let is_divided = |uuid: &String| gpus.iter().any(|gpu| gpu.mig && gpu.uuid == *uuid);
        let order_is_certain = uuids.is_empty() || ((in_order || !by_index) && !uuids.iter().any(is_divided));
        VisibleGpus { uuids, order_is_certain }
    }
}

impl VisibleGpus {
    /// Returns CUDA's index of the GPU or MIG instance with this UUID; `None` if CUDA does not offer it.
    pub fn cuda_index(&self, uuid: &str) -> Option<usize> {
        self.uuids.iter().position(|visible| visible == uuid)
    }
}

/// Parsed value of `CUDA_VISIBLE_DEVICES`: a list of indices, of UUIDs of GPUs or of UUIDs of MIG instances. The first
/// entry decides which; the list ends before the first entry of another kind.
enum List<'a> {
    Indices(Vec<usize>),
    Gpus(Vec<&'a str>),
    Instances(Vec<&'a str>),
}

impl<'a> List<'a> {
    fn read(text: &'a str) -> Self {
        let with = |prefix| text.split(',').take_while(|entry| entry.starts_with(prefix)).collect();
        if text.starts_with("GPU-") {
            Self::Gpus(with("GPU-"))
        } else if text.starts_with("MIG-") {
            Self::Instances(with("MIG-"))
        } else {
            Self::Indices(text.split(',').map_while(index).collect())
        }
    }

    fn resolve(&self, gpus: &[&Gpu]) -> Vec<String> {
        match self {
            Self::Indices(list) => matches(list, |&index| gpus.get(index).map(|gpu| &*gpu.uuid)),
            Self::Gpus(list) => matches(list, |start| only_match(gpus.iter().map(|gpu| &*gpu.uuid), start)),
            Self::Instances(list) => {
                let instances = || gpus.iter().flat_map(|gpu| gpu.instances.iter().map(String::as_str));
                let mut found = matches(list, |start| only_match(instances(), start));
                found.truncate(1);
                found
            }
        }
    }
}

/// Parses the number at the start of `entry` as C's `strtoul` does: `1gpu` is 1. `None` if `entry` has no such number.
fn index(entry: &str) -> Option<usize> {
    let entry = entry.trim();
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Looks up the device of each entry of `list` with `find`, and returns the UUIDs of the devices up to the first entry
/// without a device. The result is empty if an entry occurs twice, or if two entries mean the same device.
fn matches<'c, E: PartialEq>(list: &[E], find: impl Fn(&E) -> Option<&'c str>) -> Vec<String> {
    let is_repeated = |(index, entry)| list[..index].contains(entry);
    if list.iter().enumerate().any(is_repeated) {
        return Vec::new();
    }
    let found: Vec<&str> = list.iter().map_while(find).collect();
    let is_repeated = |(index, uuid): (usize, &&str)| found[..index].contains(uuid);
    if found.iter().enumerate().any(is_repeated) {
        return Vec::new();
    }
    found.into_iter().map(String::from).collect()
}

/// Returns the UUID that starts with `start`; `None` unless exactly one does.
fn only_match<'c>(mut uuids: impl Iterator<Item = &'c str>, start: &str) -> Option<&'c str> {
    let found = uuids.find(|uuid| uuid.starts_with(start))?;
    uuids.all(|uuid| !uuid.starts_with(start)).then_some(found)
}
