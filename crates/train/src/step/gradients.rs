//! Visitors over the gradients of a model: sum, squared norm, scaling, all-reduce.

use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::CollectiveError;
use plimsoll_tape::Task;

use crate::Replica;
use crate::attempt::attempt;
use crate::reads::check_written;

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
    attempt(|| module.visit(&mut written)).is_ok() && written.0
}

/// Returns for each of `own` whether any replica has it. All replicas must give the same number of values.
///
/// # Errors
/// If another replica has ended, or gives another number of values.
pub(super) fn any_replica(replica: &dyn Replica, own: &[bool]) -> Result<Vec<bool>, CollectiveError> {
    let mut any = own.to_vec();
    for (rank, values) in replica.gather(own.iter().map(|&value| u8::from(value)).collect())?.iter().enumerate() {
        if values.len() != own.len() {
            let reason =
                format!("its model has {} trained parameters, and that of another has {}", values.len(), own.len());
            return Err(CollectiveError::failed(rank, &reason));
        }
        any.iter_mut().zip(values.iter()).for_each(|(any, value)| *any |= *value != 0);
    }
    Ok(any)
}

/// Gradients of all trained parameters of a module as flat tensors, in the order of the parameters, ready to be summed
/// over replicas.
#[derive(Default)]
pub(super) struct FlatGradients {
    gradients: Vec<Tensor<1>>,
    /// Whether this replica computed the gradient; otherwise it is zeros.
    computed: Vec<bool>,
}

impl FlatGradients {
    /// Makes the gradients of `module` flat. A parameter without a gradient gets zeros.
    ///
    /// This takes the memory that the sum over replicas needs, so that no replica fails in it for lack of memory.
    pub(super) fn prepare<T: Task>(module: &T, gradients: GradientsParams) -> Result<Self, String> {
        struct Flatten(GradientsParams, FlatGradients, Vec<Tensor<1>>);
        impl ModuleVisitor for Flatten {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let value = param.val();
                if !value.is_require_grad() {
                    return;
                }
                let own = self.0.remove::<D>(param.id).map(|gradient| gradient.reshape([-1]));
                self.1.computed.push(own.is_some());
                let flat = own.unwrap_or_else(|| {
                    let zeros = value.without_autodiff().zeros_like().reshape([-1]);
                    self.2.push(zeros.clone());
                    zeros
                });
                self.1.gradients.push(flat);
            }
        }
        attempt(|| {
            let mut flatten = Flatten(gradients, Self::default(), Vec::new());
            module.visit(&mut flatten);
            let Flatten(_, flat, new) = flatten;
            // Gradients of micro-batches are checked when they are added; these are new.
            check_written(&new).map(|()| flat)
        })
        .and_then(|prepared| prepared)
    }

    /// Returns which gradients this replica computed.
    pub(super) fn computed(&self) -> &[bool] {
        &self.computed
    }

    /// Sums the gradients over all replicas. `computed` says which of them any replica computed, and is the same on all
    /// replicas. A parameter that no replica computed stays without a gradient, as on a single replica: an update with zeros
    /// would decay it.
    pub(super) fn all_reduce<T: Task>(
        self,
        module: &T,
        replica: &dyn Replica,
        computed: &[bool],
    ) -> Result<GradientsParams, CollectiveError> {
        struct Register<'a>(std::vec::IntoIter<Tensor<1>>, std::slice::Iter<'a, bool>, GradientsParams);
        impl ModuleVisitor for Register<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let value = param.val();
                if value.is_require_grad() && *self.1.next().expect("one for each trained parameter") {
                    let sum = self.0.next().expect("prepared for the same module");
                    self.2.register(param.id, sum.reshape(value.dims()));
                }
            }
        }
        let summed = self.gradients.into_iter().zip(computed).filter(|(_, is_computed)| **is_computed);
        let sums = replica.all_reduce_each(summed.map(|(gradient, _)| gradient).collect())?;
        let mut all = Register(sums.into_iter(), computed.iter(), GradientsParams::new());
        module.visit(&mut all);
        Ok(all.2)
    }
}
