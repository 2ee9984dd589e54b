//! One running mean of one parameter, as stored between two steps.

use std::cell::OnceCell;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use plimsoll_core::StateForm;
use plimsoll_tape::transfer::uploaded;

use super::blocks::{Blocks, Range, threshold, to_checkpoint_order};
use super::rule::StatePart;
use super::tensor::{CODES, SCALES, StateData, StateTensor};
use crate::attempt::attempt;
use crate::reads::read;

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
                Tensor::from_data(uploaded(TensorData::new(values, [count])), (&device, DType::F32))
            }
        }
    }

    /// Returns the values on the device, if they are there in fp32.
    pub(super) fn on_device(&self) -> Option<Tensor<1>> {
        match self {
            Self::Full(tensor) => Some(tensor.clone()),
            Self::Eight(_) | Self::Host(..) => None,
        }
    }

    /// Returns the device to which the values belong.
    pub(super) fn device(&self) -> Device {
        match self {
            Self::Full(tensor) => tensor.device(),
            Self::Eight(blocks) => blocks.scales.device(),
            Self::Host(_, device) => device.clone(),
        }
    }

    /// Returns the range of values in 8 bits.
    pub(super) fn range(&self) -> Option<Range> {
        match self {
            Self::Eight(blocks) => Some(blocks.range),
            Self::Full(_) | Self::Host(..) => None,
        }
    }

    /// Returns the number of values.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Full(tensor) => tensor.shape().num_elements(),
            Self::Eight(blocks) => blocks.count,
            Self::Host(values, _) => values.len(),
        }
    }

    /// Computes the bytes in use, on the device or on the host.
    pub(super) fn bytes(&self) -> u64 {
        let numbers = match self {
            Self::Full(tensor) => tensor.shape().num_elements(),
            Self::Eight(blocks) => blocks.codes.shape().num_elements() + blocks.scales.shape().num_elements(),
            Self::Host(values, _) => values.len(),
        };
        numbers as u64 * 4
    }

    /// Returns the checkpoint tensors of this running mean, named `name` with suffixes, or the message of a device that
    /// cannot return them.
    pub(super) fn save(&self, name: &str) -> Result<Vec<StateTensor>, String> {
        let full = |values: Vec<f32>| {
            vec![StateTensor { name: name.into(), shape: vec![values.len()], data: StateData::F32(values) }]
        };
        match self {
            Self::Full(tensor) => Ok(full(read(tensor.clone())?)),
            Self::Host(values, _) => Ok(full(values.clone())),
            Self::Eight(blocks) => {
                let Blocks { codes, scales, .. } = &**blocks;
                let shape = codes.dims().to_vec();
                let data = to_checkpoint_order(&read_codes(codes.clone())?);
                let codes = StateTensor { name: format!("{name}{CODES}"), shape, data: StateData::I32(data) };
                let data = read(scales.clone().reshape([-1]))?;
                let (name, shape) = (format!("{name}{SCALES}"), vec![data.len()]);
                Ok(vec![codes, StateTensor { name, shape, data: StateData::F32(data) }])
            }
        }
    }
}

/// Reads 8-bit codes, four in each integer.
pub(super) fn read_codes(codes: Tensor<1, Int>) -> Result<Vec<i32>, String> {
    let read = || {
        let data = codes.try_into_data().map_err(|error| error.to_string())?;
        data.try_into_vec_as::<i32>().map_err(|error| error.to_string())
    };
    attempt(read).and_then(|read| read)
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

    /// Stores values that are in fp32 on the device in the packer's form, but those that do not [bear](bears_eight) 8 bits in
    /// fp32. Returns the message of a device that cannot return them for host memory.
    pub(super) fn pack(&self, values: Tensor<1>, part: StatePart, bears_eight: bool) -> Result<StoredState, String> {
        match self.form {
            StateForm::Eight if bears_eight => {
                let threshold = self.threshold.get_or_init(|| threshold(self.step, &values.device()));
                Ok(StoredState::Eight(Box::new(Blocks::quantize(values, part.range, threshold))))
            }
            StateForm::Full | StateForm::Eight => Ok(StoredState::Full(values)),
            StateForm::Host => {
                let device = values.device();
                Ok(StoredState::Host(read(values)?, device))
            }
        }
    }

    /// Converts a stored running mean to the packer's form; a mean that already has this form is unchanged. Fails as
    /// [`pack`](Self::pack) does.
    pub(super) fn convert(
        &self,
        stored: StoredState,
        part: StatePart,
        bears_eight: bool,
    ) -> Result<StoredState, String> {
        match (self.form, stored) {
            (StateForm::Eight, stored @ StoredState::Eight(_))
            | (StateForm::Full, stored @ StoredState::Full(_))
            | (StateForm::Host, stored @ StoredState::Host(..)) => Ok(stored),
            (_, stored) => self.pack(stored.into_tensor(), part, bears_eight),
        }
    }
}
