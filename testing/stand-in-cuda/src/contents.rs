//! What was copied to GPUs, for scenarios that keep it.

use std::collections::{BTreeMap, BTreeSet};

/// Unit in which contents are kept.
const PAGE: u64 = 64 << 10;

/// Bytes by address, and the addresses through which kernels have written since. Memory without a page is zero.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pages: BTreeMap<u64, Box<[u8]>>,
    /// Addresses that kernels had as arguments and wrote through. What lies behind is unknown.
    written: BTreeSet<u64>,
}

impl Contents {
    /// Copies bytes to an address.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) {
        self.know(address, bytes.len() as u64);
        for (page, offset, place) in pieces(address, bytes.len()) {
            let data = self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
            data[offset..offset + place.len()].copy_from_slice(&bytes[place]);
        }
    }

    /// Copies bytes from an address. They are zero where a kernel may have written any of them.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        if self.is_written(address, bytes.len() as u64) {
            return;
        }
        for (page, offset, place) in pieces(address, bytes.len()) {
            if let Some(data) = self.pages.get(&page) {
                let length = place.len();
                bytes[place].copy_from_slice(&data[offset..offset + length]);
            }
        }
    }

    /// Copies bytes between two addresses.
    pub(crate) fn copy(&mut self, to: u64, from: u64, size: u64) {
        let mut piece = vec![0; size.min(PAGE) as usize];
        if self.is_written(from, size) {
            return self.clear(to, size);
        }
        for start in (0..size).step_by(PAGE as usize) {
            let piece = &mut piece[..(size - start).min(PAGE) as usize];
            let is_kept = self.pages.range(page_of(from + start)..from + start + piece.len() as u64).next().is_some();
            if is_kept {
                self.read(from + start, piece);
                self.write(to + start, piece);
            } else {
                self.clear(to + start, piece.len() as u64);
            }
        }
    }

    /// Sets `count` values of the width of `value` at an address.
    pub(crate) fn fill(&mut self, address: u64, value: &[u8], count: u64) {
        let size = count * value.len() as u64;
        if value.iter().all(|byte| *byte == 0) {
            return self.clear(address, size);
        }
        let piece: Vec<u8> = value.iter().copied().cycle().take(size.min(PAGE) as usize).collect();
        for start in (0..size).step_by(PAGE as usize) {
            self.write(address + start, &piece[..(size - start).min(PAGE) as usize]);
        }
    }

    /// Sets memory to zero, and knows it again.
    pub(crate) fn clear(&mut self, address: u64, size: u64) {
        self.know(address, size);
        let end = address + size;
        let pages: Vec<u64> = self.pages.range(page_of(address)..end).map(|(page, _)| *page).collect();
        for page in pages {
            if address <= page && page + PAGE <= end {
                self.pages.remove(&page);
            } else if let Some(data) = self.pages.get_mut(&page) {
                let first = address.max(page) - page;
                let last = end.min(page + PAGE) - page;
                data[first as usize..last as usize].fill(0);
            }
        }
    }

    /// Notes that a kernel may have written through an address.
    pub(crate) fn kernel_writes(&mut self, address: u64) {
        self.written.insert(address);
    }

    fn know(&mut self, address: u64, size: u64) {
        if size > 0 {
            let known: Vec<u64> = self.written.range(address..address + size).copied().collect();
            known.iter().for_each(|address| _ = self.written.remove(address));
        }
    }

    fn is_written(&self, address: u64, size: u64) -> bool {
        size > 0 && self.written.range(address..address + size).next().is_some()
    }
}

fn page_of(address: u64) -> u64 {
    address - address % PAGE
}

/// Cuts a range at the borders of pages: the page, the offset in it, and the place in the range.
fn pieces(address: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let at = address + start as u64;
        let offset = (at - page_of(at)) as usize;
        let end = length.min(start + PAGE as usize - offset);
        let piece = (start < length).then_some((page_of(at), offset, start..end));
        start = end;
        piece
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(contents: &Contents, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![9; length];
        contents.read(address, &mut bytes);
        bytes
    }

    #[test]
    fn bytes_are_kept_over_pages() {
        let mut contents = Contents::default();
        let bytes: Vec<u8> = (0..200_000).map(|index| (index % 251) as u8).collect();
        contents.write(PAGE - 7, &bytes);
        assert_eq!(read(&contents, PAGE - 7, bytes.len()), bytes);
        assert_eq!(read(&contents, PAGE - 8, 2), [0, 0]);
        contents.copy(10 * PAGE + 3, PAGE - 7, bytes.len() as u64);
        assert_eq!(read(&contents, 10 * PAGE + 3, bytes.len()), bytes);
        contents.clear(PAGE - 7, bytes.len() as u64 - 1);
        assert_eq!(read(&contents, PAGE - 7 + 199_998, 2), [0, bytes[199_999]]);
        assert_eq!(contents.pages.iter().filter(|(page, _)| **page < 9 * PAGE).count(), 2);
    }

    #[test]
    fn fills_repeat_their_value() {
        let mut contents = Contents::default();
        contents.fill(PAGE - 4, &[1, 2, 3, 4], 3);
        assert_eq!(read(&contents, PAGE - 4, 13), [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 0]);
        contents.fill(PAGE - 4, &[0, 0], 2);
        assert_eq!(read(&contents, PAGE - 4, 8), [0, 0, 0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_a_kernel_writes_is_unknown_until_the_next_copy() {
        let mut contents = Contents::default();
        contents.write(100, &[1; 20]);
        contents.kernel_writes(110);
        assert_eq!((read(&contents, 100, 20), read(&contents, 100, 10)), (vec![0; 20], vec![1; 10]));
        contents.copy(200, 100, 20);
        assert_eq!(read(&contents, 200, 20), [0; 20]);
        contents.write(110, &[2]);
        assert_eq!(read(&contents, 110, 2), [2, 1]);
    }
}
