//! A browser loads the pages of the program, and shows the numbers of the record.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use plimsoll_core::{Bytes, Seconds};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::looks;
use crate::program::{SMALL, TestFolder};
use crate::tool::wait_for;

/// Sums over the lines of a record, which is read here without the code that the pages use.
#[derive(Default)]
struct Sums {
    name: String,
    steps: u64,
    frames: u64,
    last_loss: f64,
    loss_sum: f64,
    wait_seconds: f64,
    peak: u64,
    last_rate: f64,
    last_norm: f64,
    scores: BTreeMap<String, f64>,
    times: BTreeMap<String, f64>,
}

impl Sums {
    fn read(dir: &TestFolder, name: &str) -> Self {
        let mut sums = Self { name: name.into(), ..Self::default() };
        let text = std::fs::read_to_string(dir.path(&format!("runs/{name}/metrics.jsonl"))).unwrap();
        for line in text.lines() {
            sums.add(&serde_json::from_str(line).unwrap());
        }
        sums
    }

    fn add(&mut self, line: &Value) {
        for (owner, seconds) in line["times"].as_object().into_iter().flatten() {
            *self.times.entry(owner.clone()).or_default() += seconds.as_f64().unwrap();
        }
        self.peak = self.peak.max(line["peak_bytes"].as_u64().unwrap_or(0));
        for score in line["scores"].as_array().into_iter().flatten() {
            self.scores.insert(score["name"].as_str().unwrap().into(), score["value"].as_f64().unwrap());
        }
        if line["event"] == "step" {
            let number = |name: &str| line[name].as_f64().unwrap();
            self.steps += 1;
            self.frames += line["frames"].as_u64().unwrap();
            self.wait_seconds += number("wait_seconds");
            (self.last_loss, self.last_rate, self.last_norm) = (number("loss"), number("rate"), number("norm"));
            self.loss_sum += self.last_loss;
        }
    }

    fn total(&self) -> f64 {
        self.times.values().sum()
    }

    /// Checks the numbers of a page or of a snapshot: each is at a path in `found`.
    fn check(&self, found: &Value, expected: &[(&str, f64)]) {
        for (path, expected) in expected {
            let number = found.pointer(path).and_then(Value::as_f64);
            let near = number.is_some_and(|number| (number - expected).abs() <= 1e-9 * expected.abs().max(1e-6));
            assert!(near, "{path} of {}: {number:?} and not {expected}", self.name);
        }
    }

    /// Checks the numbers in the page of a report.
    fn check_data(&self, run: &Value) {
        self.check(
            run,
            &[
                ("/steps", self.steps as f64),
                ("/frames", self.frames as f64),
                ("/last_loss", self.last_loss),
                ("/loss_sum", self.loss_sum),
                ("/wait_seconds", self.wait_seconds),
                ("/peak_bytes", self.peak as f64),
                ("/total_seconds", self.total()),
            ],
        );
        let times = run["times"].as_object().unwrap();
        assert!(times.keys().eq(self.times.keys()), "{times:?}");
        self.check(&run["times"], &self.by_owner().iter().map(|(path, s)| (&**path, *s)).collect::<Vec<_>>());
        assert_eq!(run["name"], self.name.as_str());
    }

    fn by_owner(&self) -> Vec<(String, f64)> {
        self.times.iter().map(|(owner, seconds)| (format!("/{owner}"), *seconds)).collect()
    }

    /// Checks the state that programs read from the server.
    fn check_snapshot(&self, found: &Value) {
        self.check(
            found,
            &[
                ("/step", self.steps as f64),
                ("/counts/steps", self.steps as f64),
                ("/counts/frames", self.frames as f64),
                ("/loss", self.last_loss),
                ("/learning_rate", self.last_rate),
                ("/gradient_norm", self.last_norm),
                ("/peak_bytes", self.peak as f64),
            ],
        );
        let total = &found["total"]["times"];
        self.check(total, &self.by_owner().iter().map(|(path, s)| (&**path, *s)).collect::<Vec<_>>());
        for score in found["scores"].as_array().unwrap() {
            assert_eq!(score["value"].as_f64(), self.scores.get(score["name"].as_str().unwrap()).copied(), "{score}");
        }
        assert_eq!((&found["status"], &found["name"]), (&json!("complete"), &json!(self.name)));
    }
}

/// Trains a small run with `more` flags.
fn train(dir: &TestFolder, more: &[&str]) {
    dir.train(&[&["--epochs", "3", "--ui", "lines"], more].concat()).success();
}

/// Checks what a reader of a report sees.
fn check_report(browser: &mut Browser, sums: &Sums) {
    let tiles = browser.value(
        "Object.fromEntries([...document.querySelectorAll('.tiles div')].map((part) => \
         [part.querySelector('dt').innerText.trim(), part.querySelector('dd').innerText.trim()]))",
    );
    for (name, expected) in [
        ("steps", sums.steps.to_string()),
        ("time", Seconds(sums.total()).to_string()),
        ("peak memory", Bytes(sums.peak).to_string()),
    ] {
        assert_eq!(tiles[name], expected, "{tiles}");
    }
    let shown =
        browser.value("[...document.querySelectorAll('#time table.times tbody td')].map((part) => part.innerText)");
    let shown: Vec<&str> = shown.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for (owner, seconds) in &sums.times {
        let expected = Seconds(*seconds).to_string();
        assert!(shown.iter().any(|text| text.trim_end().ends_with(&expected)), "{owner} {expected}: {shown:?}");
    }
}

#[test]
fn the_report_of_a_run_shows_its_record_in_a_browser() {
    let dir = TestFolder::new();
    train(&dir, &[]);
    let Some(mut browser) = Browser::start() else { return };
    let sums = Sums::read(&dir, "asr-1");
    let url = format!("file://{}", dir.path("runs/asr-1/report.html").display());
    looks::check(&mut browser, &url, "document.readyState === 'complete'");
    let data = browser.value("JSON.parse(document.getElementById('data').textContent)");
    sums.check_data(&data["runs"][0]);
    check_report(&mut browser, &sums);

    // Two runs are compared on one page.
    train(&dir, &["--set", "training.learning_rate=0.0002"]);
    dir.run(&["report", "asr-1", "asr-2", "--out", "both.html"]).success();
    let both = format!("file://{}", dir.path("both.html").display());
    looks::check(&mut browser, &both, "document.readyState === 'complete'");
    let data = browser.value("JSON.parse(document.getElementById('data').textContent)");
    for (run, name) in data["runs"].as_array().unwrap().iter().zip(["asr-1", "asr-2"]) {
        Sums::read(&dir, name).check_data(run);
    }
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
    assert_eq!(browser.close(), [both, url]);
}

/// The server of `monitor --serve`, which ends with this value.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts `monitor --serve` with `more` flags.
    pub(crate) fn start(command: &mut std::process::Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().expect("the address").unwrap();
        // What follows is read, so that the program can write it.
        std::thread::spawn(move || lines.for_each(drop));
        let address = line.strip_prefix("http://").and_then(|rest| rest.split_once(' ')).expect(&line).0.into();
        Self { child, address }
    }

    /// Returns the text at `path`.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}");
        body.into()
    }

    pub(crate) fn snapshot(&self) -> Value {
        serde_json::from_str(&self.get("/snapshot")).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shown(browser: &mut Browser, id: &str) -> String {
    browser.text(&format!("document.getElementById('{id}').innerText"))
}

#[test]
fn the_live_page_follows_a_run_to_its_end() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestFolder::new();
    std::fs::create_dir(dir.path("runs")).unwrap();
    // The run begins after its page is open.
    let server =
        Server::start(&mut dir.command(&["monitor", "--serve", "127.0.0.1:0", "--run", "asr-1", "--interval", "0.2"]));
    let url = format!("http://{}/", server.address);
    let connected = "document.getElementById('connection').hidden";
    looks::check(&mut browser, &url, connected);
    assert!(shown(&mut browser, "progress").contains("waiting for the first event"));
    let mut training = dir.start(&[&["train", "--epochs", "20"], SMALL].concat());
    // A run can end before the page shows that it began.
    browser.wait_until("/^(running|complete)/.test(document.getElementById('progress').innerText)");
    browser.wait_until("document.getElementById('progress').innerText.startsWith('complete')");
    assert!(training.wait().unwrap().success());

    let sums = Sums::read(&dir, "asr-1");
    let last = wait_for("the last record", || Some(server.snapshot()).filter(|last| last["status"] == "complete"));
    sums.check_snapshot(&last);
    let steps = sums.steps;
    browser.wait_until(&format!("document.getElementById('progress').innerText.includes('step {steps} of {steps},')"));
    assert_eq!(shown(&mut browser, "name"), "asr-1 (asr)");
    let losses = shown(&mut browser, "loss-text");
    let loss = losses.strip_prefix("loss ").and_then(|rest| rest.split_once(',')).expect(&losses).0;
    assert!((loss.parse::<f64>().unwrap() - sums.last_loss).abs() <= 0.0005, "{losses}");
    let speed = shown(&mut browser, "speed-text");
    let seconds = last["audio_seconds_per_second"].as_f64().unwrap();
    assert!(speed.starts_with(&format!("{seconds:.0}x real time")), "{speed}");
    let legend = shown(&mut browser, "legend");
    let window = last["window"]["times"].as_object().unwrap();
    let total: f64 = window.values().map(|seconds| seconds.as_f64().unwrap()).sum();
    let compute = window["compute"].as_f64().unwrap() / total * 100.0;
    assert!(legend.contains(&format!("computing {compute:.0} %")), "{compute}: {legend}");
    let rows = shown(&mut browser, "machine");
    assert!(rows.contains("host") && rows.contains("CPU"), "{rows}");
    looks::check(&mut browser, &url, connected);
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
    for asked in browser.close() {
        assert!(asked.starts_with(&url), "{asked}");
    }
}
