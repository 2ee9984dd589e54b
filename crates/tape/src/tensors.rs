//! Tensors in any arrangement, one after the other.

use burn::tensor::{Bool, Int, Tensor};

/// One tensor or several: what goes into a block, and what comes out of it.
///
/// Tensors of every kind are arrangements, and so are tuples, arrays, lists and options of arrangements. Whole numbers
/// and truth values are passed along as they are.
pub trait TensorTree: Clone + Send + Sync + 'static {
    /// Puts every float tensor through `mapper`, always in the same order.
    fn map_floats<M: FloatMapper>(self, mapper: &mut M) -> Self;
}

/// What is done to each float tensor of an arrangement.
pub trait FloatMapper {
    /// One tensor.
    fn map_float<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D>;
}

impl<const D: usize> TensorTree for Tensor<D> {
    fn map_floats<M: FloatMapper>(self, mapper: &mut M) -> Self {
        mapper.map_float(self)
    }
}

impl<const D: usize> TensorTree for Tensor<D, Int> {
    fn map_floats<M: FloatMapper>(self, _: &mut M) -> Self {
        self
    }
}

impl<const D: usize> TensorTree for Tensor<D, Bool> {
    fn map_floats<M: FloatMapper>(self, _: &mut M) -> Self {
        self
    }
}

impl<T: TensorTree> TensorTree for Option<T> {
    fn map_floats<M: FloatMapper>(self, mapper: &mut M) -> Self {
        self.map(|inside| inside.map_floats(mapper))
    }
}

impl<T: TensorTree> TensorTree for Vec<T> {
    fn map_floats<M: FloatMapper>(self, mapper: &mut M) -> Self {
        self.into_iter().map(|each| each.map_floats(mapper)).collect()
    }
}

impl<T: TensorTree, const N: usize> TensorTree for [T; N] {
    fn map_floats<M: FloatMapper>(self, mapper: &mut M) -> Self {
        self.map(|each| each.map_floats(mapper))
    }
}

macro_rules! tuple {
    ($($name:ident)+) => {
        impl<$($name: TensorTree),+> TensorTree for ($($name,)+) {
            #[expect(non_snake_case, reason = "a part is called as its type")]
            fn map_floats<Mapper: FloatMapper>(self, mapper: &mut Mapper) -> Self {
                let ($($name,)+) = self;
                ($($name.map_floats(mapper),)+)
            }
        }
    };
}

tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
tuple!(A B C D E F G);
tuple!(A B C D E F G H);
