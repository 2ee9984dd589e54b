//! Buffers of batches, which go from the trainer back to the loader.

use crossbeam_channel::{Receiver, Sender, bounded};
use plimsoll_audio::buffers;

/// Buffers of whole batches that are kept between a trainer and its loader.
const KEPT_BATCHES: usize = 4;

/// Rooms of batches, which are filled by one thread and given back by another.
#[derive(Clone, Debug)]
pub(super) struct Rooms(Sender<Vec<f32>>, Receiver<Vec<f32>>);

impl Rooms {
    pub(super) fn new() -> Self {
        let (give, take) = bounded(KEPT_BATCHES);
        Self(give, take)
    }

    /// An empty vector with room for `count` values. What does not fit is let go: batches are of many lengths, and the rooms
    /// kept should become those that are asked for.
    pub(super) fn room(&self, count: usize) -> Vec<f32> {
        buffers::reuse(self.1.try_recv().ok(), count)
    }

    /// Keeps a room, where there are not too many.
    pub(super) fn give_back(&self, used: Vec<f32>) {
        let _ = self.0.try_send(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_batch_buffers_is_kept() {
        let rooms = Rooms::new();
        (0..KEPT_BATCHES + 3).for_each(|_| rooms.give_back(Vec::with_capacity(8)));
        assert_eq!(rooms.1.len(), KEPT_BATCHES);
        assert_eq!(rooms.room(8).capacity(), 8);
    }
}
