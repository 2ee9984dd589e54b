//! Which cards CUDA gives to this process, and in which order.

use serde::Serialize;

use super::Card;

/// What the environment tells CUDA about the choice of cards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CudaEnvironment {
    /// `CUDA_VISIBLE_DEVICES`: indices, or the beginnings of UUIDs. Without it every card is visible.
    pub visible_devices: Option<String>,
    /// `CUDA_DEVICE_ORDER`: `FASTEST_FIRST`, which CUDA takes by itself, or `PCI_BUS_ID`.
    pub device_order: Option<String>,
}

/// The cards that CUDA gives to this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Visible {
    /// Their UUIDs, CUDA's device 0 first. An instance stands here where one is named.
    pub uuids: Vec<String>,
    /// Whether it must be so. CUDA counts from the card it believes the fastest, which NVML does not know; an index is
    /// certain with `CUDA_DEVICE_ORDER=PCI_BUS_ID` or a single card, and a UUID always.
    pub order_is_certain: bool,
}

impl CudaEnvironment {
    /// The environment of this process.
    pub fn here() -> Self {
        let read = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self { visible_devices: read("CUDA_VISIBLE_DEVICES"), device_order: read("CUDA_DEVICE_ORDER") }
    }

    /// The cards that CUDA gives under this environment.
    ///
    /// The rules are those that PyTorch found out and keeps in `torch/cuda/__init__.py`: the first entry decides
    /// whether the list is of indices, cards or instances; it ends at the first entry that names nothing; an entry
    /// that comes twice leaves no card at all. Of several instances CUDA gives the first.
    pub fn visible(&self, cards: &[Card]) -> Visible {
        let mut cards: Vec<&Card> = cards.iter().collect();
        cards.sort_by(|a, b| a.pci_bus_id.cmp(&b.pci_bus_id));
        let list = self.visible_devices.as_deref().map(List::read);
        let uuids = match &list {
            None => cards.iter().map(|card| card.uuid.clone()).collect(),
            Some(list) => list.resolve(&cards),
        };
        let by_index = matches!(list, None | Some(List::Indices(_)));
        let in_order = self.device_order.as_deref() == Some("PCI_BUS_ID") || cards.len() == 1;
        // Which instance of a cut card CUDA takes is not told either.
        let is_cut = |uuid: &String| cards.iter().any(|card| card.mig && card.uuid == *uuid);
        let order_is_certain = uuids.is_empty() || ((in_order || !by_index) && !uuids.iter().any(is_cut));
        Visible { uuids, order_is_certain }
    }
}

impl Visible {
    /// CUDA's number of the card or instance, where it is visible.
    pub fn cuda_index(&self, uuid: &str) -> Option<usize> {
        self.uuids.iter().position(|visible| visible == uuid)
    }
}

/// A `CUDA_VISIBLE_DEVICES` up to the first entry that is not of its kind.
enum List<'a> {
    Indices(Vec<usize>),
    Cards(Vec<&'a str>),
    Instances(Vec<&'a str>),
}

impl<'a> List<'a> {
    fn read(text: &'a str) -> Self {
        let with = |prefix| text.split(',').take_while(|entry| entry.starts_with(prefix)).collect();
        if text.starts_with("GPU-") {
            Self::Cards(with("GPU-"))
        } else if text.starts_with("MIG-") {
            Self::Instances(with("MIG-"))
        } else {
            Self::Indices(text.split(',').map_while(index).collect())
        }
    }

    fn resolve(&self, cards: &[&Card]) -> Vec<String> {
        match self {
            Self::Indices(list) => gather(list, |&index| cards.get(index).map(|card| &*card.uuid)),
            Self::Cards(list) => gather(list, |start| only(cards.iter().map(|card| &*card.uuid), start)),
            Self::Instances(list) => {
                let instances = || cards.iter().flat_map(|card| card.instances.iter().map(String::as_str));
                let mut found = gather(list, |start| only(instances(), start));
                found.truncate(1);
                found
            }
        }
    }
}

/// The number that `entry` begins with, as C's `strtoul` reads it: `1gpu` is 1.
fn index(entry: &str) -> Option<usize> {
    let entry = entry.trim();
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// What the entries name, up to the first that names nothing; nothing at all where two are the same.
fn gather<'c, E: PartialEq>(list: &[E], find: impl Fn(&E) -> Option<&'c str>) -> Vec<String> {
    let is_twice = |(place, entry)| list[..place].contains(entry);
    if list.iter().enumerate().any(is_twice) {
        return Vec::new();
    }
    let found: Vec<&str> = list.iter().map_while(find).collect();
    let is_twice = |(place, uuid): (usize, &&str)| found[..place].contains(uuid);
    if found.iter().enumerate().any(is_twice) {
        return Vec::new();
    }
    found.into_iter().map(String::from).collect()
}

/// The one that begins with `start`, where there is exactly one.
fn only<'c>(mut uuids: impl Iterator<Item = &'c str>, start: &str) -> Option<&'c str> {
    let found = uuids.find(|uuid| uuid.starts_with(start))?;
    uuids.all(|uuid| !uuid.starts_with(start)).then_some(found)
}
