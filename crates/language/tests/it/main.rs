//! Tests against files of KenLM.

#![cfg(test)]

mod arpa;
mod fixtures;
mod own_format;
mod training;
