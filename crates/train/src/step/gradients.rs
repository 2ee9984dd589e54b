//! Gradients of a model: sum, squared norm, scaling, all-reduce.

use std::sync::Arc;

use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use plimsoll_core::CollectiveError;
use plimsoll_tape::Task;
use plimsoll_tape::flat::{self, FlatGradients, FlatLayout};

use crate::attempt::attempt;
use crate::reads::check_written;
use crate::{Optimizer, Replica};

/// Sum of the gradients of micro-batches: by parameter, or in flat tensors where the optimizer keeps the parameters so.
pub(super) enum GradientSum {
    /// Gradients by parameter.
    Each(GradientsParams),
    /// Gradients in flat tensors; `None` before the first micro-batch.
    Flat(Arc<FlatLayout>, Option<FlatGradients>),
}

impl GradientSum {
    /// Makes an empty sum, in flat tensors of `layout` if there is one.
    pub(super) fn new(layout: Option<Arc<FlatLayout>>) -> Self {
        match layout {
            Some(layout) => Self::Flat(layout, None),
            None => Self::Each(GradientsParams::new()),
        }
    }

    /// Adds the gradients of `module` from one micro-batch.
    pub(super) fn add<T: Task>(&mut self, module: &T, new: GradientsParams) {
        match self {
            Self::Each(all) => *all = sum(module, std::mem::take(all), new),
            Self::Flat(layout, all) => *all = Some(layout.add_gradients(module, new, all.take())),
        }
    }

    /// Takes the sum, and leaves an empty one.
    pub(super) fn take(&mut self) -> Self {
        match self {
            Self::Each(all) => Self::Each(std::mem::take(all)),
            Self::Flat(layout, all) => Self::Flat(layout.clone(), all.take()),
        }
    }

    /// Sums the squares of all gradients; zero if there is no gradient.
    pub(super) fn square_sum<T: Task>(&self, module: &T, device: &Device) -> Tensor<1> {
        match self {
            Self::Each(all) => square_sum(module, all, device),
            Self::Flat(_, Some(all)) => flat::square_sum(&all.values),
            Self::Flat(_, None) => Tensor::zeros([1], &device.clone().inner()),
        }
    }

    /// Returns whether the gradients were computed, without waiting for the device.
    pub(super) fn is_written<T: Task>(&self, module: &T) -> bool {
        match self {
            Self::Each(all) => are_written(module, all).is_ok(),
            Self::Flat(_, all) => all.iter().flat_map(|all| &all.values).all(|values| values.try_to_data().is_ok()),
        }
    }

    /// Returns the gradients by parameter, multiplied by `factor`.
    pub(super) fn scaled<T: Task>(self, module: &T, factor: f64) -> GradientsParams {
        match self {
            Self::Each(all) => scaled(module, all, factor),
            Self::Flat(_, None) => GradientsParams::new(),
            Self::Flat(layout, Some(all)) => {
                let values = all.values.into_iter().map(|values| values * factor).collect();
                layout.split_gradients(module, FlatGradients { values, ..all })
            }
        }
    }

    /// Takes a step of `optimizer` with the gradients, multiplied by `scale`.
    pub(super) fn step<T: Task>(self, optimizer: &mut Optimizer, rate: f64, module: T, scale: f64) -> T {
        match self {
            Self::Each(all) => optimizer.step(rate, module, all, scale),
            Self::Flat(_, Some(all)) => optimizer.step_flat(rate, module, all, scale),
            Self::Flat(_, None) => optimizer.step(rate, module, GradientsParams::new(), scale),
        }
    }
}

/// Adds two sets of gradients of `module`.
fn sum<T: Task>(module: &T, mut into: GradientsParams, mut from: GradientsParams) -> GradientsParams {
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
fn square_sum<T: Task>(module: &T, gradients: &GradientsParams, device: &Device) -> Tensor<1> {
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
fn scaled<T: Task>(module: &T, gradients: GradientsParams, factor: f64) -> GradientsParams {
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

/// Checks that all of `gradients` were computed, without waiting for the device. Returns its message for the first that was
/// not.
pub(super) fn are_written<T: Task>(module: &T, gradients: &GradientsParams) -> Result<(), String> {
    struct Written<'a>(&'a GradientsParams, Result<(), String>);
    impl ModuleVisitor for Written<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let (Ok(()), Some(gradient)) = (&self.1, self.0.get::<D>(param.id)) {
                self.1 = gradient.try_to_data().map(|_| ()).map_err(|error| error.to_string());
            }
        }
    }
    let mut written = Written(gradients, Ok(()));
    module.visit(&mut written);
    written.1
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

/// Gradients of all trained parameters of a module as flat tensors, ready to be summed over replicas.
pub(super) struct JoinedGradients {
    values: Vec<Tensor<1>>,
    /// Places of the parameters in `values`; without a layout each parameter has a tensor.
    layout: Option<Arc<FlatLayout>>,
    /// For each parameter, whether this replica computed the gradient; otherwise it is zeros.
    computed: Vec<bool>,
}

impl JoinedGradients {
    /// Makes the gradients of `module` flat. A parameter without a gradient gets zeros.
    ///
    /// This takes the memory that the sum over replicas needs, so that no replica fails in it for lack of memory.
    pub(super) fn prepare<T: Task>(module: &T, gradients: GradientSum) -> Result<Self, String> {
        let prepare = || match gradients {
            GradientSum::Each(each) => Self::flatten(module, each),
            GradientSum::Flat(layout, all) => {
                let is_new = all.is_none();
                let all = all.unwrap_or_else(|| layout.add_gradients(module, GradientsParams::new(), None));
                if is_new {
                    check_written(&all.values)?;
                }
                let places = layout.parts().iter().flat_map(|part| &part.places);
                let computed = places.map(|place| !all.absent.contains(&place.name)).collect();
                Ok(Self { values: all.values, layout: Some(layout), computed })
            }
        };
        attempt(prepare).and_then(|prepared| prepared)
    }

    fn flatten<T: Task>(module: &T, gradients: GradientsParams) -> Result<Self, String> {
        struct Flatten {
            gradients: GradientsParams,
            joined: JoinedGradients,
            zeros: Vec<Tensor<1>>,
        }
        impl ModuleVisitor for Flatten {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let value = param.val();
                if !value.is_require_grad() {
                    return;
                }
                let own = self.gradients.remove::<D>(param.id).map(|gradient| gradient.reshape([-1]));
                self.joined.computed.push(own.is_some());
                let flat = own.unwrap_or_else(|| {
                    let zeros = value.without_autodiff().zeros_like().reshape([-1]);
                    self.zeros.push(zeros.clone());
                    zeros
                });
                self.joined.values.push(flat);
            }
        }
        let joined = Self { values: Vec::new(), layout: None, computed: Vec::new() };
        let mut flatten = Flatten { gradients, joined, zeros: Vec::new() };
        module.visit(&mut flatten);
        // Gradients of micro-batches are checked when they are added; these are new.
        check_written(&flatten.zeros).map(|()| flatten.joined)
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
    ) -> Result<GradientSum, CollectiveError> {
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
        if let Some(layout) = self.layout {
            let values = replica.all_reduce_each(self.values)?;
            let places = layout.parts().iter().flat_map(|part| &part.places).zip(computed);
            let absent =
                places.filter(|(_, is_computed)| !**is_computed).map(|(place, _)| place.name.clone()).collect();
            return Ok(GradientSum::Flat(layout, Some(FlatGradients { values, absent })));
        }
        let summed = self.values.into_iter().zip(computed).filter(|(_, is_computed)| **is_computed);
        let sums = replica.all_reduce_each(summed.map(|(gradient, _)| gradient).collect())?;
        let mut all = Register(sums.into_iter(), computed.iter(), GradientsParams::new());
        module.visit(&mut all);
        Ok(GradientSum::Each(all.2))
    }
}
