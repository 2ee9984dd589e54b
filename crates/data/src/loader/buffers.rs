//! Feature buffers of batches, which the trainer returns to the loader for reuse.

use crossbeam_channel::{Receiver, Sender, bounded};
use plimsoll_audio::buffers::reuse;

/// Largest number of feature buffers that wait for reuse; further buffers are freed.
const MAX_BUFFERS: usize = 4;

/// Pool of buffers for reuse. The threads of the loader take buffers, and the thread of the trainer returns them.
#[derive(Clone, Debug)]
pub(super) struct BatchBuffers(Sender<Vec<f32>>, Receiver<Vec<f32>>);

impl BatchBuffers {
    pub(super) fn new() -> Self {
        let (give, take) = bounded(MAX_BUFFERS);
        Self(give, take)
    }

    /// Returns an empty vector with capacity for `count` values. A waiting buffer of another size is dropped: batches
    /// have many sizes, and so the pool comes to hold the sizes that are in demand.
    pub(super) fn take(&self, count: usize) -> Vec<f32> {
        reuse(self.1.try_recv().ok(), count)
    }

    /// Keeps a buffer for reuse, or drops it when enough are waiting.
    pub(super) fn give_back(&self, used: Vec<f32>) {
        let _ = self.0.try_send(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_batch_buffers_is_kept() {
        let buffers = BatchBuffers::new();
        (0..MAX_BUFFERS + 3).for_each(|_| buffers.give_back(Vec::with_capacity(8)));
        assert_eq!(buffers.1.len(), MAX_BUFFERS);
        assert_eq!(buffers.take(8).capacity(), 8);
    }
}
