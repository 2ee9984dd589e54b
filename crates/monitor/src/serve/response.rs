//! Answers, and how they are written.

use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl Response {
    pub(super) fn new(content_type: &'static str, body: String) -> Self {
        Self { status: "200 OK", content_type, body }
    }

    /// An answer that says what is wrong.
    pub(super) fn refusal(status: &'static str, why: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{why}\n") }
    }

    /// Returns the bytes of the answer; without the body for `HEAD`.
    pub(super) fn to_bytes(&self, with_body: bool) -> Vec<u8> {
        let length = format!("Content-Length: {}\r\n", self.body.len());
        let allow = if self.status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let mut bytes = head(self.status, self.content_type, &(length + allow)).into_bytes();
        if with_body {
            bytes.extend_from_slice(self.body.as_bytes());
        }
        bytes
    }
}

/// Returns the head of an answer. The page may load nothing from elsewhere, and no page of another origin may read it.
pub(super) fn head(status: &str, content_type: &str, more: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
         connect-src 'self'; img-src data:\r\n{more}\r\n"
    )
}

/// Writes all bytes within `limit`. A client that reads too slowly is given up.
pub(super) fn write(stream: &mut TcpStream, mut bytes: &[u8], limit: Duration) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
