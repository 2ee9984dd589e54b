//! Tests of the trainer through its public interface.

#![cfg(test)]

mod budget;
mod buffers;
mod debug;
mod exact;
mod freed;
mod gates;
mod idle;
mod late;
mod measured;
#[path = "../storm/net.rs"]
mod net;
mod precision;
mod prefetch;
mod replicas;
mod rescue;
mod room;
mod run;
mod times;
