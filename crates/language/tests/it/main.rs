//! Tests against files of KenLM.

#![cfg(test)]

mod arpa;
mod fixtures;
mod kenlm;
mod own_format;
mod training;
