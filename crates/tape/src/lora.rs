//! Which parameters of a model are trained: all, all but frozen parts, or adapters of low rank beside frozen weights (LoRA); and how fast.
//!
//! ```
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::{Device, Tensor};
//! use plimsoll_core::Key;
//! use plimsoll_tape::lora::{Lora, TrainedParts};
//! use plimsoll_tape::{Pass, count};
//!
//! let device = Device::flex().autodiff();
//! let layers: Vec<Linear> = (0..2).map(|_| LinearConfig::new(16, 16).init(&device)).collect();
//! let x = Tensor::<2>::ones([3, 16], &device);
//! let before = Pass::plain().dense(&layers[0], x.clone());
//!
//! let lora = Lora { rank: 2, alpha: 4.0, targets: Vec::new(), also: Vec::new() };
//! let parts = TrainedParts { lora: Some(lora), ..TrainedParts::default() };
//! let layers = parts.apply(layers, Key::new(1))?;
//! assert_eq!(count(&layers), 2 * (16 * 2 + 2 * 16));
//! // New adapters change nothing.
//! let after = Pass::plain().dense(&layers[0], x);
//! assert_eq!(after.into_data(), before.into_data());
//! # Ok::<(), plimsoll_tape::ParametersError>(())
//! ```

use std::collections::BTreeSet;

use burn::module::{self, LoraAdapter, Module, ModuleMapper, ModuleVisitor, Param, ParamGroup};
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::Key;
use serde::{Deserialize, Serialize};

use crate::capture::is_capture_device;
use crate::parameters::{NamedTensor, NamedVisitor, ParametersError, Prefixes, begins, freeze, walk};

/// Which parameters of a model are trained. The default trains all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainedParts {
    /// Beginnings of the names of parameters that are frozen, as [`freeze`] takes them.
    pub frozen: Vec<String>,
    /// Adapters that are trained in place of the parameters; `None` trains the parameters.
    pub lora: Option<Lora>,
    /// Parts with a learning rate of their own.
    #[serde(default)]
    pub rates: Rates,
}

/// Factors of the learning rate of parts of a model. The default has none: all learn at the rate of the schedule.
///
/// ```
/// use plimsoll_tape::lora::Rates;
///
/// let rates = Rates::new([("encoder".into(), 0.1), ("encoder.blocks.11".into(), 0.5)]);
/// assert_eq!(rates.factor("encoder.blocks.3.norm.gamma"), 0.1);
/// assert_eq!(rates.factor("encoder.blocks.11.norm.gamma"), 0.5);
/// assert_eq!(rates.factor("output.weight"), 1.0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rates(Vec<(String, f64)>);

impl Rates {
    /// Creates the factors of parts by the beginnings of their names, as [`freeze`] takes them. Where several fit, the last counts.
    pub fn new(factors: impl IntoIterator<Item = (String, f64)>) -> Self {
        Self(factors.into_iter().collect())
    }

    /// Returns whether no part has a rate of its own.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the factor of the parameter `name`.
    pub fn factor(&self, name: &str) -> f64 {
        self.0.iter().rev().find(|(prefix, _)| begins(name, prefix)).map_or(1.0, |(_, factor)| *factor)
    }

    /// Checks that each name is that of a part of `module` that is trained.
    fn check<M: Module>(&self, module: &M) -> Result<(), ParametersError> {
        /// The prefixes, and whether each begins the name of a trained parameter.
        struct Find<'a>(Prefixes<'a>, &'a [String], Vec<bool>);
        impl NamedVisitor for Find<'_> {
            fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
                let path: Vec<String> = name.split('.').map(str::to_owned).collect();
                if self.0.match_path(&path) && param.val().is_require_grad() {
                    for (prefix, is_trained) in self.1.iter().zip(&mut self.2) {
                        *is_trained |= begins(name, prefix);
                    }
                }
            }
        }
        let names: Vec<String> = self.0.iter().map(|(name, _)| name.clone()).collect();
        let mut find = Find(Prefixes::new(&names), &names, vec![false; names.len()]);
        walk(module, &mut find);
        find.0.finish()?;
        // Without autodiff, parameters do not say whether they are trained.
        let is_known = module.devices().iter().any(Device::is_autodiff);
        match find.2.iter().position(|is_trained| is_known && !is_trained) {
            Some(frozen) => Err(ParametersError::RateOfFrozen { name: names[frozen].clone() }),
            None => Ok(()),
        }
    }
}

/// Adapters of low rank (Hu et al. 2021): a linear layer with the weight `W` computes `x W + alpha / rank * (x A) B`, of which `A` and `B`
/// are trained. `B` begins with zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lora {
    /// Width between `A` and `B`.
    pub rank: usize,
    /// Factor of the product, times the rank.
    pub alpha: f64,
    /// Layers that get an adapter: paths such as `decoder.blocks.0.attention.project`, their ends or beginnings, and `*` for any part of
    /// one. Empty: all linear layers.
    pub targets: Vec<String>,
    /// Beginnings of the names of parameters that are trained themselves, as a last layer with new tokens needs it.
    pub also: Vec<String>,
}

impl Lora {
    /// Returns the factor of the product of the adapters.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank.max(1) as f64
    }
}

/// Ends of the names of the matrices of an adapter, behind the name of the weight.
const ENDS: [&str; 2] = [".lora.a", ".lora.b"];

impl TrainedParts {
    /// Returns whether all parameters are trained.
    pub fn is_all(&self) -> bool {
        self.frozen.is_empty() && self.lora.is_none()
    }

    /// Freezes the parameters of `module` that are not trained, and adds adapters where they are asked for. Their initial values depend
    /// on `key` and the names of the layers only.
    ///
    /// # Errors
    /// [`ParametersError::NoMatch`] with the first name that is that of no parameter or of no linear layer, and
    /// [`ParametersError::RateOfFrozen`] for a part that has a rate and is not trained.
    pub fn apply<M: Module>(&self, module: M, key: Key) -> Result<M, ParametersError> {
        let module = match &self.lora {
            Some(lora) => adapted(module, lora, key)?,
            None => module,
        };
        let module = if self.frozen.is_empty() { module } else { freeze(module, &self.frozen)? };
        self.rates.check(&module).map(|()| module)
    }
}

fn adapted<M: Module>(module: M, lora: &Lora, key: Key) -> Result<M, ParametersError> {
    let layers = linear_layers(&module);
    let is_target = |layer: &&String| lora.targets.is_empty() || lora.targets.iter().any(|target| names(target, layer));
    if let Some(unknown) = lora.targets.iter().find(|target| !layers.iter().any(|layer| names(target, layer))) {
        return Err(ParametersError::NoLayer { name: unknown.clone(), layers: kinds_of(&layers) });
    }
    let paths: Vec<String> = layers.iter().filter(is_target).map(|layer| format!("{layer}.weight")).collect();
    let group = ParamGroup::from_paths(paths);
    let module = module.apply_lora(module::Lora::new(lora.rank, lora.alpha).set_param_group(group));
    let mut begin = Begin { path: Vec::new(), key, also: Prefixes::new(&lora.also) };
    let module = module.map(&mut begin);
    begin.also.finish().map(|()| module)
}

/// Lists the paths of all linear layers of `module`.
fn linear_layers<M: Module>(module: &M) -> Vec<String> {
    struct Find {
        path: Vec<String>,
        kinds: Vec<String>,
        found: Vec<String>,
    }
    impl ModuleVisitor for Find {
        fn enter_module(&mut self, name: &str, kind: &str) {
            self.path.push(name.into());
            self.kinds.push(kind.into());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
            self.kinds.pop();
        }
        fn visit_float<const D: usize>(&mut self, _: &Param<Tensor<D>>) {
            let is_linear = self.kinds.last().is_some_and(|kind| kind.ends_with("Linear"));
            if D == 2 && is_linear && self.path.last().is_some_and(|name| name == "weight") {
                self.found.push(self.path[..self.path.len() - 1].join("."));
            }
        }
    }
    let mut find = Find { path: Vec::new(), kinds: Vec::new(), found: Vec::new() };
    module.visit(&mut find);
    find.found
}

/// Lists the paths of layers with numbers as `*`, each once, for a message.
fn kinds_of(layers: &[String]) -> Vec<String> {
    let of = |layer: &String| {
        let parts = layer.split('.').map(|part| if part.bytes().all(|b| b.is_ascii_digit()) { "*" } else { part });
        format!("`{}`", parts.collect::<Vec<&str>>().join("."))
    };
    layers.iter().map(of).collect::<BTreeSet<String>>().into_iter().collect()
}

/// Returns whether `target` names `layer`: its path, the beginning or the end of it, with `*` for any text.
fn names(target: &str, layer: &str) -> bool {
    let places = std::iter::once(0).chain(layer.match_indices('.').map(|(place, _)| place + 1));
    let ends = layer.match_indices('.').map(|(place, _)| place).chain([layer.len()]);
    let ends: Vec<usize> = ends.collect();
    places
        .into_iter()
        .any(|from| ends.iter().any(|&to| to > from && is_glob(target.as_bytes(), &layer.as_bytes()[from..to])))
}

/// Returns whether `text` is what `pattern` describes, in which `*` stands for any text.
fn is_glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|skipped| is_glob(rest, &text[skipped..])),
        Some((first, rest)) => text.split_first().is_some_and(|(found, text)| found == first && is_glob(rest, text)),
    }
}

/// Gives adapters their initial values, and trains the parameters that are trained besides.
struct Begin<'a> {
    path: Vec<String>,
    key: Key,
    also: Prefixes<'a>,
}

impl ModuleMapper for Begin<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.join(".");
        // A capture needs no values.
        if name.ends_with(ENDS[1]) || (name.ends_with(ENDS[0]) && is_capture_device(&param.lazy_device())) {
            return param;
        }
        if name.ends_with(ENDS[0]) {
            // As in peft: uniform within one over the square root of the inputs.
            let shape: [usize; D] = param.lazy_shape().dims();
            let (bound, key) = (1.0 / (shape[0] as f64).sqrt(), self.key.with(&name));
            let value = |index: usize| ((key.at(index as u64).unit() * 2.0 - 1.0) * bound) as f32;
            return param.map(|old| {
                let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
                let required = old.is_require_grad();
                Tensor::from_data(TensorData::new(values, shape), &old.device()).set_require_grad(required)
            });
        }
        if self.also.match_path(&self.path) { param.set_require_grad(true) } else { param }
    }
}

/// Adds the adapters among `weights`, whose product has the factor `scale`, to the weights that they belong to, and leaves them out.
pub fn merged(weights: Vec<NamedTensor>, scale: f64) -> Vec<NamedTensor> {
    let (adapters, mut weights): (Vec<NamedTensor>, Vec<NamedTensor>) =
        weights.into_iter().partition(|tensor| ENDS.iter().any(|end| tensor.name.ends_with(end)));
    for weight in &mut weights {
        let find = |end: &str| adapters.iter().find(|adapter| adapter.name.strip_suffix(end) == Some(&weight.name));
        let (Some(a), Some(b)) = (find(ENDS[0]), find(ENDS[1])) else { continue };
        let (&[inputs, rank], &[_, outputs]) = (&a.shape[..], &b.shape[..]) else { continue };
        for (row, values) in weight.values.chunks_exact_mut(outputs).enumerate().take(inputs) {
            for inner in 0..rank {
                let factor = a.values[row * rank + inner] * scale as f32;
                let column = &b.values[inner * outputs..][..outputs];
                values.iter_mut().zip(column).for_each(|(value, b)| *value += factor * b);
            }
        }
    }
    weights
}

/// Computes the part of a product with `adapter`: `scale * (x A) B`.
pub(crate) fn low_rank(adapter: &LoraAdapter, x: Tensor<2>, cast: impl Fn(Tensor<2>) -> Tensor<2>) -> Tensor<2> {
    (x.matmul(cast(adapter.a.val())) * adapter.scale).matmul(cast(adapter.b.val()))
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;
    use plimsoll_core::{Choice, Precision};

    use super::*;
    use crate::{Noise, Pass, backward, collect, count, initialize, remat, remat_dense, try_collect};

    #[derive(Module, Debug)]
    struct Net {
        first: Linear,
        blocks: Vec<Linear>,
        last: Linear,
        scale: Param<Tensor<2>>,
    }

    fn net(device: &Device) -> Net {
        let layer = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        let net = Net {
            first: layer(5, 6),
            blocks: (0..2).map(|_| layer(6, 6)).collect(),
            last: layer(6, 3),
            scale: Param::from_tensor(Tensor::ones([1, 3], device)),
        };
        initialize(net, Key::new(1))
    }

    fn lora(targets: &[&str], also: &[&str]) -> TrainedParts {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let lora = Lora { rank: 2, alpha: 3.0, targets: list(targets), also: list(also) };
        TrainedParts { lora: Some(lora), ..TrainedParts::default() }
    }

    /// Returns a net whose adapters have random values, as after some steps.
    fn trained(parts: &TrainedParts, device: &Device) -> Net {
        let net = parts.apply(net(device), Key::new(2)).unwrap();
        let mut values = collect(&net);
        for value in values.iter_mut().filter(|value| value.name.ends_with(".lora.b")) {
            let key = Key::new(3).with(&value.name);
            value.values.iter_mut().enumerate().for_each(|(i, v)| *v = key.at(i as u64).unit() as f32 - 0.5);
        }
        crate::apply(net, values).unwrap()
    }

    fn input(device: &Device) -> Tensor<2> {
        let values: Vec<f32> = (0..20).map(|i| Key::new(4).at(i).unit() as f32 - 0.5).collect();
        Tensor::from_data(TensorData::new(values, [4, 5]), device).require_grad()
    }

    /// Computes the result, and the gradients of the input and of all trained parameters by name.
    fn computed(net: &Net, forward: impl Fn(&Net, Tensor<2>) -> Tensor<2>) -> (Vec<f32>, Vec<(String, Vec<f32>)>) {
        struct All<'a>(&'a burn::optim::GradientsParams, Vec<(String, Vec<f32>)>);
        impl NamedVisitor for All<'_> {
            fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
                if let Some(found) = self.0.get::<D>(param.id) {
                    self.1.push((name.into(), found.into_data().try_into_vec().unwrap()));
                }
            }
        }
        let x = input(&Device::flex().autodiff());
        let y = forward(net, x.clone()) * net.scale.val();
        let value = y.clone().into_data().try_into_vec().unwrap();
        let gradients = backward((y.clone() * y).sum(), net);
        let mut all = All(&gradients, Vec::new());
        walk(net, &mut all);
        (value, all.1)
    }

    /// The product of a weight and its adapter equals that of their sum, which Burn computes, and so do gradients, with and without
    /// rematerialization.
    #[test]
    fn products_and_gradients_equal_those_of_the_sum() {
        let device = Device::flex().autodiff();
        for parts in [lora(&[], &[]), lora(&["blocks"], &["last", "scale"]), lora(&["last"], &["first"])] {
            let net = trained(&parts, &device);
            let of_sums = computed(&net, |net, x| {
                net.last.forward(net.blocks.iter().fold(net.first.forward(x), |x, layer| layer.forward(x).tanh()))
            });
            let pass = Pass::plain();
            let inside = move |net: &Net, x: Tensor<2>| {
                net.blocks.iter().fold(pass.dense(&net.first, x), |x, layer| pass.dense(layer, x).tanh())
            };
            let whole = inside.clone();
            let ways = [
                computed(&net, |net, x| Pass::plain().dense(&net.last, inside(net, x))),
                computed(&net, |net, x| {
                    let inside = inside.clone();
                    remat(net, x, move |net, x| Pass::plain().dense(&net.last, inside(net, x)))
                }),
                computed(&net, |net, x| remat_dense(net, x, whole.clone(), |net| &net.last, &Pass::plain())),
            ];
            for (value, gradients) in ways {
                let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5 * (1.0 + b.abs()));
                assert!(near(&value, &of_sums.0));
                assert_eq!(gradients.len(), of_sums.1.len(), "{parts:?}");
                for ((name, found), (expected_name, expected)) in gradients.iter().zip(&of_sums.1) {
                    assert!(name == expected_name && near(found, expected), "{parts:?}: {name}");
                }
            }
        }
    }

    #[test]
    fn merged_weights_compute_the_same_without_adapters() {
        let device = Device::flex().autodiff();
        let parts = lora(&["first", "blocks.1"], &[]);
        let adapted = trained(&parts, &device);
        let weights = merged(collect(&adapted), parts.lora.as_ref().unwrap().scale());
        let plain = crate::apply(net(&device), weights).unwrap();
        let value = |net: &Net| computed(net, |net, x| Pass::plain().dense(&net.first, x).narrow(1, 0, 3)).0;
        let (found, expected) = (value(&plain), value(&adapted));
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {expected:?}");
        // Weights without adapters stay as they are.
        let whole = collect(&net(&device));
        assert_eq!(merged(whole.clone(), 2.0), whole);
    }

    #[test]
    fn what_is_trained_is_what_was_asked_for() {
        let device = Device::flex().autodiff();
        let trained_values = |parts: &TrainedParts| count(&parts.apply(net(&device), Key::new(2)).unwrap());
        assert_eq!(trained_values(&TrainedParts::default()), 36 + 2 * 42 + 21 + 3);
        let all = 2 * (5 + 6) + 2 * 2 * (6 + 6) + 2 * (6 + 3);
        assert_eq!(trained_values(&lora(&[], &[])), all);
        assert_eq!(trained_values(&lora(&[], &["last"])), all + 21);
        assert_eq!(trained_values(&lora(&["blocks.*"], &[])), 2 * 2 * 12);
        assert_eq!(trained_values(&TrainedParts { frozen: vec!["blocks".into()], ..lora(&[], &[]) }), all - 2 * 2 * 12);
        let refused = |parts: TrainedParts| parts.apply(net(&device), Key::new(2)).unwrap_err().to_string();
        let error = refused(lora(&["block"], &[]));
        assert_eq!(error, "no linear layer of this model is called `block`: it has `blocks.*`, `first`, `last`");
        assert!(refused(lora(&[], &["scal"])).contains("begins with `scal`: its parts are `blocks`, `first`"));
        // Initial values follow the key, and change nothing.
        let of = |key| try_collect(&lora(&[], &[]).apply(net(&device), Key::new(key)).unwrap()).unwrap();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn names_are_paths_their_ends_or_globs() {
        let layer = "decoder.blocks.11.attention.project";
        for yes in
            ["attention.project", "decoder", "decoder.blocks.1*.attention", "project", "*.attention.*", "*", layer]
        {
            assert!(names(yes, layer), "{yes}");
        }
        for no in ["proj", "decoder.blocks.1", "attention.output", "encoder.*", "*x*", ""] {
            assert!(!names(no, layer), "{no}");
        }
    }

    #[test]
    fn adapters_compute_in_sixteen_bits() {
        let device = Device::flex().autodiff();
        let net = trained(&lora(&[], &[]), &device);
        let pass = Pass::new(Choice { precision: Precision::Bf16, ..Choice::default() }, Noise::off());
        let value =
            |pass: Pass| computed(&net, move |net, x| pass.at_least_fp32(pass.dense(&net.first, x)).narrow(1, 0, 3)).0;
        let (low, full) = (value(pass), value(Pass::plain()));
        assert!(low.iter().zip(&full).all(|(a, b)| (a - b).abs() < 2e-2), "{low:?} {full:?}");
    }
}
