//! Scaled dot-product attention: tile by tile on the CPU, elsewhere all queries at once or one chunk of queries at a time.

use burn::tensor::Tensor;
use plimsoll_tape::heads::{is_tiled, tiled_attention};
use plimsoll_tape::{AttentionInputs, AttentionMask, Pass, RelativePositions, attention_weights, chunked_attention};

// Shapes: b batch, h heads, q queries, w width of a head, l = keys + queries - 1 relative offsets.

/// Computes the weighted sum of the values for each query, `[b, h, q, w]`, in the precision of the pass.
///
/// On the CPU in fp32 no tensor of all scores is made. Elsewhere queries are taken in chunks if
/// [`Choice::attention_chunk`](plimsoll_core::Choice::attention_chunk) is below the number of queries.
pub(super) fn attend(parts: AttentionInputs, sight: &AttentionMask, pass: &Pass, dropout: f64) -> Tensor<4> {
    let lower = |x: Tensor<4>| pass.to_compute_dtype(x);
    let AttentionInputs { query, key, value, positions: offsets } = parts;
    let [query, key, value] = [query, key, value].map(lower);
    let offsets = offsets
        .map(|RelativePositions { query, table }| RelativePositions { query: lower(query), table: lower(table) });
    let parts = AttentionInputs { query, key, value, positions: offsets };
    match pass.choice().attention_chunk {
        _ if is_tiled(&parts) => tiled_attention(parts, sight, pass.noise(), dropout),
        Some(chunk) if (chunk.get() as usize) < parts.query.dims()[2] => {
            chunked_attention(parts, sight, pass.noise(), dropout, chunk)
        }
        _ => attend_at_once(parts, sight, pass, dropout),
    }
}

/// Attends with all queries at once: the scores `[b, h, q, keys]` are one tensor.
fn attend_at_once(parts: AttentionInputs, sight: &AttentionMask, pass: &Pass, dropout: f64) -> Tensor<4> {
    let AttentionInputs { query, key, value, positions: offsets } = parts;
    let scores = query.matmul(key.swap_dims(2, 3));
    let by_distance = offsets.map(|RelativePositions { query, table }| {
        let [b, h, _, w] = query.dims();
        let l = table.dims()[2];
        query.matmul(table.swap_dims(2, 3).expand([b, h, w, l]))
    });
    attention_weights(scores, by_distance, sight, pass.noise(), dropout).matmul(value)
}
