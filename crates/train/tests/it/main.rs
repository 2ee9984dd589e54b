//! Tests of the trainer through its public interface.

#![cfg(test)]

mod buffers;
mod exact;
#[path = "../storm/net.rs"]
mod net;
mod precision;
mod prefetch;
mod replicas;
mod run;
