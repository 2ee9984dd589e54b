//! Pinned memory, which is the host's own.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_uint;

use crate::abi::{Address, Out};
use crate::errors::{Answer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::machine::Machine;

/// Alignment of pinned memory: a page.
const ALIGNMENT: usize = 4096;

driver_functions! {
    fn cuMemAllocHost_v2(machine, out: Out<usize>, size: usize) {
        out.give(pin(machine, size)?)
    }

    fn cuMemHostAlloc(machine, out: Out<usize>, size: usize, _flags: c_uint) {
        out.give(pin(machine, size)?)
    }

    fn cuMemFreeHost(machine, address: usize) {
        let (size, gpu) = machine.pinned.remove(&address).ok_or(INVALID_VALUE)?;
        machine.gpus[gpu].books.tally.unpin(size as u64);
        // SAFETY: `pin` allocated it with this layout, and it is in the list no more.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(address), layout(size)?) };
        Ok(())
    }

    fn cuMemHostGetDevicePointer_v2(machine, out: Out<Address>, address: usize, _flags: c_uint) {
        machine.current()?;
        out.give(address as Address)
    }

    fn cuMemHostRegister_v2(machine, _address: usize, _size: usize, _flags: c_uint) {
        machine.current().map(|_| ())
    }

    fn cuMemHostUnregister(machine, _address: usize) {
        machine.current().map(|_| ())
    }
}

fn pin(machine: &mut Machine, size: usize) -> Answer<usize> {
    let gpu = machine.current()?;
    machine.refuse_in_captures()?;
    // SAFETY: the layout is never empty.
    let address = unsafe { alloc(layout(size)?) }.expose_provenance();
    if address == 0 {
        return Err(OUT_OF_MEMORY);
    }
    machine.pinned.insert(address, (size, gpu));
    machine.gpus[gpu].books.tally.pin(size as u64);
    Ok(address)
}

fn layout(size: usize) -> Answer<Layout> {
    Layout::from_size_align(size.max(1), ALIGNMENT).map_err(|_| INVALID_VALUE)
}
