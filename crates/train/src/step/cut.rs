//! How a batch is cut: pieces that wait, pieces that are computed together, and pieces that did not fit.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::ops::Range;

use plimsoll_core::{Batch, BatchShape, Choice, MicroBatch, Remat};
use serde::{Deserialize, Serialize};

use crate::Governor;

/// A piece of a batch: neighbours in it that are computed together.
///
/// The pieces of a step in the order in which they were added up are all that it takes to repeat it to the last bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u32; 3]", into = "[u32; 3]")]
pub struct Cut {
    /// The place of its first utterance in the batch.
    pub start: u32,
    /// Utterances of it.
    pub len: u32,
    /// The effort it was computed with: a place in [`ways`], or [`Cut::LEFT_OUT`].
    pub effort: u32,
}

impl From<[u32; 3]> for Cut {
    fn from([start, len, effort]: [u32; 3]) -> Self {
        Self { start, len, effort }
    }
}

impl From<Cut> for [u32; 3] {
    fn from(cut: Cut) -> Self {
        [cut.start, cut.len, cut.effort]
    }
}

impl From<MicroBatch> for Cut {
    fn from(MicroBatch { start, len, fallback_level }: MicroBatch) -> Self {
        Self { start, len, effort: fallback_level }
    }
}

impl From<Cut> for MicroBatch {
    fn from(Cut { start, len, effort }: Cut) -> Self {
        Self { start, len, fallback_level: effort }
    }
}

impl Cut {
    /// The effort of what was left out, as it does not fit with any.
    pub const LEFT_OUT: u32 = MicroBatch::LEFT_OUT;

    /// Its places in the batch.
    pub fn places(&self) -> Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }

    fn split(self, at: u32) -> (Self, Self) {
        (Self { len: at, ..self }, Self { start: self.start + at, len: self.len - at, ..self })
    }
}

/// Times that an utterance is tried alone, at the least, before it is left out.
const TRIES: u32 = 8;
/// Queries of a chunk of attention where memory is scarce, and where it is very scarce.
const CHUNKS: [u32; 2] = [64, 16];

/// The ways to compute what does not fit alone by `choice`: each needs less memory than the one before and more time, and
/// all give the same result, up to rounding.
pub fn ways(choice: Choice) -> Vec<Choice> {
    let mut ways = vec![choice, Choice { remat: Remat::All, ..choice }];
    for queries in CHUNKS {
        let chunk = choice.attention_chunk.map_or(queries, |chunk| chunk.get().min(queries));
        ways.push(Choice { remat: Remat::All, attention_chunk: NonZeroU32::new(chunk), ..choice });
    }
    ways.dedup();
    ways
}

/// Pieces that are computed at the same time.
pub(super) struct Wave {
    pub(super) cuts: Vec<Cut>,
    /// All their utterances, as long as the longest.
    pub(super) shape: BatchShape,
}

/// The pieces of a step that are not computed yet.
pub(super) struct Queue {
    waiting: VecDeque<Cut>,
    /// Whether the pieces are those of a ledger.
    is_given: bool,
    /// The utterance that did not fit alone a moment ago, and how often.
    alone: (u32, u32),
}

impl Queue {
    /// The whole of `batch`, or the pieces that a ledger has.
    pub(super) fn of(batch: &impl Batch, cuts: Option<&[Cut]>) -> Self {
        let whole = [Cut { start: 0, len: batch.len() as u32, effort: 0 }];
        let is_given = cuts.is_some();
        let waiting = cuts.unwrap_or(&whole).iter().copied().filter(|cut| cut.len > 0).collect();
        Self { waiting, is_given, alone: (u32::MAX, 0) }
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What is computed next, as much as `governor` allows at once, in at most `lanes` pieces.
    pub(super) fn next_wave(&mut self, batch: &impl Batch, governor: &Governor, lanes: usize) -> Option<Wave> {
        if self.waiting.is_empty() {
            return None;
        }
        // By the longest of the whole batch: what it learned of one piece then holds for the next.
        let limit = governor.limit(batch.shape()).min(batch.len());
        let lanes = lanes.clamp(1, limit);
        let waiting: u32 = self.waiting.iter().map(|cut| cut.len).sum();
        let together = limit.min(waiting as usize);
        let each = (together.div_ceil(lanes)).min((limit / lanes).max(1)) as u32;
        let mut cuts = Vec::new();
        while cuts.len() < lanes
            && let Some(mut cut) = self.waiting.pop_front()
        {
            // What a ledger left out goes by itself.
            if cut.effort == Cut::LEFT_OUT {
                match cuts.is_empty() {
                    true => cuts.push(cut),
                    false => self.waiting.push_front(cut),
                }
                break;
            }
            if !self.is_given && cut.len > each {
                let (head, rest) = cut.split(each);
                self.waiting.push_front(rest);
                cut = head;
            }
            if !self.is_given {
                cut.effort = cut.effort.max(governor.effort(batch.shape_of(cut.places())) as u32);
            }
            cuts.push(cut);
        }
        Some(Wave { shape: shape_of_all(batch, &cuts), cuts })
    }

    /// Puts back what did not fit, in smaller pieces or to be computed with more effort, and lets the governor learn. Gives
    /// what does not fit whatever is done.
    pub(super) fn failed(&mut self, failed: &[Cut], wave: &Wave, governor: &mut Governor) -> Vec<Cut> {
        let mut given_up = Vec::new();
        let was_alone = wave.cuts.len() == 1 && wave.shape.utterances == 1;
        if !was_alone {
            governor.ran_out(wave.shape);
        }
        for &cut in failed.iter().rev() {
            if cut.len > 1 {
                let (head, rest) = cut.split(cut.len.div_ceil(2));
                self.waiting.push_front(rest);
                self.waiting.push_front(head);
            } else if was_alone {
                match self.harder(cut, wave, governor) {
                    Some(cut) => self.waiting.push_front(cut),
                    None => given_up.push(Cut { effort: Cut::LEFT_OUT, ..cut }),
                }
            } else {
                self.waiting.push_front(cut);
            }
        }
        given_up
    }
}

impl Queue {
    /// How an utterance is tried next that did not fit alone: as it is, since another may have held the memory for a moment,
    /// then with more and more effort, and with all of it some times more.
    fn harder(&mut self, cut: Cut, wave: &Wave, governor: &mut Governor) -> Option<Cut> {
        let tries = if self.alone.0 == cut.start { self.alone.1 + 1 } else { 1 };
        self.alone = (cut.start, tries);
        let last = ways(Choice::default()).len() as u32 - 1;
        match tries {
            1 => Some(cut),
            _ if cut.effort < last => {
                Some(Cut { effort: (governor.strain(wave.shape) as u32).clamp(cut.effort + 1, last), ..cut })
            }
            ..=TRIES => Some(cut),
            _ => None,
        }
    }
}

impl Queue {
    /// Puts back what was given up, to be tried with all effort.
    pub(super) fn once_more(&mut self, cut: Cut) {
        self.alone = (u32::MAX, 0);
        self.waiting.push_front(Cut { effort: ways(Choice::default()).len() as u32 - 1, ..cut });
    }
}

/// The shape of all `cuts` together.
fn shape_of_all(batch: &impl Batch, cuts: &[Cut]) -> BatchShape {
    let shapes: Vec<BatchShape> = cuts.iter().map(|cut| batch.shape_of(cut.places())).collect();
    BatchShape {
        utterances: shapes.iter().map(|shape| shape.utterances).sum(),
        frames: shapes.iter().map(|shape| shape.frames).max().unwrap_or_default(),
        tokens: shapes.iter().map(|shape| shape.tokens).max().unwrap_or(0),
    }
}
