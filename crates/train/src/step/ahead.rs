//! The first piece of the next step, sent to the device while this one is computed.

use burn::tensor::Device;
use plimsoll_core::HostBatch;
use plimsoll_tape::TensorBatch;

use super::cut::{Cut, Queue};
use crate::Governor;

/// Whoever knows the batch of the next step, and shows it to the one who sends it, if there is one.
pub type Meanwhile<'a> = dyn FnMut(&mut dyn FnMut(&HostBatch)) + 'a;

/// A piece that is on the device before its step begins.
pub(super) struct Ahead {
    cut: Cut,
    tensors: TensorBatch,
}

impl Ahead {
    /// Sends what a step on `next` will begin with, as far as `governor` knows by now.
    pub(super) fn send(next: &HostBatch, governor: &Governor, device: &Device) -> Option<Self> {
        let wave = Queue::of(next, None).next_wave(next, governor, 1)?;
        let &[cut] = &wave.cuts[..] else { return None };
        let tensors = match cut.len as usize == next.len() {
            true => TensorBatch::send(next, device),
            false => TensorBatch::send(&next.part(cut.places()), device),
        };
        Some(Self { cut, tensors })
    }

    /// The tensors, where they are those of `piece`, which is cut so.
    pub(super) fn of(self, cut: Cut, piece: &HostBatch) -> Option<TensorBatch> {
        let Self { cut: sent, tensors } = self;
        let places = |cut: Cut| (cut.start, cut.len);
        let is_same = places(sent) == places(cut)
            && tensors.ids == piece.ids
            && tensors.frame_lengths == piece.frame_lengths
            && tensors.features.dims() == [piece.len(), piece.frames, piece.feature_width];
        is_same.then_some(tensors)
    }
}
