//! View of a run in a terminal.
//!
//! [`draw`] draws one frame of a [`RunView`](crate::live::RunView) and does nothing else, so that a test can draw it.
//! [`run_terminal`] owns the terminal and the keys.

mod block;
mod chart;
mod draw;
mod event_loop;
mod guard;
mod help;
mod machine;
mod options;
mod steps;
mod style;
#[cfg(test)]
mod tests;

pub use draw::{draw, page_text, screen_text};
pub use event_loop::{Update, run_terminal};
pub use guard::restore_terminal;
pub use options::ViewOptions;
