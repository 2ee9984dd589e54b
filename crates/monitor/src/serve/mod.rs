//! A small web server that shows a run: a page for people, JSON and Prometheus text for programs.
//!
//! It only answers `GET` and `HEAD`, reads no request body and no file, and closes every connection after one answer. Each
//! connection has a thread of its own and limits in time and size, so that no client blocks another or the run.
//! The server is written on the sockets of the standard library, because small HTTP libraries bound neither the size of a
//! request head nor the time that it takes.

mod connection;
#[cfg(test)]
mod exposition;
mod host;
#[cfg(test)]
mod lint;
mod metric;
mod options;
mod prometheus;
mod request;
mod response;
mod server;
#[cfg(test)]
mod tests;

pub use options::{ServeError, ServeOptions};
pub use prometheus::prometheus_text;
pub use server::Server;
