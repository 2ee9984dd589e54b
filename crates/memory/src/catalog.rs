//! GPUs for training: their memory, their speed and their names.
//!
//! A plan for a GPU that is not in this machine starts here. `usable` is the memory that the driver leaves to CUDA
//! processes. The context of a process takes a part of it, which [`Owner::Workspace`](crate::Owner) counts.

use std::borrow::Cow;

use plimsoll_core::{Bytes, Precision};
use serde::Serialize;

mod gpus;
#[cfg(test)]
mod tests;

/// A GPU, with the properties that a plan needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// Product name of the GPU, with the memory size where the product has several.
    pub name: Cow<'static, str>,
    /// Nominal memory of the GPU.
    pub memory: Bytes,
    /// Memory that the driver reports to a CUDA process, without error correction and the reserve of the driver.
    pub usable: Bytes,
    /// Memory bandwidth of the GPU in bytes per second.
    pub bandwidth: f64,
    /// Peak rates of arithmetic in each precision.
    pub peak: PeakRates,
    /// CUDA compute capability of the GPU, major and minor.
    pub capability: (u8, u8),
    #[serde(skip)]
    aliases: &'static [&'static str],
}

/// Peak operations per second of a GPU in each precision: dense, accumulated in fp32, from the data sheets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PeakRates {
    /// Peak fp32 operations per second on the CUDA cores.
    pub fp32: f64,
    /// Peak tf32 operations per second on tensor cores, which round fp32 factors to 19 bits; `None` before Ampere.
    pub tf32: Option<f64>,
    /// Peak fp16 operations per second on tensor cores; `None` before Volta.
    pub fp16: Option<f64>,
    /// Peak bf16 operations per second on tensor cores; `None` before Ampere.
    pub bf16: Option<f64>,
}

/// Error of looking up a GPU: the text names no GPU that can be planned for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The text is neither the name of a known GPU nor a memory size.
    #[error("no GPU is called `{text}`; similar names: {}; a size such as `24GiB` works too", nearest.join(", "))]
    Unknown {
        /// Text that was looked up: neither the name of a known GPU nor a memory size.
        text: String,
        /// Names of GPUs similar to the text, the most similar first.
        nearest: Vec<&'static str>,
    },
    /// The text is a memory size of zero.
    #[error("a GPU of `{text}` has no memory to plan")]
    NoMemory {
        /// Text that names a size of zero.
        text: String,
    },
}

/// Number of similar names that an error suggests.
const SUGGESTIONS: usize = 3;

/// Words of vendors and product lines at the start of a GPU's name, which do not matter when a GPU is looked up.
const PREFIXES: [&str; 5] = ["nvidia", "geforce", "tesla", "quadro", "rtx"];

/// GPUs whose speed is assumed if only a memory size is given, each with the largest size that it is assumed for. Each
/// is a common GPU of its class, not a fast one.
///
/// The bounds lie between the sizes on the market, so that `12GB` and `12GiB` are the same class.
const STAND_INS: [(Bytes, &str); 5] = [
    (Bytes::gib(9), "RTX 4060"),
    (Bytes::gib(13), "RTX 3060 12GB"),
    (Bytes::gib(18), "RTX 4060 Ti 16GB"),
    (Bytes::gib(28), "RTX 3090"),
    (Bytes::gib(56), "RTX A6000"),
];
const STAND_IN_ABOVE: &str = "A100 80GB";

impl Gpu {
    /// Returns whether the GPU's tensor cores compute in `precision`: fp16 from Volta on, bf16 from Ampere on.
    ///
    /// Older GPUs emulate fp16 and bf16 more slowly than they compute fp32, so no plan uses these formats on them.
    pub fn supports(&self, precision: Precision) -> bool {
        self.tensor_rate(precision).is_some()
    }

    /// Returns the peak operations per second in `precision`, or in fp32 where `precision` is not supported.
    ///
    /// The fp32 rate is the rate of the CUDA cores: a backend decides whether it rounds to tf32.
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

    /// Lists the normalized spellings by which the GPU is found: its name and aliases, alone and followed by the memory
    /// size.
    fn spellings(&self) -> impl Iterator<Item = String> + '_ {
        let gib = self.memory.0 >> 30;
        std::iter::once(self.name.as_ref()).chain(self.aliases.iter().copied()).flat_map(move |name| {
            let name = normalize_name(name);
            let bare = name.strip_suffix(&format!("{gib}gb")).unwrap_or(&name);
            let sizes = ["gb", "gib", "g"].map(|unit| format!("{bare}{gib}{unit}"));
            std::iter::once(name).chain(sizes)
        })
    }

    /// Makes a GPU of which only the memory size is known: all of it is usable, and the speed is that of a common GPU
    /// of this size. `text` is the size as a person wrote it, for the name.
    fn of_size(text: &str, memory: Bytes) -> Self {
        let place = STAND_INS.iter().position(|(most, _)| memory <= *most);
        let smaller = STAND_INS[..place.map_or(STAND_INS.len(), |place| place + 1)].iter().map(|(_, name)| *name);
        let all = smaller.chain(place.is_none().then_some(STAND_IN_ABOVE));
        let gpu = |name: &str| catalog().iter().find(|gpu| gpu.name == name).expect("stand-ins are in the catalog");
        let stand_in = all.map(gpu).cloned().reduce(|smaller, larger| larger.at_least_as_fast_as(&smaller));
        let stand_in = stand_in.expect("there is a stand-in for every size");
        let name = format!("GPU of {}", text.trim()).into();
        Self { name, memory, usable: memory, aliases: &[], ..stand_in }
    }

    /// Returns this GPU with each speed raised to that of `other` where `other` is faster. A larger GPU of unknown name
    /// must not seem slower than a smaller one, as common GPUs of neighboring sizes can be.
    fn at_least_as_fast_as(self, other: &Self) -> Self {
        let higher = |one: Option<f64>, two: Option<f64>| match (one, two) {
            (Some(one), Some(two)) => Some(one.max(two)),
            (one, two) => one.or(two),
        };
        let peak = PeakRates {
            fp32: self.peak.fp32.max(other.peak.fp32),
            tf32: higher(self.peak.tf32, other.peak.tf32),
            fp16: higher(self.peak.fp16, other.peak.fp16),
            bf16: higher(self.peak.bf16, other.peak.bf16),
        };
        Self { bandwidth: self.bandwidth.max(other.bandwidth), peak, ..self }
    }
}

/// Returns every GPU that is known by name, oldest first.
pub fn catalog() -> &'static [Gpu] {
    gpus::GPUS
}

/// Finds the GPU that `text` names. Case, spaces and vendor words do not matter (`RTX 3060`, `3060-12g`, `NVIDIA
/// A100-SXM4-80GB`), and a memory size will do.
///
/// A name of several sizes, such as `a100`, means the smallest size: a plan for it fits the larger sizes too. A memory
/// size, such as `12GB` or `24g`, is read as [`Bytes`] reads it and needs its unit, because a bare number is a GPU's
/// name. All of that memory counts as usable, and the speed is that of a common GPU of the size, or of a
/// smaller one that is faster.
///
/// # Errors
/// [`CatalogError::Unknown`] where `text` is neither a name nor a size, [`CatalogError::NoMemory`] for a size of zero.
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

/// Writes a name in lower case, without spaces and vendor words: `NVIDIA RTX 6000 Ada Generation` becomes `6000ada`.
fn normalize_name(name: &str) -> String {
    let joined: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let lower = joined.to_ascii_lowercase();
    let mut rest = lower.strip_suffix("generation").unwrap_or(&lower);
    while let Some(shorter) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
        rest = shorter;
    }
    rest.to_string()
}

/// Returns the names of the GPUs most similar to the normalized name `wanted` (see `normalize_name`), the most similar
/// first. Of the spellings of a GPU, the most similar counts.
fn nearest(wanted: &str) -> Vec<&'static str> {
    let similarity = |gpu: &Gpu| gpu.spellings().map(|name| strsim::jaro_winkler(&name, wanted)).fold(0.0, f64::max);
    let mut gpus: Vec<(f64, &'static Gpu)> = catalog().iter().map(|gpu| (similarity(gpu), gpu)).collect();
    gpus.sort_by(|a, b| b.0.total_cmp(&a.0));
    gpus.iter().take(SUGGESTIONS).map(|(_, gpu)| gpu.name.as_ref()).collect()
}
