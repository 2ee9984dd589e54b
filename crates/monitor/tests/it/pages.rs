//! A browser shows the numbers of the record, says nothing in its console, and asks for nothing but the page.

use std::fs::write;
use std::time::Duration;

use plimsoll_core::{Bytes, Seconds, TimeOwner};
use plimsoll_monitor::live::{LiveRun, RunView};
use plimsoll_monitor::serve::{ServeOptions, Server};
use plimsoll_monitor::{ReportPage, RunData};
use serde_json::{Value, json};

use crate::browser::{Browser, Scheme};
use crate::looks;
use crate::made_up::{FRAMES, SAMPLES, SOUND_SECONDS, STEPS, TIMES, loss, peak, view, watts, write_run};

fn step_seconds() -> f64 {
    TIMES.iter().map(|(_, seconds)| seconds).sum()
}

fn check_numbers(run: &Value) {
    let total = STEPS as f64 * step_seconds();
    for (name, expected) in [
        ("steps", json!(STEPS)),
        ("step_events", json!(STEPS)),
        ("status", json!("complete")),
        ("total_seconds", json!(total)),
        ("frames", json!(STEPS * FRAMES)),
        ("audio_seconds", json!((STEPS * FRAMES) as f64 * 0.01)),
        ("last_loss", json!(loss(STEPS))),
        ("loss_sum", json!((1..=STEPS).map(loss).sum::<f64>())),
        ("peak_bytes", json!((1..=STEPS).map(|step| peak(step).0).max())),
        ("planned_peak_bytes", json!(Bytes::mib(1000))),
        ("wait_seconds", json!(STEPS as f64 * 0.125)),
    ] {
        let found = if expected.is_f64() { json!(run[name].as_f64()) } else { run[name].clone() };
        assert_eq!(found, expected, "{name}");
    }
    for (owner, seconds) in TIMES {
        assert_eq!(run["times"][owner.name()].as_f64(), Some(seconds * STEPS as f64), "{owner}");
    }
    assert!((run["padding"].as_f64().unwrap() - 0.25).abs() < 1e-12, "{run}");
    assert_eq!(run["events"]["out_of_memory"], 1);
    check_machine(&run["machine"]);
}

fn check_machine(machine: &Value) {
    assert_eq!((&machine["samples"], &machine["damaged_lines"]), (&json!(SAMPLES), &json!(0)));
    assert_eq!(machine["seconds"].as_f64(), Some(f64::from(SAMPLES - 1)));
    let gpu = &machine["gpus"][0];
    let power = gpu["numbers"].as_array().unwrap().iter().find(|number| number["name"] == "power").unwrap();
    let mean = (1..SAMPLES).map(watts).sum::<f64>() / f64::from(SAMPLES - 1);
    assert!((power["values"]["mean"].as_f64().unwrap() - mean).abs() < 1e-9, "{power}");
    assert_eq!(gpu["throttled_seconds"].as_f64(), Some(f64::from(SAMPLES / 3)));
    assert_eq!(gpu["throttled_by"]["power_limit"].as_f64(), Some(f64::from(SAMPLES / 3)));
}

/// Checks what a reader of the page sees.
fn check_texts(browser: &mut Browser) {
    let pairs = |parts: &str, name: &str, value: &str| {
        format!(
            "Object.fromEntries([...document.querySelectorAll('{parts}')].map((part) => \
             [part.querySelector('{name}').innerText.trim(), part.querySelector('{value}').innerText.trim()]))"
        )
    };
    let tiles = browser.value(&pairs(".tiles div", "dt", "dd"));
    let total = STEPS as f64 * step_seconds();
    for (name, expected) in [
        ("steps", STEPS.to_string()),
        ("time", Seconds(total).to_string()),
        ("peak memory", Bytes::mib(949).to_string()),
    ] {
        assert_eq!(tiles[name], expected, "{tiles}");
    }
    let verdict = browser.text("document.querySelector('.verdict').innerText");
    assert!(
        verdict.replace('\u{a0}', " ").starts_with("Character error rate 6.25 % on 512 held-out utterances"),
        "{verdict}"
    );
    let owners = browser.value(&pairs("#time table.times tbody tr", "th", "td"));
    for (owner, seconds) in TIMES {
        let text = owners[owner.label()].as_str().unwrap_or_else(|| panic!("no {owner} in {owners}"));
        let (share, rest) = text.split_once('%').unwrap();
        let expected = seconds / step_seconds() * 100.0;
        assert!((share.trim().parse::<f64>().unwrap() - expected).abs() <= 0.5, "{owner}: {text}");
        assert_eq!(rest.trim(), Seconds(seconds * STEPS as f64).to_string(), "{owner}");
    }
    let gpu = browser.text("document.getElementById('gpu').innerText");
    for part in [
        "GPU 0 ran below its highest clock for 32s (34 % of the known time): power limit 32s.",
        "tensor cores active: no value (not supported)",
        "DRAM active: no value (not read)",
        "memory of other processes: no value (no permission)",
        "Memory of the host",
    ] {
        assert!(gpu.replace('\u{a0}', " ").contains(part), "{part}: {gpu}");
    }
    // One stretch in each plot of the GPU.
    assert_eq!(
        browser.value("document.querySelectorAll('#gpu .band').length"),
        browser.value(
            "[...document.querySelectorAll('#gpu figure')].filter((plot) => !plot.innerText.includes('host')).length"
        )
    );
    let words = browser.value("['del', 'ins'].map((tag) => document.querySelector('.example ' + tag).textContent)");
    assert_eq!(words, json!(["read", "red"]));
    assert_eq!(browser.value("document.querySelectorAll('.example dd b').length"), 0, "a text is no markup");
}

#[test]
fn what_a_page_asks_for_and_complains_about_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    write(&path, "<img src=\"http://127.0.0.1:9/x.png\"><script>console.error('broken')</script>").unwrap();
    let Some(mut browser) = Browser::start() else { return };
    let url = format!("file://{}", path.display());
    browser.open(&url, 800, Scheme::Light);
    let complaints = browser.complaints().join("\n");
    assert!(complaints.contains("broken") && complaints.contains("127.0.0.1:9"), "{complaints}");
    assert_eq!(browser.close(), [url, "http://127.0.0.1:9/x.png".into()]);
}

#[test]
fn a_report_page_shows_its_record_and_asks_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("harbor-07");
    write_run(&run);
    let path = folder.path().join("report.html");
    write(&path, ReportPage::new(&[RunData::read(&run).unwrap()]).to_html()).unwrap();
    let Some(mut browser) = Browser::start() else { return };
    let url = format!("file://{}", path.display());
    looks::check(&mut browser, &url, "[...document.images].every((image) => image.complete)");
    let data = browser.value("JSON.parse(document.getElementById('data').textContent)");
    check_numbers(&data["runs"][0]);
    check_texts(&mut browser);
    let sound = "new Promise((yes, no) => { const sound = document.querySelector('audio'); \
                 sound.onloadedmetadata = () => yes(sound.duration); sound.onerror = () => no(sound.error.message); \
                 sound.load(); sound.preload = 'auto'; })";
    assert_eq!(browser.value(sound).as_f64(), Some(f64::from(SOUND_SECONDS)));
    assert_eq!(browser.value("document.images.length"), 1);
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
    assert_eq!(browser.close(), [url]);
}

/// Waits until the live page shows `step`, and checks the numbers around it.
fn check_live(browser: &mut Browser, step: u64) {
    browser.wait_until(&format!("document.getElementById('progress').innerText.includes('step {step} of {STEPS},')"));
    let shown = |browser: &mut Browser, id: &str| browser.text(&format!("document.getElementById('{id}').innerText"));
    let progress = shown(browser, "progress");
    assert!(progress.starts_with("running, ") && progress.contains("CUDA device 0"), "{progress}");
    assert_eq!(shown(browser, "name"), "harbor-07 (asr)");
    let seconds = step_seconds();
    let share = |owner| (TIMES.iter().find(|known| known.0 == owner).unwrap().1 / seconds * 100.0).round();
    let legend = shown(browser, "legend");
    for (owner, name) in [(TimeOwner::Compute, "computing"), (TimeOwner::Data, "waiting for data")] {
        assert!(legend.contains(&format!("{name} {} %", share(owner))), "{legend}");
    }
    let peak = (1..=step).map(|step| peak(step).0 >> 20).max().unwrap();
    assert_eq!(shown(browser, "memory-text"), format!("peak {peak} MiB, planned 1000 MiB"));
    let speed = FRAMES as f64 * 0.01 / seconds;
    let expected = format!("{speed:.0}x real time, {:.0} ms a step, padding 25 %", seconds * 1e3);
    assert_eq!(shown(browser, "speed-text"), expected);
    let losses = shown(browser, "loss-text");
    let (shown_loss, rest) = losses.strip_prefix("loss ").unwrap().split_once(", ").unwrap();
    assert!((shown_loss.parse::<f64>().unwrap() - loss(step)).abs() <= 0.0005, "{losses}");
    assert!(rest.starts_with("rate 1.00e-3, gradient 1.50"), "{losses}");
    let machine = shown(browser, "machine");
    for part in ["NVIDIA H200", "97 %", "41 %", "432 W of 700 W", "54 °C", "(not supported)", "power limit", "4242"] {
        assert!(machine.contains(part), "{part}: {machine}");
    }
    let curves = "['memory', 'speed', 'loss'].map((id) => document.querySelectorAll('#' + id + ' polyline').length)";
    assert_eq!(browser.value(curves), json!([1, 1, 1]));
}

#[test]
fn a_live_page_follows_its_run_and_asks_only_its_server() {
    let Some(mut browser) = Browser::start() else { return };
    let run = LiveRun::default();
    let options = ServeOptions { event_period: Duration::from_millis(50), ..ServeOptions::default() };
    let server = Server::bind("127.0.0.1:0", run.clone(), options).unwrap();
    let url = format!("http://{}/", server.address());
    let connected = "document.getElementById('connection').hidden";
    run.publish(RunView::new("harbor-07"));
    looks::check(&mut browser, &url, connected);
    run.publish(view(60));
    looks::check(&mut browser, &url, connected);
    // The page is not loaded again from here on: events change it.
    for step in [60, 61, 99, STEPS] {
        run.publish(view(step));
        check_live(&mut browser, step);
    }
    let events = browser.text("document.getElementById('events').innerText");
    assert!(events.contains("step 100") && events.contains("out of memory in backward"), "{events}");
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
    drop(server);
    browser.wait_until("document.getElementById('connection').innerText.startsWith('connection lost')");
    browser.wait_until("document.getElementById('progress').innerText.includes('step 128')");
    for asked in browser.close() {
        assert!(asked.starts_with(&url), "{asked}");
    }
}
