//! Most probable path through a chain of states, in bounded memory.

use super::chain::Chain;

/// Memory for backpointers up to which the whole table is kept.
pub(super) const TABLE_BYTES: usize = 128 << 20;

/// Two bits for each state of each frame: by how many states the best path came forward.
struct Backpointers {
    bits: Vec<u8>,
    row: usize,
}

impl Backpointers {
    fn new(frames: usize, states: usize) -> Self {
        let row = states.div_ceil(4);
        Self { bits: vec![0; frames * row], row }
    }

    fn set(&mut self, frame: usize, state: usize, moved: u8) {
        let byte = &mut self.bits[frame * self.row + state / 4];
        let shift = state % 4 * 2;
        *byte = *byte & !(3 << shift) | moved << shift;
    }

    fn get(&self, frame: usize, state: usize) -> usize {
        usize::from(self.bits[frame * self.row + state / 4] >> (state % 4 * 2) & 3)
    }
}

/// Returns the state of the best path in each frame. The chain has at least one frame, and a path exists.
///
/// If the table of backpointers would need more than `table_bytes`, the scores are kept at some frames only, and each
/// part between them is computed again on the way back: about twice the time, and memory that grows with the square
/// root of the frames. The path is the same.
pub(super) fn best_path(chain: &Chain<'_>, table_bytes: usize) -> Vec<usize> {
    let (frames, states) = (chain.frames(), chain.states());
    let whole = frames.saturating_mul(states.div_ceil(4)) <= table_bytes;
    // A kept score has 64 bits and a backpointer two: this length makes the two memories equal.
    let part = if whole { frames } else { ((frames as f64 * 32.0).sqrt().ceil() as usize).clamp(1, frames) };
    let mut kept: Vec<Vec<f64>> = Vec::new();
    let mut scores = vec![f64::NEG_INFINITY; states];
    let mut next = scores.clone();
    if !whole {
        for frame in 0..frames {
            if frame % part == 0 {
                kept.push(scores.clone());
            }
            step(chain, frame, &mut scores, &mut next, None);
        }
    }
    let mut path = vec![0; frames];
    let mut state = None;
    for first in (0..frames).step_by(part).collect::<Vec<_>>().into_iter().rev() {
        let last = (first + part).min(frames);
        let mut back = Backpointers::new(last - first, states);
        if let Some(earlier) = kept.pop() {
            scores = earlier;
        }
        for frame in first..last {
            step(chain, frame, &mut scores, &mut next, Some((&mut back, frame - first)));
        }
        // The path ends in the last token or in the blank after it.
        let best_end = || (0..states).rev().take(2).reduce(|a, b| if scores[b] > scores[a] { b } else { a });
        let mut at = state.unwrap_or_else(|| best_end().unwrap_or(0));
        for frame in (first..last).rev() {
            path[frame] = at;
            at -= back.get(frame - first, at);
        }
        state = Some(at);
    }
    path
}

/// Computes the scores of the best paths to each state in `frame` from those of the frame before.
fn step(
    chain: &Chain<'_>,
    frame: usize,
    scores: &mut Vec<f64>,
    next: &mut Vec<f64>,
    mut back: Option<(&mut Backpointers, usize)>,
) {
    next.fill(f64::NEG_INFINITY);
    for state in chain.reachable(frame) {
        if frame == 0 {
            next[state] = if state < 2 { chain.score(0, state) } else { f64::NEG_INFINITY };
            continue;
        }
        let (mut best, mut moved) = (scores[state], 0);
        if state > 0 && scores[state - 1] > best {
            (best, moved) = (scores[state - 1], 1);
        }
        if chain.skips(state) && scores[state - 2] > best {
            (best, moved) = (scores[state - 2], 2);
        }
        next[state] = best + chain.score(frame, state);
        if let Some((back, row)) = &mut back {
            back.set(*row, state, moved);
        }
    }
    std::mem::swap(scores, next);
}
