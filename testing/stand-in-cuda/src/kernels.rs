//! Modules that are loaded, their kernels, and how often each kernel was launched.

use std::collections::{BTreeMap, BTreeSet};

use crate::abi::Handle;
use crate::ptx::Parameter;
use crate::ptxas::Resources;

/// Module on a GPU.
#[derive(Debug)]
pub(crate) struct Module {
    /// Number of the GPU.
    pub(crate) gpu: usize,
    /// Kernels by name. Those of a binary are added when they are looked up.
    pub(crate) functions: BTreeMap<String, Handle>,
    /// Whether it is a binary, of which nothing is known.
    pub(crate) is_binary: bool,
    /// Memory of its code.
    pub(crate) code: u64,
}

/// Kernel of a module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// Number of the GPU.
    pub(crate) gpu: usize,
    /// Handle of the module.
    pub(crate) module: Handle,
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    /// Most threads of a block.
    pub(crate) max_threads: u32,
    /// What `ptxas` says about it, if it was compiled.
    pub(crate) resources: Option<Resources>,
    /// Dynamic shared memory to which it has opted in.
    pub(crate) shared_dynamic: u32,
    /// Whether the scenario says that it takes long.
    pub(crate) is_slow: bool,
}

/// Launches by the name of the kernel, without the hash at its end.
#[derive(Debug, Default)]
pub(crate) struct KernelCounts(BTreeMap<String, KernelCount>);

/// Launches of the kernels of one name.
#[derive(Debug, Default)]
pub(crate) struct KernelCount {
    /// Launches outside of graphs.
    pub(crate) launches: u64,
    /// Launches by graphs.
    pub(crate) replayed: u64,
    /// Largest of each resource of a kernel of this name; zero where nothing was compiled.
    pub(crate) largest: Resources,
    /// Full names.
    variants: BTreeSet<String>,
    /// Full names of those that spill.
    spilling: BTreeSet<String>,
}

impl KernelCounts {
    /// Adds a kernel that was loaded, with its resources if it was compiled.
    pub(crate) fn add(&mut self, name: &str, resources: Option<Resources>) {
        let count = self.0.entry(short_name(name).to_owned()).or_default();
        count.variants.insert(name.to_owned());
        let resources = resources.unwrap_or_default();
        count.largest = count.largest.max(resources);
        if resources.spills > 0 {
            count.spilling.insert(name.to_owned());
        }
    }

    /// Counts a launch.
    pub(crate) fn count(&mut self, name: &str, is_replay: bool) {
        if let Some(count) = self.0.get_mut(short_name(name)) {
            if is_replay { count.replayed += 1 } else { count.launches += 1 }
        }
    }

    /// Returns the counts by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &KernelCount)> {
        self.0.iter().map(|(name, count)| (name.as_str(), count))
    }
}

impl KernelCount {
    /// Returns the number of kernels of this name.
    pub(crate) fn n_variants(&self) -> usize {
        self.variants.len()
    }

    /// Returns the number of kernels of this name that store registers in memory.
    pub(crate) fn n_spilling(&self) -> usize {
        self.spilling.len()
    }
}

/// Leaves the hash at the end of a name out: eight digits or more, with letters up to `f`.
fn short_name(name: &str) -> &str {
    let is_hash = |end: &str| end.len() >= 8 && end.chars().all(|char| char.is_ascii_hexdigit());
    name.rsplit_once('_').filter(|(_, end)| is_hash(end)).map_or(name, |(short, _)| short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_of_a_name_count_together() {
        let mut counts = KernelCounts::default();
        for name in ["add_0123456789abcdef", "add_fedcba9876543210", "add_f32"] {
            counts.add(name, None);
            counts.count(name, false);
        }
        counts.count("add_f32", true);
        let found: Vec<_> =
            counts.iter().map(|(name, count)| (name, count.n_variants(), count.launches, count.replayed)).collect();
        assert_eq!(found, [("add", 2, 2, 0), ("add_f32", 1, 1, 1)]);
    }

    #[test]
    fn a_name_has_the_largest_resources_of_its_kernels() {
        let mut counts = KernelCounts::default();
        let resources = |registers, stack, spills, shared| Resources { registers, stack, spills, shared };
        counts.add("add_0123456789abcdef", Some(resources(255, 8, 4, 0)));
        counts.add("add_fedcba9876543210", Some(resources(40, 0, 0, 1024)));
        counts.add("add_fedcba9876543211", None);
        // The same kernel on another GPU.
        counts.add("add_0123456789abcdef", Some(resources(255, 8, 4, 0)));
        let (_, add) = counts.iter().next().unwrap();
        assert_eq!((add.largest, add.n_variants(), add.n_spilling()), (resources(255, 8, 4, 1024), 3, 1));
    }
}
