//! The cards people train on: their memory, their speed, and the names they go by.
//!
//! A plan for a card that is not in this machine starts here. `usable` is what the driver leaves to CUDA processes; a
//! process then loses some of it to its own context, which [`Owner::Workspace`](crate::Owner) counts.

use std::borrow::Cow;

use plimsoll_core::{Bytes, Precision};
use serde::Serialize;

mod cards;
#[cfg(test)]
mod tests;

/// A graphics card, as far as a plan has to know it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// What it is sold as, with its memory where there are several sizes.
    pub name: Cow<'static, str>,
    /// The memory it is sold with.
    pub memory: Bytes,
    /// The memory that the driver reports to a CUDA process, after error correction and its own reserve.
    pub usable: Bytes,
    /// Bytes that its memory moves in a second.
    pub bandwidth: f64,
    /// Operations that it computes in a second at best.
    pub peak: Peak,
    /// Its compute capability, major and minor.
    pub capability: (u8, u8),
    #[serde(skip)]
    aliases: &'static [&'static str],
}

/// Operations a second for each kind of number: dense, sums kept in fp32, as the data sheets give them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// On the plain CUDA cores.
    pub fp32: f64,
    /// On tensor cores that round fp32 factors to 19 bits.
    pub tf32: Option<f64>,
    /// On tensor cores, from Volta on.
    pub fp16: Option<f64>,
    /// On tensor cores, from Ampere on.
    pub bf16: Option<f64>,
}

/// Why a text names no card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Neither a card nor a size.
    #[error("no card is called `{text}`; near it are {}; a size such as `24GiB` works too", nearest.join(", "))]
    Unknown {
        /// What was asked for.
        text: String,
        /// Known names that look like it, the most alike first.
        nearest: Vec<&'static str>,
    },
    /// A size of zero.
    #[error("a card of `{text}` has no memory to plan")]
    NoMemory {
        /// What was asked for.
        text: String,
    },
}

/// Names that an error suggests.
const SUGGESTIONS: usize = 3;

/// What people write before the part of a name that tells cards apart.
const PREFIXES: [&str; 5] = ["nvidia", "geforce", "tesla", "quadro", "rtx"];

/// Which card a card of unknown make is taken to be as fast as: a common one, not a fast one, of at least its memory.
///
/// The bounds lie between the sizes that are sold, so that `12GB` and `12GiB` are the same class.
const STAND_INS: [(Bytes, &str); 5] = [
    (Bytes::gib(9), "RTX 4060"),
    (Bytes::gib(13), "RTX 3060 12GB"),
    (Bytes::gib(18), "RTX 4060 Ti 16GB"),
    (Bytes::gib(28), "RTX 3090"),
    (Bytes::gib(56), "RTX A6000"),
];
const STAND_IN_ABOVE: &str = "A100 80GB";

impl Card {
    /// Whether its matrix products gain from `precision`: fp16 from Volta on, bf16 from Ampere on.
    ///
    /// Older cards can emulate both, slower than they compute fp32, so nothing is planned that way.
    pub fn supports(&self, precision: Precision) -> bool {
        self.tensor_rate(precision).is_some()
    }

    /// Operations a second at best, the rate of fp32 where `precision` is not supported.
    ///
    /// Fp32 is the rate of the CUDA cores: whether a backend may round to tf32 is not the card's to say.
    pub fn rate(&self, precision: Precision) -> f64 {
        self.tensor_rate(precision).unwrap_or(self.peak.fp32)
    }

    fn tensor_rate(&self, precision: Precision) -> Option<f64> {
        match precision {
            Precision::Fp32 => Some(self.peak.fp32),
            Precision::Fp16 => self.peak.fp16,
            Precision::Bf16 => self.peak.bf16,
        }
    }

    /// All that it is called, in the form of [`plain`]: each name as it is, and followed by the memory.
    fn spellings(&self) -> impl Iterator<Item = String> + '_ {
        let gib = self.memory.0 >> 30;
        std::iter::once(self.name.as_ref()).chain(self.aliases.iter().copied()).flat_map(move |name| {
            let name = plain(name);
            let bare = name.strip_suffix(&format!("{gib}gb")).unwrap_or(&name);
            let sizes = ["gb", "gib", "g"].map(|unit| format!("{bare}{gib}{unit}"));
            std::iter::once(name).chain(sizes)
        })
    }

    /// A card of which only the memory is known, all of it usable, as fast as its class and able to compute in bf16.
    fn of_size(text: &str, memory: Bytes) -> Self {
        let class = STAND_INS.iter().find(|(most, _)| memory <= *most).map_or(STAND_IN_ABOVE, |(_, name)| name);
        let stand_in = catalogue().iter().find(|card| card.name == class).expect("stand-ins are in the catalogue");
        let name = format!("card of {}", text.trim()).into();
        Self { name, memory, usable: memory, aliases: &[], ..stand_in.clone() }
    }
}

/// Every card that is known by name.
pub fn catalogue() -> &'static [Card] {
    cards::CARDS
}

/// The card that `text` names, however it is written: `RTX 3060`, `3060-12g`, `NVIDIA A100-SXM4-80GB`, or a size alone.
///
/// Where a name fits several sizes, such as `a100`, the smallest is taken: a plan for it fits the others too. A size,
/// such as `12GB` or `24g`, is read as [`Bytes`] reads it and needs its unit, because a bare number is a card's name.
/// All of it counts as usable, and its speed is that of a common card of that size.
pub fn find(text: &str) -> Result<Card, CatalogueError> {
    let wanted = plain(text);
    if let Some(card) = catalogue().iter().find(|card| card.spellings().any(|spelling| spelling == wanted)) {
        return Ok(card.clone());
    }
    let unit = text.contains(|c: char| c.is_ascii_alphabetic());
    match text.parse::<Bytes>() {
        Ok(Bytes(0)) => Err(CatalogueError::NoMemory { text: text.into() }),
        Ok(memory) if unit => Ok(Card::of_size(text, memory)),
        _ => Err(CatalogueError::Unknown { text: text.into(), nearest: nearest(&wanted) }),
    }
}

/// A name without case, gaps and the maker's words around it: `NVIDIA RTX 6000 Ada Generation` becomes `6000ada`.
fn plain(name: &str) -> String {
    let joined: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let lower = joined.to_ascii_lowercase();
    let mut rest = lower.strip_suffix("generation").unwrap_or(&lower);
    while let Some(shorter) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
        rest = shorter;
    }
    rest.to_string()
}

/// The names of the cards most like `wanted`, each judged by the spelling nearest to it.
fn nearest(wanted: &str) -> Vec<&'static str> {
    let likeness = |card: &Card| card.spellings().map(|name| strsim::jaro_winkler(&name, wanted)).fold(0.0, f64::max);
    let mut cards: Vec<(f64, &'static Card)> = catalogue().iter().map(|card| (likeness(card), card)).collect();
    cards.sort_by(|a, b| b.0.total_cmp(&a.0));
    cards.iter().take(SUGGESTIONS).map(|(_, card)| card.name.as_ref()).collect()
}
