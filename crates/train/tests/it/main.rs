//! The trainer from outside: exact whatever the cut, whole whatever fails.

#![cfg(test)]

mod buffers;
mod exact;
#[path = "../storm/net.rs"]
mod net;
mod precision;
mod prefetch;
mod replicas;
mod run;
