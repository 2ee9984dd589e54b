//! The first piece of the next step, sent to the device while this one is computed.

use burn::tensor::Device;
use plimsoll_core::{Batch, BatchShape, SampleId};
use plimsoll_tape::Task;

use super::cut::{Cut, Queue};
use crate::Governor;

/// Whoever knows the batch of the next step, and shows it to the one who sends it, if there is one.
pub type Meanwhile<'a, B> = dyn FnMut(&mut dyn FnMut(&B)) + 'a;

/// A piece that is on the device before its step begins.
pub(super) struct Ahead<T: Task> {
    cut: Cut,
    sent: Identity,
    tensors: T::Tensors,
}

/// What tells one piece from another without reading its values.
#[derive(PartialEq)]
struct Identity {
    ids: Vec<SampleId>,
    shape: BatchShape,
    valid_frames: u64,
}

impl Identity {
    fn of(piece: &impl Batch) -> Self {
        Self { ids: piece.ids().to_vec(), shape: piece.shape(), valid_frames: piece.valid_frames() }
    }
}

impl<T: Task> Ahead<T> {
    /// Sends what a step on `next` will begin with, as far as `governor` knows by now.
    pub(super) fn send(next: &T::Batch, governor: &Governor, device: &Device) -> Option<Self> {
        let wave = Queue::of(next, None).next_wave(next, governor, 1)?;
        let &[cut] = &wave.cuts[..] else { return None };
        let part = (cut.len as usize != next.len()).then(|| next.part(cut.places()));
        let piece = part.as_ref().unwrap_or(next);
        Some(Self { cut, sent: Identity::of(piece), tensors: T::send(piece, device) })
    }

    /// The tensors, where they are those of `piece`, which is cut so.
    pub(super) fn of(self, cut: Cut, piece: &T::Batch) -> Option<T::Tensors> {
        let places = |cut: Cut| (cut.start, cut.len);
        (places(self.cut) == places(cut) && self.sent == Identity::of(piece)).then_some(self.tensors)
    }
}
