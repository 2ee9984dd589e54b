//! The program: see `plimsoll --help`.

use std::process::ExitCode;

use plimsoll_core::CountingAllocator;

/// Counts the memory of the process. When the CPU trains, this is the memory of the training device.
#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

fn main() -> ExitCode {
    plimsoll::program(&MEMORY)
}
