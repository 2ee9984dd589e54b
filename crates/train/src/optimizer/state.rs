//! Restores the state of an optimizer from a checkpoint.

use std::collections::BTreeMap;

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use plimsoll_tape::{NamedVisitor, walk};

use super::blocks::{BLOCK, Blocks, WORDS, bears_eight, from_checkpoint_order};
use super::rule::StatePart;
use super::stored::{StatePacker, StoredState};
use super::tensor::{CODES, SCALES, StateData, StateTensor};

/// Mismatch between the optimizer state of a checkpoint and the model or its optimizer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state of a parameter is missing.
    #[error("the optimizer's state has no `{name}`: it belongs to another model or optimizer")]
    Missing {
        /// Name of the missing tensor.
        name: String,
    },
    /// The checkpoint has state of a parameter that the model does not have.
    #[error("the optimizer's state has `{name}`, which this model and optimizer do not: it belongs to others")]
    Unknown {
        /// Name of the unknown tensor.
        name: String,
    },
    /// A tensor of the state has another shape than the model needs.
    #[error("`{name}` has shape {found:?} in the optimizer's state, and this model needs {wanted:?}")]
    Shape {
        /// Name of the tensor with another shape.
        name: String,
        /// Shape that the model needs.
        wanted: Vec<usize>,
        /// Shape of the tensor in the checkpoint's state.
        found: Vec<usize>,
    },
    /// A tensor of the state has another number type than the optimizer needs.
    #[error("`{name}` holds {found} in the optimizer's state, and {wanted} are needed")]
    Numbers {
        /// Name of the tensor with another number type.
        name: String,
        /// Number type that the optimizer needs.
        wanted: &'static str,
        /// Number type of the tensor in the checkpoint's state.
        found: &'static str,
    },
    /// The device cannot return or take the state of a parameter.
    #[error("the device cannot copy the optimizer's state of `{name}`: {reason}")]
    Device {
        /// Name of the parameter.
        name: String,
        /// Message of the device.
        reason: String,
    },
}

/// Assigns the tensors of a checkpoint in `state` to the parameters of `module`, and returns the running means of each
/// parameter by its name, converted by `packer` to the optimizer's form.
///
/// If `stepped`, every trained parameter must have state.
pub(super) fn matched<M: Module>(
    state: Vec<StateTensor>,
    parts: &[StatePart],
    packer: &StatePacker,
    module: &M,
    stepped: bool,
) -> Result<BTreeMap<String, Vec<StoredState>>, StateError> {
    let mut parameters = Parameters(Vec::new());
    walk(module, &mut parameters);
    let mut saved = Saved(state.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect());
    let mut found = BTreeMap::new();
    for parameter in parameters.0 {
        let is_needed = stepped && parameter.trained;
        if !is_needed && !saved.has(&parameter, parts) {
            continue;
        }
        let mut one = |part: &StatePart| {
            let taken = saved.take(&parameter, *part)?;
            packer
                .convert(taken, *part, bears_eight(parameter.count))
                .map_err(|reason| StateError::Device { name: parameter.name.clone(), reason })
        };
        let stored = parts.iter().map(&mut one).collect::<Result<Vec<_>, StateError>>()?;
        found.insert(parameter.name, stored);
    }
    match saved.0.into_keys().next() {
        Some(name) => Err(StateError::Unknown { name }),
        None => Ok(found),
    }
}

/// Name, size and device of a parameter, and whether it is trained: the properties that decide its optimizer state.
struct Parameter {
    name: String,
    count: usize,
    trained: bool,
    device: Device,
}

struct Parameters(Vec<Parameter>);

impl NamedVisitor for Parameters {
    fn parameter<const D: usize>(&mut self, name: &str, param: &Param<Tensor<D>>) {
        let value = param.val();
        let (count, trained) = (value.shape().num_elements(), value.is_require_grad());
        self.0.push(Parameter { name: name.into(), count, trained, device: value.device().inner() });
    }
}

/// State tensors of a checkpoint that are not assigned to a parameter yet.
struct Saved(BTreeMap<String, StateTensor>);

impl Saved {
    /// Returns whether the checkpoint has any running mean of `parameter`.
    fn has(&self, parameter: &Parameter, parts: &[StatePart]) -> bool {
        let names = parts.iter().map(|part| format!("{}.{}", parameter.name, part.name));
        let mut all = names.flat_map(|name| [format!("{name}{CODES}"), format!("{name}{SCALES}"), name]);
        all.any(|name| self.0.contains_key(&name))
    }

    /// Removes one running mean of `parameter` from the tensors and returns it, in the form in which it was saved.
    fn take(&mut self, parameter: &Parameter, part: StatePart) -> Result<StoredState, StateError> {
        let name = format!("{}.{}", parameter.name, part.name);
        let (count, options) = (parameter.count, (&parameter.device, DType::F32));
        let codes = format!("{name}{CODES}");
        if !self.0.contains_key(&codes) {
            let values = self.floats(name, count)?;
            return Ok(StoredState::Full(Tensor::from_data(TensorData::new(values, [count]), options)));
        }
        let rows = count.div_ceil(BLOCK);
        let words = self.words(codes, rows * WORDS)?;
        let scales = self.floats(format!("{name}{SCALES}"), rows)?;
        let codes = Tensor::from_data(TensorData::new(words, [rows * WORDS]), (&parameter.device, DType::I32));
        let scales = Tensor::from_data(TensorData::new(scales, [rows, 1]), options);
        Ok(StoredState::Eight(Box::new(Blocks { codes, scales, count, range: part.range })))
    }

    fn floats(&mut self, name: String, count: usize) -> Result<Vec<f32>, StateError> {
        match self.tensor(&name, count)? {
            StateData::F32(values) => Ok(values),
            StateData::I32(_) => Err(StateError::Numbers { name, wanted: "floats", found: "integers" }),
        }
    }

    fn words(&mut self, name: String, count: usize) -> Result<Vec<i32>, StateError> {
        match self.tensor(&name, count)? {
            StateData::I32(values) => Ok(from_checkpoint_order(&values)),
            StateData::F32(_) => Err(StateError::Numbers { name, wanted: "integers", found: "floats" }),
        }
    }

    fn tensor(&mut self, name: &str, count: usize) -> Result<StateData, StateError> {
        let tensor = self.0.remove(name).ok_or_else(|| StateError::Missing { name: name.into() })?;
        if tensor.shape != [count] {
            return Err(StateError::Shape { name: name.into(), wanted: vec![count], found: tensor.shape });
        }
        Ok(tensor.data)
    }
}
