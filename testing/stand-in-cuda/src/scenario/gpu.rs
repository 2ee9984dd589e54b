//! The part of a scenario that describes one GPU.

use std::collections::BTreeMap;

use super::{Mistake, Words};
use crate::errors::Code;

/// Memory that a context takes. An assumption: it differs between GPUs and drivers.
const CONTEXT: u64 = 512 << 20;

/// GPU of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GpuFacts {
    /// Product name.
    pub(crate) name: String,
    /// Identifier; `None` for one that is made from the number of the GPU.
    pub(crate) uuid: Option<[u8; 16]>,
    /// Memory that the driver reports in all.
    pub(crate) memory: u64,
    /// Memory that a context takes.
    pub(crate) context: u64,
    /// Compute capability, such as 86.
    pub(crate) capability: u32,
    /// Number of multiprocessors; `None` for that of a common GPU of the capability.
    pub(crate) multiprocessors: Option<u32>,
    /// Memory of other processes.
    pub(crate) others: u64,
    /// Memory of other processes from an allocation on: its number, from 1, and the size.
    pub(crate) others_at: Vec<(u64, u64)>,
    /// Allocations that fail although they fit.
    pub(crate) allocation_failures: AllocationFailures,
    /// Launches that fail, by their number from 1, with their codes.
    pub(crate) launch_failures: BTreeMap<u64, Code>,
}

/// Allocations that fail although they fit.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AllocationFailures {
    /// Numbers of allocations, from 1.
    pub(crate) at: Vec<u64>,
    /// One allocation of this many fails.
    pub(crate) every: Option<u64>,
    /// Allocations above this size fail.
    pub(crate) above: Option<u64>,
    /// Probability of a failure, and the seed of the draws.
    pub(crate) chance: Option<(f64, u64)>,
}

impl GpuFacts {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            uuid: None,
            memory: 0,
            context: CONTEXT,
            capability: 80,
            multiprocessors: None,
            others: 0,
            others_at: Vec::new(),
            allocation_failures: AllocationFailures::default(),
            launch_failures: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, key: &str, words: &mut Words<'_>) -> Result<(), Mistake> {
        match key {
            "uuid" => self.uuid = Some(uuid(words)?),
            "memory" => self.memory = words.size("`memory SIZE`, such as 24GiB")?,
            "context" => self.context = words.size("`context SIZE`")?,
            "capability" => self.capability = capability(words)?,
            "multiprocessors" => self.multiprocessors = Some(words.number("`multiprocessors NUMBER`")?),
            "others" => self.others = words.size("`others SIZE`")?,
            "others-at" => {
                let expected = "`others-at NUMBER SIZE`, the number of an allocation from 1";
                self.others_at.push((words.ordinal(expected)?, words.size(expected)?));
            }
            "fail-launch" => {
                let expected = "`fail-launch NUMBER CODE`, the number of a launch from 1";
                self.launch_failures.insert(words.ordinal(expected)?, words.code(expected)?);
            }
            _ => return self.allocation_failures.add(key, words),
        }
        Ok(())
    }
}

impl AllocationFailures {
    fn add(&mut self, key: &str, words: &mut Words<'_>) -> Result<(), Mistake> {
        match key {
            "fail-allocation" => {
                let expected = "`fail-allocation NUMBER...`, numbers of allocations from 1";
                self.at = std::iter::from_fn(|| words.0.next())
                    .map(|word| word.parse().ok())
                    .collect::<Option<_>>()
                    .ok_or(Mistake(expected))?;
            }
            "fail-allocation-every" => self.every = Some(words.ordinal("`fail-allocation-every NUMBER`")?),
            "fail-allocation-above" => self.above = Some(words.size("`fail-allocation-above SIZE`")?),
            "fail-allocation-chance" => {
                let expected = "`fail-allocation-chance PROBABILITY SEED`, a probability from 0 to 1";
                let chance: f64 = words.number(expected)?;
                if !(0.0..=1.0).contains(&chance) {
                    return Err(Mistake(expected));
                }
                self.chance = Some((chance, words.number(expected)?));
            }
            _ => return Err(Mistake("a key of a GPU; the keys of the machine come before the first line `gpu NAME`")),
        }
        Ok(())
    }
}

fn capability(words: &mut Words<'_>) -> Result<u32, Mistake> {
    let mistake = || Mistake("`capability MAJOR.MINOR`, such as 8.6");
    let word = words.word("`capability MAJOR.MINOR`, such as 8.6")?;
    let (major, minor) = word.split_once('.').ok_or_else(mistake)?;
    let (major, minor) = (major.parse::<u32>(), minor.parse::<u32>());
    match (major, minor) {
        (Ok(major @ 1..100), Ok(minor @ 0..10)) => Ok(major * 10 + minor),
        _ => Err(mistake()),
    }
}

fn uuid(words: &mut Words<'_>) -> Result<[u8; 16], Mistake> {
    let expected = "`uuid GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`";
    let digits = words.word(expected)?.strip_prefix("GPU-").ok_or(Mistake(expected))?.replace('-', "");
    let number = u128::from_str_radix(&digits, 16).map_err(|_| Mistake(expected))?;
    if digits.len() == 32 { Ok(number.to_be_bytes()) } else { Err(Mistake(expected)) }
}
