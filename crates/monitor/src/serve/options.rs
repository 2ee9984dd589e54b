//! Settings and errors of the server.

use std::net::SocketAddr;
use std::time::Duration;

/// Settings of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Accepts an address that other machines can reach. The pages are not encrypted, and everyone may read them.
    pub allow_remote: bool,
    /// Names of this machine by which browsers may ask for the pages, besides `localhost` and addresses.
    pub host_names: Vec<String>,
    /// Number of connections at a time. Further ones get an answer that says so.
    pub connections_max: usize,
    /// Number of clients at a time that receive events.
    pub event_clients_max: usize,
    /// Time between two events.
    pub event_period: Duration,
    /// Time that a client has to send its request, and to receive an answer.
    pub client_timeout: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            allow_remote: false,
            host_names: Vec::new(),
            connections_max: 64,
            event_clients_max: 16,
            event_period: Duration::from_secs(1),
            client_timeout: Duration::from_secs(5),
        }
    }
}

/// Reason why the server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines could reach the address, and the settings do not allow it.
    #[error("{0} can be reached from other machines, which is not allowed")]
    Remote(SocketAddr),
    /// The address cannot be used.
    #[error("cannot serve at {address}")]
    Bind {
        /// Address as it was given.
        address: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}
