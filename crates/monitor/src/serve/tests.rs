//! Tests of the server over loopback.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::exposition::parse;
use super::*;
use crate::live::tests::{running, running_on_gpu, sample};
use crate::live::{LiveRun, RunView};
use crate::sample::{GpuSample, Sample};

/// Limit of the waits of the tests. No test waits so long unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn options() -> ServeOptions {
    let event_period = Duration::from_millis(10);
    ServeOptions { event_period, client_timeout: Duration::from_millis(500), ..ServeOptions::default() }
}

fn server_with(options: ServeOptions) -> Server {
    let run = LiveRun::default();
    run.publish(running_on_gpu());
    Server::bind("127.0.0.1:0", run, options).unwrap()
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes and returns all that comes back. A server may close while the client still writes.
fn exchange(server: &Server, bytes: &[u8]) -> String {
    let mut stream = connect(server);
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn get(server: &Server, path: &str) -> (String, String) {
    let answer = exchange(server, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.into(), body.into())
}

/// Opens a stream of events and reads its first event.
fn events(server: &Server) -> TcpStream {
    let mut stream = connect(server);
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    read_until(&mut stream, "\"schema_version\":1");
    stream
}

fn read_until(stream: &mut TcpStream, expected: &str) -> String {
    let (mut text, mut part) = (String::new(), [0; 1024]);
    while !text.contains(expected) {
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "closed after {text}");
        text += &String::from_utf8_lossy(&part[..count]);
    }
    text
}

#[test]
fn every_route_is_answered() {
    let server = server_with(options());
    for (path, content_type, expected) in [
        ("/", "text/html", "<!doctype html>"),
        ("/?a=b", "text/html", "new EventSource(\"events\")"),
        ("/snapshot", "application/json", "\"schema_version\":1,\"name\":\"birch-07\""),
        ("/metrics", "text/plain; version=0.0.4", "plimsoll_step 240"),
    ] {
        let (head, body) = get(&server, path);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        assert!(head.contains(&format!("Content-Type: {content_type}")), "{path}: {head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{path}: {head}");
        assert!(body.contains(expected), "{path}: {body}");
        let without = exchange(&server, format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert!(without.starts_with("HTTP/1.1 200 OK\r\n") && without.ends_with("\r\n\r\n"), "{without}");
    }
    let page = get(&server, "/").1;
    assert!(!page.contains("https://") && !page.contains("src="), "the page loads nothing from elsewhere");
    assert!(!get(&server, "/").0.contains("X-Frame-Options"));
}

#[test]
fn bad_requests_are_refused_and_harm_nothing() {
    let server = server_with(options());
    let large = format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}\r\n\r\n", "a".repeat(40_000));
    for (request, status) in [
        ("GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /../Cargo.toml HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", "405"),
        ("OPTIONS /events HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        ("GET /events HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("\u{1}\u{2}garbage\r\n\r\n", "400"),
        ("\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: local", "408"),
        (&large, "431"),
    ] {
        let answer = exchange(&server, request.as_bytes());
        let shown: String = request.chars().take(60).collect();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown:?}: {answer}");
    }
    assert!(exchange(&server, b"\xff\xfe\x00\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(exchange(&server, b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n").contains("Allow: GET, HEAD"));
    assert!(get(&server, "/metrics").0.starts_with("HTTP/1.1 200"));
}

#[test]
fn events_follow_the_run() {
    let run = LiveRun::default();
    let server = Server::bind("127.0.0.1:0", run.clone(), options()).unwrap();
    let mut stream = events(&server);
    run.publish(RunView::new("another-run"));
    let text = read_until(&mut stream, "another-run");
    assert!(text.lines().all(|line| line.is_empty() || !line.contains("\n\n")));
}

#[test]
fn clients_are_bounded_and_slow_ones_block_nobody() {
    let server = server_with(ServeOptions { event_clients_max: 2, connections_max: 6, ..options() });
    // They never read again.
    let slow = [events(&server), events(&server)];
    assert!(get(&server, "/events").0.starts_with("HTTP/1.1 503"));
    assert!(get(&server, "/metrics").0.starts_with("HTTP/1.1 200"));
    let silent: Vec<TcpStream> = (0..8).map(|_| connect(&server)).collect();
    let started = Instant::now();
    // Silent clients lose their connection, and others are served again.
    while !get_or_empty(&server).starts_with("HTTP/1.1 200") {
        assert!(started.elapsed() < PATIENCE, "silent clients keep their connections");
    }
    drop((slow, silent));
    while !get_events_head(&server).starts_with("HTTP/1.1 200") {
        assert!(started.elapsed() < PATIENCE, "gone clients keep their places");
    }
}

fn get_or_empty(server: &Server) -> String {
    exchange(server, b"GET /snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn get_events_head(server: &Server) -> String {
    let mut stream = connect(server);
    let _ = stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut part = [0; 64];
    let count = stream.read(&mut part).unwrap_or(0);
    String::from_utf8_lossy(&part[..count]).into_owned()
}

#[test]
fn many_clients_are_answered_at_once() {
    let server = server_with(options());
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| assert!(get_or_empty(&server).starts_with("HTTP/1.1 200")));
        }
    });
}

#[test]
fn a_server_stops_with_clients_of_every_kind() {
    let slow = ServeOptions { client_timeout: PATIENCE * 3, event_period: PATIENCE * 3, ..options() };
    let server = server_with(slow);
    let clients = [events(&server), connect(&server), connect(&server)];
    let address = server.address();
    let started = Instant::now();
    drop(server);
    assert!(started.elapsed() < PATIENCE);
    assert!(TcpStream::connect(address).is_err(), "the port is free");
    drop(clients);
}

#[test]
fn other_machines_need_a_permission() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.7:0"] {
        let error = Server::bind(address, LiveRun::default(), ServeOptions::default()).unwrap_err();
        assert!(matches!(error, ServeError::Remote(_)), "{address}: {error}");
    }
    let remote = ServeOptions { allow_remote: true, ..options() };
    let server = Server::bind("0.0.0.0:0", LiveRun::default(), remote).unwrap();
    assert_ne!(server.address().port(), 0);
    let error = Server::bind("no address", LiveRun::default(), options()).unwrap_err();
    assert!(matches!(error, ServeError::Bind { .. }), "{error}");
}

#[test]
fn prometheus_text_is_strict_and_has_no_missing_values() {
    let families = parse(&prometheus_text(&running_on_gpu()));
    let one = |name: &str| *families[name].values().next().unwrap();
    assert_eq!(one("plimsoll_memory_planned_bytes"), 1000.0 * 1_048_576.0);
    assert_eq!(one("plimsoll_gpu_sm_clock_hertz"), 1.755e9);
    let labels = families["plimsoll_gpu_kernel_time_ratio"].keys().next().unwrap();
    assert_eq!((&*labels[0].0, &*labels[0].1, &*labels[1].0), ("gpu", "0", "uuid"));
    assert_eq!(families["plimsoll_time_seconds_total"].len(), 4);
    for missing in
        ["gpu_tensor_active_ratio", "gpu_ecc_errors_total", "other_process_cpus", "disk_read_bytes_per_second"]
    {
        assert!(!families.contains_key(&format!("plimsoll_{missing}")), "{missing}");
    }
    for run in [RunView::default(), RunView::new("a"), running()] {
        let families = parse(&prometheus_text(&run));
        assert!(!families.keys().any(|name| name.starts_with("plimsoll_gpu")));
    }
}

#[test]
fn label_values_are_escaped() {
    let name = "a\"b\\c\nd,e={}";
    let gpus = vec![GpuSample { name: name.into(), ..GpuSample::default() }];
    let mut run = RunView::new("q\"\\");
    run.sample(Sample { gpus, ..sample() });
    let families = parse(&prometheus_text(&run));
    let labels = families["plimsoll_gpu_info"].keys().next().unwrap();
    assert_eq!(labels[2].1, name);
    assert_eq!(families["plimsoll_run_info"].keys().next().unwrap()[0].1, "q\"\\");
}
