//! The configuration of a store.

use plimsoll_core::Bytes;

/// The number format of stored features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePrecision {
    /// 16 bits: half the space. Values are rounded to 11 binary digits, and below 6·10⁻⁵ to steps of 6·10⁻⁸.
    ///
    /// A record with a value above 65,504, infinite or NaN is stored in 32 bits instead.
    F16,
    /// 32 bits: values are not changed.
    F32,
}

/// The size and the number format of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Largest size of all files in the folder together, of all processes. Zero empties the folder.
    ///
    /// Processes that write at the same time look at each other's files every 16 MiB, so each may exceed the limit by that
    /// much.
    pub limit: Bytes,
    /// The format of new records. Records in the other format can still be read.
    pub precision: StorePrecision,
}
