//! Tests of the library through its C interface, as a program that loads it at run time uses it.

#[cfg(test)]
mod copies;
#[cfg(test)]
mod cuda;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod graphs;
#[cfg(test)]
mod kernels;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod process;
#[cfg(test)]
mod scenario;
