//! Devices, contexts, and what devices know of each other.

use std::ffi::{c_char, c_int, c_uint};

use crate::abi::{Handle, Out};
use crate::books::Change;
use crate::context::{self, context_handle};
use crate::errors::{
    Answer, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED,
};
use crate::machine::Machine;
use crate::streams::Stream;

/// Version of the interface of contexts.
const API_VERSION: c_uint = 3020;

driver_functions! {
    fn cuDeviceGetCount(machine, out: Out<c_int>) {
        out.give(machine.gpus.len() as c_int)
    }

    fn cuDeviceGet(machine, out: Out<c_int>, number: c_int) {
        machine.device(number)?;
        out.give(number)
    }

    fn cuDeviceGetName(machine, out: Out<c_char>, length: c_int, device: c_int) {
        let gpu = machine.device(device)?;
        out.give_text(length, &gpu.facts.name)
    }

    fn cuDeviceGetUuid(machine, out: Out<[u8; 16]>, device: c_int) {
        out.give(machine.device(device)?.uuid(device as usize))
    }

    fn cuDeviceGetUuid_v2(machine, out: Out<[u8; 16]>, device: c_int) {
        out.give(machine.device(device)?.uuid(device as usize))
    }

    fn cuDeviceGetPCIBusId(machine, out: Out<c_char>, length: c_int, device: c_int) {
        machine.device(device)?;
        out.give_text(length, &format!("0000:{:02X}:00.0", device + 1))
    }

    fn cuDeviceGetByPCIBusId(machine, out: Out<c_int>, bus_id: crate::abi::Text) {
        let text = bus_id.read()?;
        let bus = text.rsplit_once(':').and_then(|(before, _)| before.rsplit(':').next());
        let number = bus.and_then(|bus| c_int::from_str_radix(bus, 16).ok()).ok_or(INVALID_VALUE)? - 1;
        machine.device(number)?;
        out.give(number)
    }

    fn cuDeviceTotalMem_v2(machine, out: Out<usize>, device: c_int) {
        out.give(machine.device(device)?.books.capacity() as usize)
    }

    fn cuDeviceComputeCapability(machine, major: Out<c_int>, minor: Out<c_int>, device: c_int) {
        let capability = machine.device(device)?.facts.capability as c_int;
        major.give(capability / 10)?;
        minor.give(capability % 10)
    }

    fn cuDeviceGetAttribute(machine, out: Out<c_int>, attribute: c_int, device: c_int) {
        let gpu = machine.device(device)?;
        let value = match attribute {
            16 => gpu.multiprocessors(),
            33 => device as u32 + 1, // bus
            75 => gpu.facts.capability / 10,
            76 => gpu.facts.capability % 10,
            _ => gpu.architecture.attribute(attribute),
        };
        out.give(value as c_int)
    }

    fn cuDeviceCanAccessPeer(machine, out: Out<c_int>, device: c_int, peer: c_int) {
        machine.device(device)?;
        machine.device(peer)?;
        out.give(c_int::from(device != peer))
    }

    fn cuDeviceGetP2PAttribute(machine, out: Out<c_int>, attribute: c_int, device: c_int, peer: c_int) {
        machine.device(device)?;
        machine.device(peer)?;
        if device == peer {
            return Err(INVALID_DEVICE);
        }
        // Only access is supported, and neither atomics nor arrays.
        out.give(c_int::from(attribute == 2))
    }

    fn cuDevicePrimaryCtxRetain(machine, out: Out<Handle>, device: c_int) {
        machine.device(device)?;
        retain(machine, device as usize)?;
        out.give(context_handle(device as usize))
    }

    fn cuDevicePrimaryCtxRelease_v2(machine, device: c_int) {
        let gpu = machine.device(device)?;
        gpu.n_retained = gpu.n_retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if gpu.n_retained == 0 {
            machine.destroy_context(device as usize);
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxReset_v2(machine, device: c_int) {
        machine.device(device)?;
        machine.destroy_context(device as usize);
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(machine, device: c_int, _flags: c_uint) {
        machine.device(device).map(|_| ())
    }

    fn cuDevicePrimaryCtxGetState(machine, device: c_int, flags: Out<c_uint>, is_active: Out<c_int>) {
        let n_retained = machine.device(device)?.n_retained;
        flags.give(0)?;
        is_active.give(c_int::from(n_retained > 0))
    }

    fn cuCtxSetCurrent(machine, context: Handle) {
        let gpu = if context == 0 { None } else { Some(machine.of_context(context)?) };
        context::set_current(gpu);
        Ok(())
    }

    fn cuCtxGetCurrent(_machine, out: Out<Handle>) {
        out.give(context::current().map_or(0, context_handle))
    }

    fn cuCtxPushCurrent_v2(machine, context: Handle) {
        context::push(machine.of_context(context)?);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(_machine, out: Out<Handle>) {
        out.give_if_wanted(context_handle(context::pop()?));
        Ok(())
    }

    fn cuCtxGetDevice(machine, out: Out<c_int>) {
        out.give(machine.current()? as c_int)
    }

    fn cuCtxGetFlags(_machine, out: Out<c_uint>) {
        out.give(0)
    }

    fn cuCtxSetFlags(_machine, _flags: c_uint) {
        Ok(())
    }

    fn cuCtxGetStreamPriorityRange(_machine, least: Out<c_int>, greatest: Out<c_int>) {
        least.give_if_wanted(0);
        greatest.give_if_wanted(-5);
        Ok(())
    }

    fn cuCtxGetLimit(machine, out: Out<usize>, _limit: c_uint) {
        machine.current()?;
        out.give(1024)
    }

    fn cuCtxSetLimit(machine, _limit: c_uint, _value: usize) {
        machine.current().map(|_| ())
    }

    fn cuCtxGetCacheConfig(machine, out: Out<c_uint>) {
        machine.current()?;
        out.give(0)
    }

    fn cuCtxSetCacheConfig(machine, _config: c_uint) {
        machine.current().map(|_| ())
    }

    fn cuCtxGetApiVersion(_machine, _context: Handle, out: Out<c_uint>) {
        out.give(API_VERSION)
    }

    fn cuCtxEnablePeerAccess(machine, peer: Handle, _flags: c_uint) {
        let (gpu, peer) = pair(machine, peer)?;
        if machine.gpus[gpu].peers.insert(peer) { Ok(()) } else { Err(PEER_ACCESS_ALREADY_ENABLED) }
    }

    fn cuCtxDisablePeerAccess(machine, peer: Handle) {
        let (gpu, peer) = pair(machine, peer)?;
        if machine.gpus[gpu].peers.remove(&peer) { Ok(()) } else { Err(PEER_ACCESS_NOT_ENABLED) }
    }
}

/// Retains the context of a GPU, which takes memory the first time.
fn retain(machine: &mut Machine, number: usize) -> Answer {
    let gpu = &mut machine.gpus[number];
    let change: Option<Change> = if gpu.n_retained == 0 { Some(gpu.books.open_context()?) } else { None };
    gpu.n_retained += 1;
    if let Some(change) = change {
        gpu.null_stream = Some(machine.streams.add(Stream::new(number, 0, 0)));
        machine.trace(number, &change);
    }
    Ok(())
}

/// Returns the numbers of the current GPU and of another one.
fn pair(machine: &Machine, peer: Handle) -> Answer<(usize, usize)> {
    let (gpu, peer) = (machine.current()?, machine.of_context(peer)?);
    if gpu == peer { Err(INVALID_DEVICE) } else { Ok((gpu, peer)) }
}
