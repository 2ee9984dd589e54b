//! A browser without a window, which a test drives over the debugging pipe.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::Instant;

use serde_json::{Value, from_slice, from_str, json};
use tempfile::TempDir;

use crate::tool::{PATIENCE, PAUSE, find, wait_for};

/// Settings without which the browser itself would ask for something, or would not run in a container. No name is
/// resolved, so no request can leave the machine.
const ARGUMENTS: [&str; 16] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=OptimizationHints,MediaRouter,Translate,NetworkTimeServiceQuerying",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--mute-audio",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
];

/// Scheme of colors that a page is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Light,
    Dark,
}

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    last_id: u64,
    /// What the console of the page says: errors, warnings and exceptions.
    console: Vec<String>,
    /// Addresses that the page asked for.
    asked: BTreeSet<String>,
    folder: TempDir,
}

impl Browser {
    /// Starts a browser; `None` if there is none.
    pub(crate) fn start() -> Option<Self> {
        let program = find(&["chromium", "chromium-browser", "google-chrome"])?;
        let folder = tempfile::tempdir().unwrap();
        // The browser takes commands from the file 3 and answers in the file 4.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"]).arg(program).args(ARGUMENTS);
        command.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
        command.arg(format!("--log-net-log={}", folder.path().join("net").display()));
        // Else the start page of the browser asks its maker for news.
        command.arg("about:blank");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (sender, messages) = channel();
        spawn(move || {
            let parts = BufReader::new(output).split(0).map_while(Result::ok);
            parts.for_each(|part| from_slice(&part).map_or((), |message| sender.send(message).unwrap_or(())));
        });
        let mut browser = Self {
            process,
            input,
            messages,
            session: None,
            last_id: 0,
            console: Vec::new(),
            asked: BTreeSet::new(),
            folder,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].as_str().map(Into::into);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the debugging protocol.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        let limit = Instant::now() + PATIENCE;
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            let mut answer = self.messages.recv_timeout(left).unwrap_or_else(|_| panic!("no answer to {method}"));
            if answer["id"] == self.last_id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, message: &Value) {
        let parameters = &message["params"];
        if let (Some("Network.requestWillBeSent"), Some(url)) =
            (message["method"].as_str(), parameters["request"]["url"].as_str())
        {
            self.asked.insert(url.into());
        }
        let is_bad = match message["method"].as_str() {
            Some("Runtime.consoleAPICalled") => {
                ["error", "warning", "assert"].iter().any(|kind| parameters["type"] == *kind)
            }
            Some("Log.entryAdded") => ["error", "warning"].iter().any(|kind| parameters["entry"]["level"] == *kind),
            Some("Runtime.exceptionThrown" | "Inspector.targetCrashed") => true,
            _ => false,
        };
        if is_bad {
            self.console.push(parameters.to_string());
        }
    }

    /// Opens the page at `url` in a window of `width`, and waits until it is loaded.
    pub(crate) fn open(&mut self, url: &str, width: u32, scheme: Scheme) {
        let scheme = if scheme == Scheme::Dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.call("Page.navigate", json!({"url": url}));
        let url = json!(url);
        self.wait_until(&format!("location.href === {url} && document.readyState === 'complete'"));
    }

    /// Returns the value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Returns the text of an expression in the page.
    pub(crate) fn text(&mut self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_else(|| panic!("no text: {expression}")).into()
    }

    /// Waits until an expression is true in the page.
    pub(crate) fn wait_until(&mut self, expression: &str) {
        let started = Instant::now();
        while self.value(expression) != true {
            let page = "document.documentElement.innerText.slice(0, 2000)";
            assert!(started.elapsed() < PATIENCE, "in vain: {expression}\n{}\n{:?}", self.value(page), self.console);
            sleep(PAUSE);
        }
    }

    /// Returns the errors and warnings that the console of the pages has so far.
    pub(crate) fn complaints(&self) -> &[String] {
        &self.console
    }

    /// Closes the browser. Returns the addresses that its pages asked for, without those that hold their data.
    pub(crate) fn close(mut self) -> Vec<String> {
        self.session = None;
        self.call("Browser.close", json!({}));
        wait_for("the end of the browser", || self.process.try_wait().unwrap());
        let mut asked = std::mem::take(&mut self.asked);
        asked.extend(requests(&self.folder.path().join("net")));
        asked.into_iter().filter(|url| !url.starts_with("data:") && url != "about:blank").collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads the addresses that pages asked for in the network log of the browser. What the browser asks for itself has no
/// origin there.
fn requests(log: &Path) -> Vec<String> {
    let log: Value = from_str(&read_to_string(log).unwrap()).unwrap();
    let kind = &log["constants"]["logSourceType"]["URL_REQUEST"];
    assert!(kind.is_u64(), "the log names its kinds");
    let events = log["events"].as_array().unwrap().iter().filter(|event| event["source"]["type"] == *kind);
    let of_pages = events
        .map(|event| &event["params"])
        .filter(|request| request["initiator"].as_str().is_some_and(|initiator| initiator != "not an origin"));
    of_pages.filter_map(|request| request["url"].as_str()).map(ToOwned::to_owned).collect()
}
