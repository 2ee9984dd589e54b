//! State of an optimizer as a checkpoint holds it.

/// What follows a part's name where its codes are kept, and where their scales are.
pub(super) const CODES: &str = ".codes";
pub(super) const SCALES: &str = ".scales";

/// A part of an optimizer's state: `encoder.weight.mean`.
#[derive(Clone, Debug, PartialEq)]
pub struct StateTensor {
    /// The parameter's name, and what this is of it.
    pub name: String,
    /// The lengths of its axes; an optimizer's own tensors are flat.
    pub shape: Vec<usize>,
    /// Its values, last axis fastest.
    pub data: StateData,
}

/// The values of a [`StateTensor`], in the numbers that they have in memory.
#[derive(Clone, Debug, PartialEq)]
pub enum StateData {
    /// In fp32.
    F32(Vec<f32>),
    /// Codes of 8 bits, four in each integer.
    I32(Vec<i32>),
}
