//! Names and shapes of the parameters of a module.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use plimsoll_tape::{NamedVisitor, walk};

/// Lists the names and shapes of the parameters of a module.
pub(crate) fn shapes_of<M: Module>(module: &M) -> Vec<(String, Vec<usize>)> {
    struct Shapes(Vec<(String, Vec<usize>)>);
    impl NamedVisitor for Shapes {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            self.0.push((name.into(), param.lazy_shape().to_vec()));
        }
    }
    let mut shapes = Shapes(Vec::new());
    walk(module, &mut shapes);
    shapes.0
}
