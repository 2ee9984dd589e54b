//! Tests against files of KenLM.

#![cfg(test)]

mod arpa;
mod decode;
mod exact_search;
mod fixtures;
mod kenlm;
mod own_format;
mod pyctcdecode;
mod training;
