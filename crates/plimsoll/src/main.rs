//! The program: see `plimsoll --help`.

use std::process::ExitCode;

use plimsoll_core::CountingAllocator;

/// Counts what the process holds: on the CPU this is the memory of the device that trains.
#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

fn main() -> ExitCode {
    plimsoll::program(&MEMORY)
}
