//! Copies of many tensors into one and views of its parts, on each backend.

#[cfg(feature = "cube")]
mod cube;

use burn::tensor::{DType, Device, Shape, Tensor};
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_dispatch::backends::{Capture, Flex};

use crate::bridge::PrimitiveBackend;
use crate::capture::record_parts;

/// Backend that copies many tensors into one.
pub(crate) trait FlatBackend: PrimitiveBackend {
    /// Copies each of `sources` into a tensor of `len` values in fp32, from its start on, or adds them to `flat`. Values
    /// between the sources are zeros, or those of `flat`.
    ///
    /// Without `flat`, what lies between two sources must be shorter than [`PLACE_VALUES`](crate::flat::PLACE_VALUES).
    fn gather(
        sources: Vec<(FloatTensor<Self>, usize)>,
        flat: Option<FloatTensor<Self>>,
        len: usize,
        device: &Device,
    ) -> FloatTensor<Self>;

    /// Returns parts of `flat` by the first value and the shape of each.
    fn views(flat: FloatTensor<Self>, places: Vec<(usize, Shape)>) -> Vec<FloatTensor<Self>>;

    /// Sums the squares of a tensor of one axis.
    fn square_sum(flat: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Returns a number that only `x` and its clones on one thread have; `None` where the backend knows none.
    fn identity(x: &FloatTensor<Self>) -> Option<u64>;
}

/// Implements the operations by those of Burn, where they are no faster than one tensor after another; the views by `$views`.
macro_rules! by_slices {
    ($backend:ident, $views:path) => {
        impl FlatBackend for $backend {
            fn gather(
                sources: Vec<(FloatTensor<Self>, usize)>,
                flat: Option<FloatTensor<Self>>,
                len: usize,
                device: &Device,
            ) -> FloatTensor<Self> {
                let zeros = || Tensor::<1>::zeros([len], (device, DType::F32));
                let mut flat = flat.map_or_else(zeros, Self::from_plain::<1>);
                for (source, start) in sources {
                    let count = source.shape().num_elements();
                    let source = Self::from_plain::<1>(Self::float_reshape(source, Shape::new([count])));
                    let sum = flat.clone().slice([start..start + count]) + source;
                    flat = flat.slice_assign([start..start + count], sum);
                }
                Self::plain(flat)
            }

            fn views(flat: FloatTensor<Self>, places: Vec<(usize, Shape)>) -> Vec<FloatTensor<Self>> {
                $views(flat, places)
            }

            fn square_sum(flat: FloatTensor<Self>) -> FloatTensor<Self> {
                Self::plain(Self::from_plain::<1>(flat).square().sum())
            }

            fn identity(_: &FloatTensor<Self>) -> Option<u64> {
                None
            }
        }
    };
}

by_slices!(Flex, slices);
by_slices!(Capture, record_parts);

/// Copies parts of `flat`.
fn slices(flat: FloatTensor<Flex>, places: Vec<(usize, Shape)>) -> Vec<FloatTensor<Flex>> {
    let flat = Flex::from_plain::<1>(flat);
    let part = |(start, shape): (usize, Shape)| {
        let part = flat.clone().narrow(0, start, shape.num_elements());
        Flex::float_reshape(Flex::plain(part), shape)
    };
    places.into_iter().map(part).collect()
}
