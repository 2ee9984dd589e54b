//! One connection: its request and its answer.

use std::io::Read;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use plimsoll_core::TimeOwner;

use super::host;
use super::options::ServeOptions;
use super::prometheus::prometheus_text;
use super::request::{self, BadRequest, Request};
use super::response::{Response, head, write};
use crate::Timestamp;
use crate::live::{LiveRun, RunView};
use crate::owner_colors::OWNER_VARIABLES;

/// Time for which a closed connection is still read. A connection that is closed with unread bytes loses its answer.
const LINGER: Duration = Duration::from_millis(300);
/// The page, with the names and words of the owners of time, and their colors, in the places for them.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let owners = TimeOwner::ALL.map(|owner| (owner.name(), owner.label()));
    let owners = serde_json::to_string(&owners).expect("words are plain data");
    let page = include_str!("page.html").replacen("/* colors of the owners */", &OWNER_VARIABLES, 1);
    page.replacen("[/* names and words of the owners */]", &owners, 1)
});
const JSON: &str = "application/json; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What all connections share.
pub(super) struct Shared {
    pub(super) run: LiveRun,
    pub(super) options: ServeOptions,
    pub(super) bound: IpAddr,
    pub(super) stop: Stop,
    pub(super) event_clients: AtomicUsize,
}

/// Flag that ends all waiting.
#[derive(Default)]
pub(super) struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for `period`, or until the flag is set. Returns whether it is set.
    pub(super) fn wait(&self, period: Duration) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_set, period, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Shared {
    /// Returns the newest state, with the time of now.
    fn latest(&self) -> RunView {
        let mut run = (*self.run.latest()).clone();
        run.set_now(Timestamp::from(SystemTime::now()).0);
        run
    }

    /// Answers the one request of a connection.
    pub(super) fn serve(&self, mut stream: TcpStream) {
        let limit = self.options.client_timeout;
        let _ = stream.set_nodelay(true);
        let (answer, with_body) = match request::read(&mut stream, limit) {
            Ok(request) if self.is_event_stream(&request) => match self.take_event_slot() {
                Some(_slot) => return self.send_events(&mut stream),
                None => (Response::refusal("503 Service Unavailable", "too many clients receive events"), true),
            },
            Ok(request) => (self.answer(&request), request.method != "HEAD"),
            Err(bad) => match refusal(&bad) {
                Some(answer) => (answer, true),
                None => return,
            },
        };
        if write(&mut stream, &answer.to_bytes(with_body), limit).is_ok() {
            linger(&mut stream);
        }
    }

    fn is_event_stream(&self, request: &Request) -> bool {
        request.method == "GET" && request.path == "/events" && self.is_allowed(request)
    }

    fn is_allowed(&self, request: &Request) -> bool {
        host::is_allowed(&request.host, self.bound, &self.options.host_names)
    }

    fn answer(&self, request: &Request) -> Response {
        if !self.is_allowed(request) {
            return Response::refusal("403 Forbidden", "this name is not one of the server");
        }
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Response::refusal("405 Method Not Allowed", "only GET and HEAD are answered");
        }
        match request.path.as_str() {
            "/" => Response::new("text/html; charset=utf-8", PAGE.clone()),
            "/snapshot" => Response::new(JSON, json(&self.latest()) + "\n"),
            "/metrics" => Response::new(PROMETHEUS, prometheus_text(&self.latest())),
            // Only `HEAD` comes here.
            "/events" => Response::new("text/event-stream", String::new()),
            _ => Response::refusal("404 Not Found", "there are /, /events, /snapshot and /metrics"),
        }
    }

    /// Takes one of the places for clients that receive events; `None` if there is none left.
    fn take_event_slot(&self) -> Option<EventSlot<'_>> {
        let max = self.options.event_clients_max;
        let taken = self
            .event_clients
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| (count < max).then_some(count + 1));
        // Only a place that was taken is freed.
        taken.is_ok().then(|| EventSlot(&self.event_clients))
    }

    /// Sends the state again and again, until the client is gone or too slow, or the server stops.
    fn send_events(&self, stream: &mut TcpStream) {
        let limit = self.options.client_timeout;
        let mut next = head("200 OK", "text/event-stream", "") + "retry: 2000\n\n";
        loop {
            next += &format!("data: {}\n\n", json(&self.latest()));
            if write(stream, next.as_bytes(), limit).is_err() || self.stop.wait(self.options.event_period) {
                return;
            }
            next.clear();
        }
    }
}

/// Place of a client that receives events. Dropping it frees the place.
struct EventSlot<'a>(&'a AtomicUsize);

impl Drop for EventSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the answer to a request that cannot be read; `None` for a client that is gone.
fn refusal(bad: &BadRequest) -> Option<Response> {
    match bad {
        BadRequest::Gone => None,
        BadRequest::Slow => Some(Response::refusal("408 Request Timeout", "the request did not come in time")),
        BadRequest::Large => {
            Some(Response::refusal("431 Request Header Fields Too Large", "the head of the request is too large"))
        }
        BadRequest::Malformed => Some(Response::refusal("400 Bad Request", "this is not a request of HTTP/1")),
    }
}

fn json(run: &RunView) -> String {
    serde_json::to_string(run).expect("a state is plain data")
}

/// Reads what the client still sends, for a moment.
fn linger(stream: &mut TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let (deadline, mut part) = (Instant::now() + LINGER, [0; 4096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return;
        }
        if !matches!(stream.read(&mut part), Ok(1..)) {
            return;
        }
    }
}
