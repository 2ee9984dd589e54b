//! Sums over segments of rows: the threads of a kernel add up each segment, and the last group of threads that is done
//! adds up the segments. Where a device does not promise that one group sees what others wrote, another kernel does.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use burn::backend::fusion::custom::StreamId;
use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl::ir::features::AtomicUsage;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeDevice, cubecl};

use super::rows::sum_of_column;
use super::{MOST_PLACES, address_of, ends_at_once};

// Shapes: s segments, r rows, d columns.

/// Threads of a group of the kernel that only adds up.
const THREADS: u32 = 64;

/// Rows of the sums that become one tensor.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(super) struct Rows {
    count: usize,
    /// Shape of the tensor.
    shape: Vec<usize>,
    /// Whether the columns are the first axis of the tensor and the rows the last; otherwise row follows row.
    turned: bool,
}

impl Rows {
    /// Makes the tensor `[count * d]` of `count` rows of `d` columns.
    pub(super) fn joined(count: usize, columns: usize) -> Self {
        Self { count, shape: vec![count * columns], turned: false }
    }

    /// Makes the tensor `[d, 1, count]` of `count` rows of `d` columns.
    pub(super) fn turned(count: usize, columns: usize) -> Self {
        Self { count, shape: vec![columns, 1, count], turned: true }
    }
}

/// What a kernel is compiled for at its end.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(super) struct Ending {
    /// Whether the last group of threads adds up the segments.
    pub(super) is_joined: bool,
    /// Number of rows of each tensor, and whether it is turned.
    rows: Vec<(usize, bool)>,
}

impl Ending {
    /// Returns whether the last group of threads adds up the segments.
    pub(super) fn is_joined(ending: Option<&Self>) -> bool {
        ending.is_some_and(|ending| ending.is_joined)
    }
}

/// Sums over segments on their way to be gradients.
pub(super) struct Sums {
    /// Sums of each segment `[s, r, d]`.
    segments: CubeTensor,
    rows: Vec<Rows>,
    outputs: Vec<CubeTensor>,
    /// Numbers of groups of threads that are done, if the last one adds up.
    counters: Option<CubeTensor>,
}

impl Sums {
    /// Makes room for `segments` `[s, r, d]`, and for a tensor for each of up to three groups of `rows`, which follow each other: two of
    /// the first type of `types`, and one of the second. The kernel counts in `groups` places which of its groups of threads are done.
    pub(super) fn new(like: &CubeTensor, segments: Shape, rows: Vec<Rows>, types: [DType; 2], groups: usize) -> Self {
        debug_assert_eq!(rows.iter().map(|rows| rows.count).sum::<usize>(), segments[1]);
        let new = |shape, dtype| empty_device_dtype(like.client.clone(), like.device.clone(), shape, dtype);
        let of_segments = new(segments.clone(), DType::F32);
        let output = |(index, rows): (usize, &Rows)| {
            new(Shape::new_raw(rows.shape.clone().into()), if index < 2 { types[0] } else { types[1] })
        };
        let outputs = rows.iter().enumerate().map(output).collect();
        let is_joined = ends_at_once(&segments, groups) && shows_writes(&like.client);
        let counters = is_joined.then(|| counters(like));
        Self { segments: of_segments, rows, outputs, counters }
    }

    /// Returns the tensor of the sums of segments.
    pub(super) fn segments(&self) -> TensorArg {
        self.segments.clone().into_tensor_arg()
    }

    /// Returns the tensor of the group of rows `index`. Where it is missing, another takes its place, and no row reaches it.
    pub(super) fn output(&self, index: usize) -> TensorArg {
        self.outputs.get(index).unwrap_or(&self.outputs[0]).clone().into_tensor_arg()
    }

    /// Returns the tensor of the counters. Where it is missing, another takes its place, and the kernel is compiled without a
    /// use of it.
    pub(super) fn counters(&self) -> TensorArg {
        self.counters.as_ref().unwrap_or(&self.segments).clone().into_tensor_arg()
    }

    /// Returns what the kernel is compiled for.
    pub(super) fn ending(&self) -> Ending {
        let rows = self.rows.iter().map(|rows| (rows.count, rows.turned)).collect();
        Ending { is_joined: self.counters.is_some(), rows }
    }

    /// Returns the tensors. Adds up the segments first if the kernel did not.
    pub(super) fn finish(self) -> Vec<CubeTensor> {
        let (shape, ending) = (self.segments.shape(), self.ending());
        #[cfg(test)]
        JOINED.fetch_or(ending.is_joined, std::sync::atomic::Ordering::Relaxed);
        // Sums over no segments are zeros, which the other kernel writes.
        if ending.is_joined || shape[1] * shape[2] == 0 {
            return self.outputs;
        }
        let types = [0, 2].map(|index| self.outputs.get(index).unwrap_or(&self.outputs[0]).dtype);
        let client = self.outputs[0].client.clone();
        add_segments_kernel::launch(
            &client,
            CubeCount::new_2d(shape[2].div_ceil(THREADS as usize) as u32, shape[1] as u32),
            CubeDim::new_1d(THREADS),
            address_of(&[&self.segments, &self.outputs[0]]),
            self.segments(),
            self.output(0),
            self.output(1),
            self.output(2),
            ending,
            types.map(dtype_to_storage_type),
        );
        self.outputs
    }
}

/// Returns whether a group of threads sees what others wrote before, in the same kernel.
fn shows_writes(client: &Client) -> bool {
    let properties = client.properties();
    let of_counter = Type::atomic(u32::elem_type_native());
    let usage = properties.atomic_type_usage(of_counter);
    let counts = usage.contains(AtomicUsage::Add) && usage.contains(AtomicUsage::LoadStore);
    counts && (properties.features.device_memory_scope || is_forced())
}

/// Returns whether kernels end their sums also where no promise is made: a device in software keeps it, as its groups of threads share
/// a coherent memory.
fn is_forced() -> bool {
    #[cfg(test)]
    return FORCED.load(std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(test))]
    false
}

/// Whether a kernel ended its sums.
#[cfg(test)]
static JOINED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[cfg(test)]
static FORCED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Runs `check` twice: with sums that another kernel adds up, and with sums that the last group of threads adds up.
#[cfg(all(test, feature = "wgpu"))]
pub(crate) fn in_both_ways(check: impl Fn()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for is_forced in [true, false] {
        FORCED.store(is_forced, std::sync::atomic::Ordering::Relaxed);
        JOINED.store(false, std::sync::atomic::Ordering::Relaxed);
        check();
        assert!(JOINED.load(std::sync::atomic::Ordering::Relaxed) || !is_forced);
    }
}

/// Counters of each device and stream. Kernels of one stream follow each other, so each stream has its own.
static KNOWN: Mutex<Option<HashMap<(CubeDevice, StreamId), CubeTensor>>> = Mutex::new(None);

/// Most counters that are kept: each thread has a stream.
const MOST_KNOWN: usize = 64;

/// Returns the counters of the device of `like`, which are all 0 between kernels.
fn counters(like: &CubeTensor) -> CubeTensor {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    let key = (like.device.clone(), StreamId::current());
    if known.len() >= MOST_KNOWN && !known.contains_key(&key) {
        // Kernels on their way hold theirs.
        known.clear();
    }
    let make = || {
        let (client, device) = (like.client.clone(), like.device.clone());
        let handle = client.create_from_slice(u32::as_bytes(&[0; MOST_PLACES]));
        CubeTensor::new_contiguous(client, device, Shape::new([MOST_PLACES]), handle, DType::U32)
    };
    known.entry(key).or_insert_with(make).clone()
}

/// Forgets all counters. A kernel that failed, or whose input did, leaves its failure in what it would have written, the counters among
/// them, and each later kernel that counts with them would inherit it.
pub(crate) fn forget() {
    *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Returns whether this group of threads is the last of `groups` that count at `place`. What the others wrote can be read then. All
/// threads of the group call it together, after they wrote.
#[cube]
pub(super) fn is_last_group(counters: &mut Tensor<Atomic<u32>>, place: usize, groups: u32) -> bool {
    let mut done = Shared::<u32>::new();
    sync_storage();
    if UNIT_POS == 0 {
        *done = counters[place].fetch_add(1u32);
    }
    sync_storage();
    let is_last = *done == groups - 1;
    if is_last && UNIT_POS == 0 {
        // The next kernel counts from 0.
        counters[place].store(0u32);
    }
    is_last
}

/// Adds up `row` of all `segments` at `column`. All threads of the group call it together, of which each along the second axis adds up
/// a part; `shared` has a place for each thread.
#[cube]
pub(super) fn total_of(segments: &mut Tensor<f32>, shared: &mut Shared<[f32]>, row: usize, column: usize) -> f32 {
    let mut sum = 0.0f32;
    let mut segment = UNIT_POS_Y as usize;
    while segment < segments.shape(0) {
        sum += segments[segment * segments.stride(0) + row * segments.stride(1) + column * segments.stride(2)];
        segment += CUBE_DIM_Y as usize;
    }
    sum_of_column(shared, sum)
}

/// Writes a sum to its place in the tensor of its row.
#[cube]
pub(super) fn write_sum<E: Float, G: Float>(
    out_0: &mut Tensor<E>,
    out_1: &mut Tensor<E>,
    out_2: &mut Tensor<G>,
    row: usize,
    column: usize,
    columns: usize,
    sum: f32,
    #[comptime] ending: Ending,
) {
    let count = comptime!(ending.rows.len());
    let (rows_0, turned_0) = comptime!(ending.rows[0]);
    let (rows_1, turned_1) = comptime!(ending.rows[1 % count]);
    let turned_2 = comptime!(ending.rows[2 % count].1);
    if row < rows_0 {
        put::<E>(out_0, row, column, columns, sum, turned_0);
    } else if comptime!(count == 2) {
        put::<E>(out_1, row - rows_0, column, columns, sum, turned_1);
    } else if comptime!(count > 2) {
        if row < comptime!(rows_0 + rows_1) {
            put::<E>(out_1, row - rows_0, column, columns, sum, turned_1);
        } else {
            put::<G>(out_2, row - comptime!(rows_0 + rows_1), column, columns, sum, turned_2);
        }
    }
}

/// Writes a sum to its place in a tensor. Its rows may begin at aligned addresses.
#[cube]
fn put<E: Float>(out: &mut Tensor<E>, row: usize, column: usize, columns: usize, sum: f32, #[comptime] turned: bool) {
    if turned {
        let to = column * out.stride(0) + row * out.stride(2);
        out[to] = E::cast_from(sum);
    } else {
        out[row * columns + column] = E::cast_from(sum);
    }
}

#[cube(launch, address_type = "dynamic")]
fn add_segments_kernel<E: Float, G: Float>(
    segments: &Tensor<f32>,
    out_0: &mut Tensor<E>,
    out_1: &mut Tensor<E>,
    out_2: &mut Tensor<G>,
    #[comptime] ending: Ending,
    #[define(E, G)] _dtypes: [ElemType; 2],
) {
    let column = ABSOLUTE_POS_X as usize;
    let row = CUBE_POS_Y as usize;
    let columns = segments.shape(2);
    if column >= columns {
        terminate!();
    }
    let mut sum = 0.0f32;
    let mut place = row * segments.stride(1) + column * segments.stride(2);
    for _segment in 0..segments.shape(0) {
        sum += segments[place];
        place += segments.stride(0);
    }
    write_sum::<E, G>(out_0, out_1, out_2, row, column, columns, sum, ending);
}
