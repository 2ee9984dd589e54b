//! GPUs by name, with the numbers of the planner's catalog.
//!
//! `xtask` uses none of our crates, so it reads the rows of the table in the source of `plimsoll-memory`. A GPU so has
//! the same memory here and in a plan.

use super::options::size;

/// Table of GPUs in `plimsoll-memory`.
const TABLE: &str = include_str!("../../../crates/memory/src/catalog/gpus.rs");

/// Words of vendors and product lines at the start of a name, which do not matter.
const PREFIXES: [&str; 5] = ["nvidia", "geforce", "tesla", "quadro", "rtx"];

/// Multiprocessors of common GPUs, from NVIDIA's white papers and data sheets. Others have as many as a common GPU of
/// their capability.
const MULTIPROCESSORS: [(&str, u32); 22] = [
    ("P100", 56),
    ("T4", 40),
    ("V100 16GB", 80),
    ("V100 32GB", 80),
    ("RTX 2080 Ti", 68),
    ("RTX 3060 12GB", 28),
    ("RTX 3070", 46),
    ("RTX 3090", 82),
    ("RTX A6000", 84),
    ("A10", 72),
    ("A10G", 80),
    ("A40", 84),
    ("A100 40GB", 108),
    ("A100 80GB", 108),
    ("RTX 4060", 24),
    ("RTX 4090", 128),
    ("L4", 58),
    ("L40S", 142),
    ("H100 PCIe", 114),
    ("H100 SXM", 132),
    ("H200", 132),
    ("RTX 5090", 170),
];

/// Capability of a GPU of which only the size is given: that of common GPUs with little memory.
const CAPABILITY: u32 = 86;

/// GPU to stand in for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gpu {
    pub(super) name: String,
    /// Nominal memory in bytes.
    pub(super) nominal: u64,
    /// Memory that the driver reports to programs.
    pub(super) usable: u64,
    /// Compute capability, such as 86.
    pub(super) capability: u32,
    pub(super) multiprocessors: Option<u32>,
    aliases: Vec<String>,
}

/// Finds a GPU by its name or by the size of its memory.
pub(super) fn find(text: &str) -> Option<Gpu> {
    let wanted = normalize(text);
    let named = gpus().find(|gpu| gpu.spellings().any(|spelling| spelling == wanted));
    let sized = size(text).filter(|size| *size > 0).map(|size| Gpu {
        name: format!("Stand-in {text}"),
        nominal: size,
        usable: size,
        capability: CAPABILITY,
        multiprocessors: None,
        aliases: Vec::new(),
    });
    named.or(sized)
}

/// Lists the names of all GPUs.
pub(super) fn names() -> Vec<String> {
    gpus().map(|gpu| gpu.name).collect()
}

impl Gpu {
    /// Lists the normalized spellings of the name and the aliases, alone and with the memory.
    fn spellings(&self) -> impl Iterator<Item = String> + '_ {
        let gib = self.nominal >> 30;
        std::iter::once(&self.name).chain(&self.aliases).flat_map(move |name| {
            let name = normalize(name);
            let bare = name.strip_suffix(&format!("{gib}gb")).unwrap_or(&name).to_owned();
            let sizes = ["gb", "gib", "g"].map(|unit| format!("{bare}{gib}{unit}"));
            std::iter::once(name).chain(sizes)
        })
    }
}

fn normalize(name: &str) -> String {
    let lower: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|char| char.to_ascii_lowercase()).collect();
    let mut rest = lower.strip_suffix("generation").unwrap_or(&lower);
    while let Some(shorter) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
        rest = shorter;
    }
    rest.to_owned()
}

fn gpus() -> impl Iterator<Item = Gpu> {
    let rows = TABLE.split_once("GPUS: &[Gpu] = &[").and_then(|(_, rest)| rest.split_once("\n];"));
    rows.map_or("", |(rows, _)| rows).split("row(").skip(1).filter_map(gpu)
}

/// Reads a row: `"T4", &["alias"], TURING, 16).reported(14.56).gb_per_sec(...)`.
fn gpu(row: &str) -> Option<Gpu> {
    // A long row goes over two lines.
    let row = row.split_whitespace().collect::<Vec<_>>().join(" ").replace(") .", ").");
    let (name, rest) = quoted(&row)?;
    let (aliases, rest) = rest.split_once("&[")?.1.split_once(']')?;
    let (facts, rest) = rest.strip_prefix(',')?.split_once(").")?;
    let (capability, gib) = facts.rsplit_once(',')?;
    let gib: f64 = gib.trim().parse().ok()?;
    let reported = rest.strip_prefix("reported(").and_then(|rest| rest.split(')').next()?.parse().ok());
    let bytes = |gib: f64| (gib * f64::from(1 << 30)) as u64;
    Some(Gpu {
        name: name.to_owned(),
        nominal: bytes(gib),
        usable: bytes(reported.unwrap_or_else(|| by_rule(gib))),
        capability: read_capability(capability.trim())?,
        multiprocessors: MULTIPROCESSORS.iter().find(|(known, _)| *known == name).map(|(_, count)| *count),
        aliases: aliases.split(',').filter_map(|alias| Some(quoted(alias)?.0.to_owned())).collect(),
    })
}

/// Memory that a GPU reports for which the table has none: the rule of the table.
fn by_rule(gib: f64) -> f64 {
    gib - (gib * 0.02).max(0.55)
}

/// Reads a capability: `(6, 0)`, or the name of a constant of the table.
fn read_capability(text: &str) -> Option<u32> {
    let constant =
        || TABLE.split_once(&format!("const {text}: (u8, u8) = "))?.1.split_once(';').map(|(value, _)| value);
    let pair = if text.starts_with('(') { text } else { constant()? };
    let (major, minor) = pair.trim_matches(['(', ')']).split_once(',')?;
    Some(major.trim().parse::<u32>().ok()? * 10 + minor.trim().parse::<u32>().ok()?)
}

/// Returns the first text in quotes, and what comes after it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.split_once('"')?.1.split_once('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        let n_rows = TABLE.lines().filter(|line| line.starts_with("    row(\"")).count();
        assert_eq!((n_rows > 40, gpus().count()), (true, n_rows));
        for gpu in gpus() {
            assert!(gpu.usable < gpu.nominal && gpu.usable > gpu.nominal / 10 * 8, "{gpu:?}");
            assert!((60..=120).contains(&gpu.capability), "{gpu:?}");
            assert_eq!(find(&gpu.name).map(|found| found.name), Some(gpu.name));
        }
        assert!(MULTIPROCESSORS.iter().all(|(name, _)| gpus().any(|gpu| gpu.name == *name)));
        assert!(TABLE.contains("by_rule(gib: f64)") && TABLE.contains("gib - (gib * 0.02).max(0.55)"));
        let catalog = include_str!("../../../crates/memory/src/catalog.rs");
        assert!(PREFIXES.iter().all(|prefix| catalog.contains(&format!("\"{prefix}\""))));
    }

    #[test]
    fn gpus_are_found_by_their_names() {
        let check = |text: &str, name: &str, mib: u64, capability| {
            let gpu = find(text).unwrap();
            assert_eq!((gpu.name.as_str(), gpu.usable >> 20, gpu.capability), (name, mib, capability), "{text}");
        };
        check("3060", "RTX 3060 12GB", 11909, 86);
        check("rtx-3060-12g", "RTX 3060 12GB", 11909, 86);
        check("t4", "T4", 14909, 75);
        check("NVIDIA H100 PCIe", "H100 PCIe", 80998, 90);
        check("a100-80g", "A100 80GB", 81039, 80);
        check("RTX 2060", "RTX 2060", 5580, 75);
        check("8GiB", "Stand-in 8GiB", 8192, 86);
        assert_eq!(["", "9999", "0GiB", "gpu"].map(find), [None, None, None, None]);
    }
}
