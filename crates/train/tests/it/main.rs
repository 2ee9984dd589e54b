//! The trainer from outside: exact whatever the cut, whole whatever fails.

#![cfg(test)]

mod ahead;
mod exact;
#[path = "../storm/net.rs"]
mod net;
mod precision;
mod replicas;
mod run;
mod statistics;
