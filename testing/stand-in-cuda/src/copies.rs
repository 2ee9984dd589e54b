//! Copies between the host and GPUs, and filling memory. All of them are done at once.

use crate::abi::{Address, Copy2d, Handle, HostSource, HostTarget};
use crate::addresses::gpu_of;
use crate::capture::{CopyNode, Node, SetNode};
use crate::errors::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::machine::Machine;

/// Made-up time of a copy in microseconds.
const COPY_TIME: f64 = 2.0;

/// Kinds of memory of a copy of rows (`CUmemorytype`).
const HOST: u32 = 1;
const DEVICE: u32 = 2;

impl Machine {
    /// Copies or fills in a stream, or records it if the stream is captured.
    pub(crate) fn transfer(&mut self, stream: Handle, node: Node) -> Answer {
        self.current()?;
        let on = self.working_stream(stream)?;
        if let Some(capture) = on.capture {
            return self.record(capture, node);
        }
        on.progress.clock += COPY_TIME;
        self.run_transfer(&node)
    }

    /// Copies or fills now.
    pub(crate) fn transfer_now(&mut self, node: &Node) -> Answer {
        self.current()?;
        self.run_transfer(node)
    }

    /// Runs a copy or a fill, and does nothing for other work.
    pub(crate) fn run_transfer(&mut self, node: &Node) -> Answer {
        match node {
            Node::Copy(copy) => self.copy(copy, true),
            Node::Rows(rows) => rows.iter().enumerate().try_for_each(|(row, copy)| self.copy(copy, row == 0)),
            Node::Set(set) => self.set(*set),
            _ => Ok(()),
        }
    }

    /// Copies. The rows of one copy count once.
    fn copy(&mut self, copy: &CopyNode, counts: bool) -> Answer {
        match *copy {
            CopyNode::Up { size: 0, .. } | CopyNode::Down { size: 0, .. } | CopyNode::Within { size: 0, .. } => Ok(()),
            CopyNode::Up { to, from, size } => self.copy_up(to, from, size, counts),
            CopyNode::Down { to, from, size } => self.copy_down(to, from, size, counts),
            CopyNode::Within { to, from, size } => self.copy_within(to, from, size, counts),
        }
    }

    /// Returns the work of a copy of rows.
    pub(crate) fn rows(copy: &Copy2d) -> Answer<Node> {
        let Copy2d { source, target, width: size, height } = *copy;
        if source.kind == DEVICE && source.pitch < source.x + size && height > 1 {
            return Err(INVALID_VALUE);
        }
        let row = |row: usize| {
            let from = (source.y + row) * source.pitch + source.x;
            let to = (target.y + row) * target.pitch + target.x;
            let (on_source, on_target) = (source.device + from as u64, target.device + to as u64);
            Ok(match (source.kind, target.kind) {
                (HOST, DEVICE) => CopyNode::Up { to: on_target, from: HostSource(source.host).add(from), size },
                (DEVICE, HOST) => CopyNode::Down { to: HostTarget(target.host).add(to), from: on_source, size },
                (DEVICE, DEVICE) => CopyNode::Within { to: on_target, from: on_source, size },
                _ => return Err(NOT_SUPPORTED),
            })
        };
        Ok(Node::Rows((0..height).map(row).collect::<Answer<_>>()?))
    }

    fn copy_up(&mut self, to: Address, from: HostSource, size: usize, counts: bool) -> Answer {
        let gpu = self.checked(to, size, "a copy to a GPU")?;
        self.gpus[gpu].counts.n_uploads += u64::from(counts);
        self.gpus[gpu].counts.bytes_up += size as u64;
        if let Some(contents) = &mut self.contents {
            contents.write(to, from.bytes(size)?);
        }
        Ok(())
    }

    fn copy_down(&mut self, to: HostTarget, from: Address, size: usize, counts: bool) -> Answer {
        let gpu = self.checked(from, size, "a copy to the host")?;
        self.gpus[gpu].counts.n_reads += u64::from(counts);
        self.gpus[gpu].counts.bytes_down += size as u64;
        let bytes = to.zeros(size)?;
        if let Some(contents) = &self.contents {
            contents.read(from, bytes);
        }
        Ok(())
    }

    fn copy_within(&mut self, to: Address, from: Address, size: usize, counts: bool) -> Answer {
        self.checked(from, size, "a copy from a GPU")?;
        let gpu = self.checked(to, size, "a copy to a GPU")?;
        self.gpus[gpu].counts.n_copies += u64::from(counts);
        self.gpus[gpu].counts.bytes_within += size as u64;
        if let Some(contents) = &mut self.contents {
            contents.copy(to, from, size as u64);
        }
        Ok(())
    }

    fn set(&mut self, SetNode { to, value, width, count }: SetNode) -> Answer {
        let size = width.checked_mul(count).ok_or(INVALID_VALUE)?;
        if size == 0 {
            return Ok(());
        }
        let gpu = self.checked(to, size, "filling memory")?;
        self.gpus[gpu].counts.n_sets += 1;
        self.gpus[gpu].counts.bytes_set += size as u64;
        if let Some(contents) = &mut self.contents {
            contents.fill(to, &value.to_le_bytes()[..width], count as u64);
        }
        Ok(())
    }

    /// Returns the GPU on which all of this memory is allocated.
    fn checked(&mut self, address: Address, size: usize, what: &str) -> Answer<usize> {
        let gpu = gpu_of(address).filter(|gpu| *gpu < self.gpus.len());
        let block = gpu.and_then(|gpu| self.gpus[gpu].books.block_at(address));
        match (gpu, block) {
            (Some(gpu), Some((start, block))) if address - start + size as u64 <= block.size => Ok(gpu),
            _ => {
                let counted = gpu.map_or_else(|| self.current(), Ok)?;
                self.count_wild(counted, || format!("{what} of {size} bytes uses {address:#x}"));
                Err(INVALID_VALUE)
            }
        }
    }
}
