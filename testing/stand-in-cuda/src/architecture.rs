//! The limits of a GPU that follow from its compute capability.

/// Limits of the GPUs of a compute capability, from the tables of the CUDA programming guide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Architecture {
    /// Lowest compute capability with these limits.
    capability: u32,
    /// Multiprocessors of a common GPU.
    pub(crate) multiprocessors: u32,
    /// Most shared memory of a block, for kernels that opt in.
    pub(crate) shared_per_block: u32,
    /// Shared memory of a multiprocessor.
    shared_per_multiprocessor: u32,
    /// Threads of a multiprocessor.
    pub(crate) threads: u32,
    /// Blocks of a multiprocessor.
    blocks: u32,
    /// Size of the second cache in MiB, of a common GPU.
    cache_mib: u32,
}

#[rustfmt::skip]
const ARCHITECTURES: [Architecture; 9] = [
    architecture(60, 56, 49_152, 65_536, 2048, 32, 4),
    architecture(70, 80, 98_304, 98_304, 2048, 32, 6),
    architecture(75, 40, 65_536, 65_536, 1024, 16, 4),
    architecture(80, 108, 166_912, 167_936, 2048, 32, 40),
    architecture(86, 28, 101_376, 102_400, 1536, 16, 3),
    architecture(89, 128, 101_376, 102_400, 1536, 24, 72),
    architecture(90, 132, 232_448, 233_472, 2048, 32, 50),
    architecture(100, 148, 232_448, 233_472, 2048, 32, 126),
    architecture(120, 170, 101_376, 102_400, 1536, 24, 96),
];

const fn architecture(
    capability: u32,
    multiprocessors: u32,
    shared_per_block: u32,
    shared_per_multiprocessor: u32,
    threads: u32,
    blocks: u32,
    cache_mib: u32,
) -> Architecture {
    Architecture {
        capability,
        multiprocessors,
        shared_per_block,
        shared_per_multiprocessor,
        threads,
        blocks,
        cache_mib,
    }
}

/// Most threads of a block.
pub(crate) const THREADS_PER_BLOCK: u32 = 1024;
/// Most threads of a block in each direction.
pub(crate) const BLOCK: [u32; 3] = [1024, 1024, 64];
/// Most blocks of a grid in each direction.
pub(crate) const GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
/// Registers of a multiprocessor.
pub(crate) const REGISTERS: u32 = 65_536;
/// Shared memory of a block without opting in.
pub(crate) const SHARED_PER_BLOCK: u32 = 48 << 10;

impl Architecture {
    /// Returns the limits for a compute capability: those of the nearest one that is not higher.
    pub(crate) fn new(capability: u32) -> Self {
        let not_higher = ARCHITECTURES.iter().rev().find(|known| known.capability <= capability);
        *not_higher.unwrap_or(&ARCHITECTURES[0])
    }

    /// Returns an attribute of a device (`CUdevice_attribute`) that follows from these limits, and zero for any other.
    pub(crate) fn attribute(self, number: i32) -> u32 {
        match number {
            1 => THREADS_PER_BLOCK,
            2..=4 => BLOCK[number as usize - 2],
            5..=7 => GRID[number as usize - 5],
            8 => SHARED_PER_BLOCK,
            9 => 65_536,            // constant memory
            10 => 32,               // threads of a warp
            11 => i32::MAX as u32,  // pitch of copies
            12 | 82 => REGISTERS,   // of a block, of a multiprocessor
            13 => 1_500_000,        // clock in kHz
            14 | 51 => 512,         // alignment of textures and of their pitch
            15 | 19 | 31 | 41 => 1, // overlapping copies, mapped host memory, concurrent kernels, one address space
            36 => 7_000_000,        // clock of the memory in kHz
            37 => 256,              // width of the memory bus
            38 => self.cache_mib << 20,
            39 => self.threads,
            40 => 2,                     // engines for copies
            78 | 83 | 89 | 90 | 95 => 1, // stream priorities, managed memory, concurrent use of it, preemption, cooperation
            81 => self.shared_per_multiprocessor,
            97 => self.shared_per_block,
            106 => self.blocks,
            111 => self.shared_per_multiprocessor - self.shared_per_block,
            115 => 1,                                      // memory pools
            120 | 127 => u32::from(self.capability >= 90), // clusters, tensor maps
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_nearest_lower_capability() {
        let check = |capability, expected| assert_eq!(Architecture::new(capability).capability, expected);
        check(50, 60);
        check(75, 75);
        check(87, 86);
        check(121, 120);
        assert_eq!(Architecture::new(86).attribute(97), 99 << 10);
        assert_eq!(Architecture::new(90).attribute(120), 1);
    }
}
