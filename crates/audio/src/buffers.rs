//! Reuse of feature buffers: each thread has a pool.
//!
//! The features of one utterance are just large enough for the allocator to map fresh pages from the system, and to
//! have them zeroed, at every allocation. When features came from a cache, that took as long as all other work on a
//! batch. A caller takes a buffer with [`take`], [`zeroed`] or [`copy_of`] and returns it with [`recycle`].

use std::cell::RefCell;

/// Largest number of buffers in the pool of one thread: about one usual batch.
const POOL_MAX: usize = 32;

thread_local! {
    static POOL: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty vector with capacity for `count` values, from the pool of the current thread if a buffer there
/// fits.
pub fn take(count: usize) -> Vec<f32> {
    let pooled = POOL.with_borrow_mut(|pool| {
        let index = pool.iter().position(|buffer| fits(buffer, count))?;
        Some(pool.swap_remove(index))
    });
    reuse(pooled, count)
}

/// Returns a buffer of `count` zeros from the pool of the current thread.
pub fn zeroed(count: usize) -> Vec<f32> {
    let mut buffer = take(count);
    buffer.resize(count, 0.0);
    buffer
}

/// Copies `values` into a buffer from the pool of the current thread.
pub fn copy_of(values: &[f32]) -> Vec<f32> {
    let mut buffer = take(values.len());
    buffer.extend_from_slice(values);
    buffer
}

/// Returns `buffer` to the pool of the current thread. A full pool drops its oldest buffer.
pub fn recycle(buffer: Vec<f32>) {
    if buffer.capacity() == 0 {
        return;
    }
    POOL.with_borrow_mut(|pool| {
        if pool.len() == POOL_MAX {
            pool.remove(0);
        }
        pool.push(buffer);
    });
}

/// Empties and returns `candidate` if its capacity fits `count` values; otherwise frees it and returns a new vector.
///
/// For callers that keep their own pool, such as a pool shared between threads.
pub fn reuse(candidate: Option<Vec<f32>>, count: usize) -> Vec<f32> {
    match candidate.filter(|buffer| fits(buffer, count)) {
        Some(mut buffer) => {
            buffer.clear();
            buffer
        }
        None => Vec::with_capacity(count),
    }
}

/// Returns whether the capacity of `buffer` is at least `count` and at most one and a half times `count`.
fn fits(buffer: &Vec<f32>, count: usize) -> bool {
    (count..=count + count / 2).contains(&buffer.capacity())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_for_a_similar_size() {
        let first = take(1000);
        let address = first.as_ptr();
        recycle(first);
        let (small, large) = (take(100), take(2000));
        assert!(small.as_ptr() != address && large.as_ptr() != address, "the pooled buffer fits neither size");
        let mut again = take(900);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
        again.extend([1.0; 900]);
        recycle(again);
        assert_eq!(copy_of(&[2.0; 800]), [2.0; 800]);
    }

    #[test]
    fn the_pool_has_a_maximum_size() {
        let used: Vec<Vec<f32>> = (0..POOL_MAX + 10).map(|_| Vec::with_capacity(8)).collect();
        used.into_iter().for_each(recycle);
        assert_eq!(POOL.with_borrow(Vec::len), POOL_MAX);
    }
}
