//! Trained parameters of a module in a few flat tensors, of which the parameters are views.
//!
//! A step on a GPU costs the host some microseconds for each kernel, however small its work is. A model has hundreds of
//! parameters, and a sum, a norm, an update and an average of each of them are thousands of kernels. In flat tensors they
//! are a few.
//!
//! A [`FlatLayout`] says where each parameter lies. [`gather_parameters`](FlatLayout::gather_parameters) copies the
//! parameters of a module into flat tensors, and [`attach`](FlatLayout::attach) makes a module whose parameters are views of
//! flat tensors. On a GPU a view takes no memory and no kernel; on other devices it is a copy.
//!
//! Flat tensors are values like all tensors of Burn: an update makes new ones, and a module that was attached to the old
//! ones keeps its weights.
//!
//! ```
//! use burn::nn::LinearConfig;
//! use burn::tensor::Device;
//! use plimsoll_tape::{collect, flat::{FlatLayout, MOST_VALUES}};
//!
//! let device = Device::flex().autodiff();
//! let layer = LinearConfig::new(4, 3).init(&device);
//! let layout = FlatLayout::new(&layer, 0, MOST_VALUES);
//! let doubled = layout.gather_parameters(&layer).into_iter().map(|values| values * 2.0).collect();
//! let twice = layout.attach(layer.clone(), doubled).module;
//! assert_eq!(collect(&twice)[0].values[0], 2.0 * collect(&layer)[0].values[0]);
//! ```

mod low;

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Shape, Tensor};
use burn_backend::tensor::FloatTensor;

use crate::bridge::{Family, PrimitiveBackend, family, on_backend};
use crate::kernels::flat::FlatBackend;
use crate::parameters::{NamedVisitor, walk};

pub use low::LowParameters;
pub(crate) use low::{copy_at, copy_of};

/// Values to whose multiples each parameter begins: on every GPU a view may begin there, in every type of numbers.
pub const PLACE_VALUES: usize = 256;

/// Most values of a flat tensor of which no copy is made: a GPU may refuse larger pieces of memory.
pub const MOST_VALUES: usize = 32 << 20;

/// Places of the trained parameters of a module in flat tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct FlatLayout {
    parts: Vec<FlatPart>,
    /// Part and index of each place by the name of the parameter: another module of the same kind has other ids.
    by_name: HashMap<String, (usize, usize)>,
}

/// Places of parameters in one flat tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlatPart {
    /// Parameters in the order of their places.
    pub places: Vec<FlatPlace>,
    /// Number of values of the flat tensor. Between the parameters are zeros.
    pub len: usize,
}

/// Place of a parameter in a flat tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct FlatPlace {
    /// Name of the parameter: the path of fields that leads to it, joined by dots.
    pub name: String,
    /// First value.
    pub start: usize,
    /// Length of each axis of the parameter.
    pub shape: Vec<usize>,
}

impl FlatPlace {
    /// Returns the number of values of the parameter.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A module whose parameters are views of flat tensors.
#[derive(Clone, Debug)]
pub struct Attached<M> {
    /// The module.
    pub module: M,
    /// The views that were made.
    pub views: FlatViews,
}

/// Views of flat tensors that are the parameters of a module: knows them again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlatViews(HashMap<ParamId, u64>);

impl FlatViews {
    /// Returns whether parameters of `module` are all of these views. `false` where a device has no views.
    pub fn are_of<M: Module>(&self, module: &M) -> bool {
        struct Count<'a>(&'a FlatViews, usize);
        impl ModuleVisitor for Count<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let Some(&known) = self.0.0.get(&param.id) else { return };
                let device = param.lazy_device();
                let id = on_backend!(&device, B => B::identity(&<B as PrimitiveBackend>::plain(param.val())));
                self.1 += usize::from(id == Some(known));
            }
        }
        let mut count = Count(self, 0);
        module.visit(&mut count);
        count.1 > 0 && count.1 == self.0.len()
    }
}

/// Sum of gradients in flat tensors.
#[derive(Clone, Debug)]
pub struct FlatGradients {
    /// Gradients, in one tensor for each part of the layout. A parameter without a gradient has zeros.
    pub values: Vec<Tensor<1>>,
    /// Names of the parameters that no gradient reached.
    pub absent: Vec<String>,
}

/// Returns whether flat tensors spare time on `device`: on a GPU, whose views take no memory.
pub fn has_views(device: &Device) -> bool {
    match family(device) {
        Family::Flex | Family::Capture => false,
        #[cfg(feature = "cube")]
        Family::Cube => true,
    }
}

/// Sums the squares of all `values`, always in the same order.
///
/// # Panics
/// If there are no tensors.
pub fn square_sum(values: &[Tensor<1>]) -> Tensor<1> {
    let sum = |values: &Tensor<1>| {
        let device = values.device();
        on_backend!(&device, B => B::from_plain::<1>(B::square_sum(B::plain(values.clone()))))
    };
    values.iter().map(sum).reduce(|all, sum| all + sum).expect("there are values")
}

/// Joins short tensors to one, with one kernel on a GPU where [`Tensor::cat`] takes one for each.
///
/// # Panics
/// If there are no tensors.
pub fn join(tensors: Vec<Tensor<1>>) -> Tensor<1> {
    let device = tensors.first().expect("there are tensors").device();
    if !has_views(&device) {
        return Tensor::cat(tensors, 0);
    }
    let mut len = 0;
    let mut starts = Vec::new();
    for tensor in &tensors {
        starts.push(len);
        len += tensor.shape().num_elements();
    }
    on_backend!(&device, B => {
        let sources = tensors.into_iter().map(<B as PrimitiveBackend>::plain).zip(starts).collect();
        B::from_plain::<1>(B::gather(sources, None, len, &device))
    })
}

impl FlatLayout {
    /// Lays out the trained parameters of `module` in flat tensors of at most `most` values, or of the values of one parameter.
    /// Parameters with fewer than `small` values come into flat tensors of their own, so that the others may be kept in a form
    /// that small ones do not bear.
    pub fn new<M: Module>(module: &M, small: usize, most: usize) -> Self {
        Self::in_groups(module, small, most, |_| 1.0)
    }

    /// Lays out parameters as [`new`](Self::new) does. Parameters of one flat tensor have the same number by `number_of`, which gets
    /// their names: a factor of their learning rate, for example.
    pub fn in_groups<M: Module>(module: &M, small: usize, most: usize, number_of: impl Fn(&str) -> f64) -> Self {
        struct Collect(Vec<FlatPlace>);
        impl NamedVisitor for Collect {
            fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
                let value = param.val();
                if value.is_require_grad() {
                    self.0.push(FlatPlace { name: name.into(), start: 0, shape: value.dims().to_vec() });
                }
            }
        }
        let mut found = Collect(Vec::new());
        walk(module, &mut found);
        let mut layout = Self { parts: Vec::new(), by_name: HashMap::new() };
        let mut rest = found.0;
        let bits = |place: &FlatPlace| number_of(&place.name).to_bits();
        while let Some(number) = rest.first().map(bits) {
            let (group, others): (Vec<_>, _) = rest.into_iter().partition(|place| bits(place) == number);
            let (large, few) = group.into_iter().partition(|place| place.count() >= small);
            layout.append(large, most);
            layout.append(few, most);
            rest = others;
        }
        layout
    }

    fn append(&mut self, places: Vec<FlatPlace>, most: usize) {
        let mut part = FlatPart::default();
        for place in places {
            let room = place.count().next_multiple_of(PLACE_VALUES);
            if part.len > 0 && part.len + room > most {
                self.parts.push(std::mem::take(&mut part));
            }
            self.by_name.insert(place.name.clone(), (self.parts.len(), part.places.len()));
            part.places.push(FlatPlace { start: part.len, ..place });
            part.len += room;
        }
        if !part.places.is_empty() {
            self.parts.push(part);
        }
    }

    /// Returns whether the trained parameters of `module` are those of this layout. They are not after some were frozen, or
    /// are trained again.
    pub fn is_of<M: Module>(&self, module: &M) -> bool {
        struct Compare<'a>(&'a FlatLayout, usize, bool);
        impl NamedVisitor for Compare<'_> {
            fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
                if param.val().is_require_grad() {
                    self.1 += 1;
                    self.2 &= self.0.by_name.contains_key(name);
                }
            }
        }
        let mut compare = Compare(self, 0, true);
        walk(module, &mut compare);
        compare.2 && compare.1 == self.by_name.len()
    }

    /// Returns the places in each flat tensor.
    pub fn parts(&self) -> &[FlatPart] {
        &self.parts
    }

    /// Copies tensors of one axis into a new flat tensor for the part `part`, in the order of its places. Places of tensors
    /// that are missing have zeros.
    pub fn gather_part(&self, part: usize, tensors: Vec<Option<Tensor<1>>>, device: &Device) -> Tensor<1> {
        on_backend!(device, B => {
            let places = tensors.into_iter().zip(&self.parts[part].places);
            let found = places.filter_map(|(tensor, place)| Some((<B as PrimitiveBackend>::plain(tensor?), place.start)));
            self.gathered_part::<B>(part, found.collect(), None, device)
        })
    }

    /// Copies the parameters of `module` into new flat tensors.
    ///
    /// # Panics
    /// If `module` does not have the parameters of this layout.
    pub fn gather_parameters<M: Module>(&self, module: &M) -> Vec<Tensor<1>> {
        let Some(device) = device_of(module) else { return Vec::new() };
        on_backend!(&device, B => {
            let mut collect = Parameters::<B> { layout: self, found: self.nothing::<B>() };
            walk(module, &mut collect);
            let whole = collect.found.iter().zip(&self.parts).all(|(found, part)| found.len() == part.places.len());
            assert!(whole, "the module has the parameters of the layout");
            self.gathered::<B>(collect.found, None, &device)
        })
    }

    /// Adds the gradients of `module` to `sum`, in flat tensors.
    pub fn add_gradients<M: Module>(
        &self,
        module: &M,
        gradients: GradientsParams,
        sum: Option<FlatGradients>,
    ) -> FlatGradients {
        let Some(device) = device_of(module) else { return FlatGradients { values: Vec::new(), absent: Vec::new() } };
        on_backend!(&device, B => {
            let mut collect = Collected::<B> { layout: self, gradients, found: self.nothing::<B>(), absent: Vec::new() };
            walk(module, &mut collect);
            let Collected { found, mut absent, .. } = collect;
            let old = sum.map(|sum| {
                absent.retain(|name| sum.absent.contains(name));
                sum.values.into_iter().map(<B as PrimitiveBackend>::plain).collect()
            });
            FlatGradients { values: self.gathered::<B>(found, old, &device), absent }
        })
    }

    /// Returns the gradients of `module` that `flat` holds, one by one.
    pub fn split_gradients<M: Module>(&self, module: &M, flat: FlatGradients) -> GradientsParams {
        struct Split<'a, B: FlatBackend> {
            layout: &'a FlatLayout,
            views: Vec<Vec<Option<FloatTensor<B>>>>,
            absent: Vec<String>,
            gradients: GradientsParams,
        }
        impl<B: FlatBackend> NamedVisitor for Split<'_, B> {
            fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
                let Some(&(part, index)) = self.layout.by_name.get(name) else { return };
                if self.absent.iter().any(|absent| absent == name) {
                    return;
                }
                if let Some(view) = self.views[part][index].take() {
                    self.gradients.register(param.id, B::from_plain::<D>(view));
                }
            }
        }
        let Some(device) = device_of(module) else { return GradientsParams::new() };
        on_backend!(&device, B => {
            let views = self.views::<B>(flat.values);
            let mut split = Split::<B> { layout: self, views, absent: flat.absent, gradients: GradientsParams::new() };
            walk(module, &mut split);
            split.gradients
        })
    }

    /// Makes the parameters of `module` views of `values`, one tensor for each part of the layout. What requires a gradient
    /// does so as before.
    ///
    /// # Panics
    /// If `values` does not have the lengths of the parts.
    pub fn attach<M: Module>(&self, module: M, values: Vec<Tensor<1>>) -> Attached<M> {
        self.check_lengths(&values);
        let Some(device) = values.first().map(Tensor::device) else {
            return Attached { module, views: FlatViews::default() };
        };
        on_backend!(&device, B => {
            let views = self.views::<B>(values);
            let mut attach = Attach::<B> { layout: self, path: Vec::new(), views, known: FlatViews::default() };
            let module = module.map(&mut attach);
            Attached { module, views: attach.known }
        })
    }

    fn check_lengths(&self, values: &[Tensor<1>]) {
        let lens = values.iter().map(|values| values.shape().num_elements());
        assert!(lens.eq(self.parts.iter().map(|part| part.len)), "the values have the lengths of the parts");
    }

    fn views<B: FlatBackend>(&self, values: Vec<Tensor<1>>) -> Vec<Vec<Option<FloatTensor<B>>>> {
        let of_part = |(part, values): (&FlatPart, Tensor<1>)| {
            let places = part.places.iter().map(|place| (place.start, Shape::from(place.shape.clone()))).collect();
            B::views(B::plain(values), places).into_iter().map(Some).collect()
        };
        self.parts.iter().zip(values).map(of_part).collect()
    }

    fn nothing<B: FlatBackend>(&self) -> Vec<Sources<B>> {
        self.parts.iter().map(|_| Vec::new()).collect()
    }

    fn gathered<B: FlatBackend>(
        &self,
        found: Vec<Sources<B>>,
        old: Option<Vec<FloatTensor<B>>>,
        device: &Device,
    ) -> Vec<Tensor<1>> {
        let mut old = old.map(Vec::into_iter);
        let parts = found.into_iter().enumerate();
        parts
            .map(|(part, sources)| {
                self.gathered_part::<B>(part, sources, old.as_mut().and_then(Iterator::next), device)
            })
            .collect()
    }

    fn gathered_part<B: FlatBackend>(
        &self,
        part: usize,
        sources: Sources<B>,
        old: Option<FloatTensor<B>>,
        device: &Device,
    ) -> Tensor<1> {
        let FlatPart { places, len } = &self.parts[part];
        let is_whole = sources.len() == places.len();
        let zeros = || B::plain(Tensor::<1>::zeros([*len], (device, DType::F32)));
        let old = old.or_else(|| (!is_whole).then(zeros));
        B::from_plain(B::gather(sources, old, *len, device))
    }
}

/// Tensors with their places in a flat tensor.
type Sources<B> = Vec<(FloatTensor<B>, usize)>;

/// Returns the device of the first parameter of `module`, without autodiff.
pub fn device_of<M: Module>(module: &M) -> Option<Device> {
    struct First(Option<Device>);
    impl ModuleVisitor for First {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if self.0.is_none() {
                self.0 = Some(param.lazy_device().inner());
            }
        }
    }
    let mut first = First(None);
    module.visit(&mut first);
    first.0
}

struct Parameters<'a, B: FlatBackend> {
    layout: &'a FlatLayout,
    found: Vec<Sources<B>>,
}

impl<B: FlatBackend> NamedVisitor for Parameters<'_, B> {
    fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
        if let Some(&(part, index)) = self.layout.by_name.get(name) {
            self.found[part].push((B::plain(param.val()), self.layout.parts[part].places[index].start));
        }
    }
}

struct Collected<'a, B: FlatBackend> {
    layout: &'a FlatLayout,
    gradients: GradientsParams,
    found: Vec<Sources<B>>,
    absent: Vec<String>,
}

impl<B: FlatBackend> NamedVisitor for Collected<'_, B> {
    fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
        let Some(&(part, index)) = self.layout.by_name.get(name) else { return };
        let place = &self.layout.parts[part].places[index];
        match self.gradients.remove::<D>(param.id) {
            Some(gradient) => self.found[part].push((B::plain(gradient), place.start)),
            None => self.absent.push(place.name.clone()),
        }
    }
}

struct Attach<'a, B: FlatBackend> {
    layout: &'a FlatLayout,
    path: Vec<String>,
    views: Vec<Vec<Option<FloatTensor<B>>>>,
    known: FlatViews,
}

impl<B: FlatBackend> ModuleMapper for Attach<'_, B> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(&(part, index)) = self.layout.by_name.get(&self.path.join(".")) else { return param };
        let view = self.views[part][index].take().expect("each parameter comes once");
        if let Some(id) = B::identity(&view) {
            self.known.0.insert(param.id, id);
        }
        let (id, old, mapper) = param.consume();
        let value = match old.is_autodiff() {
            true => B::constant::<D>(view).set_require_grad(old.is_require_grad()),
            false => B::from_plain(view),
        };
        Param::from_mapped_value(id, value, mapper)
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::TensorData;
    use plimsoll_core::Key;

    use super::*;
    use crate::{backward, collect, initialize};

    #[derive(Module, Debug)]
    struct Net {
        wide: Linear,
        idle: Linear,
        narrow: Linear,
    }

    /// Makes a net with parameters of 320, 32, 9, 3, 64 and 2 values. No gradient reaches `idle`.
    fn net(device: &Device) -> Net {
        let layer = |from, to| LinearConfig::new(from, to).init(device);
        initialize(Net { wide: layer(10, 32), idle: layer(3, 3), narrow: layer(32, 2) }, Key::new(1))
    }

    fn loss(net: &Net, seed: u64) -> Tensor<1> {
        let device = net.wide.weight.val().device();
        let values: Vec<f32> = (0..40).map(|i| Key::new(seed).at(i).unit() as f32 - 0.5).collect();
        let x = Tensor::<2>::from_data(TensorData::new(values, [4, 10]), &device);
        net.narrow.forward(net.wide.forward(x)).square().sum()
    }

    fn values(tensor: &Tensor<1>) -> Vec<f32> {
        tensor.clone().into_data().try_into_vec().unwrap()
    }

    fn each(net: &Net, gradients: &GradientsParams) -> Vec<(ParamId, Vec<f32>)> {
        struct All<'a>(&'a GradientsParams, Vec<(ParamId, Vec<f32>)>);
        impl ModuleVisitor for All<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                if let Some(gradient) = self.0.get::<D>(param.id) {
                    self.1.push((param.id, gradient.into_data().try_into_vec().unwrap()));
                }
            }
        }
        let mut all = All(gradients, Vec::new());
        net.visit(&mut all);
        all.1
    }

    /// Checks gathering, views and sums on a device, for layouts with one and with several parts.
    fn check(device: &Device) {
        let net = net(&device.clone().autodiff());
        for (small, most) in [(0, MOST_VALUES), (64, MOST_VALUES), (0, 512), (64, 1), (usize::MAX, 700)] {
            let layout = FlatLayout::new(&net, small, most);
            let places: usize = layout.parts().iter().map(|part| part.places.len()).sum();
            assert_eq!(places, 6);
            for part in layout.parts() {
                let small_ones = part.places.iter().filter(|place| place.count() < small).count();
                assert!(small_ones == 0 || small_ones == part.places.len());
                assert!(part.places.iter().all(|place| place.start % PLACE_VALUES == 0));
            }
            let flat = layout.gather_parameters(&net);
            let attached = layout.attach(net.clone(), flat.clone());
            assert_eq!(collect(&attached.module), collect(&net));
            assert_eq!(attached.views.are_of(&attached.module), has_views(device));
            assert!(!attached.views.are_of(&net));
            let grads = |seed| backward(loss(&attached.module, seed), &attached.module);
            let one = layout.add_gradients(&net, grads(1), None);
            let two = layout.add_gradients(&net, grads(2), Some(one.clone()));
            assert_eq!(two.absent, ["idle.weight", "idle.bias"]);
            for (part, (values_of_one, values_of_two)) in
                layout.parts().iter().zip(one.values.iter().map(values).zip(two.values.iter().map(values)))
            {
                assert_eq!((values_of_one.len(), values_of_two.len()), (part.len, part.len));
            }
            let (wanted, found) = (each(&net, &grads(1)), layout.split_gradients(&net, one.clone()));
            assert_eq!(each(&net, &found), wanted, "the sum of one is that one, whatever came after");
            let sum = each(&net, &layout.split_gradients(&net, two.clone()));
            for (((_, sum), (_, first)), (_, second)) in sum.iter().zip(&wanted).zip(each(&net, &grads(2))) {
                assert!(sum.iter().zip(first.iter().zip(&second)).all(|(sum, (a, b))| *sum == a + b));
            }
            let squares: f64 = sum.iter().flat_map(|(_, values)| values).map(|x| f64::from(*x).powi(2)).sum();
            let found: f32 = values(&square_sum(&two.values))[0];
            assert!((f64::from(found) - squares).abs() < 1e-5 * squares, "{found} and not {squares}");
        }
        let short = |from: u8, len: usize| {
            let values: Vec<f32> = (0..len).map(|i| f32::from(from) + i as f32).collect();
            Tensor::<1>::from_data(TensorData::new(values, [len]), device)
        };
        assert_eq!(values(&join(vec![short(1, 1), short(5, 3), short(9, 2)])), [1.0, 5.0, 6.0, 7.0, 9.0, 10.0]);
    }

    #[test]
    fn parameters_and_gradients_keep_their_values_in_flat_tensors() {
        check(&Device::flex());
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn parameters_and_gradients_keep_their_values_in_flat_tensors_of_a_gpu() {
        check(&Device::wgpu(burn::tensor::DeviceKind::DefaultDevice));
    }
}
