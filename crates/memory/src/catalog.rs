//! The GPUs people train on: their memory, their speed, and the names they go by.
//!
//! A plan for a GPU that is not in this machine starts here. `usable` is what the driver leaves to CUDA processes; a
//! process then loses some of it to its own context, which [`Owner::Workspace`](crate::Owner) counts.

use std::borrow::Cow;

use plimsoll_core::{Bytes, Precision};
use serde::Serialize;

mod gpus;
#[cfg(test)]
mod tests;

/// A graphics GPU, as far as a plan has to know it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// What it is sold as, with its memory where there are several sizes.
    pub name: Cow<'static, str>,
    /// The memory it is sold with.
    pub memory: Bytes,
    /// The memory that the driver reports to a CUDA process, after error correction and its own reserve.
    pub usable: Bytes,
    /// Bytes that its memory moves in a second.
    pub bandwidth: f64,
    /// Operations that it computes in a second at best.
    pub peak: PeakRates,
    /// Its compute capability, major and minor.
    pub capability: (u8, u8),
    #[serde(skip)]
    aliases: &'static [&'static str],
}

/// Operations a second for each kind of number: dense, sums kept in fp32, as the data sheets give them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PeakRates {
    /// On the plain CUDA cores.
    pub fp32: f64,
    /// On tensor cores that round fp32 factors to 19 bits.
    pub tf32: Option<f64>,
    /// On tensor cores, from Volta on.
    pub fp16: Option<f64>,
    /// On tensor cores, from Ampere on.
    pub bf16: Option<f64>,
}

/// Why a text names no gpu.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// Neither a GPU nor a size.
    #[error("no GPU is called `{text}`; near it are {}; a size such as `24GiB` works too", nearest.join(", "))]
    Unknown {
        /// What was asked for.
        text: String,
        /// Known names that look like it, the most alike first.
        nearest: Vec<&'static str>,
    },
    /// A size of zero.
    #[error("a GPU of `{text}` has no memory to plan")]
    NoMemory {
        /// What was asked for.
        text: String,
    },
}

/// Names that an error suggests.
const SUGGESTIONS: usize = 3;

/// What people write before the part of a name that tells GPUs apart.
const PREFIXES: [&str; 5] = ["nvidia", "geforce", "tesla", "quadro", "rtx"];

/// Which GPU a GPU of unknown make is taken to be as fast as: a common one, not a fast one, of at least its memory.
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

impl Gpu {
    /// Whether its matrix products gain from `precision`: fp16 from Volta on, bf16 from Ampere on.
    ///
    /// Older GPUs can emulate both, slower than they compute fp32, so nothing is planned that way.
    pub fn supports(&self, precision: Precision) -> bool {
        self.tensor_rate(precision).is_some()
    }

    /// Operations a second at best, the rate of fp32 where `precision` is not supported.
    ///
    /// Fp32 is the rate of the CUDA cores: whether a backend may round to tf32 is not the GPU's to say.
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

    /// All that it is called, in the form of [`normalize_name`]: each name as it is, and followed by the memory.
    fn spellings(&self) -> impl Iterator<Item = String> + '_ {
        let gib = self.memory.0 >> 30;
        std::iter::once(self.name.as_ref()).chain(self.aliases.iter().copied()).flat_map(move |name| {
            let name = normalize_name(name);
            let bare = name.strip_suffix(&format!("{gib}gb")).unwrap_or(&name);
            let sizes = ["gb", "gib", "g"].map(|unit| format!("{bare}{gib}{unit}"));
            std::iter::once(name).chain(sizes)
        })
    }

    /// A GPU of which only the memory is known, all of it usable, as fast as its class and able to compute in bf16.
    fn of_size(text: &str, memory: Bytes) -> Self {
        let class = STAND_INS.iter().find(|(most, _)| memory <= *most).map_or(STAND_IN_ABOVE, |(_, name)| name);
        let stand_in = catalog().iter().find(|gpu| gpu.name == class).expect("stand-ins are in the catalog");
        let name = format!("GPU of {}", text.trim()).into();
        Self { name, memory, usable: memory, aliases: &[], ..stand_in.clone() }
    }
}

/// Every GPU that is known by name.
pub fn catalog() -> &'static [Gpu] {
    gpus::GPUS
}

/// The GPU that `text` names, however it is written: `RTX 3060`, `3060-12g`, `NVIDIA A100-SXM4-80GB`, or a size alone.
///
/// Where a name fits several sizes, such as `a100`, the smallest is taken: a plan for it fits the others too. A size,
/// such as `12GB` or `24g`, is read as [`Bytes`] reads it and needs its unit, because a bare number is a GPU's name.
/// All of it counts as usable, and its speed is that of a common GPU of that size.
pub fn find(text: &str) -> Result<Gpu, CatalogError> {
    let wanted = normalize_name(text);
    if let Some(gpu) = catalog().iter().find(|gpu| gpu.spellings().any(|spelling| spelling == wanted)) {
        return Ok(gpu.clone());
    }
    let unit = text.contains(|c: char| c.is_ascii_alphabetic());
    match text.parse::<Bytes>() {
        Ok(Bytes(0)) => Err(CatalogError::NoMemory { text: text.into() }),
        Ok(memory) if unit => Ok(Gpu::of_size(text, memory)),
        _ => Err(CatalogError::Unknown { text: text.into(), nearest: nearest(&wanted) }),
    }
}

/// A name without case, gaps and the maker's words around it: `NVIDIA RTX 6000 Ada Generation` becomes `6000ada`.
fn normalize_name(name: &str) -> String {
    let joined: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let lower = joined.to_ascii_lowercase();
    let mut rest = lower.strip_suffix("generation").unwrap_or(&lower);
    while let Some(shorter) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
        rest = shorter;
    }
    rest.to_string()
}

/// The names of the GPUs most like `wanted`, each judged by the spelling nearest to it.
fn nearest(wanted: &str) -> Vec<&'static str> {
    let similarity = |gpu: &Gpu| gpu.spellings().map(|name| strsim::jaro_winkler(&name, wanted)).fold(0.0, f64::max);
    let mut gpus: Vec<(f64, &'static Gpu)> = catalog().iter().map(|gpu| (similarity(gpu), gpu)).collect();
    gpus.sort_by(|a, b| b.0.total_cmp(&a.0));
    gpus.iter().take(SUGGESTIONS).map(|(_, gpu)| gpu.name.as_ref()).collect()
}
