//! One running mean of one parameter, as stored between two steps.

use std::cell::OnceCell;

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::blocks::{Blocks, SMALL, threshold};
use super::config::StateForm;
use super::rule::StatePart;
use super::tensor::{CODES, SCALES, StateData, StateTensor};

/// Running mean of one parameter as a flat tensor, stored in one of the forms of [`StateForm`].
#[derive(Clone, Debug)]
pub(super) enum StoredState {
    /// Values in fp32 on the device.
    Full(Tensor<1>),
    /// Values in 8 bits on the device.
    Eight(Box<Blocks>),
    /// Values in fp32 in host memory, with the device to which they belong.
    Host(Vec<f32>, Device),
}

impl StoredState {
    /// Converts the values to fp32 on the device.
    pub(super) fn into_tensor(self) -> Tensor<1> {
        match self {
            Self::Full(tensor) => tensor,
            Self::Eight(blocks) => blocks.dequantize(),
            Self::Host(values, device) => {
                let count = values.len();
                Tensor::from_data(TensorData::new(values, [count]), (&device, DType::F32))
            }
        }
    }

    /// Computes the bytes that the running mean takes, on the device or in host memory.
    pub(super) fn bytes(&self) -> u64 {
        let numbers = match self {
            Self::Full(tensor) => tensor.shape().num_elements(),
            Self::Eight(blocks) => blocks.codes.shape().num_elements() + blocks.scales.shape().num_elements(),
            Self::Host(values, _) => values.len(),
        };
        numbers as u64 * 4
    }

    /// Returns the checkpoint tensors of this running mean: one named `name`, or in 8 bits two with suffixes to `name`.
    pub(super) fn save(&self, name: &str) -> Vec<StateTensor> {
        let full = |values: Vec<f32>| {
            vec![StateTensor { name: name.into(), shape: vec![values.len()], data: StateData::F32(values) }]
        };
        match self {
            Self::Full(tensor) => full(read(tensor.clone())),
            Self::Host(values, _) => full(values.clone()),
            Self::Eight(blocks) => {
                let Blocks { codes, scales, .. } = &**blocks;
                let shape = codes.dims().to_vec();
                let data = codes.clone().into_data().try_into_vec().expect("codes lie in integers of 32 bits");
                let codes = StateTensor { name: format!("{name}{CODES}"), shape, data: StateData::I32(data) };
                let data = read(scales.clone().reshape([-1]));
                let (name, shape) = (format!("{name}{SCALES}"), vec![data.len()]);
                vec![codes, StateTensor { name, shape, data: StateData::F32(data) }]
            }
        }
    }
}

fn read(tensor: Tensor<1>) -> Vec<f32> {
    tensor.into_data().try_into_vec().expect("the state is in fp32")
}

/// Converts running means to the form in which they are stored between steps.
#[derive(Debug)]
pub(super) struct StatePacker {
    form: StateForm,
    step: u64,
    threshold: OnceCell<Tensor<2>>,
}

impl StatePacker {
    /// Makes a packer that stores running means in `form` after step `step`.
    pub(super) fn new(form: StateForm, step: u64) -> Self {
        Self { form, step, threshold: OnceCell::new() }
    }

    /// Stores `values`, which are in fp32 on the device, in the packer's form.
    pub(super) fn pack(&self, values: Tensor<1>, part: StatePart) -> StoredState {
        match self.form {
            StateForm::Eight if values.shape().num_elements() >= SMALL => {
                let threshold = self.threshold.get_or_init(|| threshold(self.step, &values.device()));
                StoredState::Eight(Box::new(Blocks::quantize(values, part.range, threshold)))
            }
            StateForm::Full | StateForm::Eight => StoredState::Full(values),
            StateForm::Host => {
                let device = values.device();
                StoredState::Host(read(values), device)
            }
        }
    }

    /// Converts a stored running mean to the packer's form; a mean that already has this form is unchanged.
    pub(super) fn convert(&self, stored: StoredState, part: StatePart) -> StoredState {
        match (self.form, stored) {
            (StateForm::Eight, stored @ StoredState::Eight(_))
            | (StateForm::Full, stored @ StoredState::Full(_))
            | (StateForm::Host, stored @ StoredState::Host(..)) => stored,
            (_, stored) => self.pack(stored.into_tensor(), part),
        }
    }
}
