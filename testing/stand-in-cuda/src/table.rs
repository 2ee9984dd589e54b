//! Tables of what a program has handles of.

use std::collections::BTreeMap;

use crate::abi::Handle;
use crate::errors::{Answer, INVALID_HANDLE};

/// Lowest bit of the kind in a handle.
const KIND_SHIFT: u32 = 40;

/// Things of one kind by handle. A handle is a number that is never used again, so that a handle of something that was
/// destroyed, or of another kind, is found out.
#[derive(Debug)]
pub(crate) struct Table<T> {
    kind: usize,
    last: usize,
    things: BTreeMap<Handle, T>,
}

impl<T> Table<T> {
    /// Makes an empty table of a kind, which has a number above zero.
    pub(crate) const fn new(kind: usize) -> Self {
        Self { kind, last: 0, things: BTreeMap::new() }
    }

    /// Adds a thing and returns its handle.
    pub(crate) fn add(&mut self, thing: T) -> Handle {
        self.last += 1;
        let handle = (self.kind << KIND_SHIFT) + self.last * 16;
        self.things.insert(handle, thing);
        handle
    }

    /// Returns the thing with a handle.
    pub(crate) fn get(&self, handle: Handle) -> Answer<&T> {
        self.things.get(&handle).ok_or(INVALID_HANDLE)
    }

    /// Returns the thing with a handle, to change it.
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Answer<&mut T> {
        self.things.get_mut(&handle).ok_or(INVALID_HANDLE)
    }

    /// Removes the thing with a handle.
    pub(crate) fn remove(&mut self, handle: Handle) -> Answer<T> {
        self.things.remove(&handle).ok_or(INVALID_HANDLE)
    }

    /// Keeps the things for which `keeps` holds.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.things.retain(|_, thing| keeps(thing));
    }

    /// Returns all things.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.things.values_mut()
    }

    /// Returns all things with their handles.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.things.iter().map(|(handle, thing)| (*handle, thing))
    }

    /// Returns the number of things that were ever added.
    pub(crate) fn n_added(&self) -> usize {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_of_one_kind_and_never_come_again() {
        let (mut letters, mut numbers) = (Table::new(1), Table::new(2));
        let (a, one) = (letters.add('a'), numbers.add(1));
        assert_eq!(
            (letters.get(a), letters.get(one), numbers.get(0)),
            (Ok(&'a'), Err(INVALID_HANDLE), Err(INVALID_HANDLE))
        );
        assert_eq!((letters.remove(a), letters.remove(a)), (Ok('a'), Err(INVALID_HANDLE)));
        assert_ne!(letters.add('b'), a);
        assert_eq!(letters.n_added(), 2);
    }
}
