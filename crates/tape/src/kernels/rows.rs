//! Sums over the rows of a tensor, inside of a kernel whose groups compute several rows.

use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;

/// Threads that compute a row together.
pub(super) const ROW_THREADS: u32 = 32;
/// Rows that a group of threads computes.
pub(super) const GROUP_ROWS: u32 = 8;

/// Sums `value` over the threads of a row. All threads of the group call it together.
#[cube]
pub(super) fn sum_of_row(shared: &mut Shared<[f32]>, value: f32) -> f32 {
    joined_in_row(shared, value, true)
}

/// Finds the largest `value` of the threads of a row. All threads of the group call it together.
#[cube]
pub(super) fn largest_of_row(shared: &mut Shared<[f32]>, value: f32) -> f32 {
    joined_in_row(shared, value, false)
}

/// Joins the `value` of the threads of a row into their sum, or into the largest.
#[cube]
fn joined_in_row(shared: &mut Shared<[f32]>, value: f32, #[comptime] is_sum: bool) -> f32 {
    joined(shared, UNIT_POS_Y as usize * ROW_THREADS as usize, value, comptime!(ROW_THREADS as usize), is_sum)
}

/// Joins the `value` of all `threads` of a group, a power of two, into their sum or into the largest. All call it together.
#[cube]
pub(super) fn joined_in_group(
    shared: &mut Shared<[f32]>,
    value: f32,
    #[comptime] threads: usize,
    #[comptime] is_sum: bool,
) -> f32 {
    joined(shared, 0usize, value, threads, is_sum)
}

/// Joins the `value` of `threads` threads along the first axis, a power of two, in the places of `shared` from `first` on.
#[cube]
fn joined(
    shared: &mut Shared<[f32]>,
    first: usize,
    value: f32,
    #[comptime] threads: usize,
    #[comptime] is_sum: bool,
) -> f32 {
    let lane = UNIT_POS_X as usize;
    // What was found before this has been read by all.
    sync_cube();
    shared[first + lane] = value;
    sync_cube();
    #[unroll]
    for halving in 0..comptime!(threads.ilog2() as usize) {
        let half = comptime!(threads >> (halving + 1));
        if lane < half {
            let (one, other) = (shared[first + lane], shared[first + lane + half]);
            let both = if comptime!(is_sum) { one + other } else { max(one, other) };
            shared[first + lane] = both;
        }
        sync_cube();
    }
    shared[first]
}

/// Sums `value` over the threads of a column of the group, which lie along the second axis. All threads of the group call it together;
/// `shared` has a place for each.
#[cube]
pub(super) fn sum_of_column(shared: &mut Shared<[f32]>, value: f32) -> f32 {
    // What was found before this has been read by all.
    sync_cube();
    shared[(UNIT_POS_Y * CUBE_DIM_X + UNIT_POS_X) as usize] = value;
    sync_cube();
    let mut sum = 0.0f32;
    for row in 0..CUBE_DIM_Y {
        sum += shared[(row * CUBE_DIM_X + UNIT_POS_X) as usize];
    }
    sum
}
