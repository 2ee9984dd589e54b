//! What the planner promises, held for models that no rule was written for.
#![cfg(test)]

mod model;
mod plans;
mod traces;
