//! What a store should be.

use plimsoll_core::Bytes;

/// How values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreNumbers {
    /// In 16 bits, half the space: values come back rounded to 11 binary digits, and below 6·10⁻⁵ to steps of 6·10⁻⁸.
    ///
    /// Values above 65,504, infinite or no numbers cannot be kept so; a record with any is kept in 32 bits.
    F16,
    /// As they are.
    F32,
}

/// What a store should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// What all files of the folder may take together, whoever wrote them. A limit of zero empties the folder.
    ///
    /// Several processes that write at once look at each other's files every 16 MiB, and may go over it by that much
    /// each.
    pub limit: Bytes,
    /// How values are written; records are read in whichever numbers they are.
    pub numbers: StoreNumbers,
}
