//! Tests that the table of GPUs is consistent, and that every common spelling of a name is found.

use std::collections::BTreeMap;

use super::*;

/// Finds the GPU that `text` names, and compares its name, or the start of the error, with `expected`.
fn check(text: &str, expected: &str) {
    let found = find(text).map_or_else(|error| error.to_string(), |gpu| gpu.name.into_owned());
    assert!(found.starts_with(expected), "`{text}` gave `{found}`, not `{expected}`");
}

#[test]
fn every_spelling_finds_its_gpu() {
    for (text, expected) in [
        ("RTX 3060", "RTX 3060 12GB"),
        ("rtx-3060", "RTX 3060 12GB"),
        ("rtx3060", "RTX 3060 12GB"),
        ("3060", "RTX 3060 12GB"),
        ("3060-12g", "RTX 3060 12GB"),
        ("NVIDIA GeForce RTX 3060", "RTX 3060 12GB"),
        ("3060ti", "RTX 3060 Ti"),
        ("3080", "RTX 3080 10GB"),
        ("RTX 3080 12 GB", "RTX 3080 12GB"),
        ("GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("4060 ti", "RTX 4060 Ti 8GB"),
        ("4060ti 16gb", "RTX 4060 Ti 16GB"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti Super"),
        ("RTX_4090", "RTX 4090"),
        ("5060 Ti", "RTX 5060 Ti 16GB"),
        ("rtx 5090 32 gib", "RTX 5090"),
        ("a100", "A100 40GB"),
        ("a100-80g", "A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB"),
        ("h100", "H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("H100-SXM5-80GB", "H100 SXM"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("Tesla T4", "T4"),
        ("t4 16GB", "T4"),
        ("Tesla P100-PCIE-16GB", "P100"),
        ("Tesla V100-SXM2-16GB", "V100 16GB"),
        ("Tesla V100-SXM2-32GB", "V100 32GB"),
        ("v100", "V100 16GB"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("RTX 6000", "Quadro RTX 6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("a10g", "A10G"),
        ("NVIDIA L40S", "L40S"),
    ] {
        check(text, expected);
    }
}

#[test]
fn size_finds_a_gpu_of_its_class() {
    for (text, bytes, class) in [
        ("8GiB", 8 << 30, "RTX 4060"),
        ("12 GB", 12_000_000_000, "RTX 3060"),
        ("12GiB", 12 << 30, "RTX 3060"),
        ("16gb", 16_000_000_000, "RTX 4060 Ti 16GB"),
        ("24g", 24 << 30, "RTX 3090"),
        ("48GiB", 48 << 30, "RTX A6000"),
        ("80GiB", 80 << 30, "A100 80GB"),
        ("1 TiB", 1 << 40, "A100 80GB"),
    ] {
        let (gpu, class) = (find(text).unwrap(), find(class).unwrap());
        assert_eq!((gpu.memory, gpu.usable), (Bytes(bytes), Bytes(bytes)), "{text}");
        for precision in [Precision::Fp32, Precision::Fp16, Precision::Bf16] {
            assert!(gpu.rate(precision) >= class.rate(precision), "{text}");
        }
        assert!(gpu.bandwidth >= class.bandwidth, "{text}");
        assert!(gpu.supports(Precision::Bf16));
        assert_eq!(gpu.name, format!("GPU of {text}"));
    }
}

#[test]
fn larger_sizes_are_never_slower() {
    let gpus: Vec<Gpu> = (4..100).map(|gib| find(&format!("{gib}GiB")).unwrap()).collect();
    for two in gpus.windows(2) {
        assert!(two[1].bandwidth >= two[0].bandwidth, "{} {}", two[0].name, two[1].name);
        for precision in [Precision::Fp32, Precision::Fp16, Precision::Bf16] {
            assert!(two[1].rate(precision) >= two[0].rate(precision), "{} {}", two[0].name, two[1].name);
        }
    }
}

#[test]
fn unknown_names_are_refused_with_similar_ones() {
    for (text, expected) in [
        ("3061", "no GPU is called `3061`; similar names: RTX 3060 12GB, RTX 3060 Ti, "),
        ("A1000", "no GPU is called `A1000`; similar names: A100 40GB, A100 80GB, "),
        ("RTX 3060 Laptop GPU", "no GPU is called `RTX 3060 Laptop GPU`; similar names: RTX 3060"),
        ("3060 8GB", "no GPU is called `3060 8GB`; similar names: "),
        ("24", "no GPU is called `24`; similar names: "),
        ("", "no GPU is called ``; similar names: "),
        ("rtx", "no GPU is called `rtx`; similar names: "),
        ("-8GiB", "no GPU is called `-8GiB`; similar names: "),
        ("0GiB", "a GPU of `0GiB` has no memory to plan"),
        ("0", "a GPU of `0` has no memory to plan"),
    ] {
        check(text, expected);
    }
    assert!(find("4o90").unwrap_err().to_string().ends_with("; a size such as `24GiB` works too"));
}

#[test]
fn table_is_consistent() {
    assert!(catalog().len() >= 28);
    for gpu in catalog() {
        let name = &gpu.name;
        assert!(gpu.usable < gpu.memory && gpu.usable.0 * 10 > gpu.memory.0 * 9, "{name}: {}", gpu.usable);
        assert!(gpu.bandwidth > 1e11, "{name}");
        let rates = [gpu.peak.tf32, gpu.peak.fp16, gpu.peak.bf16].into_iter().flatten();
        assert!(rates.chain([gpu.peak.fp32]).all(|rate| rate > 1e12 && rate < 1e16), "{name}");
        assert_eq!(gpu.supports(Precision::Fp16), gpu.capability >= (7, 0), "{name}");
        assert_eq!(gpu.supports(Precision::Bf16), gpu.capability >= (8, 0), "{name}");
        assert_eq!(gpu.peak.tf32.is_some(), gpu.peak.bf16.is_some(), "{name}");
        for precision in [Precision::Bf16, Precision::Fp16] {
            assert!(gpu.rate(precision) >= gpu.rate(Precision::Fp32), "{name}");
        }
    }
}

#[test]
fn no_spelling_names_two_gpus() {
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for gpu in catalog() {
        for spelling in gpu.spellings() {
            let before = owners.insert(spelling.clone(), &gpu.name);
            assert!(before.is_none_or(|name| name == gpu.name), "`{spelling}` is {before:?} and {}", gpu.name);
        }
    }
}

#[test]
fn names_and_aliases_are_unique() {
    let mut names: Vec<String> = Vec::new();
    for gpu in catalog() {
        names.extend(gpu.aliases.iter().copied().chain([gpu.name.as_ref()]).map(normalize_name));
    }
    let written = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), written);
}

#[test]
fn ambiguous_name_means_the_smallest_memory() {
    for (name, smallest) in [("a100", 40), ("v100", 16), ("3080", 10), ("4060 ti", 8)] {
        assert_eq!(find(name).unwrap().memory, Bytes::gib(smallest), "{name}");
    }
}
