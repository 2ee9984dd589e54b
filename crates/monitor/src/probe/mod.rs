//! What this machine has, and who holds it: cards, their memory, the processes on it, the host.
//!
//! That there is no card, no driver or no answer is normal here: each is a value with a reason, and one fact that
//! cannot be read never hides another. A fact that is unknown is never a zero.

mod card;
mod fake;
mod holder;
mod nvml;
mod place;
mod table;
#[cfg(test)]
mod tests;
mod visible;

use std::fmt::Display;

use plimsoll_core::ProbeError;
use serde::{Serialize, Serializer};

pub use self::card::{Card, CardHandle, CardMemory, CardProcess, CardSource, NoCards, Roster, Version, WorkKind};
pub use self::fake::FakeCards;
pub use self::holder::{Holder, Unaccounted};
use self::holder::{Person, Register};
pub use self::nvml::NvmlCards;
pub use self::place::{Place, Unseen};
pub use self::visible::{CudaEnvironment, Visible};
use crate::Host;

/// Everything that can be known of this machine at one moment.
///
/// It prints as a page for people and serialises for programs, where an unknown fact is `{"unseen": "why"}`.
///
/// ```
/// use plimsoll_core::Bytes;
/// use plimsoll_monitor::{CardMemory, FakeCards, Machine};
///
/// let memory = CardMemory::new(Bytes::gib(16), Bytes::mib(512), Bytes::gib(12));
/// let machine = Machine::look(Ok(&FakeCards::default().card("NVIDIA T4", memory)));
/// assert_eq!(machine.cards[0].memory, Ok(memory));
/// assert!(machine.to_string().contains("16 GiB in all"));
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Its memory and processors.
    pub host: Host,
    /// What kind of place this process runs in.
    pub place: Place,
    /// The version of the driver, where there is one.
    pub driver: Option<String>,
    /// The newest CUDA that the driver can run.
    pub cuda: Option<Version>,
    /// What the environment tells CUDA.
    pub environment: CudaEnvironment,
    /// The cards that CUDA gives to this process.
    pub visible: Visible,
    /// Every card that answers.
    pub cards: Vec<CardReport>,
    /// Cards that are there and do not answer.
    #[serde(serialize_with = "as_texts")]
    pub lost: Vec<ProbeError>,
    /// Why there are no cards, where there are none.
    #[serde(serialize_with = "as_text")]
    pub no_cards: Option<NoCards>,
}

/// A card at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct CardReport {
    /// What does not change about it.
    pub card: Card,
    /// Its number in CUDA, where CUDA gives it to us; see [`Visible::order_is_certain`].
    pub cuda_index: Option<usize>,
    /// Its memory.
    #[serde(serialize_with = "fact")]
    pub memory: Result<CardMemory, ProbeError>,
    /// The processes on it, the largest first and those of unknown size before them.
    #[serde(serialize_with = "fact")]
    pub holders: Result<Vec<Holder>, Unseen>,
    /// Memory in use that no process in the list accounts for.
    pub unaccounted: Option<Unaccounted>,
    /// The instances it is cut into (MIG).
    pub instances: Vec<InstanceReport>,
}

/// A MIG instance at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct InstanceReport {
    /// Its name: `MIG-` and a UUID.
    pub uuid: String,
    /// Its number in CUDA, where CUDA gives it to us.
    pub cuda_index: Option<usize>,
    /// Its memory.
    #[serde(serialize_with = "fact")]
    pub memory: Result<CardMemory, ProbeError>,
}

impl Machine {
    /// Looks at this machine through the NVIDIA driver, where there is one.
    pub fn probe() -> Self {
        match NvmlCards::load() {
            Ok(cards) => Self::look(Ok(&cards)),
            Err(why) => Self::look(Err(why)),
        }
    }

    /// Looks at this machine, and at the cards that `source` sees.
    pub fn look(source: Result<&dyn CardSource, NoCards>) -> Self {
        let place = Place::here();
        let mut register = Register::open(place);
        let mut who = |pid| register.who(pid);
        Look { host: Host::read(), place, environment: CudaEnvironment::here(), who: &mut who }.at(source)
    }
}

/// All that goes into a report beside the cards, so that a test can say it.
struct Look<'a> {
    host: Host,
    place: Place,
    environment: CudaEnvironment,
    who: &'a mut dyn FnMut(u32) -> Person,
}

impl Look<'_> {
    fn at(mut self, source: Result<&dyn CardSource, NoCards>) -> Machine {
        let roster = source.as_ref().map(|source| source.roster()).unwrap_or_default();
        let visible = self.environment.visible(&roster.cards);
        let Roster { driver, cuda, cards, lost } = roster;
        let (cards, no_cards) = match source {
            Ok(_) if cards.is_empty() && lost.is_empty() => (Vec::new(), Some(NoCards::Empty)),
            Ok(source) => (cards.into_iter().map(|card| self.card(card, source, &visible)).collect(), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let Look { host, place, environment, .. } = self;
        Machine { host, place, driver, cuda, environment, visible, cards, lost, no_cards }
    }

    fn card(&mut self, card: Card, source: &dyn CardSource, visible: &Visible) -> CardReport {
        let memory = source.memory(&card.uuid);
        let total = memory.as_ref().ok().map(|memory| memory.total);
        let holders = source.processes(&card.uuid).map(|processes| {
            let mut holders: Vec<_> =
                processes.into_iter().map(|process| Holder::of(process, total, self.place, self.who)).collect();
            holders.sort_by_key(|holder| std::cmp::Reverse(holder.memory.map_or(u64::MAX, |bytes| bytes.0)));
            holders
        });
        let holders = holders.map_err(|why| if why == Unseen::Driver { self.place.silence() } else { why });
        let instances = card.instances.iter().map(|uuid| InstanceReport {
            uuid: uuid.clone(),
            cuda_index: visible.cuda_index(uuid),
            memory: source.memory(uuid),
        });
        CardReport {
            instances: instances.collect(),
            cuda_index: visible.cuda_index(&card.uuid),
            unaccounted: memory.as_ref().ok().map(|&memory| Unaccounted::of(memory, &holders)),
            card,
            memory,
            holders,
        }
    }
}

/// Writes a fact as itself, and an unknown one as `{"unseen": "why"}`.
fn fact<T: Serialize, E: Display, S: Serializer>(fact: &Result<T, E>, serializer: S) -> Result<S::Ok, S::Error> {
    match fact {
        Ok(value) => value.serialize(serializer),
        Err(why) => serializer.collect_map([("unseen", why.to_string())]),
    }
}

fn as_text<S: Serializer>(why: &Option<NoCards>, serializer: S) -> Result<S::Ok, S::Error> {
    why.as_ref().map(NoCards::to_string).serialize(serializer)
}

fn as_texts<S: Serializer>(errors: &[ProbeError], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(errors.iter().map(ProbeError::to_string))
}
