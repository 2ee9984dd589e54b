//! Products of small matrices in host memory, by one thread: what an operation does between two passes over a tile.

use std::marker::PhantomData;

use gemm::{Parallelism, gemm};

/// Largest number of columns of the left factor (and rows of the right one) that gemm packs at a time.
const DEPTH: usize = 512;
/// Number of rows of a product that gemm's innermost kernel computes at a time, on processors with wide registers.
const ROWS: usize = 48;
/// Number of groups of [`ROWS`] rows of the left factor beyond which gemm packs the right one whatever its layout.
const PACKING: usize = 8;
/// Bytes of the cache for which gemm blocks its left factor: the second-level cache of a server processor.
const CACHE: usize = 2 << 20;

/// Returns the number of values that the `gemm` crate packs (copies) for a product of `[rows, inner]` and `[inner, columns]`, of which each
/// factor may lie column by column (`turned`).
///
/// The left factor is packed if it fits the cache and lies row by row. The right one is packed if the left one has many rows; fewer
/// suffice if it lies row by row.
pub(crate) fn packed_values([rows, inner, columns]: [usize; 3], [left_turned, right_turned]: [bool; 2]) -> usize {
    let depth = inner.clamp(1, DEPTH);
    let packs_right = !right_turned && rows > 2 * ROWS || rows > PACKING * ROWS;
    let packs_left = rows <= 2 * (CACHE / 4 / depth) && !left_turned;
    usize::from(packs_right) * depth * columns.next_multiple_of(8)
        + usize::from(packs_left) * depth * rows.next_multiple_of(ROWS)
}

/// Matrix to read, in rows or turned.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    data: &'a [f32],
    size: [usize; 2],
    strides: [usize; 2],
}

impl<'a> View<'a> {
    /// Makes the matrix whose rows begin at multiples of `stride`.
    pub(crate) fn rows(data: &'a [f32], size: [usize; 2], stride: usize) -> Self {
        Self { data, size, strides: [stride, 1] }
    }

    /// Returns the matrix with rows as columns.
    pub(crate) fn turned(self) -> Self {
        let ([rows, columns], [down, along]) = (self.size, self.strides);
        Self { size: [columns, rows], strides: [along, down], ..self }
    }

    fn is_within(&self) -> bool {
        is_within(self.data.len(), self.size, self.strides)
    }
}

fn is_within(length: usize, [rows, columns]: [usize; 2], [down, along]: [usize; 2]) -> bool {
    rows == 0 || columns == 0 || (rows - 1) * down + (columns - 1) * along < length
}

/// Memory of which several threads write different blocks.
pub(crate) struct Shared<'a> {
    data: *mut f32,
    length: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: `Shared` does nothing but make blocks, and who makes one promises that it is the only one with its places.
unsafe impl Send for Shared<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    pub(crate) fn new(data: &'a mut [f32]) -> Self {
        Self { data: data.as_mut_ptr(), length: data.len(), owner: PhantomData }
    }

    /// Makes the matrix of `size` that begins at index `first` and whose rows begin at multiples of `stride` from there.
    ///
    /// # Safety
    /// While the block lives, there is no other block with one of its places.
    ///
    /// # Panics
    /// If it does not lie within the memory.
    pub(crate) unsafe fn block(&self, first: usize, size: [usize; 2], stride: usize) -> Block<'a> {
        let length = self.length.saturating_sub(first);
        assert!(is_within(length, size, [stride, 1]), "a block of {size:?} lies within {length} places");
        // SAFETY: `first` is at most the length, unless the block has no place and its address is never used.
        let data = unsafe { self.data.add(first.min(self.length)) };
        Block { data, size, stride, owner: PhantomData }
    }
}

/// Matrix to write, in rows.
pub(crate) struct Block<'a> {
    data: *mut f32,
    size: [usize; 2],
    stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

impl<'a> Block<'a> {
    /// Makes the matrix of `size` that fills the beginning of `data`.
    ///
    /// # Panics
    /// If `data` is shorter.
    pub(crate) fn of(data: &'a mut [f32], size: [usize; 2]) -> Self {
        // SAFETY: `data` is borrowed for as long as the block lives.
        unsafe { Shared::new(data).block(0, size, size[1]) }
    }
}

/// Writes the product of `left` and `right` to `to`, or adds it there.
///
/// # Panics
/// If the sizes do not match.
pub(crate) fn multiply(to: Block<'_>, left: View<'_>, right: View<'_>, adds: bool) {
    let ([rows, inner], [_, columns]) = (left.size, right.size);
    assert_eq!((to.size, right.size[0]), ([rows, columns], inner), "the sizes of a product match");
    assert!(left.is_within() && right.is_within(), "the factors lie within their memory");
    if rows == 0 || columns == 0 {
        return;
    }
    let signed = |strides: [usize; 2]| strides.map(|stride| stride as isize);
    let ([left_down, left_along], [right_down, right_along]) = (signed(left.strides), signed(right.strides));
    // SAFETY: all places of the three matrices lie within their memory, as was checked here and when the block was made; the factors are
    // borrowed, and the block has its places alone.
    unsafe {
        gemm(
            rows,
            columns,
            inner,
            to.data,
            1,
            to.stride as isize,
            adds,
            left.data.as_ptr(),
            left_along,
            left_down,
            right.data.as_ptr(),
            right_along,
            right_down,
            1.0_f32,
            1.0_f32,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(left: View<'_>, right: View<'_>) -> Vec<f32> {
        let at =
            |view: &View<'_>, row: usize, column: usize| view.data[row * view.strides[0] + column * view.strides[1]];
        let sum = |row, column| (0..left.size[1]).map(|inner| at(&left, row, inner) * at(&right, inner, column)).sum();
        (0..left.size[0])
            .flat_map(|row| (0..right.size[1]).map(move |column| (row, column)))
            .map(|(row, column)| sum(row, column))
            .collect()
    }

    #[test]
    fn products_of_all_layouts_equal_sums() {
        let numbers: Vec<f32> = (0..4000).map(|index| ((index * 37 % 101) as f32 - 50.0) / 50.0).collect();
        for (rows, inner, columns, stride) in
            [(1, 1, 1, 1), (3, 5, 2, 7), (17, 24, 33, 40), (2, 0, 3, 5), (0, 3, 3, 4), (40, 3, 1, 5)]
        {
            for (turned_left, turned_right) in [(false, false), (true, false), (false, true), (true, true)] {
                let view = |turned: bool, [rows, columns]: [usize; 2]| match turned {
                    true => View::rows(&numbers, [columns, rows], stride.max(rows)).turned(),
                    false => View::rows(&numbers, [rows, columns], stride.max(columns)),
                };
                let (left, right) = (view(turned_left, [rows, inner]), view(turned_right, [inner, columns]));
                let expected = plain(left, right);
                let stride = columns + 3;
                let mut found = vec![7.0; rows * stride];
                for (adds, factor) in [(false, 1.0), (true, 2.0)] {
                    // SAFETY: there is no other block.
                    let to = unsafe { Shared::new(&mut found).block(0, [rows, columns], stride) };
                    multiply(to, left, right, adds);
                    for (row, found) in found.chunks_exact(stride).enumerate() {
                        for (column, found) in found.iter().enumerate() {
                            let expected =
                                if column < columns { factor * expected[row * columns + column] } else { 7.0 };
                            assert!((found - expected).abs() < 1e-4, "{rows} {inner} {columns}: {found} {expected}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "a block of [2, 3] lies within 5 places")]
    fn a_block_outside_of_its_memory_is_refused() {
        let mut data = [0.0; 6];
        // SAFETY: there is no other block.
        let _ = unsafe { Shared::new(&mut data).block(1, [2, 3], 3) };
    }
}
