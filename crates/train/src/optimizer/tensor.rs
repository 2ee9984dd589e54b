//! Tensors of an optimizer's state in a checkpoint.

/// Name suffixes of 8-bit codes and of their scales.
pub(super) const CODES: &str = ".codes";
pub(super) const SCALES: &str = ".scales";

/// A tensor of an optimizer's state, such as `encoder.weight.mean`.
#[derive(Clone, Debug, PartialEq)]
pub struct StateTensor {
    /// Name of the parameter, followed by the name of the running mean.
    pub name: String,
    /// Lengths of the axes; state tensors are flat.
    pub shape: Vec<usize>,
    /// Values, last axis fastest.
    pub data: StateData,
}

/// Values of a [`StateTensor`] in their stored number type.
#[derive(Clone, Debug, PartialEq)]
pub enum StateData {
    /// fp32.
    F32(Vec<f32>),
    /// 8-bit codes, four per integer.
    I32(Vec<i32>),
}
