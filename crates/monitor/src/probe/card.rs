//! What a card is, and who can be asked about it.

use std::fmt;

use plimsoll_core::{Bytes, DeviceMemory, ProbeError};
use serde::Serialize;

use super::Unseen;

/// Somebody who can see the cards of this machine.
///
/// The driver is one side; the other is [`FakeCards`](crate::FakeCards), so reports are tested without a card. Cards
/// are named by UUID and never by index alone, for NVML and CUDA count in different orders.
pub trait CardSource {
    /// The driver and the cards: what does not change while we look.
    fn roster(&self) -> Roster;

    /// The memory, at this moment, of the card or MIG instance that has this UUID.
    fn memory(&self, uuid: &str) -> Result<CardMemory, ProbeError>;

    /// The processes on the card that has this UUID, as the driver numbers them.
    fn processes(&self, uuid: &str) -> Result<Vec<CardProcess>, Unseen>;
}

/// The driver and the cards of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roster {
    /// The driver's version, where it says so.
    pub driver: Option<String>,
    /// The newest CUDA that the driver can run.
    pub cuda: Option<Version>,
    /// The cards that answer.
    pub cards: Vec<Card>,
    /// The cards that are there and do not answer. They hide no other.
    pub lost: Vec<ProbeError>,
}

/// A version of two numbers, such as CUDA 12.8 or compute capability 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Version {
    /// The number before the point.
    pub major: u32,
    /// The number after it.
    pub minor: u32,
}

/// What does not change about a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Card {
    /// Its place in NVML's count, which need not be CUDA's.
    pub index: u32,
    /// Its name for ever: `GPU-` and a UUID.
    pub uuid: String,
    /// Where it is plugged in.
    pub pci_bus_id: String,
    /// What its maker calls it.
    pub name: String,
    /// Which generation of kernels it runs.
    pub compute_capability: Option<Version>,
    /// How much it can read from its memory in a second, at most.
    pub bandwidth_per_sec: Option<Bytes>,
    /// Whether it is cut into instances (MIG). Then a process gets one of them and never the whole card.
    pub mig: bool,
    /// The UUIDs of these instances.
    pub instances: Vec<String>,
}

/// A card's memory at one moment. The three parts add up to the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CardMemory {
    /// All of it.
    pub total: Bytes,
    /// What the driver and the firmware keep. No process holds it, and none can have it.
    pub reserved: Bytes,
    /// What processes hold.
    pub used: Bytes,
    /// What is left.
    pub free: Bytes,
}

impl CardMemory {
    /// The memory of a card of which so much is reserved and so much free; the rest is used.
    ///
    /// NVML's own `used` is left aside: whether it holds `reserved` too depends on the call and the driver.
    pub fn new(total: Bytes, reserved: Bytes, free: Bytes) -> Self {
        Self { total, reserved, used: total.saturating_sub(reserved).saturating_sub(free), free }
    }
}

/// A process on a card, as the driver tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardProcess {
    /// Its number where the driver lives, which is outside of every container.
    pub pid: u32,
    /// What it does there.
    pub kind: WorkKind,
    /// The memory it holds. Where the driver does not say it is unknown, which is not zero.
    pub memory: Option<Bytes>,
}

/// What a process does on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// It computes.
    Compute,
    /// It draws.
    Graphics,
    /// It does both.
    Both,
}

/// Why there is no card to report. All of these are normal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCards {
    /// The driver's library cannot be loaded.
    #[error("no NVIDIA driver was found ({reason})")]
    Library {
        /// What the loader said.
        reason: String,
    },
    /// The library is there, the driver is not.
    #[error("the NVIDIA driver is installed and not running")]
    Driver,
    /// The driver is there and has no card.
    #[error("the NVIDIA driver runs and has no card")]
    Empty,
    /// The driver was exchanged since the machine started.
    #[error("the NVIDIA driver was updated while it ran: restart the machine")]
    Updated,
    /// The driver refuses to talk to us.
    #[error("the NVIDIA driver does not answer ({reason})")]
    Refused {
        /// What it said.
        reason: String,
    },
}

/// One card, or one MIG instance, that can be asked how much memory is free.
pub struct CardHandle<'a> {
    source: &'a dyn CardSource,
    uuid: String,
}

impl<'a> CardHandle<'a> {
    /// A handle on what has this UUID; [`Visible`](crate::Visible) has those that CUDA gives to us.
    ///
    /// A card cut into instances is refused, for its free memory is nobody's to use.
    pub fn open(source: &'a dyn CardSource, uuid: &str) -> Result<Self, ProbeError> {
        let error = |reason: &str| ProbeError { device: uuid.into(), reason: reason.into() };
        let cards = source.roster().cards;
        let is_instance = cards.iter().any(|card| card.instances.iter().any(|instance| instance == uuid));
        match cards.iter().find(|card| card.uuid == uuid) {
            Some(card) if card.mig => Err(error("MIG is on: name one of its instances in CUDA_VISIBLE_DEVICES")),
            None if !is_instance => Err(error("this machine has no such card")),
            _ => Ok(Self { source, uuid: uuid.into() }),
        }
    }

    /// All of its memory at this moment.
    pub fn memory(&self) -> Result<CardMemory, ProbeError> {
        self.source.memory(&self.uuid)
    }
}

impl DeviceMemory for CardHandle<'_> {
    fn free(&self) -> Result<Bytes, ProbeError> {
        Ok(self.memory()?.free)
    }
}

impl fmt::Debug for CardHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CardHandle").field(&self.uuid).finish()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Compute => "compute",
            Self::Graphics => "graphics",
            Self::Both => "both",
        })
    }
}
