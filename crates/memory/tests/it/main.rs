//! The promises of the planner, tested on random models that differ from those it was developed with.
#![cfg(test)]

mod model;
mod plans;
mod traces;
