//! Folders of runs, and what is told of them.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_core::Measure;
use serde_json::{Value, json};

use super::*;

/// When the first run starts: 2026-11-21 14:03 UTC.
const START: f64 = 1_795_269_780.0;

/// Writes runs as the program does, line by line.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, run: &str, file: &str, text: &str) {
        let folder = self.folder.path().join(run);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }

    fn plan(&self, run: &str, seed: u64, layers: u64, total_steps: u64) {
        let plan = format!(
            "version = \"0.1.0\"\ncommit = \"0c03081\"\nseed = {seed}\ndevice = \"the processor (flex)\"\n\
             parameters = 700123\n[training]\ntotal_steps = {total_steps}\n[model]\nlayers = 2\n\
             [features]\nhop_length = 160\nsample_rate = 16000\n"
        );
        let config = format!(
            "# told\ntask = \"asr\"  # here\nseed = {seed}\n[model]\nencoder_layers = {layers}\n\
             [training]\nlearning_rate = 2.5e-3\nmax_time = \"2h\"\n"
        );
        self.write(run, "plan.toml", &plan);
        self.write(run, "config.toml", &config);
    }

    fn record(&self, run: &str, records: &[Value]) {
        self.write(run, "metrics.jsonl", &records.iter().map(|record| format!("{record}\n")).collect::<String>());
    }

    fn summary(&self, run: &str, steps: u64, cer: f64) {
        let summary = json!({"name": run, "complete": true, "steps": steps, "cer": cer, "wer": 0.2, "held_out": 160});
        self.write(run, "summary.json", &summary.to_string());
    }

    /// A run counts as running within ten seconds of its last record; now is 1000 seconds after the start.
    fn read(&self) -> Vec<RunCard> {
        let mut cards = read_runs(self.folder.path(), after_start(990.0)).unwrap();
        cards.iter_mut().for_each(|card| card.folder = Path::new("runs").join(&card.name));
        cards
    }
}

fn after_start(seconds: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs_f64(START + seconds)
}

/// A step of the tenth of a second, of which a tenth is waiting, with a second of audio.
fn step(step: u64, loss: f64) -> Value {
    json!({
        "event": "step", "time": START + step as f64 * 0.1, "step": step, "loss": loss, "norm": 1.5, "rate": 0.001,
        "position": {"epoch": step / 100, "batch": step % 100}, "pieces": 1, "frames": 100, "step_seconds": 0.09,
        "wait_seconds": 0.01, "peak_bytes": 100 << 20, "of_the_future": [1],
    })
}

fn validated(step: u64, cer: f64, wer: f64, best: bool) -> Value {
    let score =
        |name: &str, label: &str, value: f64| json!({"name": name, "label": label, "value": value, "unit": "share"});
    json!({
        "event": "validated", "time": START + step as f64 * 0.1, "step": step, "epoch": step / 100, "seconds": 1.0,
        "scores": [score("cer", "character error rate", cer), score("wer", "word error rate", wer)],
        "best": best, "peak_bytes": 150 << 20,
    })
}

/// `steps` steps whose loss falls from 8 towards `floor`, validated each hundred.
fn falling(steps: u64, floor: f64) -> Vec<Value> {
    let loss = |at: u64| floor + (8.0 - floor) * (-0.02 * at as f64).exp();
    let mut records = Vec::new();
    for at in 1..=steps {
        records.push(step(at, loss(at)));
        if at % 100 == 0 {
            let cer = loss(at) / 10.0;
            records.push(validated(at, cer, cer * 2.0, at < 300));
        }
    }
    records
}

fn desk_of_four() -> Desk {
    let desk = Desk::new();
    desk.plan("asr-1", 17, 3, 300);
    let mut records = falling(300, 0.4);
    records.extend([
        json!({"event": "skipped", "step": 301, "time": START + 31.0, "reason": "the loss is not finite"}),
        json!({"event": "out_of_memory", "step": 300, "time": START + 31.0, "limit": 4}),
        json!({"event": "lowered", "step": 300, "time": START + 31.0, "limit": 4, "peak_bytes": 0}),
        json!({"event": "left_out", "time": START + 31.0, "samples": [{"name": "a", "reason": "r"}, {"name": "b", "reason": "r"}]}),
        json!({"event": "saved", "step": 300, "time": START + 32.5, "path": "checkpoints/300"}),
    ]);
    desk.record("asr-1", &records);
    desk.summary("asr-1", 300, 0.0712);

    desk.plan("asr-2", 17, 6, 300);
    desk.record("asr-2", &falling(250, 0.1));

    // One that writes at this moment: no plan was kept, and its last line is cut.
    let late: Vec<Value> =
        (1..=2).map(|at| json!({"event": "step", "step": at, "loss": null, "time": START + 994.0})).collect();
    desk.record("going", &late);
    let path = desk.folder.path().join("going/metrics.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"event\":\"st").unwrap();

    // One that has made no step yet, one that is broken, and what is no run at all.
    desk.plan("begun", 1, 1, 10);
    desk.write("broken", "plan.toml", "seed = = 1\n");
    desk.write("broken", "metrics.jsonl", "nonsense\n[1]\n{\"event\":\"step\",\"step\":\"one\"}\n\u{0}\u{0}");
    desk.write("broken", "summary.json", "{\"compl");
    desk.write("corpus", "manifest.jsonl", "{}\n");
    fs::write(desk.folder.path().join("notes.txt"), "mine").unwrap();
    desk
}

fn card(cards: &[RunCard], name: &str) -> RunCard {
    cards.iter().find(|card| card.name == name).unwrap().clone()
}

#[test]
fn runs_are_listed() {
    insta::assert_snapshot!(listed(&desk_of_four().read()));
    assert_eq!(listed(&[]), "no runs here\n");
}

#[test]
fn a_run_is_shown() {
    let cards = desk_of_four().read();
    insta::assert_snapshot!("shown", shown(&card(&cards, "asr-1")));
    insta::assert_snapshot!("shown_going", shown(&card(&cards, "going")));
    insta::assert_snapshot!("shown_broken", shown(&card(&cards, "broken")));
}

#[test]
fn runs_are_compared() {
    let cards = desk_of_four().read();
    let pair = [card(&cards, "asr-1"), card(&cards, "asr-2")];
    insta::assert_snapshot!("compared", compared(&pair));
    insta::assert_snapshot!("compared_json", format!("{:#}", serde_json::to_value(compared(&pair)).unwrap()));
    let mut ended = pair.clone();
    ended[1].verdict = ended[0].verdict.iter().map(|score| Measure { value: 0.1, ..score.clone() }).collect();
    let text = compared(&ended).to_string();
    assert!(text.contains("at the end (and") && text.contains("10.00 % (+2.88 %)"), "{text}");
    // Whatever is compared, nothing breaks: none, one, and such as have nothing to compare.
    for some in [&[][..], &pair[..1], &[card(&cards, "begun"), pair[0].clone()], &cards] {
        let comparison = compared(some);
        assert_eq!(comparison.runs.len(), some.len());
        assert!(comparison.to_string().starts_with("How they went"), "{comparison}");
    }
}

#[test]
fn a_card_is_data_too() {
    let short = Desk::new();
    short.plan("asr-1", 17, 3, 4);
    short.record("asr-1", &[step(1, 3.5), step(2, 2.25), validated(2, 0.5, 0.75, true)]);
    let cards = short.read();
    insta::assert_snapshot!(format!("{:#}", serde_json::to_value(&cards).unwrap()));
}

#[test]
fn a_step_that_was_taken_anew_counts_once() {
    let check = |legs: &[(u64, u64)], steps: u64, points: usize| {
        let desk = Desk::new();
        desk.plan("a", 1, 1, 300);
        let records: Vec<Value> = (1..)
            .zip(legs)
            .flat_map(|(leg, &(from, to))| (from..=to).map(move |at| step(at, f64::from(leg))))
            .collect();
        desk.record("a", &records);
        let course = desk.read()[0].course.clone();
        let last = legs.len() as f64;
        assert_eq!(
            (course.steps, course.losses.0.len(), course.losses.last()),
            (steps, points, Some(last)),
            "{legs:?}"
        );
        assert!((course.train_seconds.0 - 0.1 * points as f64).abs() < 1e-9, "{legs:?}");
        assert!((course.audio_seconds_per_second.unwrap() - 10.0).abs() < 1e-9, "{legs:?}");
    };
    check(&[(1, 50)], 50, 50);
    check(&[(1, 50), (41, 60)], 60, 60);
    // It was stopped again before it came as far as at first.
    check(&[(1, 50), (41, 45)], 45, 45);
    check(&[(1, 50), (41, 45), (41, 80), (81, 90)], 90, 90);
}

#[test]
fn what_is_taken_anew_takes_its_events_with_it() {
    let desk = Desk::new();
    let skipped = |step: u64| json!({"event": "skipped", "step": step, "reason": "r"});
    let left_out = || json!({"event": "left_out", "samples": [{"name": "a", "reason": "r"}]});
    let first = [step(1, 1.0), left_out(), step(2, 1.0), skipped(3), step(3, 1.0), validated(3, 0.1, 0.1, true)];
    let check = |second: &[Value], steps: u64, counts: (u64, u64), cers: &[f64]| {
        desk.record("a", &[&first[..], second].concat());
        let course = desk.read()[0].course.clone();
        let found: Vec<f64> = course.validations.iter().map(|validation| validation.scores[0].value).collect();
        assert_eq!((course.steps, (course.left_out, course.skipped), &found[..]), (steps, counts, cers), "{second:?}");
    };
    check(&[], 3, (1, 1), &[0.1]);
    check(&[step(4, 1.0)], 4, (1, 1), &[0.1]);
    check(&[left_out(), step(2, 1.0), step(3, 1.0), validated(3, 0.3, 0.3, false)], 3, (1, 0), &[0.3]);
    check(&[skipped(2), step(2, 1.0)], 2, (0, 1), &[]);
    // A skip of the first leg that nothing came of; then the second leg, from far before.
    check(&[skipped(4), step(2, 1.0)], 2, (0, 0), &[]);
    check(&[skipped(4)], 3, (1, 2), &[0.1]);
    // It went on at its end, and at a checkpoint before it, to be validated and no more.
    check(&[validated(3, 0.1, 0.1, false)], 3, (1, 1), &[0.1]);
    check(&[validated(2, 0.4, 0.4, false)], 2, (1, 0), &[0.4]);
}

#[test]
fn a_run_stands_somewhere() {
    let check = |summary: Option<Value>, last: f64, expected: Standing| {
        let desk = Desk::new();
        desk.record("a", &[json!({"event": "step", "step": 300, "time": START + last})]);
        if let Some(summary) = &summary {
            desk.write("a", "summary.json", &summary.to_string());
        }
        assert_eq!(desk.read()[0].standing, expected, "{summary:?} {last}");
    };
    check(None, 995.0, Standing::Running);
    check(None, 900.0, Standing::Stopped);
    check(Some(json!({"complete": true, "steps": 300})), 995.0, Standing::Complete);
    check(Some(json!({"complete": true})), 900.0, Standing::Complete);
    check(Some(json!({"complete": false, "steps": 300})), 900.0, Standing::Stopped);
    // It was complete, and goes on with a later end.
    check(Some(json!({"complete": true, "steps": 200})), 995.0, Standing::Running);
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let error = read_runs(Path::new("no/such/folder"), UNIX_EPOCH).unwrap_err();
    assert_eq!(error.to_string(), "cannot access no/such/folder");
    assert!(RunCard::read(Path::new("no/such/folder"), UNIX_EPOCH).is_none());
}
