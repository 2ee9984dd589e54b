//! Reads the head of a request within limits.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Size of the head of a request at most. Browsers send about 1 KiB, and cookies of other programs on this machine more.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path without the query.
    pub(super) path: String,
    pub(super) host: String,
}

/// Reason why there is no request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadRequest {
    /// The client went away, or said nothing.
    Gone,
    /// The head came too slowly.
    Slow,
    /// The head is too large.
    Large,
    /// The head is not one of HTTP/1, or has no single host.
    Malformed,
}

/// Reads a request. It must be complete after `limit`.
pub(super) fn read(stream: &mut TcpStream, limit: Duration) -> Result<Request, BadRequest> {
    let deadline = Instant::now() + limit;
    let (mut head, mut part) = (Vec::new(), [0; 2048]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(BadRequest::Slow);
        }
        match stream.read(&mut part) {
            Ok(0) => return Err(if head.is_empty() { BadRequest::Gone } else { BadRequest::Malformed }),
            Ok(count) => head.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(BadRequest::Slow);
            }
            Err(_) => return Err(BadRequest::Gone),
        }
        if let Some(end) = end_of_head(&head) {
            return parse(&head[..end]).ok_or(BadRequest::Malformed);
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(BadRequest::Large);
        }
    }
}

fn end_of_head(head: &[u8]) -> Option<usize> {
    head.windows(4).position(|bytes| bytes == b"\r\n\r\n").filter(|end| *end <= HEAD_BYTES_MAX)
}

fn parse(head: &[u8]) -> Option<Request> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next()?.split(' ').collect();
    let [method, target, version] = words[..] else { return None };
    let is_token = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_token || !target.starts_with('/') || !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return None;
    }
    let mut host = None;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return None;
        }
        if name.eq_ignore_ascii_case("host") && host.replace(value.trim().to_string()).is_some() {
            return None;
        }
    }
    let path = target.split(['?', '#']).next().unwrap_or_default();
    Some(Request { method: method.into(), path: path.into(), host: host? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_parsed_or_refused() {
        let request =
            |method: &str, path: &str| Request { method: method.into(), path: path.into(), host: "a:1".into() };
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: a:1", Some(request("GET", "/"))),
            ("HEAD /events?x=/y HTTP/1.0\r\naccept: */*\r\nhOST:a:1 ", Some(request("HEAD", "/events"))),
            ("GET / HTTP/1.1", None),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a", None),
            ("GET  / HTTP/1.1\r\nHost: a", None),
            ("GET http://a/ HTTP/1.1\r\nHost: a", None),
            ("GET / HTTP/2\r\nHost: a", None),
            ("get / HTTP/1.1\r\nHost: a", None),
            ("GET / HTTP/1.1\r\nHost : a", None),
            ("GET / HTTP/1.1\r\n\u{0}Host: a", None),
            ("", None),
        ] {
            assert_eq!(parse(head.as_bytes()), expected, "{head:?}");
        }
    }
}
