//! Tests of the program as a process: commands, exit codes, messages, files.
#![cfg(test)]

mod advising;
mod beginning;
#[path = "../../../monitor/tests/it/browser.rs"]
mod browser;
mod browsing;
mod clusters;
mod culprits;
mod data;
mod fitting;
mod learning;
mod leftovers;
mod listening;
mod locking;
#[path = "../../../monitor/tests/it/looks.rs"]
mod looks;
mod outputs;
#[path = "../../../monitor/tests/it/pane.rs"]
mod pane;
mod phonemes;
mod program;
mod readers;
mod resuming;
mod runs;
mod safety;
mod screens;
mod shipped;
mod speaking;
mod stopping;
mod storm;
mod streams;
#[path = "../../../monitor/tests/it/tool.rs"]
mod tool;
mod traces;

mod training;
mod truth;
mod using;
mod vocoding;
mod watching;
mod whisper;
mod words;
mod wrong_input;
