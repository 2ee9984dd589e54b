//! Compares the models with PyTorch and with their published sizes.
#![cfg(test)]

mod debug;
mod family;
#[path = "../../../../fixtures/read.rs"]
mod fixture;
mod hostile;
mod infeasible;
mod long;
mod parallel_pytorch;
mod pytorch;
mod recognition;
mod tts_pytorch;
mod vocoder;
mod vocoder_pytorch;
mod vocoder_task;
mod whisper;
