//! Guarantees of the planner, tested on random models that differ from the models on which it was developed.
#![cfg(test)]

mod model;
mod plans;
mod traces;
