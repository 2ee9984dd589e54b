//! The operations on flat tensors on Burn's GPU backends.

use burn::tensor::{DType, Device, Shape};
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_dispatch::backends::Cube;

use super::FlatBackend;
use crate::flat::PLACE_VALUES;
use crate::kernels::address_of;
use crate::kernels::queue::{Queued, queue};

/// Threads of a group.
const THREADS: u32 = 256;
/// Number of times that the threads of a group are halved until one is left.
const HALVINGS: usize = THREADS.ilog2() as usize;
/// Values that a group copies. All are of one tensor.
const GROUP_VALUES: usize = 2048;
/// Values whose squares a group sums.
const SPAN: usize = 8192;
/// Most tensors that a kernel reads. Its code grows with them. CUDA before 12.1 could pass no more than 480.
const MOST_SOURCES: usize = 128;

impl FlatBackend for Cube {
    fn gather(
        sources: Vec<(FloatTensor<Self>, usize)>,
        flat: Option<FloatTensor<Self>>,
        len: usize,
        _: &Device,
    ) -> FloatTensor<Self> {
        let adds = flat.is_some();
        let (sources, starts): (Vec<Queued>, Vec<usize>) = sources.into_iter().unzip();
        let inputs = flat.into_iter().chain(sources).collect();
        let made = vec![(Shape::new([len]), DType::F32)];
        let gathered = queue("flat_gather", inputs, made, move |mut inputs| {
            let flat = adds.then(|| inputs.remove(0));
            vec![gather(flat, inputs.into_iter().zip(starts.iter().copied()).collect(), len)]
        });
        gathered.into_iter().next().expect("one tensor is made")
    }

    fn views(flat: FloatTensor<Self>, places: Vec<(usize, Shape)>) -> Vec<FloatTensor<Self>> {
        let dtype = flat.dtype;
        let made = places.iter().map(|(_, shape)| (shape.clone(), dtype)).collect();
        queue("flat_views", vec![flat], made, move |mut inputs| {
            let flat = inputs.remove(0);
            places.iter().map(|(start, shape)| view(&flat, *start, shape.clone())).collect()
        })
    }

    fn square_sum(flat: FloatTensor<Self>) -> FloatTensor<Self> {
        let made = vec![(Shape::new([1]), DType::F32)];
        let sum = queue("flat_square_sum", vec![flat], made, |mut inputs| vec![square_sum(inputs.remove(0))]);
        sum.into_iter().next().expect("one tensor is made")
    }

    fn identity(x: &FloatTensor<Self>) -> Option<u64> {
        Some(x.id.value())
    }
}

/// Returns the part of `flat` that begins at `start`, in the same memory.
fn view(flat: &CubeTensor, start: usize, shape: Shape) -> CubeTensor {
    let width = flat.dtype.size();
    let rest = flat.shape().num_elements() - start - shape.num_elements();
    let handle = flat.handle.clone().offset_start((start * width) as u64).offset_end((rest * width) as u64);
    CubeTensor::new_contiguous(flat.client.clone(), flat.device.clone(), shape, handle, flat.dtype)
}

/// A tensor to copy, as the kernel is compiled for it.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct Source {
    /// First group that copies it.
    first_group: usize,
    /// First value in the flat tensor.
    start: usize,
    /// Number of its values.
    len: usize,
    /// Number of values to write: what is beyond its own are zeros.
    room: usize,
    /// Size and stride of each axis, the last axis first.
    axes: Vec<(usize, usize)>,
}

/// Copies `sources` to their starts in a new tensor, or adds them to `flat`, in its memory if nothing else reads it.
fn gather(flat: Option<CubeTensor>, sources: Vec<(CubeTensor, usize)>, len: usize) -> CubeTensor {
    let adds = flat.is_some();
    let flat = match flat {
        Some(flat) if flat.can_mut() => flat,
        Some(flat) => flat.copy(),
        None => {
            let (first, _) = &sources[0];
            empty_device_dtype(first.client.clone(), first.device.clone(), Shape::new([len]), DType::F32)
        }
    };
    let ends: Vec<usize> = sources.iter().skip(1).map(|(_, start)| *start).chain([len]).collect();
    let mut by_type: Vec<(DType, Vec<(CubeTensor, usize, usize)>)> = Vec::new();
    for ((source, start), end) in sources.into_iter().zip(ends) {
        let dtype = source.dtype;
        let place = (source, start, end - start);
        match by_type.iter_mut().find(|(known, _)| *known == dtype) {
            Some((_, places)) => places.push(place),
            None => by_type.push((dtype, vec![place])),
        }
    }
    // One binding is the flat tensor, another the numbers of the kernel.
    let most = (flat.client.properties().hardware.max_bindings as usize - 2).min(MOST_SOURCES);
    for (_, mut places) in by_type {
        while !places.is_empty() {
            let rest = places.split_off(places.len().min(most));
            launch_gather(&flat, places, adds);
            places = rest;
        }
    }
    flat
}

fn launch_gather(flat: &CubeTensor, places: Vec<(CubeTensor, usize, usize)>, adds: bool) {
    let mut groups = 0;
    let mut sources = Vec::new();
    for (tensor, start, room) in &places {
        let len = tensor.shape().num_elements();
        let sizes = tensor.meta.shape().iter().copied();
        let axes = match tensor.is_contiguous() {
            true => vec![(len, 1)],
            false => sizes.zip(tensor.meta.strides().iter().copied()).rev().collect(),
        };
        let room = if adds { len } else { len.next_multiple_of(PLACE_VALUES).min(*room) };
        sources.push(Source { first_group: groups, start: *start, len, room, axes });
        groups += room.div_ceil(GROUP_VALUES);
    }
    if groups == 0 {
        return;
    }
    let tensors: Vec<&CubeTensor> = places.iter().map(|(tensor, ..)| tensor).chain([flat]).collect();
    let (address, dtype) = (address_of(&tensors), dtype_to_storage_type(places[0].0.dtype));
    let inputs = places.into_iter().map(|(tensor, ..)| tensor.into_buffer_arg()).collect();
    gather_kernel::launch(
        &flat.client,
        CubeCount::new_1d(groups as u32),
        CubeDim::new_1d(THREADS),
        address,
        inputs,
        flat.clone().into_buffer_arg(),
        sources,
        adds,
        dtype,
    );
}

#[cube(launch, address_type = "dynamic")]
fn gather_kernel<E: Float>(
    sources: &Sequence<Box<[E]>>,
    flat: &mut [f32],
    #[comptime] places: Vec<Source>,
    #[comptime] adds: bool,
    #[define(E)] _dtype: ElemType,
) {
    let group = CUBE_POS_X as usize;
    let lane = UNIT_POS_X as usize;
    let count = comptime!(places.len());
    #[unroll]
    for i in 0..count {
        let first = comptime!(places[i].first_group);
        let end = comptime!(places[i].first_group + places[i].room.div_ceil(GROUP_VALUES));
        let len = comptime!(places[i].len);
        let room = comptime!(places[i].room);
        let start = comptime!(places[i].start);
        let rank = comptime!(places[i].axes.len());
        if group >= first && group < end {
            let last = min((group - first + 1) * GROUP_VALUES, room);
            let mut index = (group - first) * GROUP_VALUES + lane;
            while index < last {
                let mut value = 0.0f32;
                if index < len {
                    let mut rest = index;
                    let mut place = 0usize;
                    #[unroll]
                    for axis in 0..rank {
                        let size = comptime!(places[i].axes[axis].0);
                        let stride = comptime!(places[i].axes[axis].1);
                        place += rest % size * stride;
                        rest = rest / size;
                    }
                    value = f32::cast_from(sources[i][place]);
                }
                if comptime!(adds) {
                    flat[start + index] = flat[start + index] + value;
                } else {
                    flat[start + index] = value;
                }
                index += THREADS as usize;
            }
        }
    }
}

/// Sums the squares of `values` in two kernels: of each span, then of their sums.
fn square_sum(values: CubeTensor) -> CubeTensor {
    let (client, device) = (values.client.clone(), values.device.clone());
    let len = values.shape().num_elements();
    let spans = len.div_ceil(SPAN);
    let new = |len| empty_device_dtype(client.clone(), device.clone(), Shape::new([len]), DType::F32);
    let (sums, total) = (new(spans), new(1));
    let address = address_of(&[&values]);
    let threads = CubeDim::new_1d(THREADS);
    let groups = CubeCount::new_1d(spans as u32);
    squares_kernel::launch(&client, groups, threads, address, values.into_buffer_arg(), sums.clone().into_buffer_arg());
    let address = address_of(&[&sums]);
    let one = CubeCount::new_1d(1);
    total_kernel::launch(&client, one, threads, address, sums.into_buffer_arg(), total.clone().into_buffer_arg());
    total
}

/// Sums `value` over the threads of the group, always in the same order.
#[cube]
fn sum_of_group(shared: &mut Shared<[f32]>, value: f32) -> f32 {
    let lane = UNIT_POS_X as usize;
    shared[lane] = value;
    sync_cube();
    #[unroll]
    for halving in 0..HALVINGS {
        let half = comptime!(THREADS as usize >> (halving + 1));
        if lane < half {
            let both = shared[lane] + shared[lane + half];
            shared[lane] = both;
        }
        sync_cube();
    }
    shared[0]
}

#[cube(launch, address_type = "dynamic")]
fn squares_kernel(values: &[f32], sums: &mut [f32]) {
    let lane = UNIT_POS_X as usize;
    let first = CUBE_POS_X as usize * SPAN;
    let end = min(first + SPAN, values.len());
    let mut shared = Shared::<[f32]>::new_slice(THREADS as usize);
    let mut sum = 0.0f32;
    let mut index = first + lane;
    while index < end {
        sum += values[index] * values[index];
        index += THREADS as usize;
    }
    let total = sum_of_group(&mut shared, sum);
    if lane == 0 {
        sums[CUBE_POS_X as usize] = total;
    }
}

#[cube(launch, address_type = "dynamic")]
fn total_kernel(sums: &[f32], total: &mut [f32]) {
    let lane = UNIT_POS_X as usize;
    let mut shared = Shared::<[f32]>::new_slice(THREADS as usize);
    let mut sum = 0.0f32;
    let mut index = UNIT_POS_X as usize;
    while index < sums.len() {
        sum += sums[index];
        index += THREADS as usize;
    }
    let all = sum_of_group(&mut shared, sum);
    if lane == 0 {
        total[0] = all;
    }
}
