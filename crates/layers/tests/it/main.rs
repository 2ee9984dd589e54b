//! Tests of layers against PyTorch, against other ways to compute the same result, and in padded batches.
#![cfg(test)]

mod block;
mod equivalence;
#[path = "../../../../fixtures/read.rs"]
mod fixture;
mod losses;
mod pytorch;
