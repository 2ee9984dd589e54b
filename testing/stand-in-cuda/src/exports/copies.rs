//! Copies and filling memory.

use std::ffi::{c_uchar, c_uint, c_ushort};

use crate::abi::{Address, Copy2d, Handle, HostSource, HostTarget, In};
use crate::capture::{CopyNode, Node, SetNode};
use crate::errors::Answer;
use crate::machine::Machine;

driver_functions! {
    fn cuMemcpyHtoDAsync_v2(machine, to: Address, from: HostSource, size: usize, stream: Handle) {
        machine.transfer(stream, Node::Copy(CopyNode::Up { to, from, size }))
    }

    fn cuMemcpyDtoHAsync_v2(machine, to: HostTarget, from: Address, size: usize, stream: Handle) {
        machine.transfer(stream, Node::Copy(CopyNode::Down { to, from, size }))
    }

    fn cuMemcpyDtoDAsync_v2(machine, to: Address, from: Address, size: usize, stream: Handle) {
        machine.transfer(stream, Node::Copy(CopyNode::Within { to, from, size }))
    }

    fn cuMemcpyPeerAsync(
        machine,
        to: Address,
        to_context: Handle,
        from: Address,
        from_context: Handle,
        size: usize,
        stream: Handle,
    ) {
        machine.of_context(to_context)?;
        machine.of_context(from_context)?;
        machine.transfer(stream, Node::Copy(CopyNode::Within { to, from, size }))
    }

    fn cuMemcpy2DAsync_v2(machine, copy: In<Copy2d>, stream: Handle) {
        machine.transfer(stream, Machine::rows(&copy.read()?)?)
    }

    fn cuMemcpyHtoD_v2(machine, to: Address, from: HostSource, size: usize) {
        machine.transfer_now(&Node::Copy(CopyNode::Up { to, from, size }))
    }

    fn cuMemcpyDtoH_v2(machine, to: HostTarget, from: Address, size: usize) {
        machine.transfer_now(&Node::Copy(CopyNode::Down { to, from, size }))
    }

    fn cuMemcpyDtoD_v2(machine, to: Address, from: Address, size: usize) {
        machine.transfer_now(&Node::Copy(CopyNode::Within { to, from, size }))
    }

    fn cuMemcpyPeer(machine, to: Address, to_context: Handle, from: Address, from_context: Handle, size: usize) {
        machine.of_context(to_context)?;
        machine.of_context(from_context)?;
        machine.transfer_now(&Node::Copy(CopyNode::Within { to, from, size }))
    }

    fn cuMemcpy2D_v2(machine, copy: In<Copy2d>) {
        rows_now(machine, &copy)
    }

    fn cuMemcpy2DUnaligned_v2(machine, copy: In<Copy2d>) {
        rows_now(machine, &copy)
    }

    fn cuMemsetD8Async(machine, to: Address, value: c_uchar, count: usize, stream: Handle) {
        machine.transfer(stream, Node::Set(SetNode { to, value: value.into(), width: 1, count }))
    }

    fn cuMemsetD16Async(machine, to: Address, value: c_ushort, count: usize, stream: Handle) {
        machine.transfer(stream, Node::Set(SetNode { to, value: value.into(), width: 2, count }))
    }

    fn cuMemsetD32Async(machine, to: Address, value: c_uint, count: usize, stream: Handle) {
        machine.transfer(stream, Node::Set(SetNode { to, value, width: 4, count }))
    }

    fn cuMemsetD8_v2(machine, to: Address, value: c_uchar, count: usize) {
        machine.transfer_now(&Node::Set(SetNode { to, value: value.into(), width: 1, count }))
    }

    fn cuMemsetD16_v2(machine, to: Address, value: c_ushort, count: usize) {
        machine.transfer_now(&Node::Set(SetNode { to, value: value.into(), width: 2, count }))
    }

    fn cuMemsetD32_v2(machine, to: Address, value: c_uint, count: usize) {
        machine.transfer_now(&Node::Set(SetNode { to, value, width: 4, count }))
    }
}

fn rows_now(machine: &mut Machine, copy: &In<Copy2d>) -> Answer {
    machine.transfer_now(&Machine::rows(&copy.read()?)?)
}
