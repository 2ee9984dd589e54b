//! The layers beside PyTorch, beside themselves computed otherwise, and in company.
#![cfg(test)]

mod block;
#[path = "../../../../fixtures/read.rs"]
mod fixture;
mod losses;
mod pytorch;
mod same;
