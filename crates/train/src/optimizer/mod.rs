//! Optimizer: update rules, and the storage of their state.
//!
//! A rule ([`AdamWConfig`], [`LionConfig`], [`SgdConfig`]) updates a value from its gradient and from running means. A
//! [`StateForm`] decides where and in what precision the means are stored between two steps. [`StateTensor`]s hold the
//! means in a checkpoint, bit for bit in every form. The [`Optimizer`] visits the parameters of a module and converts
//! the state of one parameter to fp32 at a time.

mod adamw;
mod blocks;
mod config;
mod flat;
mod lion;
mod rule;
mod sgd;
mod state;
mod stored;
mod tensor;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor};
use plimsoll_core::Bytes;
use plimsoll_tape::flat::{FlatGradients, FlatLayout, has_views};
use plimsoll_tape::lora::Rates;

pub use adamw::AdamWConfig;
pub use config::OptimizerConfig;
pub use lion::LionConfig;
pub use plimsoll_core::StateForm;
pub use sgd::SgdConfig;
pub use state::StateError;
pub use tensor::{StateData, StateTensor};

use crate::attempt::attempt;
use crate::reads::check_written;
use blocks::bears_eight;
use flat::FlatState;
use rule::{StatePart, StepSize};
use stored::{StatePacker, StoredState};

/// An optimizer with its state.
///
/// The state is keyed by parameter names, because Burn's ids differ in every process.
#[derive(Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    form: StateForm,
    rates: Rates,
    steps: u64,
    /// Running means of each parameter by its name, in the order in which the rule lists them. Empty if they are flat.
    state: BTreeMap<String, Vec<StoredState>>,
    /// Weights and running means in flat tensors, on a device where that spares time.
    flat: Option<FlatState>,
}

impl Optimizer {
    /// Makes an optimizer before its first step.
    pub fn new(config: OptimizerConfig, form: StateForm) -> Self {
        Self { config, form, rates: Rates::default(), steps: 0, state: BTreeMap::new(), flat: None }
    }

    /// Gives parts of the model learning rates of their own. Before the first step.
    #[must_use]
    pub fn with_rates(self, rates: Rates) -> Self {
        Self { rates, flat: None, ..self }
    }

    /// Returns the number of steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the update rule with its hyperparameters.
    pub fn config(&self) -> &OptimizerConfig {
        &self.config
    }

    /// Returns the place and precision in which the state is stored.
    pub fn form(&self) -> StateForm {
        self.form
    }

    /// Computes the bytes of the current optimizer state, on the device or in host memory.
    pub fn bytes(&self) -> Bytes {
        let flat = self.flat.iter().flat_map(FlatState::means);
        Bytes(self.state.values().flatten().chain(flat).map(StoredState::bytes).sum())
    }

    /// Takes one step: updates every parameter of `module` that has a gradient, at learning rate `rate`, with gradients
    /// multiplied by `scale`. Returns the updated module.
    ///
    /// # Panics
    /// If the state is in host memory and the device cannot return it. Weights and state are then lost.
    pub fn step<M: Module>(&mut self, rate: f64, module: M, gradients: GradientsParams, scale: f64) -> M {
        if let Some(layout) = self.lay_out(&module) {
            let gradients = layout.add_gradients(&module, gradients, None);
            return self.step_flat(rate, module, gradients, scale);
        }
        self.steps += 1;
        let packer = StatePacker::new(self.form, self.steps);
        let step_size = StepSize { rate, step: self.steps };
        module.map(&mut Update { optimizer: self, packer, gradients, step_size, scale, path: Vec::new() })
    }

    /// Takes a step as [`step`](Self::step) does, with gradients in the [layout](Self::lay_out) of this optimizer.
    pub(crate) fn step_flat<M: Module>(&mut self, rate: f64, module: M, gradients: FlatGradients, scale: f64) -> M {
        self.steps += 1;
        let packer = StatePacker::new(self.form, self.steps);
        let step_size = StepSize { rate, step: self.steps };
        let flat = self.flat.as_mut().expect("the gradients have the layout of this optimizer");
        flat.step(module, gradients, scale, (&self.config, step_size, &packer))
    }

    /// Lays out the trained parameters of `module` in flat tensors, where its device gains from that, and returns the layout.
    /// Lays them out again if others are trained than before.
    ///
    /// # Panics
    /// If the device cannot return the state of a layout that is to change.
    pub(crate) fn lay_out<M: Module>(&mut self, module: &M) -> Option<Arc<FlatLayout>> {
        if let Some(flat) = &self.flat
            && !flat.layout().is_of(module)
        {
            let packer = StatePacker::new(self.form, self.steps);
            let state = self.state().and_then(|state| {
                // Those that are trained from now on have no state yet.
                state::matched(state, self.config.parts(), &packer, module, false)
            });
            let each = state.unwrap_or_else(|error| panic!("{error}"));
            self.flat = Some(FlatState::new(module, (self.form, &self.rates), self.config.parts(), &each));
        }
        if self.flat.is_none() && plimsoll_tape::flat::device_of(module).is_some_and(|device| has_views(&device)) {
            let each = std::mem::take(&mut self.state);
            self.flat = Some(FlatState::new(module, (self.form, &self.rates), self.config.parts(), &each));
        }
        self.flat.as_ref().map(|flat| flat.layout().clone())
    }

    /// Makes the parameters of `module` views of flat tensors, where its device gains from that.
    pub(crate) fn attach<M: Module>(&mut self, module: M) -> M {
        self.lay_out(&module);
        match &mut self.flat {
            Some(flat) => flat.attach(module),
            None => module,
        }
    }

    /// Returns the weights after the last step in flat tensors, and their layout, where they are kept so.
    pub(crate) fn flat_values(&self) -> Option<(&FlatLayout, &[Tensor<1>])> {
        self.flat.as_ref().map(|flat| (&**flat.layout(), flat.values()))
    }

    /// Returns the weights in flat tensors, and their layout, if the parameters of `module` are views of them.
    pub(crate) fn flat_values_of<M: Module>(&self, module: &M) -> Option<(&FlatLayout, &[Tensor<1>])> {
        self.flat.as_ref().filter(|flat| flat.is_attached(module)).map(|flat| (&**flat.layout(), flat.values()))
    }

    /// Converts the state to another form. State in fp32 has the same bits on the device and in host memory.
    ///
    /// # Errors
    /// If the device cannot copy the state. The optimizer is unchanged then.
    pub fn set_form(&mut self, form: StateForm) -> Result<(), StateError> {
        let converted = self.converted(form)?;
        self.adopt(converted);
        Ok(())
    }

    /// Returns the state in another form, and leaves the optimizer as it is. Until the result is
    /// [adopted](Self::adopt), the state is in memory in both forms.
    ///
    /// # Errors
    /// If the device cannot copy the state.
    pub(crate) fn converted(&self, form: StateForm) -> Result<ConvertedState, StateError> {
        let packer = StatePacker::new(form, self.steps);
        if let Some(flat) = &self.flat {
            let failed = |reason| StateError::Device { name: "all parameters".into(), reason };
            let convert = || flat.converted(&packer, self.config.parts());
            let means = attempt(convert).and_then(|converted| converted).map_err(failed)?;
            let on_device: Vec<_> = means.iter().flatten().filter_map(StoredState::on_device).collect();
            check_written(&on_device).map_err(failed)?;
            return Ok(ConvertedState { form, state: BTreeMap::new(), means });
        }
        let mut state = BTreeMap::new();
        for (name, stored) in &self.state {
            let failed = |reason| StateError::Device { name: name.clone(), reason };
            let each = stored.iter().cloned().zip(self.config.parts());
            let convert = || {
                let convert = |(one, part): (StoredState, &StatePart)| {
                    let bears = bears_eight(one.count());
                    packer.convert(one, *part, bears)
                };
                each.map(convert).collect::<Result<Vec<_>, String>>()
            };
            let converted = attempt(convert).and_then(|converted| converted).map_err(failed)?;
            let on_device = converted.iter().filter_map(StoredState::on_device).collect::<Vec<_>>();
            check_written(&on_device).map_err(failed)?;
            state.insert(name.clone(), converted);
        }
        Ok(ConvertedState { form, state, means: Vec::new() })
    }

    /// Replaces the state by the same state in another form, and frees the old form.
    pub(crate) fn adopt(&mut self, converted: ConvertedState) {
        (self.form, self.state) = (converted.form, converted.state);
        if let Some(flat) = &mut self.flat {
            flat.adopt(converted.means);
        }
    }

    /// Returns the state as named tensors, for a checkpoint.
    ///
    /// # Errors
    /// If the device cannot return the state.
    pub fn state(&self) -> Result<Vec<StateTensor>, StateError> {
        let parts = self.config.parts();
        if let Some(flat) = &self.flat {
            return flat.save(parts).map_err(|(name, reason)| StateError::Device { name, reason });
        }
        let mut tensors = Vec::new();
        for (name, stored) in &self.state {
            for (stored, part) in stored.iter().zip(parts) {
                let saved = stored.save(&format!("{name}.{}", part.name));
                tensors.extend(saved.map_err(|reason| StateError::Device { name: name.clone(), reason })?);
            }
        }
        Ok(tensors)
    }

    /// Restores the state of a checkpoint after `steps` steps onto the device of `module`, and converts it to this
    /// optimizer's form.
    ///
    /// # Errors
    /// If a tensor is missing, unknown, or of another shape or number type. The optimizer is unchanged then.
    pub fn restore<M: Module>(&mut self, steps: u64, state: Vec<StateTensor>, module: &M) -> Result<(), StateError> {
        let packer = StatePacker::new(self.form, steps);
        self.state = state::matched(state, self.config.parts(), &packer, module, steps > 0)?;
        self.steps = steps;
        if let Some(flat) = &mut self.flat {
            flat.set_means(self.config.parts(), &std::mem::take(&mut self.state));
        }
        Ok(())
    }
}

/// State of an optimizer in another form, which the optimizer may adopt.
pub(crate) struct ConvertedState {
    form: StateForm,
    state: BTreeMap<String, Vec<StoredState>>,
    /// Running means in flat tensors, instead of `state`.
    means: Vec<Vec<StoredState>>,
}

struct Update<'a> {
    optimizer: &'a mut Optimizer,
    packer: StatePacker,
    gradients: GradientsParams,
    step_size: StepSize,
    scale: f64,
    path: Vec<String>,
}

impl ModuleMapper for Update<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else {
            self.wait(&param);
            return param;
        };
        let (id, value, mapper) = param.consume();
        let (required, shape) = (value.is_require_grad(), value.dims());
        let flat = value.without_autodiff().reshape([-1]);
        let moved = self.updated(flat, gradient.reshape([-1]));
        let moved = Tensor::from_inner(moved.reshape(shape)).set_require_grad(required);
        Param::from_mapped_value(id, moved, mapper)
    }
}

impl Update<'_> {
    fn updated(&mut self, value: Tensor<1>, gradient: Tensor<1>) -> Tensor<1> {
        let name = self.path.join(".");
        let config = self.optimizer.config;
        let old = self.optimizer.state.remove(&name).unwrap_or_default();
        let old = old.into_iter().map(StoredState::into_tensor).collect();
        let step_size = self.step_size.times(self.optimizer.rates.factor(&name));
        let (moved, kept) = config.update(step_size, value, gradient * self.scale, old);
        let kept = kept.into_iter().zip(config.parts()).map(|(tensor, part)| self.pack(tensor, *part));
        self.optimizer.state.insert(name, kept.collect());
        moved
    }

    fn pack(&self, values: Tensor<1>, part: StatePart) -> StoredState {
        let bears = bears_eight(values.shape().num_elements());
        // A mapper of a module cannot return an error.
        self.packer.pack(values, part, bears).unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// Initializes the state of a trained parameter without gradient to zeros.
    ///
    /// Every trained parameter has state after the first step, so a checkpoint with missing state can be refused.
    fn wait<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let name = self.path.join(".");
        if !value.is_require_grad() || self.optimizer.state.contains_key(&name) {
            return;
        }
        let options = (&value.device().inner(), DType::F32);
        let zeros = || Tensor::zeros([value.shape().num_elements()], options);
        let parts = self.optimizer.config.parts();
        let kept = parts.iter().map(|part| self.pack(zeros(), *part)).collect();
        self.optimizer.state.insert(name, kept);
    }
}
