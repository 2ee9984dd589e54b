//! Memory of GPUs.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::{Address, Handle, Out};
use crate::addresses::gpu_of;
use crate::capture::Node;
use crate::context::{gpu_of_pool, pool_handle};
use crate::errors::{Answer, INVALID_VALUE, NOT_FOUND};
use crate::machine::Machine;
use crate::size::round_up;

/// Unit of the pitch of rows.
const PITCH: u64 = 512;

/// Attributes of a pool (`CUmemPool_attribute`).
const KEEP: c_int = 4;
const RESERVED: c_int = 5;
const PEAK_RESERVED: c_int = 6;
const USED: c_int = 7;
const PEAK_USED: c_int = 8;

driver_functions! {
    fn cuMemGetInfo_v2(machine, free: Out<usize>, total: Out<usize>) {
        let gpu = machine.current()?;
        let books = &machine.gpus[gpu].books;
        free.give(books.free() as usize)?;
        total.give(books.capacity() as usize)
    }

    fn cuMemAlloc_v2(machine, out: Out<Address>, size: usize) {
        out.give(allocate(machine, size as u64)?)
    }

    fn cuMemAllocPitch_v2(machine, out: Out<Address>, pitch: Out<usize>, width: usize, height: usize, _each: c_uint) {
        let row = round_up(width as u64, PITCH);
        out.give(allocate(machine, row.checked_mul(height as u64).ok_or(INVALID_VALUE)?)?)?;
        pitch.give(row as usize)
    }

    fn cuMemFree_v2(machine, address: Address) {
        machine.current()?;
        machine.refuse_in_captures()?;
        free(machine, address)
    }

    fn cuMemAllocAsync(machine, out: Out<Address>, size: usize, stream: Handle) {
        let gpu = machine.current()?;
        out.give(allocate_from_pool(machine, gpu, size as u64, stream)?)
    }

    fn cuMemAllocFromPoolAsync(machine, out: Out<Address>, size: usize, pool: Handle, stream: Handle) {
        machine.current()?;
        let gpu = of_pool(machine, pool)?;
        out.give(allocate_from_pool(machine, gpu, size as u64, stream)?)
    }

    fn cuMemFreeAsync(machine, address: Address, stream: Handle) {
        machine.current()?;
        if let Some(capture) = machine.working_stream(stream)?.capture {
            machine.record(capture, Node::Free)?;
        }
        free(machine, address)
    }

    fn cuDeviceGetDefaultMemPool(machine, out: Out<Handle>, device: c_int) {
        machine.device(device)?;
        out.give(pool_handle(device as usize))
    }

    fn cuDeviceGetMemPool(machine, out: Out<Handle>, device: c_int) {
        machine.device(device)?;
        out.give(pool_handle(device as usize))
    }

    fn cuMemPoolTrimTo(machine, pool: Handle, keep: usize) {
        let gpu = of_pool(machine, pool)?;
        machine.gpus[gpu].books.trim_pool_to(keep as u64);
        Ok(())
    }

    fn cuMemPoolSetAttribute(machine, pool: Handle, attribute: c_int, value: Out<c_void>) {
        let gpu = of_pool(machine, pool)?;
        if attribute == KEEP {
            machine.gpus[gpu].books.set_pool_keep(value.cast::<u64>().read()?);
        }
        Ok(())
    }

    fn cuMemPoolGetAttribute(machine, pool: Handle, attribute: c_int, value: Out<c_void>) {
        let gpu = of_pool(machine, pool)?;
        let books = &machine.gpus[gpu].books;
        let size = match attribute {
            KEEP => books.pool_keep(),
            RESERVED => books.tally.pool_reserved,
            PEAK_RESERVED => books.tally.peak_pool,
            USED | PEAK_USED => books.tally.pool_used,
            // Whether memory is used again over events and dependencies.
            _ => return value.cast::<c_int>().give(1),
        };
        value.cast::<u64>().give(size)
    }

    fn cuMemGetAddressRange_v2(machine, start: Out<Address>, size: Out<usize>, address: Address) {
        let gpu = gpu_of(address).and_then(|gpu| machine.gpus.get(gpu)).ok_or(NOT_FOUND)?;
        let (at, block) = gpu.books.block_at(address).ok_or(NOT_FOUND)?;
        start.give_if_wanted(at);
        size.give_if_wanted(block.size as usize);
        Ok(())
    }
}

fn allocate(machine: &mut Machine, size: u64) -> Answer<Address> {
    let gpu = machine.current()?;
    machine.refuse_in_captures()?;
    let answer = machine.gpus[gpu].books.allocate(size);
    machine.traced(gpu, size, answer)
}

fn allocate_from_pool(machine: &mut Machine, gpu: usize, size: u64, stream: Handle) -> Answer<Address> {
    let capture = machine.working_stream(stream)?.capture;
    let answer = machine.gpus[gpu].books.allocate_from_pool(size);
    let address = machine.traced(gpu, size, answer)?;
    capture.map_or(Ok(()), |capture| machine.record(capture, Node::Allocate))?;
    Ok(address)
}

fn free(machine: &mut Machine, address: Address) -> Answer {
    if address == 0 {
        return Ok(());
    }
    let gpu = gpu_of(address).filter(|gpu| *gpu < machine.gpus.len());
    let released = gpu.ok_or(INVALID_VALUE).and_then(|gpu| Ok((gpu, machine.gpus[gpu].books.release(address)?)));
    let (gpu, (size, change)) = released.inspect_err(|_| {
        eprintln!("stand-in-cuda: {address:#x} is freed, where no allocation starts");
    })?;
    machine.forget(address, size);
    machine.trace(gpu, &change);
    Ok(())
}

fn of_pool(machine: &Machine, pool: Handle) -> Answer<usize> {
    gpu_of_pool(pool).filter(|gpu| *gpu < machine.gpus.len()).ok_or(INVALID_VALUE)
}
