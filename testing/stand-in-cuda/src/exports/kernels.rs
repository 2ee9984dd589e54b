//! Modules, kernels and launches. A library is a module, and its kernels are functions.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::{Arguments, Handle, Image, In, LaunchConfig, Out, Text};
use crate::errors::INVALID_VALUE;
use crate::launch::Launch;

/// Attributes of a function (`CUfunction_attribute`).
const MAX_THREADS: c_int = 0;
const SHARED_SIZE: c_int = 1;
const LOCAL_SIZE: c_int = 3;
const REGISTERS: c_int = 4;
const PTX_VERSION: c_int = 5;
const BINARY_VERSION: c_int = 6;
const MAX_DYNAMIC_SHARED_SIZE: c_int = 8;

/// Registers of a kernel that was not compiled. An assumption.
const ASSUMED_REGISTERS: u32 = 64;

/// Mode in which modules are loaded at once.
const EAGER: c_int = 1;

driver_functions! {
    fn cuModuleLoadData(machine, out: Out<Handle>, image: Image) {
        out.give(machine.load_module(image)?)
    }

    fn cuModuleLoadDataEx(
        machine,
        out: Out<Handle>,
        image: Image,
        _n_options: c_uint,
        _options: *mut c_int,
        _values: *mut *mut c_void,
    ) {
        out.give(machine.load_module(image)?)
    }

    fn cuModuleLoadFatBinary(machine, out: Out<Handle>, image: Image) {
        out.give(machine.load_module(image)?)
    }

    fn cuLibraryLoadData(
        machine,
        out: Out<Handle>,
        image: Image,
        _jit_options: *mut c_int,
        _jit_values: *mut *mut c_void,
        _n_jit_options: c_uint,
        _options: *mut c_int,
        _values: *mut *mut c_void,
        _n_options: c_uint,
    ) {
        out.give(machine.load_module(image)?)
    }

    fn cuModuleUnload(machine, module: Handle) {
        machine.unload_module(module)
    }

    fn cuLibraryUnload(machine, library: Handle) {
        machine.unload_module(library)
    }

    fn cuLibraryGetModule(machine, out: Out<Handle>, library: Handle) {
        machine.modules.get(library)?;
        out.give(library)
    }

    fn cuModuleGetFunction(machine, out: Out<Handle>, module: Handle, name: Text) {
        out.give(machine.find_function(module, &name.read()?)?)
    }

    fn cuLibraryGetKernel(machine, out: Out<Handle>, library: Handle, name: Text) {
        out.give(machine.find_function(library, &name.read()?)?)
    }

    fn cuKernelGetFunction(machine, out: Out<Handle>, kernel: Handle) {
        machine.functions.get(kernel)?;
        out.give(kernel)
    }

    fn cuModuleGetFunctionCount(machine, out: Out<c_uint>, module: Handle) {
        out.give(machine.modules.get(module)?.functions.len() as c_uint)
    }

    fn cuModuleGetLoadingMode(_machine, out: Out<c_int>) {
        out.give(EAGER)
    }

    fn cuFuncGetModule(machine, out: Out<Handle>, function: Handle) {
        out.give(machine.functions.get(function)?.module)
    }

    fn cuFuncGetAttribute(machine, out: Out<c_int>, attribute: c_int, function: Handle) {
        let function = machine.functions.get(function)?;
        let resources = function.resources.unwrap_or_default();
        let value = match attribute {
            MAX_THREADS => function.max_threads,
            SHARED_SIZE => resources.shared,
            LOCAL_SIZE => resources.stack,
            REGISTERS => function.resources.map_or(ASSUMED_REGISTERS, |resources| resources.registers),
            PTX_VERSION | BINARY_VERSION => machine.gpus[function.gpu].facts.capability,
            MAX_DYNAMIC_SHARED_SIZE => function.shared_dynamic,
            _ => 0,
        };
        out.give(value as c_int)
    }

    fn cuFuncSetAttribute(machine, function: Handle, attribute: c_int, value: c_int) {
        let function = machine.functions.get_mut(function)?;
        let gpu = &machine.gpus[function.gpu];
        gpu.check()?;
        if attribute == MAX_DYNAMIC_SHARED_SIZE {
            let value = u32::try_from(value).map_err(|_| INVALID_VALUE)?;
            let declared = function.resources.map_or(0, |resources| resources.shared);
            if value > gpu.architecture.shared_per_block.saturating_sub(declared) {
                return Err(INVALID_VALUE);
            }
            function.shared_dynamic = value;
        }
        Ok(())
    }

    fn cuFuncSetCacheConfig(machine, function: Handle, _config: c_int) {
        machine.functions.get(function).map(|_| ())
    }

    fn cuLaunchKernel(
        machine,
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Handle,
        arguments: Arguments,
        _extra: *mut *mut c_void,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        machine.launch(&Launch { function, grid, block, shared, stream }, arguments)
    }

    fn cuLaunchCooperativeKernel(
        machine,
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Handle,
        arguments: Arguments,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        machine.launch(&Launch { function, grid, block, shared, stream }, arguments)
    }

    fn cuLaunchKernelEx(
        machine,
        config: In<LaunchConfig>,
        function: Handle,
        arguments: Arguments,
        _extra: *mut *mut c_void,
    ) {
        let LaunchConfig { grid, block, shared, stream, .. } = config.read()?;
        machine.launch(&Launch { function, grid, block, shared, stream }, arguments)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        machine,
        out: Out<c_int>,
        function: Handle,
        block: c_int,
        _shared: usize,
    ) {
        let block = u32::try_from(block).ok().filter(|block| *block > 0).ok_or(INVALID_VALUE)?;
        let gpu = machine.functions.get(function)?.gpu;
        out.give((machine.gpus[gpu].architecture.threads / block) as c_int)
    }

    fn cuTensorMapEncodeTiled(_machine, map: Out<[u64; 16]>, _kind: c_int, _rank: c_uint, address: u64) {
        map.give(tensor_map(address)?)
    }

    fn cuTensorMapEncodeIm2col(_machine, map: Out<[u64; 16]>, _kind: c_int, _rank: c_uint, address: u64) {
        map.give(tensor_map(address)?)
    }

    fn cuTensorMapEncodeIm2colWide(_machine, map: Out<[u64; 16]>, _kind: c_int, _rank: c_uint, address: u64) {
        map.give(tensor_map(address)?)
    }
}

/// Makes a tensor map, which is opaque: the address, and zeros. The functions take more arguments, which C lets a
/// function leave out of its declaration.
fn tensor_map(address: u64) -> crate::errors::Answer<[u64; 16]> {
    const ALIGNMENT: u64 = 16;
    if !address.is_multiple_of(ALIGNMENT) {
        return Err(INVALID_VALUE);
    }
    let mut map = [0; 16];
    map[0] = address;
    Ok(map)
}
