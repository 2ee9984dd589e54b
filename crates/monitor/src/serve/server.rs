//! Accepts connections until it is dropped.

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::connection::{Shared, Stop};
use super::options::{ServeError, ServeOptions};
use super::response::{Response, write};
use crate::live::LiveRun;

/// Time between two looks for new connections.
const POLL: Duration = Duration::from_millis(25);
/// Time for the refusal of a connection. It is written on the thread that accepts; the buffer of a new connection is empty,
/// so it does not wait.
const REFUSAL_LIMIT: Duration = Duration::from_millis(50);

/// Web server of a live run. It stops when it is dropped.
///
/// - `/` is a page that shows the run and changes with it.
/// - `/events` sends the state once a second as server-sent events.
/// - `/snapshot` is the state as JSON.
/// - `/metrics` is the state as Prometheus text.
///
/// ```
/// use plimsoll_monitor::live::LiveRun;
/// use plimsoll_monitor::serve::{ServeOptions, Server};
///
/// let run = LiveRun::default();
/// let server = Server::bind("127.0.0.1:0", run.clone(), ServeOptions::default())?;
/// println!("http://{}/", server.address());
/// # Ok::<(), plimsoll_monitor::serve::ServeError>(())
/// ```
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    connections: Connections,
    accepting: Option<JoinHandle<()>>,
}

/// The open connections, by number, to close them when the server stops.
#[derive(Clone, Default)]
struct Connections(Arc<Mutex<BTreeMap<u64, Connection>>>);

/// An open connection, and the thread that answers it.
struct Connection {
    stream: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server of `run` at `address`, such as `127.0.0.1:8080`. Port 0 takes any free port.
    ///
    /// # Errors
    /// [`ServeError::Remote`] if other machines can reach the address and the options do not allow it,
    /// [`ServeError::Bind`] if the address cannot be used, such as a port in use.
    pub fn bind(address: &str, run: LiveRun, options: ServeOptions) -> Result<Self, ServeError> {
        let bind = |source| ServeError::Bind { address: address.into(), source };
        // The address is checked before the port opens: a name may stand for any address.
        let addresses: Vec<SocketAddr> = std::net::ToSocketAddrs::to_socket_addrs(address).map_err(bind)?.collect();
        if let Some(remote) = addresses.iter().find(|address| !address.ip().is_loopback() && !options.allow_remote) {
            return Err(ServeError::Remote(*remote));
        }
        let listener = TcpListener::bind(&addresses[..]).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let shared = Arc::new(Shared {
            run,
            options,
            bound: address.ip(),
            stop: Stop::default(),
            event_clients: AtomicUsize::new(0),
        });
        let connections = Connections::default();
        let (for_thread, of_thread) = (shared.clone(), connections.clone());
        let accepting = thread::Builder::new().name("serve".into()).spawn(move || {
            accept(&listener, &for_thread, &of_thread);
        });
        Ok(Self { address, shared, connections, accepting: Some(accepting.map_err(bind)?) })
    }

    /// Returns the address with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.set();
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.connections.close();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, connections: &Connections) {
    let mut number = 0;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                number += 1;
                connections.start(number, stream, shared);
            }
            // Nothing to accept, or no file handles: both end by waiting.
            Err(_) => {
                if shared.stop.wait(POLL) {
                    return;
                }
            }
        }
        if shared.stop.wait(Duration::ZERO) {
            return;
        }
    }
}

impl Connections {
    fn start(&self, number: u64, mut stream: TcpStream, shared: &Arc<Shared>) {
        // Some systems pass the mode of the listener on.
        if stream.set_nonblocking(false).is_err() {
            return;
        }
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(handle) = stream.try_clone() else { return };
        if open.len() >= shared.options.connections_max {
            let busy = Response::refusal("503 Service Unavailable", "too many connections");
            let _ = write(&mut stream, &busy.to_bytes(true), REFUSAL_LIMIT);
            return;
        }
        let (shared, connections) = (shared.clone(), self.clone());
        let work = move || {
            let _end = End { connections, number };
            shared.serve(stream);
        };
        // The entry is complete before the thread can remove it, because the lock is held.
        if let Ok(thread) = thread::Builder::new().name("serve client".into()).spawn(work) {
            open.insert(number, Connection { stream: handle, thread: Some(thread) });
        }
    }

    /// Closes all connections, and waits for their threads.
    fn close(&self) {
        let mut threads = Vec::new();
        for Connection { stream, thread } in self.0.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            let _ = stream.shutdown(Shutdown::Both);
            threads.extend(thread.take());
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// Removes a connection when its thread ends, also by a panic.
struct End {
    connections: Connections,
    number: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        self.connections.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}
