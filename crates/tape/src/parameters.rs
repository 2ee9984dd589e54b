//! Parameters of a module by name: reading, counting, freezing, loading and initializing them.

use std::collections::{BTreeSet, HashMap};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::Key;

/// Values of a parameter with the name of the parameter, the path of fields that leads to it:
/// `blocks.0.feed_forward.widen.weight`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Name of the parameter: path of fields, joined by dots.
    pub name: String,
    /// Length of each axis of the parameter.
    pub shape: Vec<usize>,
    /// Values of the parameter; the last axis varies fastest.
    pub values: Vec<f32>,
}

/// Reason why values or names do not fit a module.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParametersError {
    /// A parameter of the module has no value.
    #[error("the weights have no `{name}`: they belong to another model")]
    Missing {
        /// Name of the parameter without a value.
        name: String,
    },
    /// A value belongs to no parameter of the module.
    #[error("the weights have `{name}`, which this model does not: they belong to another one")]
    Unknown {
        /// Name of the value that belongs to no parameter.
        name: String,
    },
    /// No parameter name begins with the given prefix.
    #[error("no parameter of this model has a name that begins with `{name}`: its parts are {}", parts.join(", "))]
    NoMatch {
        /// Prefix that no parameter name begins with.
        name: String,
        /// Names of the fields at the top level of the module that contain parameters: the beginnings of all parameter
        /// names.
        parts: Vec<String>,
    },
    /// No linear layer has the given name.
    #[error("no linear layer of this model is called `{name}`: it has {}", layers.join(", "))]
    NoLayer {
        /// Name that no linear layer has.
        name: String,
        /// Names of the linear layers, with `*` for numbers.
        layers: Vec<String>,
    },
    /// The device cannot return a value.
    #[error("the device cannot return `{name}`: {reason}")]
    Device {
        /// Name of the parameter.
        name: String,
        /// Message of the device.
        reason: String,
    },
    /// A part has a learning rate of its own, and no parameter of it is trained.
    #[error("`{name}` has a learning rate of its own, and is not trained")]
    RateOfFrozen {
        /// Beginning of the names of its parameters.
        name: String,
    },
    /// The shape of a parameter differs from the shape of its value.
    #[error("`{name}` has shape {found:?} in the weights and {wanted:?} in this model")]
    Shape {
        /// Name of the parameter whose shape differs.
        name: String,
        /// Shape of the parameter in the module.
        wanted: Vec<usize>,
        /// Shape of the given value.
        found: Vec<usize>,
    },
}

/// Visitor of float parameters and their names.
pub trait NamedVisitor {
    /// Visits one float parameter. `name` is the path of fields, joined by dots.
    fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>);
}

/// Calls `visitor` for each float parameter of `module`, in the order of the fields.
pub fn walk<M: Module, V: NamedVisitor>(module: &M, visitor: &mut V) {
    module.visit(&mut Walk { path: Vec::new(), visitor });
}

struct Walk<'a, V> {
    path: Vec<String>,
    visitor: &'a mut V,
}

impl<V: NamedVisitor> ModuleVisitor for Walk<'_, V> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.visitor.parameter(&self.path.join("."), param);
    }
}

/// Collects the values of all float parameters of `module`, converted to fp32.
///
/// # Panics
/// If the device cannot return a value; see [`try_collect`].
pub fn collect<M: Module>(module: &M) -> Vec<NamedTensor> {
    try_collect(module).expect("the device returns the values of a module")
}

/// Collects the values of all float parameters of `module`, converted to fp32, from a device that may have failed.
///
/// # Errors
/// [`ParametersError::Device`] if the device cannot return a value.
pub fn try_collect<M: Module>(module: &M) -> Result<Vec<NamedTensor>, ParametersError> {
    struct Values(Result<Vec<NamedTensor>, ParametersError>);
    impl NamedVisitor for Values {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            let Ok(found) = &mut self.0 else { return };
            let value = param.val().without_autodiff();
            let shape = value.dims().to_vec();
            let data = value.try_into_data().map_err(|error| error.to_string());
            // A device may hand out memory that it fills later, so this can fail as well.
            match data.and_then(|data| data.try_into_vec_as::<f32>().map_err(|error| error.to_string())) {
                Ok(values) => found.push(NamedTensor { name: name.into(), shape, values }),
                Err(reason) => self.0 = Err(ParametersError::Device { name: name.into(), reason }),
            }
        }
    }
    let mut found = Values(Ok(Vec::new()));
    walk(module, &mut found);
    found.0
}

/// Lists the name, the number of values and the device of each float parameter of `module`.
pub fn devices<M: Module>(module: &M) -> Vec<(String, u64, Device)> {
    struct Devices(Vec<(String, u64, Device)>);
    impl NamedVisitor for Devices {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            self.0.push((name.into(), param.lazy_shape().num_elements() as u64, param.lazy_device()));
        }
    }
    let mut found = Devices(Vec::new());
    walk(module, &mut found);
    found.0
}

/// Counts the trained values of `module`. Running statistics and frozen parameters do not count.
pub fn count<M: Module>(module: &M) -> u64 {
    struct Count(u64);
    impl NamedVisitor for Count {
        fn parameter<const D: usize>(&mut self, _: &str, param: &Param<Tensor<D>>) {
            let value = param.val();
            if value.is_require_grad() {
                self.0 += value.shape().num_elements() as u64;
            }
        }
    }
    let mut found = Count(0);
    // Parameters say whether they are trained only on an autodiff device.
    match module.devices().iter().any(Device::is_autodiff) {
        true => walk(module, &mut found),
        false => walk(&module.clone().train(), &mut found),
    }
    found.0
}

/// Freezes each parameter whose name begins with one of `prefixes`: no gradient is computed for it, and its value
/// stays.
///
/// A prefix ends at the end of a field name: `encoder` is the whole encoder, as is `encoder.*`, and `encod` matches nothing.
///
/// # Errors
/// [`ParametersError::NoMatch`] with the first prefix that no parameter name has.
pub fn freeze<M: Module>(module: M, prefixes: &[String]) -> Result<M, ParametersError> {
    let mut mapper = Freeze { path: Vec::new(), prefixes: Prefixes::new(prefixes) };
    let module = module.map(&mut mapper);
    mapper.prefixes.finish().map(|()| module)
}

/// Returns whether `prefix` begins the `name` of a parameter, at the end of a field name.
pub(crate) fn begins(name: &str, prefix: &str) -> bool {
    let prefix = prefix.strip_suffix(".*").unwrap_or(prefix);
    name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Beginnings of names of parameters, each of which has to be that of one.
pub(crate) struct Prefixes<'a> {
    prefixes: &'a [String],
    used: Vec<bool>,
    /// Names of the fields at the top level.
    parts: BTreeSet<String>,
}

impl<'a> Prefixes<'a> {
    pub(crate) fn new(prefixes: &'a [String]) -> Self {
        Self { prefixes, used: vec![false; prefixes.len()], parts: BTreeSet::new() }
    }

    /// Returns whether one of the prefixes begins the name of the parameter at `path`, at the end of a field name.
    pub(crate) fn match_path(&mut self, path: &[String]) -> bool {
        let name = path.join(".");
        self.parts.extend(path.first().cloned());
        let mut is_match = false;
        for (prefix, used) in self.prefixes.iter().zip(&mut self.used) {
            if begins(&name, prefix) {
                (is_match, *used) = (true, true);
            }
        }
        is_match
    }

    /// # Errors
    /// [`ParametersError::NoMatch`] with the first prefix that was the beginning of no name.
    pub(crate) fn finish(self) -> Result<(), ParametersError> {
        let Some(unused) = self.used.iter().position(|used| !used) else { return Ok(()) };
        let parts = self.parts.into_iter().map(|part| format!("`{part}`")).collect();
        Err(ParametersError::NoMatch { name: self.prefixes[unused].clone(), parts })
    }
}

struct Freeze<'a> {
    path: Vec<String>,
    prefixes: Prefixes<'a>,
}

impl ModuleMapper for Freeze<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let is_frozen = self.prefixes.match_path(&self.path);
        if is_frozen { param.map(|value| value.detach().set_require_grad(false)) } else { param }
    }
}

/// Compares names and shapes of `values` with the float parameters of `module`, without their values. On the
/// [capture device](crate::on_capture_device) a module of any size takes no memory.
///
/// # Errors
/// [`ParametersError`] if the names or a shape of `values` differ from the names or shapes of `module`.
pub fn check_shapes<M: Module>(module: &M, values: &[NamedTensor]) -> Result<(), ParametersError> {
    struct Check<'a> {
        shapes: HashMap<&'a str, &'a [usize]>,
        error: Option<ParametersError>,
    }
    impl NamedVisitor for Check<'_> {
        fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
            let wanted = param.lazy_shape();
            let name = name.to_string();
            let error = match self.shapes.remove(name.as_str()) {
                Some(found) if found == &wanted[..] => return,
                Some(found) => ParametersError::Shape { name, wanted: wanted.to_vec(), found: found.to_vec() },
                None => ParametersError::Missing { name },
            };
            self.error.get_or_insert(error);
        }
    }
    let shapes = values.iter().map(|value| (value.name.as_str(), value.shape.as_slice())).collect();
    let mut check = Check { shapes, error: None };
    walk(module, &mut check);
    match (check.error, check.shapes.into_keys().min()) {
        (Some(error), _) => Err(error),
        (None, Some(name)) => Err(ParametersError::Unknown { name: name.into() }),
        (None, None) => Ok(()),
    }
}

/// Sets each float parameter of `module` to the value with the same name.
///
/// # Errors
/// [`ParametersError`] if the names or a shape of `values` differ from the names or shapes of `module`.
pub fn apply<M: Module>(module: M, values: Vec<NamedTensor>) -> Result<M, ParametersError> {
    let values = values.into_iter().map(|v| (v.name.clone(), v)).collect();
    let mut mapper = Apply { path: Vec::new(), values, error: None };
    let module = module.map(&mut mapper);
    if let Some(error) = mapper.error {
        return Err(error);
    }
    match mapper.values.into_keys().min() {
        Some(name) => Err(ParametersError::Unknown { name }),
        None => Ok(module),
    }
}

struct Apply {
    path: Vec<String>,
    values: HashMap<String, NamedTensor>,
    error: Option<ParametersError>,
}

impl Apply {
    fn take(&mut self, wanted: &[usize]) -> Result<NamedTensor, ParametersError> {
        let name = self.path.join(".");
        let found = self.values.remove(&name).ok_or_else(|| ParametersError::Missing { name: name.clone() })?;
        if found.shape != wanted {
            let (wanted, found) = (wanted.to_vec(), found.shape);
            return Err(ParametersError::Shape { name, wanted, found });
        }
        Ok(found)
    }
}

impl ModuleMapper for Apply {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.take(&param.lazy_shape()) {
            Ok(found) => with_values(param, found.values),
            Err(error) => {
                self.error.get_or_insert(error);
                param
            }
        }
    }
}

/// Sets the parameters of `module` to their initial values. Each value is a function of `key` and the parameter's name.
///
/// Matrices and kernels are uniform within one over the square root of the fan-in (the default of Burn and PyTorch for
/// linear and convolution layers). Biases are zero. Scales of norms keep their values.
pub fn initialize<M: Module>(module: M, key: Key) -> M {
    module.map(&mut Initialize { path: Vec::new(), kinds: Vec::new(), key })
}

struct Initialize {
    path: Vec<String>,
    kinds: Vec<String>,
    key: Key,
}

impl ModuleMapper for Initialize {
    fn enter_module(&mut self, name: &str, kind: &str) {
        self.path.push(name.into());
        self.kinds.push(kind.into());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
        self.kinds.pop();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let shape = param.lazy_shape();
        let count = shape.num_elements();
        if D < 2 {
            let is_bias = self.path.last().is_some_and(|name| name == "bias");
            return if is_bias { with_values(param, vec![0.0; count]) } else { param };
        }
        // A linear layer's weight is [in, out]; a kernel is [out, in of the group, width...].
        let fan_in = if D == 2 { shape[0] } else { shape[1..].iter().product() };
        let bound = 1.0 / (fan_in as f64).sqrt();
        let key = self.key.with(&self.path.join("."));
        with_values(param, (0..count).map(|i| ((key.at(i as u64).unit() * 2.0 - 1.0) * bound) as f32).collect())
    }
}

fn with_values<const D: usize>(param: Param<Tensor<D>>, values: Vec<f32>) -> Param<Tensor<D>> {
    let shape: [usize; D] = param.lazy_shape().dims();
    param.map(|old| {
        let required = old.is_require_grad();
        Tensor::from_data(TensorData::new(values, shape), &old.device()).set_require_grad(required)
    })
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};

    use super::*;

    fn layer(inputs: usize) -> Linear {
        LinearConfig::new(inputs, 3).init(&Device::flex().autodiff())
    }

    #[test]
    fn initial_values_depend_on_the_key_alone() {
        let values = |gradient_root| collect(&initialize(layer(4), Key::new(gradient_root)));
        assert_eq!(values(1), values(1));
        assert_ne!(values(1), values(2));
        let weight = &values(1)[0];
        assert_eq!((weight.name.as_str(), weight.shape.as_slice()), ("weight", &[4, 3][..]));
        assert!(weight.values.iter().all(|v| v.abs() <= 0.5) && weight.values.iter().any(|v| v.abs() > 0.25));
        assert_eq!(count(&layer(4)), 15);
    }

    #[test]
    fn frozen_parameters_have_no_gradient_and_are_not_counted() {
        let frozen = freeze(layer(4), &["bias".into()]).unwrap();
        assert_eq!(count(&frozen), 12);
        let loss = frozen.forward(Tensor::<2>::ones([2, 4], &Device::flex().autodiff())).sum();
        assert_eq!(crate::backward(loss, &frozen).len(), 1);
        assert_eq!(count(&freeze(layer(4), &["bias.*".into()]).unwrap()), 12);
        let error = freeze(layer(4), &["weight".into(), "weigh".into()]).unwrap_err().to_string();
        let expected = "no parameter of this model has a name that begins with `weigh`: its parts are `bias`, `weight`";
        assert_eq!(error, expected);
    }

    #[test]
    fn apply_copies_values_to_a_module_of_the_same_shape() {
        let source = initialize(layer(4), Key::new(1));
        let target = apply(layer(4), collect(&source)).unwrap();
        assert_eq!(collect(&target), collect(&source));
        assert!(target.weight.val().is_require_grad());
    }

    #[test]
    fn apply_refuses_values_of_another_model() {
        let values = collect(&layer(4));
        let refused = |values: Vec<NamedTensor>| {
            let error = apply(layer(5), values.clone()).unwrap_err();
            assert_eq!(
                crate::on_capture_device(|device| { check_shapes(&LinearConfig::new(5, 3).init(device), &values) }),
                Err(error.clone())
            );
            error.to_string()
        };
        assert_eq!(refused(values.clone()), "`weight` has shape [4, 3] in the weights and [5, 3] in this model");
        assert_eq!(refused(values[1..].to_vec()), "the weights have no `weight`: they belong to another model");
        let mut more = values.clone();
        more.push(NamedTensor { name: "other".into(), ..values[1].clone() });
        assert_eq!(check_shapes(&layer(4), &values), Ok(()));
        assert_eq!(check_shapes(&layer(4), &more), Err(ParametersError::Unknown { name: "other".into() }));
        let error = apply(layer(4), more).unwrap_err();
        assert_eq!(error, ParametersError::Unknown { name: "other".into() });
    }
}
