//! Tests of the program as a process: commands, exit codes, messages, files.
#![cfg(test)]

mod advising;
mod clusters;
mod data;
mod fitting;
mod learning;
mod leftovers;
mod listening;
mod locking;
mod outputs;
mod program;
mod resuming;
mod runs;
mod safety;
mod shipped;
mod speaking;
mod stopping;
mod storm;
mod streams;
mod training;
mod using;
mod vocoding;
mod watching;
mod words;
mod wrong_input;
