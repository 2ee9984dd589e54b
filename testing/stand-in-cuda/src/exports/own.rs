//! Functions of the stand-in itself, for programs that look them up by name.

use std::ffi::{c_int, c_ulonglong};
use std::path::Path;

use super::call;
use crate::abi::{Out, Text};
use crate::errors::{Code, UNKNOWN};

/// Books of a GPU in short.
#[repr(C)]
struct Usage {
    capacity: c_ulonglong,
    held: c_ulonglong,
    own: c_ulonglong,
    asked: c_ulonglong,
    peak_held: c_ulonglong,
    peak_own: c_ulonglong,
    peak_asked: c_ulonglong,
    allocations: c_ulonglong,
    frees: c_ulonglong,
    refused: c_ulonglong,
    launches: c_ulonglong,
    dispatches: c_ulonglong,
}

/// Gives the books of a GPU in short.
#[unsafe(no_mangle)]
unsafe extern "C" fn stand_in_cuda_usage(device: c_int, out: Out<Usage>) -> Code {
    call("stand_in_cuda_usage", |machine| {
        let gpu = machine.device(device)?;
        let (tally, counts) = (&gpu.books.tally, &gpu.counts);
        out.give(Usage {
            capacity: gpu.books.capacity(),
            held: gpu.books.held(),
            own: gpu.books.own(),
            asked: tally.asked,
            peak_held: tally.peak_held,
            peak_own: tally.peak_own,
            peak_asked: tally.peak_asked,
            allocations: tally.n_allocations,
            frees: tally.n_frees,
            refused: tally.n_refused,
            launches: counts.n_launches,
            dispatches: counts.n_launches + counts.n_replays,
        })
    })
}

/// Sets the peaks of all GPUs to what there is now.
#[unsafe(no_mangle)]
extern "C" fn stand_in_cuda_reset_peak() -> Code {
    call("stand_in_cuda_reset_peak", |machine| {
        machine.gpus.iter_mut().for_each(|gpu| gpu.books.reset_peaks());
        Ok(())
    })
}

/// Writes the books into a file.
#[unsafe(no_mangle)]
unsafe extern "C" fn stand_in_cuda_report(path: Text) -> Code {
    call("stand_in_cuda_report", |machine| {
        let path = path.read()?;
        machine.write_report(Path::new(&path)).map_err(|error| {
            eprintln!("stand-in-cuda: cannot write {path}: {error}");
            UNKNOWN
        })
    })
}
