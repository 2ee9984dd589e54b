//! Nested collections of tensors, such as tuples and lists.

use burn::tensor::{Bool, Int, Tensor};

/// Tensor or nested collection of tensors: the inputs or outputs of a block.
///
/// Implemented for tensors of every kind, and for tuples of up to 8, arrays, vectors and options of [`TensorTree`]s.
/// Integer and boolean tensors pass through [`map_floats`](TensorTree::map_floats) unchanged.
pub trait TensorTree: Clone + Send + Sync + 'static {
    /// Applies `mapper` to each float tensor, always in the same order.
    fn map_floats<M: FloatMapper>(self, mapper: &mut M) -> Self;
}

/// Function over float tensors of every rank.
pub trait FloatMapper {
    /// Maps one float tensor.
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
            #[expect(non_snake_case, reason = "each element has the name of its type")]
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
