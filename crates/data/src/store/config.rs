//! Configuration of a store.

use plimsoll_core::Bytes;

/// Number format of stored features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePrecision {
    /// 16-bit floats: half the space. Values are rounded to 11 binary digits, and below 6·10⁻⁵ to steps of 6·10⁻⁸.
    ///
    /// A record with a value above 65,504, infinite or NaN is stored in 32 bits instead.
    F16,
    /// 32-bit floats: values are not changed.
    F32,
}

/// Size limit of a store's folder, and number format of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Largest size of all files in the store's folder together, of all processes. Zero empties the folder.
    ///
    /// Each process checks the total size of the folder every 16 MiB that it writes, so each process may exceed the
    /// limit by that much.
    pub limit: Bytes,
    /// Number format of new records. Records in the other format can still be read.
    pub precision: StorePrecision,
}
