//! Cards that are only told of.

use std::collections::BTreeMap;

use plimsoll_core::ProbeError;

use super::{Card, CardMemory, CardProcess, CardSource, Roster, Unseen, Version};

/// Cards made of plain data, for tests on machines that have none.
///
/// ```
/// use plimsoll_core::{Bytes, DeviceMemory};
/// use plimsoll_monitor::{CardHandle, CardMemory, FakeCards};
///
/// let memory = CardMemory::new(Bytes::gib(16), Bytes::mib(512), Bytes::gib(12));
/// let cards = FakeCards::default().card("NVIDIA T4", memory);
/// let handle = CardHandle::open(&cards, &cards.roster.cards[0].uuid)?;
/// assert_eq!(handle.free()?, Bytes::gib(12));
/// # Ok::<(), plimsoll_core::ProbeError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FakeCards {
    /// The driver and the cards.
    pub roster: Roster,
    /// What each UUID answers when asked for its memory.
    pub memory: BTreeMap<String, Result<CardMemory, ProbeError>>,
    /// What each UUID answers when asked for its processes.
    pub processes: BTreeMap<String, Result<Vec<CardProcess>, Unseen>>,
}

impl FakeCards {
    /// One card more, idle. The first is `GPU-0a000000-0000-0000-0000-000000000000`, the next begins with `GPU-1a`.
    #[must_use]
    pub fn card(mut self, name: &str, memory: CardMemory) -> Self {
        let index = self.roster.cards.len() as u32;
        let uuid = format!("GPU-{index:x}a000000-0000-0000-0000-000000000000");
        self.memory.insert(uuid.clone(), Ok(memory));
        self.processes.insert(uuid.clone(), Ok(Vec::new()));
        self.roster.cards.push(Card {
            index,
            uuid,
            pci_bus_id: format!("00000000:{:02X}:00.0", index + 1),
            name: name.into(),
            compute_capability: Some(Version { major: 8, minor: 0 }),
            bandwidth_per_sec: None,
            mig: false,
            instances: Vec::new(),
        });
        self
    }

    /// One process more on the newest card.
    ///
    /// # Panics
    /// Where there is no card yet, or its processes were made unseen.
    #[must_use]
    pub fn holding(mut self, process: CardProcess) -> Self {
        let uuid = &self.roster.cards.last().expect("a card comes before its processes").uuid;
        let processes = self.processes.get_mut(uuid).and_then(|processes| processes.as_mut().ok());
        processes.expect("the card's processes can be seen").push(process);
        self
    }
}

impl CardSource for FakeCards {
    fn roster(&self) -> Roster {
        self.roster.clone()
    }

    fn memory(&self, uuid: &str) -> Result<CardMemory, ProbeError> {
        let unknown = || Err(ProbeError { device: uuid.into(), reason: "there is no such card".into() });
        self.memory.get(uuid).cloned().unwrap_or_else(unknown)
    }

    fn processes(&self, uuid: &str) -> Result<Vec<CardProcess>, Unseen> {
        self.processes.get(uuid).cloned().unwrap_or(Err(Unseen::Driver))
    }
}
