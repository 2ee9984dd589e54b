//! Tensors of an optimizer's state in a checkpoint.

/// Suffix of the name of a tensor with the 8-bit codes of a running mean.
pub(super) const CODES: &str = ".codes";
/// Suffix of the name of a tensor with the scales of 8-bit codes, one for each block of values.
pub(super) const SCALES: &str = ".scales";

/// A tensor of an optimizer's state, such as `encoder.weight.mean`.
#[derive(Clone, Debug, PartialEq)]
pub struct StateTensor {
    /// Name of the parameter, followed by the name of the running mean.
    pub name: String,
    /// Lengths of the tensor's axes; state tensors are flat.
    pub shape: Vec<usize>,
    /// Values of the tensor, last axis fastest.
    pub data: StateData,
}

/// Values of a [`StateTensor`] in their stored number type.
#[derive(Clone, Debug, PartialEq)]
pub enum StateData {
    /// Values in fp32.
    F32(Vec<f32>),
    /// Values as 8-bit codes, four codes per integer.
    I32(Vec<i32>),
}
