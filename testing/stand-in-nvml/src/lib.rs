//! A library that answers as NVIDIA's management library (NVML) does, from a scenario file, for tests without a GPU.
//!
//! It has the functions that `nvml-wrapper` calls for the readings of a monitor, with the names, signatures and
//! structures of `nvml.h`. The README describes the scenario.

mod abi;
mod functions;
mod gpm;
mod machine;
mod scenario;
