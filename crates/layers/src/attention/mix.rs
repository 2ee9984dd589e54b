//! Scaled dot-product attention: all queries at once, or one chunk of queries at a time.

use burn::tensor::Tensor;
use plimsoll_tape::{Attended, Offsets, Pass, Sight, attention_weights, chunked_attention, relative_shift};

// Shapes: b batch, h heads, q queries, w width of a head, l = keys + queries - 1 relative offsets.

/// Weighted sum of the values for each query, `[b, h, q, w]`, in the precision of the pass.
///
/// Queries are taken in chunks if [`Choice::attention_chunk`](plimsoll_core::Choice::attention_chunk) is below their
/// number.
pub(super) fn attend(parts: Attended, sight: &Sight, pass: &Pass, dropout: f64) -> Tensor<4> {
    let lower = |x: Tensor<4>| pass.lower(x);
    let Attended { query, key, value, offsets } = parts;
    let [query, key, value] = [query, key, value].map(lower);
    let offsets = offsets.map(|Offsets { query, table }| Offsets { query: lower(query), table: lower(table) });
    match pass.choice().attention_chunk {
        Some(chunk) if (chunk.get() as usize) < query.dims()[2] => {
            chunked_attention(Attended { query, key, value, offsets }, sight, pass.noise(), dropout, chunk)
        }
        _ => attend_at_once(Attended { query, key, value, offsets }, sight, pass, dropout),
    }
}

/// All queries at once: the scores `[b, h, q, keys]` are one tensor.
fn attend_at_once(parts: Attended, sight: &Sight, pass: &Pass, dropout: f64) -> Tensor<4> {
    let Attended { query, key, value, offsets } = parts;
    let keys = key.dims()[2];
    let mut scores = query.matmul(key.swap_dims(2, 3));
    if let Some(Offsets { query, table }) = offsets {
        let [b, h, _, w] = query.dims();
        let l = table.dims()[2];
        let table = table.swap_dims(2, 3).expand([b, h, w, l]);
        scores = scores + relative_shift(query.matmul(table), keys);
    }
    attention_weights(scores, sight, pass.noise(), dropout).matmul(value)
}
