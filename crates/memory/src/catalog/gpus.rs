//! The table of GPUs, oldest first, and the smaller memory first where one GPU has several sizes.
//!
//! Rates and bandwidths are the vendor's, at the reference clock: from the data sheets of the Tesla, RTX and data
//! center GPUs, and for GeForce from the white paper of each generation (Turing, GA102, Ada, RTX Blackwell). GeForce
//! models that came after their white paper, such as the RTX 4060 and the Supers, have tensor cores at twice their fp32
//! rate, as the rest of their generation has. Rates are dense; where a data sheet prints only sparse rates they are
//! halved. GeForce accumulates fp16 products in fp32 at half the rate of fp16 accumulation. The table has the halved
//! rate: 25.5 for an RTX 3060 and not 51.
//!
//! Where a GPU comes on several boards, the rates are those of the SXM board. Exceptions are the H100, whose two boards
//! differ by a quarter and have a row each, and the P100, whose rates are for PCIe. A V100 on PCIe is a tenth slower
//! than its row, and the memory of an A100 80GB on PCIe is 5 % slower.
//!
//! The usable memory is the smallest `total capacity` that PyTorch printed in public out-of-memory reports from Linux
//! machines, where a report could be matched to the GPU by name or memory ([`reported`](Row::reported)). The smallest
//! is used because newer drivers reserve more: a T4 had 14.75 GiB once and has 14.56 now. All other rows use a
//! [rule](by_rule). Workstation GPUs are listed with error correction off. It costs another sixteenth when it is on;
//! then plan with a memory size instead of the name.

use std::borrow::Cow;

use plimsoll_core::Bytes;

use super::{Gpu, PeakRates};

const PASCAL: (u8, u8) = (6, 1);
const VOLTA: (u8, u8) = (7, 0);
const TURING: (u8, u8) = (7, 5);
/// Compute capability of Ampere GPUs for the data center; all other Ampere GPUs have 8.6.
const AMPERE_LARGE: (u8, u8) = (8, 0);
const AMPERE: (u8, u8) = (8, 6);
const ADA: (u8, u8) = (8, 9);
const HOPPER: (u8, u8) = (9, 0);
/// Compute capability of Blackwell GPUs for the data center; GeForce GPUs of that generation have 12.0.
const BLACKWELL_LARGE: (u8, u8) = (10, 0);
const BLACKWELL: (u8, u8) = (12, 0);

#[rustfmt::skip]
pub(super) const GPUS: &[Gpu] = &[
    row("P4", &[], PASCAL, 8).reported(7.43).gb_per_sec(192.0).tera(5.5),
    row("P40", &[], PASCAL, 24).reported(22.38).gb_per_sec(346.0).tera(12.0),
    row("P100", &["P100-PCIe"], (6, 0), 16).reported(15.89).gb_per_sec(732.0).tera(9.3),
    row("V100 16GB", &["V100", "V100-SXM2", "V100-PCIe"], VOLTA, 16)
        .reported(15.75).gb_per_sec(900.0).fp16(125.0).tera(15.7),
    row("V100 32GB", &["V100-SXM2-32GB", "V100-PCIe-32GB"], VOLTA, 32)
        .reported(31.73).gb_per_sec(900.0).fp16(125.0).tera(15.7),
    row("T4", &[], TURING, 16).reported(14.56).gb_per_sec(320.0).fp16(65.0).tera(8.1),
    row("RTX 2060", &[], TURING, 6).gb_per_sec(336.0).fp16(25.8).tera(6.5),
    row("RTX 2070", &[], TURING, 8).gb_per_sec(448.0).fp16(29.9).tera(7.5),
    row("RTX 2080 Ti", &[], TURING, 11).gb_per_sec(616.0).fp16(53.8).tera(13.4),
    row("Quadro RTX 6000", &[], TURING, 24).gb_per_sec(672.0).fp16(130.5).tera(16.3),
    row("RTX 3050", &[], AMPERE, 8).gb_per_sec(224.0).bf16(18.2, 9.1).tera(9.1),
    row("RTX 3060 12GB", &["RTX 3060"], AMPERE, 12).reported(11.63).gb_per_sec(360.0).bf16(25.5, 12.7).tera(12.7),
    row("RTX 3060 Ti", &[], AMPERE, 8).gb_per_sec(448.0).bf16(32.4, 16.2).tera(16.2),
    row("RTX 3070", &[], AMPERE, 8).gb_per_sec(448.0).bf16(40.6, 20.3).tera(20.3),
    row("RTX 3080 10GB", &["RTX 3080"], AMPERE, 10).gb_per_sec(760.0).bf16(59.5, 29.8).tera(29.8),
    row("RTX 3080 12GB", &[], AMPERE, 12).gb_per_sec(912.0).bf16(61.3, 30.6).tera(30.6),
    row("RTX 3080 Ti", &[], AMPERE, 12).gb_per_sec(912.0).bf16(68.2, 34.1).tera(34.1),
    row("RTX 3090", &[], AMPERE, 24).gb_per_sec(936.0).bf16(71.0, 35.6).tera(35.6),
    row("RTX 3090 Ti", &[], AMPERE, 24).gb_per_sec(1008.0).bf16(80.0, 40.0).tera(40.0),
    row("RTX A4000", &[], AMPERE, 16).gb_per_sec(448.0).bf16(76.7, 38.3).tera(19.2),
    row("RTX A5000", &[], AMPERE, 24).gb_per_sec(768.0).bf16(111.1, 55.6).tera(27.8),
    row("RTX A6000", &[], AMPERE, 48).reported(47.40).gb_per_sec(768.0).bf16(154.8, 77.4).tera(38.7),
    row("A10", &[], AMPERE, 24).reported(22.03).gb_per_sec(600.0).bf16(125.0, 62.5).tera(31.2),
    row("A10G", &[], AMPERE, 24).reported(22.03).gb_per_sec(600.0).bf16(70.0, 35.0).tera(31.5),
    row("A30", &[], AMPERE_LARGE, 24).gb_per_sec(933.0).bf16(165.0, 82.0).tera(10.3),
    row("A40", &[], AMPERE, 48).reported(44.34).gb_per_sec(696.0).bf16(149.7, 74.8).tera(37.4),
    row("A100 40GB", &["A100", "A100 SXM", "A100-SXM4", "A100-PCIe", "A100 40GB PCIe"], AMPERE_LARGE, 40)
        .reported(39.38).gb_per_sec(1555.0).bf16(312.0, 156.0).tera(19.5),
    row("A100 80GB", &["A100 SXM 80GB", "A100-SXM4-80GB", "A100-PCIe-80GB", "A100 80GB PCIe"], AMPERE_LARGE, 80)
        .reported(79.14).gb_per_sec(2039.0).bf16(312.0, 156.0).tera(19.5),
    row("RTX 4060", &[], ADA, 8).gb_per_sec(272.0).bf16(30.2, 15.1).tera(15.1),
    row("RTX 4060 Ti 8GB", &["RTX 4060 Ti"], ADA, 8).gb_per_sec(288.0).bf16(44.1, 22.1).tera(22.1),
    row("RTX 4060 Ti 16GB", &[], ADA, 16).gb_per_sec(288.0).bf16(44.1, 22.1).tera(22.1),
    row("RTX 4070", &[], ADA, 12).reported(11.56).gb_per_sec(504.0).bf16(58.3, 29.1).tera(29.1),
    row("RTX 4070 Super", &[], ADA, 12).gb_per_sec(504.0).bf16(70.9, 35.5).tera(35.5),
    row("RTX 4070 Ti", &[], ADA, 12).gb_per_sec(504.0).bf16(80.2, 40.1).tera(40.1),
    row("RTX 4070 Ti Super", &[], ADA, 16).gb_per_sec(672.0).bf16(88.2, 44.1).tera(44.1),
    row("RTX 4080", &[], ADA, 16).gb_per_sec(716.8).bf16(97.5, 48.7).tera(48.7),
    row("RTX 4080 Super", &[], ADA, 16).gb_per_sec(736.0).bf16(104.4, 52.2).tera(52.2),
    row("RTX 4090", &[], ADA, 24).reported(23.52).gb_per_sec(1008.0).bf16(165.2, 82.6).tera(82.6),
    row("RTX 6000 Ada", &[], ADA, 48).reported(47.27).gb_per_sec(960.0).bf16(364.2, 182.1).tera(91.1),
    row("L4", &[], ADA, 24).reported(22.03).gb_per_sec(300.0).bf16(121.0, 60.0).tera(30.3),
    row("L40", &[], ADA, 48).reported(44.39).gb_per_sec(864.0).bf16(181.0, 90.5).tera(90.5),
    row("L40S", &[], ADA, 48).reported(44.39).gb_per_sec(864.0).bf16(362.0, 183.0).tera(91.6),
    row("H100 PCIe", &["H100"], HOPPER, 80).reported(79.10).gb_per_sec(2000.0).bf16(756.0, 378.0).tera(51.0),
    row("H100 SXM", &["H100 SXM5", "H100 HBM3", "H100 80GB HBM3"], HOPPER, 80)
        .reported(79.10).gb_per_sec(3350.0).bf16(989.0, 494.0).tera(67.0),
    row("H200", &["H200 SXM"], HOPPER, 141).reported(139.72).gb_per_sec(4800.0).bf16(989.0, 494.0).tera(67.0),
    row("B200", &[], BLACKWELL_LARGE, 180).reported(178.35).gb_per_sec(8000.0).bf16(2250.0, 1125.0).tera(75.0),
    row("RTX 5060 Ti 16GB", &["RTX 5060 Ti"], BLACKWELL, 16).gb_per_sec(448.0).bf16(47.4, 23.7).tera(23.7),
    row("RTX 5070", &[], BLACKWELL, 12).gb_per_sec(672.0).bf16(61.7, 30.9).tera(30.9),
    row("RTX 5070 Ti", &[], BLACKWELL, 16).gb_per_sec(896.0).bf16(87.9, 43.9).tera(43.9),
    row("RTX 5080", &[], BLACKWELL, 16).gb_per_sec(960.0).bf16(112.6, 56.3).tera(56.3),
    row("RTX 5090", &[], BLACKWELL, 32).reported(31.36).gb_per_sec(1792.0).bf16(209.5, 104.8).tera(104.8),
];

/// Row of the table of GPUs, under construction; [`tera`](Row::tera) turns it into a GPU.
struct Row {
    name: &'static str,
    aliases: &'static [&'static str],
    capability: (u8, u8),
    memory: Bytes,
    usable: Bytes,
    bandwidth: f64,
    peak: PeakRates,
}

const fn row(name: &'static str, aliases: &'static [&'static str], capability: (u8, u8), gib: u64) -> Row {
    let peak = PeakRates { fp32: 0.0, tf32: None, fp16: None, bf16: None };
    Row { name, aliases, capability, memory: Bytes::gib(gib), usable: by_rule(gib as f64), bandwidth: 0.0, peak }
}

/// Returns the usable memory of a GPU of `gib` GiB without error correction: 0.55 GiB below the nominal memory, or 2 %
/// where that is more.
///
/// No report that we found for such a GPU has less (11.49 GiB of 12, 15.47 of 16, 23.52 of 24, 31.36 of 32).
const fn by_rule(gib: f64) -> Bytes {
    from_gib(gib - (gib * 0.02).max(0.55))
}

const fn from_gib(gib: f64) -> Bytes {
    Bytes((gib * Bytes::gib(1).0 as f64) as u64)
}

impl Row {
    /// Sets the usable memory in GiB, from public reports.
    const fn reported(mut self, gib: f64) -> Self {
        self.usable = from_gib(gib);
        self
    }

    const fn gb_per_sec(mut self, gb: f64) -> Self {
        self.bandwidth = gb * 1e9;
        self
    }

    /// Sets the rate of tensor cores that support fp16 only, in 10^12 operations per second.
    const fn fp16(mut self, tera: f64) -> Self {
        self.peak.fp16 = Some(tera * 1e12);
        self
    }

    /// Sets the rates of tensor cores that also support bf16 and tf32, in 10^12 operations per second: `tera` for fp16
    /// and bf16, `tf32` for tf32.
    const fn bf16(self, tera: f64, tf32: f64) -> Self {
        let mut row = self.fp16(tera);
        row.peak.bf16 = row.peak.fp16;
        row.peak.tf32 = Some(tf32 * 1e12);
        row
    }

    /// Sets the fp32 rate of the CUDA cores, in 10^12 operations per second, and returns the complete GPU.
    const fn tera(self, fp32: f64) -> Gpu {
        let Self { name, aliases, capability, memory, usable, bandwidth, peak } = self;
        let peak = PeakRates { fp32: fp32 * 1e12, ..peak };
        Gpu { name: Cow::Borrowed(name), memory, usable, bandwidth, peak, capability, aliases }
    }
}
