//! Makes `cargo xtask test -p NAME` use the dependencies that all crates together use.
//!
//! Cargo resolves features for the packages it is asked to build. A crate at the edge of the workspace alone would ask for
//! fewer features of `serde` or `num-traits` than the program does, and everything above them would be compiled a second
//! time: minutes, before one test runs. Named beside that crate, this package brings in every dependency, and so the
//! features that the program and its tests have. It has no code.
