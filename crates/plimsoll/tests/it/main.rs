//! The program as a person meets it: commands, exit codes, messages, folders.
#![cfg(test)]

mod program;
mod runs;
mod stopping;
mod voyage;
mod wrong_input;
