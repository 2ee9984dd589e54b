//! Room for features that is used again.
//!
//! The features of an utterance are just large enough for the system to be asked for their pages, and to give them zeroed,
//! each time; where features come from a cache, that took as long as all the rest.

use std::cell::RefCell;

/// Rooms that a thread keeps: those of a usual batch.
const KEPT: usize = 32;

thread_local! {
    static SPARE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// An empty vector with room for `count` values: one that this thread gave back, where one is about as large.
pub fn room(count: usize) -> Vec<f32> {
    let kept = SPARE.with_borrow_mut(|spare| {
        let place = spare.iter().position(|one| fits(one, count))?;
        Some(spare.swap_remove(place))
    });
    kept.map_or_else(|| Vec::with_capacity(count), emptied)
}

/// So many zeros, in such a room.
pub fn zeros(count: usize) -> Vec<f32> {
    let mut zeros = room(count);
    zeros.resize(count, 0.0);
    zeros
}

/// A copy of `values`, in such a room.
pub fn copy(values: &[f32]) -> Vec<f32> {
    let mut copy = room(values.len());
    copy.extend_from_slice(values);
    copy
}

/// Keeps the room of what is no longer needed, on this thread.
pub fn give_back(used: Vec<f32>) {
    if used.capacity() == 0 {
        return;
    }
    SPARE.with_borrow_mut(|spare| {
        if spare.len() == KEPT {
            spare.remove(0);
        }
        spare.push(used);
    });
}

/// Whether `one` is large enough for `count` values, and not so large that its memory would be wasted on them.
pub fn fits(one: &Vec<f32>, count: usize) -> bool {
    (count..=count + count / 2).contains(&one.capacity())
}

/// `used`, without its values.
pub fn emptied(mut used: Vec<f32>) -> Vec<f32> {
    used.clear();
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_used_again_where_it_is_about_as_large() {
        let first = room(1000);
        let place = first.as_ptr();
        give_back(first);
        let (small, large) = (room(100), room(2000));
        assert!(small.as_ptr() != place && large.as_ptr() != place, "neither is about as large");
        let mut again = room(900);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        again.extend([1.0; 900]);
        give_back(again);
        assert_eq!(copy(&[2.0; 800]), [2.0; 800]);
    }

    #[test]
    fn no_more_is_kept_than_so_many() {
        let used: Vec<Vec<f32>> = (0..KEPT + 10).map(|_| Vec::with_capacity(8)).collect();
        used.into_iter().for_each(give_back);
        assert_eq!(SPARE.with_borrow(Vec::len), KEPT);
    }
}
