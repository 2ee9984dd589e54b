//! The program as a person meets it: commands, exit codes, messages, folders.
#![cfg(test)]

mod data;
mod fitting;
mod learning;
mod program;
mod runs;
mod safety;
mod shipped;
mod speaking;
mod stopping;
mod using;
mod voyage;
mod wrong_input;
