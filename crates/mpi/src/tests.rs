//! Tests of operations and failures in a simulated network, where time passes as the test says.

mod failures;
mod network;
mod operations;
mod threads;
