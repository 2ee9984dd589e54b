//! A library that answers as NVIDIA's CUDA driver (`libcuda.so.1`) does, from a scenario file, for machines without a
//! GPU.
//!
//! It keeps honest books of the memory of a GPU, refuses what does not fit, loads modules of PTX, and launches kernels
//! by checking their arguments and doing nothing. The README describes the scenario, and what is true, assumed, made up
//! and absent.

mod abi;
mod addresses;
mod architecture;
mod books;
mod capture;
mod contents;
mod context;
mod copies;
mod counts;
mod device;
mod errors;
mod exports;
mod failures;
mod flows;
mod json;
mod kernels;
mod launch;
mod machine;
mod modules;
mod ptx;
mod ptxas;
mod replay;
mod report;
mod scenario;
mod size;
mod slots;
mod streams;
mod table;
mod timeline;
mod trace;
