//! What a program knows and the machine does not.

use std::path::PathBuf;

use plimsoll_core::{Bytes, Precision};

/// Kind of the device that a program trains on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The processors of the host.
    Cpu,
    /// NVIDIA GPUs through CUDA.
    Cuda,
    /// A GPU through wgpu.
    Wgpu,
}

/// What a program knows and the machine does not: where it writes, how much, which backend it has, and what its
/// configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoctorOptions {
    /// Folder for checkpoints; without it the checks of the disk are skipped. The folder may not exist yet.
    pub checkpoint_folder: Option<PathBuf>,
    /// Size of a checkpoint, to predict how long one takes.
    pub checkpoint: Option<Bytes>,
    /// Whether the program has the CUDA backend, which needs libraries at run time.
    pub cuda_backend: bool,
    /// Kind of the device of the configuration; `None` judges the NVIDIA GPUs of the machine, if there are any.
    pub device: Option<DeviceKind>,
    /// Number format of the configuration; `None` if the program chooses the fastest safe one.
    pub precision: Option<Precision>,
    /// Number of replicas of the configuration; `None` if the program chooses it.
    pub replicas: Option<u32>,
    /// Version of CubeCL that the program is built with; `None` if not known. CubeCL keeps the results of tuning kernels
    /// for each of its versions.
    pub cubecl_version: Option<String>,
}
