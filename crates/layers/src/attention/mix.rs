//! Scores, weights, and what they mix: of all queries at once, or of a chunk of them at a time.

use burn::nn::Linear;
use burn::tensor::Tensor;
use plimsoll_tape::{Pass, Sight, attention_weights, relative_shift, remat};

// Shapes: b batch, h heads, q queries, k keys, w width of a head, l distances.

/// What attention is computed from; the queries are scaled already.
pub(super) struct Attended {
    /// `[b, h, q, w]`.
    pub(super) query: Tensor<4>,
    /// `[b, h, k, w]`.
    pub(super) key: Tensor<4>,
    /// `[b, h, k, w]`.
    pub(super) value: Tensor<4>,
    /// What relative attention adds.
    pub(super) offsets: Option<Offsets>,
}

/// The part of the scores that depends on distances.
pub(super) struct Offsets {
    /// The queries as they look at distances, `[b, h, q, w]`.
    pub(super) query: Tensor<4>,
    /// What they look at, `[1, h, q + k - 1, w]`, from the longest distance back to the longest ahead.
    pub(super) table: Tensor<4>,
}

type Inputs = (Tensor<4>, Tensor<4>, Tensor<4>, Option<(Tensor<4>, Tensor<4>)>);

/// The values `[b, h, q, w]` that every query sees, weighted.
pub(super) fn attend(parts: Attended, sight: &Sight, pass: &Pass, dropout: f64) -> Tensor<4> {
    let Attended { query, key, value, offsets } = parts;
    let queries = query.dims()[2];
    let offsets = offsets.map(|offsets| (offsets.query, offsets.table));
    let chunk = pass.choice().attention_chunk.map_or(queries, |chunk| chunk.get() as usize);
    if chunk >= queries {
        return weighted((query, key, value, offsets), sight, pass, dropout);
    }
    let keys = key.dims()[2];
    let chunks = (0..queries).step_by(chunk).map(|first| {
        let count = chunk.min(queries - first);
        let part = offsets.as_ref().map(|(look, table)| {
            // The last query of the chunk is this much before the last of all.
            let skipped = queries - first - count;
            (look.clone().narrow(2, first, count), table.clone().narrow(2, skipped, count + keys - 1))
        });
        let sight = Sight { first: sight.first + first, ..sight.clone() };
        let pass = pass.clone();
        let inputs = (query.clone().narrow(2, first, count), key.clone(), value.clone(), part);
        remat(&Vec::<Linear>::new(), inputs, move |_, inputs| weighted(inputs, &sight, &pass, dropout))
    });
    Tensor::cat(chunks.collect(), 2)
}

fn weighted((query, key, value, offsets): Inputs, sight: &Sight, pass: &Pass, dropout: f64) -> Tensor<4> {
    let keys = key.dims()[2];
    let mut scores = pass.matmul(query, key.swap_dims(2, 3));
    if let Some((look, table)) = offsets {
        let [b, h, l, w] = [look.dims()[0], table.dims()[1], table.dims()[2], table.dims()[3]];
        let table = table.swap_dims(2, 3).expand([b, h, w, l]);
        scores = scores + relative_shift(pass.matmul(look, table), keys);
    }
    attention_weights(scores, sight, pass.noise(), dropout).matmul(pass.lower(value))
}
