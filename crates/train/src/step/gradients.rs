//! Visitors over the gradients of a model: sum, squared norm, scaling, all-reduce.

use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::CollectiveError;
use plimsoll_tape::Task;

use crate::Replica;

/// Adds two sets of gradients of `module`.
pub(super) fn sum<T: Task>(module: &T, mut into: GradientsParams, mut from: GradientsParams) -> GradientsParams {
    struct Add<'a>(&'a mut GradientsParams, &'a mut GradientsParams);
    impl ModuleVisitor for Add<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(new) = self.1.remove::<D>(param.id) {
                let sum = match self.0.remove::<D>(param.id) {
                    Some(old) => old + new,
                    None => new,
                };
                self.0.register(param.id, sum);
            }
        }
    }
    if into.is_empty() {
        return from;
    }
    module.visit(&mut Add(&mut into, &mut from));
    into
}

/// Sums the squares of all gradients of `module`; zero if there is no gradient.
pub(super) fn square_sum<T: Task>(module: &T, gradients: &GradientsParams, device: &Device) -> Tensor<1> {
    struct Squares<'a>(&'a GradientsParams, Vec<Tensor<1>>);
    impl ModuleVisitor for Squares<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.get::<D>(param.id) {
                self.1.push(gradient.square().sum());
            }
        }
    }
    let mut squares = Squares(gradients, Vec::new());
    module.visit(&mut squares);
    match squares.1.is_empty() {
        true => Tensor::zeros([1], &device.clone().inner()),
        false => Tensor::cat(squares.1, 0).sum(),
    }
}

/// Multiplies the gradients of `module` by `factor`.
pub(super) fn scaled<T: Task>(module: &T, gradients: GradientsParams, factor: f64) -> GradientsParams {
    struct Scale(GradientsParams, GradientsParams, f64);
    impl ModuleVisitor for Scale {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.remove::<D>(param.id) {
                self.1.register(param.id, gradient * self.2);
            }
        }
    }
    if factor == 1.0 {
        return gradients;
    }
    let mut scale = Scale(gradients, GradientsParams::new(), factor);
    module.visit(&mut scale);
    scale.1
}

/// Returns whether every parameter of `module` was computed, without waiting for the device.
pub(super) fn is_written<T: Task>(module: &T) -> bool {
    struct Written(bool);
    impl ModuleVisitor for Written {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0 = self.0 && param.val().without_autodiff().try_to_data().is_ok();
        }
    }
    let mut written = Written(true);
    module.visit(&mut written);
    written.0
}

pub(super) struct AllReduceGradients<'a> {
    pub(super) gradients: GradientsParams,
    pub(super) joined: GradientsParams,
    pub(super) replica: &'a dyn Replica,
    pub(super) error: Option<CollectiveError>,
}

impl ModuleVisitor for AllReduceGradients<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if !value.is_require_grad() || self.error.is_some() {
            return;
        }
        let own = self.gradients.remove::<D>(param.id);
        let own = own.unwrap_or_else(|| value.clone().without_autodiff().zeros_like());
        let shape = own.dims();
        match self.replica.all_reduce(own.reshape([-1])) {
            Ok(sum) => self.joined.register(param.id, sum.reshape(shape)),
            Err(error) => self.error = Some(error),
        }
    }
}
