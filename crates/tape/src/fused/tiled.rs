//! Attention on the CPU, tile by tile: the scores of a few queries are made, used and forgotten while they lie in the cache.
//!
//! The forward pass keeps queries, keys and values. The backward pass computes the weights of each tile again. So memory grows with
//! the length instead of its square, and no tensor of all scores is written or read.

use std::ops::Range;

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::chunked::{AttentionInputs, RelativePositions};
use super::rows::{drop_values, row_gradient, softmax_in_place};
use super::weights::{AttentionMask, DroppedRows, dropped_rows};
use crate::Noise;
use crate::host::{HostOp, HostScratch, Input, is_host, run};
use crate::matrix::{Block, Shared, View, multiply, packed_values};
use crate::noise::Mask;
use crate::simd::vectorized;

// Shapes: b samples, h heads, q queries, k keys, w width of a head, v width of a value, l = q - 1 + k distances.

/// Number of scores of a tile. On two cores with a cache of 1 MiB each, larger tiles bring nothing, and tiles of a third take 1.2x as long.
const TILE_SCORES: usize = 1 << 17;
/// Queries of a tile, whatever the number of keys.
const TILE_ROWS: Range<usize> = 16..97;
/// Number of tasks from which a backward pass is not divided further. It depends on no machine, so that sums do not either.
const TASKS: usize = 16;
/// Fewest queries outside of training: with fewer, as in decoding, products in place need no copy of the keys.
const FEW_QUERIES: usize = 16;

/// Returns whether [`tiled_attention`] takes these inputs: fp32 on the CPU, in training or with many queries.
pub fn is_tiled(inputs: &AttentionInputs) -> bool {
    let query = &inputs.query;
    is_host(query) && (query.is_autodiff() || query.dims()[2] >= FEW_QUERIES)
}

/// Computes the attention output `[samples, heads, queries, value width]` on the CPU, without a tensor of all scores.
///
/// Values and gradients equal those of [`chunked_attention`](super::chunked_attention) up to rounding, dropout included. They do not depend
/// on the number of threads.
///
/// # Panics
/// If the inputs are not [those that it takes](is_tiled), or the mask or the dropout are for another number of samples.
pub fn tiled_attention(inputs: AttentionInputs, mask: &AttentionMask, noise: &Noise, rate: f64) -> Tensor<4> {
    let [b, h, q, w] = inputs.query.dims();
    let [_, _, k, v] = inputs.value.dims();
    assert_eq!(b, mask.key_lengths.len(), "attention needs the length of each sample");
    let sizes = Sizes { b, h, q, k, w, v, by_distance: inputs.positions.is_some() };
    let op = TiledAttention { mask: mask.clone(), dropout: noise.mask(rate, mask.first_query), sizes };
    // As the projections wrote them: the heads of a row side by side.
    let rows = |x: Tensor<4>| Input::new(x.swap_dims(1, 2));
    let AttentionInputs { query, key, value, positions } = inputs;
    let [query, key, value] = [query, key, value].map(rows);
    let shape = [b, q, h, v];
    let output: Tensor<4> = match positions {
        Some(RelativePositions { query: by_distance, table }) => {
            run(op, [query, key, value, rows(by_distance), rows(table)], shape)
        }
        None => run(op, [query, key, value], shape),
    };
    output.swap_dims(1, 2)
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    b: usize,
    h: usize,
    q: usize,
    k: usize,
    w: usize,
    v: usize,
    by_distance: bool,
}

impl Sizes {
    /// Number of queries of a tile.
    fn rows(&self) -> usize {
        (TILE_SCORES / self.k.max(1)).clamp(TILE_ROWS.start, TILE_ROWS.end - 1).min(self.q.max(1))
    }

    /// Number of tiles of a head.
    fn tiles(&self) -> usize {
        self.q.div_ceil(self.rows())
    }

    /// Queries of tile `tile`.
    fn queries(&self, tile: usize) -> Range<usize> {
        let first = tile * self.rows();
        first..(first + self.rows()).min(self.q)
    }

    /// Number of distances from the queries of a tile to all keys.
    fn distances(&self) -> usize {
        self.rows() - 1 + self.k
    }

    /// How a backward pass is divided, beside its heads: parts of the samples, and parts of the queries of a sample. Parts of samples have
    /// a gradient of the table of distances each, and parts of queries gradients of keys and values.
    fn parts(&self) -> (usize, usize) {
        let groups = match self.by_distance {
            true => (4 * TASKS).div_ceil(self.h.max(1)).min(self.b),
            false => self.b,
        };
        (groups.max(1), TASKS.div_ceil((self.h * groups).max(1)).clamp(1, self.tiles().max(1)))
    }
}

/// What a tile belongs to.
#[derive(Clone, Copy)]
struct Place {
    sample: usize,
    head: usize,
}

/// Values of the inputs, with the heads of a row side by side.
#[derive(Clone, Copy)]
struct Values<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    /// Queries for the distances, and the table of distances.
    distances: Option<(&'a [f32], &'a [f32])>,
}

/// Working memory of a thread.
struct Work {
    /// Scores of a tile, then their softmax.
    softmax: Vec<f32>,
    /// Gradient of the weights of a tile, then of its scores.
    gradient: Vec<f32>,
    /// Scores by distance of a tile, and their gradient.
    distances: Vec<f32>,
}

impl Work {
    fn new(sizes: &Sizes, is_backward: bool) -> Self {
        let scores = sizes.rows() * sizes.k;
        let distances = if sizes.by_distance { sizes.rows() * sizes.distances() } else { 0 };
        Self {
            softmax: vec![0.0; scores],
            gradient: vec![0.0; if is_backward { scores } else { 0 }],
            distances: vec![0.0; distances],
        }
    }

    /// Computes the memory of [`new`](Self::new), and of what a product packs at most.
    fn bytes(sizes: &Sizes, is_backward: bool) -> usize {
        let Sizes { k, w, v, by_distance, .. } = *sizes;
        let rows = sizes.rows();
        let scores = rows * k * if is_backward { 2 } else { 1 };
        let (distances, keys) = if by_distance { (rows * sizes.distances(), sizes.distances()) } else { (0, k) };
        let width = w.max(v);
        let packed = [
            packed_values([rows, width, keys], [false, true]),
            packed_values([rows, keys, width], [false, false]),
            if is_backward { packed_values([keys, rows, width], [true, false]) } else { 0 },
        ];
        (scores + distances + packed.into_iter().fold(0, usize::max)) * size_of::<f32>()
    }
}

/// Gradients that the tasks of a backward pass write. Those of keys, values and the table are divided: each part adds up its own.
struct Gradients {
    query: Vec<f32>,
    by_distance: Vec<f32>,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    tables: Vec<Vec<f32>>,
}

/// Attention over tiles of queries.
#[derive(Clone, Debug)]
struct TiledAttention {
    mask: AttentionMask,
    dropout: Option<Mask>,
    sizes: Sizes,
}

impl TiledAttention {
    fn dropped_rows(&self) -> Option<DroppedRows> {
        let Sizes { b, h, q, k, .. } = self.sizes;
        dropped_rows(self.dropout.as_ref(), [b, h, q, k])
    }

    /// Returns the rows `queries` of the head at `place` in `data`, whose sequences are `length` long and whose heads are `width` wide.
    fn rows<'a>(
        &self,
        data: &'a [f32],
        Place { sample, head }: Place,
        (length, width): (usize, usize),
        rows: Range<usize>,
    ) -> View<'a> {
        let stride = self.sizes.h * width;
        let first = (sample * length + rows.start) * stride + head * width;
        View::rows(&data[first.min(data.len())..], [rows.len(), width], stride)
    }

    /// Rows of the table of distances that `queries` and the first `seen` keys use.
    fn table_rows(&self, queries: &Range<usize>, seen: usize) -> Range<usize> {
        let first = self.sizes.q - queries.end;
        first..first + queries.len() - 1 + seen
    }

    /// Computes the softmax of the tile of `queries` over the first keys, and returns how many keys one of its queries sees.
    fn softmax(&self, work: &mut Work, values: Values<'_>, place: Place, queries: &Range<usize>) -> usize {
        let Sizes { q, k, w, .. } = self.sizes;
        let seen = self.mask.visible_keys(place.sample, queries.end - 1, k);
        if seen == 0 {
            return 0;
        }
        let rows = queries.len();
        let query = self.rows(values.query, place, (q, w), queries.clone());
        let key = self.rows(values.key, place, (k, w), 0..seen);
        let scores = &mut work.softmax[..rows * seen];
        multiply(Block::of(scores, [rows, seen]), query, key.turned(), false);
        let width = rows - 1 + seen;
        if let Some((by_distance, table)) = values.distances {
            let query = self.rows(by_distance, place, (q, w), queries.clone());
            let table = self.rows(table, Place { sample: 0, ..place }, (0, w), self.table_rows(queries, seen));
            let distances = &mut work.distances[..rows * width];
            multiply(Block::of(distances, [rows, width]), query, table.turned(), false);
        }
        let distances = &work.distances;
        vectorized(
            #[inline(always)]
            || {
                for (row, scores) in scores.chunks_exact_mut(seen).enumerate() {
                    if values.distances.is_some() {
                        let first = row * width + rows - 1 - row;
                        scores.iter_mut().zip(&distances[first..first + seen]).for_each(|(score, far)| *score += far);
                    }
                    let own = self.mask.visible_keys(place.sample, queries.start + row, k);
                    let (seen, hidden) = scores.split_at_mut(own.min(scores.len()));
                    hidden.fill(0.0);
                    softmax_in_place(seen);
                }
            },
        );
        seen
    }

    /// Returns the index of the first row of scores of `queries`, in the order of samples, heads and queries.
    fn first_row(&self, Place { sample, head }: Place, queries: &Range<usize>) -> usize {
        (sample * self.sizes.h + head) * self.sizes.q + queries.start
    }

    fn forward(&self, values: Values<'_>) -> Vec<f32> {
        let Sizes { b, h, q, k, v, .. } = self.sizes;
        let mut output = vec![0.0; b * q * h * v];
        let dropped = self.dropped_rows();
        let (tiles, shared) = (self.sizes.tiles(), Shared::new(&mut output));
        (0..b * h * tiles).into_par_iter().for_each_init(
            || Work::new(&self.sizes, false),
            |work, task| {
                let (place, tile) = (Place { sample: task / tiles / h, head: task / tiles % h }, task % tiles);
                let queries = self.sizes.queries(tile);
                let seen = self.softmax(work, values, place, &queries);
                if seen == 0 {
                    return;
                }
                let weights = &mut work.softmax[..queries.len() * seen];
                if let Some((keys, threshold, scale)) = &dropped {
                    let first = self.first_row(place, &queries);
                    vectorized(
                        #[inline(always)]
                        || {
                            for (row, weights) in weights.chunks_exact_mut(seen).enumerate() {
                                drop_values(weights, keys[first + row], *threshold, *scale);
                            }
                        },
                    );
                }
                let weights = View::rows(weights, [queries.len(), seen], seen);
                let value = self.rows(values.value, place, (k, v), 0..seen);
                // Each tile of a head has rows and columns of its own.
                multiply(self.block(&shared, place, (q, v), queries), weights, value, false);
            },
        );
        output
    }

    /// Returns the part of `shared` that [`rows`](Self::rows) would read. Each task asks for parts of its own only: of its head, and of its
    /// sample, its rows or its part of a sum.
    fn block<'a>(
        &self,
        shared: &Shared<'a>,
        Place { sample, head }: Place,
        (length, width): (usize, usize),
        rows: Range<usize>,
    ) -> Block<'a> {
        let stride = self.sizes.h * width;
        let first = (sample * length + rows.start) * stride + head * width;
        // SAFETY: no other task has a block with one of these places, and a task has one at a time.
        unsafe { shared.block(first, [rows.len(), width], stride) }
    }

    fn backward(&self, values: Values<'_>, grad_output: &[f32]) -> Gradients {
        let Sizes { b, h, q, k, w, v, by_distance } = self.sizes;
        let (groups, segments) = self.sizes.parts();
        let parts = |count: usize, size: usize| vec![vec![0.0; size]; count];
        let rows_of_distances = if by_distance { b * q * h * w } else { 0 };
        let table = if by_distance { (q + k).saturating_sub(1) * h * w } else { 0 };
        let mut gradients = Gradients {
            query: vec![0.0; b * q * h * w],
            by_distance: vec![0.0; rows_of_distances],
            keys: parts(segments, b * k * h * w),
            values: parts(segments, b * k * h * v),
            tables: parts(groups * segments, table),
        };
        let writes = Writes {
            query: Shared::new(&mut gradients.query),
            by_distance: Shared::new(&mut gradients.by_distance),
            keys: shared_parts(&mut gradients.keys),
            values: shared_parts(&mut gradients.values),
            tables: shared_parts(&mut gradients.tables),
        };
        let dropped = self.dropped_rows();
        let tiles = self.sizes.tiles();
        (0..h * groups * segments).into_par_iter().for_each_init(
            || Work::new(&self.sizes, true),
            |work, task| {
                let (segment, group, head) = (task % segments, task / segments % groups, task / segments / groups);
                for sample in group * b / groups..(group + 1) * b / groups {
                    for tile in segment * tiles / segments..(segment + 1) * tiles / segments {
                        let part =
                            Part { place: Place { sample, head }, queries: self.sizes.queries(tile), group, segment };
                        self.backward_of(work, (values, grad_output), &part, &writes, dropped.as_ref());
                    }
                }
            },
        );
        drop(writes);
        gradients.keys = vec![joined(gradients.keys)];
        gradients.values = vec![joined(gradients.values)];
        gradients.tables = vec![joined(gradients.tables)];
        gradients
    }

    /// Computes what the tile `part` adds to all gradients.
    fn backward_of(
        &self,
        work: &mut Work,
        (values, grad_output): (Values<'_>, &[f32]),
        part: &Part,
        writes: &Writes<'_>,
        dropped: Option<&DroppedRows>,
    ) {
        let Sizes { q, k, w, v, .. } = self.sizes;
        let Part { place, queries, group, segment } = part;
        let (place, rows) = (*place, queries.len());
        let seen = self.softmax(work, values, place, queries);
        if seen == 0 {
            return;
        }
        let count = rows * seen;
        let grad_output = self.rows(grad_output, place, (q, v), queries.clone());
        let value = self.rows(values.value, place, (k, v), 0..seen);
        multiply(Block::of(&mut work.gradient[..count], [rows, seen]), grad_output, value.turned(), false);
        // The gradient of the scores takes the place of that of the weights, and the weights that of the softmax.
        let (softmax, gradient) = (&mut work.softmax[..count], &mut work.gradient[..count]);
        let first = self.first_row(place, queries);
        vectorized(
            #[inline(always)]
            || {
                for (row, (softmax, gradient)) in
                    softmax.chunks_exact_mut(seen).zip(gradient.chunks_exact_mut(seen)).enumerate()
                {
                    let rule = dropped.map(|(keys, threshold, scale)| (keys[first + row], *threshold, *scale));
                    row_gradient(softmax, gradient, rule);
                    if let Some((key, threshold, scale)) = rule {
                        drop_values(softmax, key, threshold, scale);
                    }
                }
            },
        );
        let weights = View::rows(softmax, [rows, seen], seen);
        multiply(self.block(&writes.values[*segment], place, (k, v), 0..seen), weights.turned(), grad_output, true);
        let scores = View::rows(gradient, [rows, seen], seen);
        let query = self.rows(values.query, place, (q, w), queries.clone());
        let key = self.rows(values.key, place, (k, w), 0..seen);
        multiply(self.block(&writes.query, place, (q, w), queries.clone()), scores, key, false);
        multiply(self.block(&writes.keys[*segment], place, (k, w), 0..seen), scores.turned(), query, true);
        let Some((by_distance, table)) = values.distances else { return };
        let width = rows - 1 + seen;
        let distances = &mut work.distances[..rows * width];
        for (row, (distances, gradient)) in
            distances.chunks_exact_mut(width).zip(gradient.chunks_exact(seen)).enumerate()
        {
            let first = rows - 1 - row;
            distances[..first].fill(0.0);
            distances[first..first + seen].copy_from_slice(gradient);
            distances[first + seen..].fill(0.0);
        }
        let distances = View::rows(distances, [rows, width], width);
        let place_of_table = Place { sample: 0, ..place };
        let used = self.table_rows(queries, seen);
        let table = self.rows(table, place_of_table, (0, w), used.clone());
        let query = self.rows(by_distance, place, (q, w), queries.clone());
        multiply(self.block(&writes.by_distance, place, (q, w), queries.clone()), distances, table, false);
        let (_, segments) = self.sizes.parts();
        let own = &writes.tables[group * segments + segment];
        multiply(self.block(own, place_of_table, (0, w), used), distances.turned(), query, true);
    }
}

/// The tile of a task.
struct Part {
    place: Place,
    queries: Range<usize>,
    group: usize,
    segment: usize,
}

/// Gradients as the tasks write them: no two tasks write the same place.
struct Writes<'a> {
    query: Shared<'a>,
    by_distance: Shared<'a>,
    keys: Vec<Shared<'a>>,
    values: Vec<Shared<'a>>,
    tables: Vec<Shared<'a>>,
}

fn shared_parts(parts: &mut [Vec<f32>]) -> Vec<Shared<'_>> {
    parts.iter_mut().map(|part| Shared::new(part)).collect()
}

/// Adds all parts to the first, in their order.
fn joined(parts: Vec<Vec<f32>>) -> Vec<f32> {
    let mut parts = parts.into_iter();
    let mut sum = parts.next().unwrap_or_default();
    for part in parts {
        sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
    sum
}

impl TiledAttention {
    fn scratch_of(&self, is_backward: bool) -> HostScratch {
        let Sizes { b, h, q, k, w, v, by_distance } = self.sizes;
        let (groups, segments) = self.sizes.parts();
        let keys = self.dropout.as_ref().map_or(0, |_| Mask::scratch(&[b, h, q, k]));
        let table = if by_distance { (q + k).saturating_sub(1) * h * w } else { 0 };
        let more = (segments - 1) * b * k * h * (w + v) + (groups * segments - 1) * table;
        let (fixed, tasks) = match is_backward {
            true => (keys + more * size_of::<f32>(), h * groups * segments),
            false => (keys, b * h * self.sizes.tiles()),
        };
        HostScratch { fixed: fixed as u64, each: Work::bytes(&self.sizes, is_backward) as u64, tasks: tasks as u64 }
    }
}

const NAME: &str = "attention";

impl HostOp<3> for TiledAttention {
    const NAME: &'static str = NAME;

    fn forward(&self, [query, key, value]: [&[f32]; 3]) -> Vec<f32> {
        self.forward(Values { query, key, value, distances: None })
    }

    fn backward(
        &self,
        [query, key, value]: [&[f32]; 3],
        grad_output: &[f32],
        wanted: [bool; 3],
    ) -> [Option<Vec<f32>>; 3] {
        let Gradients { query, mut keys, mut values, .. } =
            self.backward(Values { query, key, value, distances: None }, grad_output);
        let found = [Some(query), keys.pop(), values.pop()];
        wanted_only(found, wanted)
    }

    fn scratch(&self, is_backward: bool) -> HostScratch {
        self.scratch_of(is_backward)
    }
}

impl HostOp<5> for TiledAttention {
    const NAME: &'static str = NAME;

    fn forward(&self, [query, key, value, by_distance, table]: [&[f32]; 5]) -> Vec<f32> {
        self.forward(Values { query, key, value, distances: Some((by_distance, table)) })
    }

    fn backward(
        &self,
        [query, key, value, by_distance, table]: [&[f32]; 5],
        grad_output: &[f32],
        wanted: [bool; 5],
    ) -> [Option<Vec<f32>>; 5] {
        let values = Values { query, key, value, distances: Some((by_distance, table)) };
        let Gradients { query, by_distance, mut keys, mut values, mut tables } = self.backward(values, grad_output);
        wanted_only([Some(query), keys.pop(), values.pop(), Some(by_distance), tables.pop()], wanted)
    }

    fn scratch(&self, is_backward: bool) -> HostScratch {
        self.scratch_of(is_backward)
    }
}

fn wanted_only<const N: usize>(found: [Option<Vec<f32>>; N], wanted: [bool; N]) -> [Option<Vec<f32>>; N] {
    let mut wanted = wanted.into_iter();
    found.map(|found| {
        let is_wanted = wanted.next() == Some(true);
        found.filter(|_| is_wanted)
    })
}

#[cfg(test)]
mod tests;
