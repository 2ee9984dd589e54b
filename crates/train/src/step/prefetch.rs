//! First micro-batch of the next step, sent to the device while this step is computed.

use burn::tensor::Device;
use plimsoll_core::{Batch, BatchShape, MicroBatch, SampleId, TimeOwner, timing};
use plimsoll_tape::Task;

use super::queue::Queue;
use crate::Governor;

/// Hook that supplies the batch of the next step: it calls the function that it receives with that batch, if there is
/// one.
pub type NextBatchHook<'a, B> = dyn FnMut(&mut dyn FnMut(&B)) + 'a;

/// A micro-batch that is on the device before its step begins.
pub(super) struct PrefetchedMicroBatch<T: Task> {
    micro_batch: MicroBatch,
    sent: BatchIdentity,
    tensors: T::Tensors,
}

/// Sample ids and sizes of a micro-batch, by which the trainer checks that prefetched tensors belong to the micro-batch
/// that is computed next. Comparing them is cheaper than comparing all values.
#[derive(PartialEq)]
struct BatchIdentity {
    ids: Vec<SampleId>,
    shape: BatchShape,
    valid_frames: u64,
}

impl BatchIdentity {
    fn of(part: &impl Batch) -> Self {
        Self { ids: part.ids().to_vec(), shape: part.shape(), valid_frames: part.valid_frames() }
    }
}

impl<T: Task> PrefetchedMicroBatch<T> {
    /// Sends the first micro-batch of a step on `next` to the device, with the size that the governor allows now.
    /// `None` if `next` is empty.
    pub(super) fn send(next: &T::Batch, governor: &Governor, device: &Device) -> Option<Self> {
        let group = Queue::new(next, None).next_group(next, governor, 1)?;
        let &[micro_batch] = &group.micro_batches[..] else { return None };
        let part = (micro_batch.len as usize != next.len()).then(|| next.part(micro_batch.range()));
        let part = part.as_ref().unwrap_or(next);
        let tensors = timing::measure(TimeOwner::Transfer, || T::send(part, device));
        Some(Self { micro_batch, sent: BatchIdentity::of(part), tensors })
    }

    /// Returns the prefetched tensors if they belong to `micro_batch`, whose utterances are `part`; otherwise `None`.
    pub(super) fn of(self, micro_batch: MicroBatch, part: &T::Batch) -> Option<T::Tensors> {
        let places = |micro_batch: MicroBatch| (micro_batch.start, micro_batch.len);
        (places(self.micro_batch) == places(micro_batch) && self.sent == BatchIdentity::of(part))
            .then_some(self.tensors)
    }
}
