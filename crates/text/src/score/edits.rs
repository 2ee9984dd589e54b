//! Minimal edits between two sequences.

/// How a unit of the reference or of the hypothesis takes part in an alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    Hit,
    Substitution,
    Deletion,
    Insertion,
}

/// Finds a minimal alignment (Levenshtein distance), by walking the table of costs backwards.
///
/// Of several minimal alignments it takes the one that, from the end, prefers pairs to deletions to insertions. Two
/// bits of each cell of the table are kept.
pub(super) fn edits<T: PartialEq>(reference: &[T], hypothesis: &[T]) -> Vec<Edit> {
    let width = hypothesis.len() + 1;
    let row = width.div_ceil(4);
    // 0 is a pair, 1 a deletion, 2 an insertion.
    let mut moves = vec![0u8; (reference.len() + 1) * row];
    let mut costs: Vec<usize> = (0..width).collect();
    for (i, unit) in reference.iter().enumerate() {
        let moves = &mut moves[(i + 1) * row..][..row];
        let mut diagonal = costs[0];
        costs[0] = i + 1;
        for (j, other) in hypothesis.iter().enumerate() {
            let paired = diagonal + usize::from(unit != other);
            let (deleted, inserted) = (costs[j + 1] + 1, costs[j] + 1);
            diagonal = costs[j + 1];
            let best = paired.min(deleted).min(inserted);
            costs[j + 1] = best;
            let taken = if best == paired { 0 } else { 1 + u8::from(best != deleted) };
            moves[(j + 1) / 4] |= taken << ((j + 1) % 4 * 2);
        }
    }
    let mut edits = Vec::with_capacity(reference.len().max(hypothesis.len()));
    let (mut i, mut j) = (reference.len(), hypothesis.len());
    while i > 0 || j > 0 {
        let taken = if i == 0 { 2 } else { moves[i * row + j / 4] >> (j % 4 * 2) & 3 };
        match if j == 0 { 1 } else { taken } {
            0 => {
                (i, j) = (i - 1, j - 1);
                edits.push(if reference[i] == hypothesis[j] { Edit::Hit } else { Edit::Substitution });
            }
            1 => {
                i -= 1;
                edits.push(Edit::Deletion);
            }
            _ => {
                j -= 1;
                edits.push(Edit::Insertion);
            }
        }
    }
    edits.reverse();
    edits
}
