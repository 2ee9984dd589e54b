//! Tests of reports about folders of runs.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_core::{
    Bytes, EndKind, Event, Measure, MicroBatch, OutOfMemory, PlanHeader, Position, Record, SCHEMA_VERSION, Skipped,
    Stage, StepEvent, TimeShares,
};
use serde_json::{Value, json};

use super::*;
use crate::Summary;

/// Start time of the first run: 2026-11-21 14:03 UTC.
const START: f64 = 1_795_269_780.0;

/// Folder of runs, written with the types with which the program writes them.
struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, run: &str, file: &str, text: &str) {
        let folder = self.folder.path().join(run);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }

    fn plan(&self, run: &str, seed: u64, layers: u64, total_steps: u64) {
        let header = PlanHeader {
            schema_version: SCHEMA_VERSION,
            version: Some("0.1.0".into()),
            commit: Some("0c03081".into()),
            task: Some("asr".into()),
            seed: Some(seed),
            device: Some("the processor (flex)".into()),
            parameters: Some(700_123),
            total_steps: Some(total_steps),
            hop_seconds: Some(0.01),
            ..PlanHeader::default()
        };
        let plan = toml::to_string(&header).unwrap() + "[model]\nlayers = 2\n";
        let config = format!(
            "# a comment\ntask = \"asr\"  # here\nseed = {seed}\n[model]\nencoder_layers = {layers}\n\
             [training]\nlearning_rate = 2.5e-3\nmax_time = \"2h\"\n"
        );
        self.write(run, "plan.toml", &plan);
        self.write(run, "config.toml", &config);
    }

    fn record(&self, run: &str, records: &[Record]) {
        let line = |record| serde_json::to_string(record).unwrap() + "\n";
        self.write(run, "metrics.jsonl", &records.iter().map(line).collect::<String>());
    }

    fn summary(&self, run: &str, steps: u64, cer: f64) {
        let summary = Summary {
            name: run.into(),
            complete: true,
            steps,
            scores: scores(cer, 0.2),
            held_out: 160,
            ..Summary::default()
        };
        self.write(run, "summary.json", &serde_json::to_string(&summary).unwrap());
    }

    /// Reads all runs 1000 seconds after the start. A run counts as running within ten seconds of its last record.
    fn read(&self) -> Vec<RunReport> {
        let mut reports = read_runs(self.folder.path(), after_start(990.0)).unwrap();
        reports.iter_mut().for_each(|report| report.folder = Path::new("runs").join(&report.name));
        reports
    }
}

fn after_start(seconds: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs_f64(START + seconds)
}

/// Returns a record of `event`, `seconds` after the start.
fn at(seconds: f64, event: Event) -> Record {
    Record::new(START + seconds, event)
}

/// Returns the record of a step of 0.1 seconds with one second of audio; a tenth of the step's time is waiting for
/// data.
fn step(step: u64, loss: f64) -> Record {
    let event = StepEvent {
        step,
        position: Position { epoch: step / 100, batch: step % 100, ..Position::default() },
        loss,
        norm: 1.5,
        rate: 0.001,
        micro_batches: 1,
        ledger: vec![MicroBatch { start: 0, len: 4, fallback_level: 0 }],
        attempts: 1,
        frames: 100,
        step_seconds: 0.09,
        wait_seconds: 0.01,
        peak_bytes: Bytes::mib(100),
        ..StepEvent::default()
    };
    at(step as f64 * 0.1, Event::Step(event))
}

fn scores(cer: f64, wer: f64) -> Vec<Measure> {
    vec![Measure::share("cer", "character error rate", cer), Measure::share("wer", "word error rate", wer)]
}

fn validated(step: u64, cer: f64, wer: f64, best: bool) -> Record {
    let (epoch, scores, peak_bytes) = (step / 100, scores(cer, wer), Bytes::mib(150));
    at(step as f64 * 0.1, Event::Validated { step, epoch, scores, seconds: 1.0, best, peak_bytes })
}

fn skipped(step: u64) -> Record {
    at(31.0, Event::Skipped { step, reason: "the loss is not finite".into() })
}

fn left_out(names: &[&str]) -> Record {
    let sample = |name: &&str| Skipped { name: (*name).into(), reason: "r".into() };
    at(31.0, Event::LeftOut { samples: names.iter().map(sample).collect() })
}

/// Returns the records of `steps` steps whose loss falls from 8 towards `floor`, with a validation after every
/// hundredth step.
fn falling(steps: u64, floor: f64) -> Vec<Record> {
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

/// Returns one record of every event that is only counted, around step 300.
fn all_counted() -> Vec<Record> {
    let (step, failure) = (300, OutOfMemory { stage: Stage::Forward, reason: "r".into() });
    let (planned_bytes, peak_bytes) = (Bytes::mib(100), Bytes::mib(120));
    vec![
        at(31.0, Event::Drift { step, phase: Stage::Backward, planned_bytes, peak_bytes }),
        at(31.0, Event::RateLowered { step, factor: 0.5 }),
        skipped(301),
        at(31.0, Event::OutOfMemory { step, failure, limit: 4 }),
        at(31.0, Event::Unfit { step: 301, names: vec!["c".into(), "d".into(), "e".into()] }),
        left_out(&["a", "b"]),
        at(32.0, Event::NotSaved { step: 200, reason: "the disk is full".into() }),
        at(32.5, Event::Saved { step, path: "checkpoints/300".into() }),
    ]
}

fn four_runs() -> Fixture {
    let fixture = Fixture::new();
    fixture.plan("asr-1", 17, 3, 300);
    fixture.record("asr-1", &[falling(300, 0.4), all_counted()].concat());
    fixture.summary("asr-1", 300, 0.0712);

    fixture.plan("asr-2", 17, 6, 300);
    fixture.record("asr-2", &falling(250, 0.1));

    // One that is writing now: it has no plan, and its last line is incomplete.
    let event = |step| Event::Step(StepEvent { step, ..StepEvent::default() });
    fixture.record("going", &[at(994.0, event(1)), at(994.0, event(2))]);
    let path = fixture.folder.path().join("going/metrics.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"event\":\"st").unwrap();

    // One without a step, one that is broken, and entries that are not runs.
    fixture.plan("begun", 1, 1, 10);
    fixture.write("broken", "plan.toml", "seed = = 1\n");
    fixture.write("broken", "metrics.jsonl", "nonsense\n[1]\n{\"event\":\"step\",\"step\":\"one\"}\n\u{0}\u{0}");
    fixture.write("broken", "summary.json", "{\"compl");
    fixture.write("corpus", "manifest.jsonl", "{}\n");
    fs::write(fixture.folder.path().join("notes.txt"), "mine").unwrap();
    fixture
}

fn find(reports: &[RunReport], name: &str) -> RunReport {
    reports.iter().find(|report| report.name == name).unwrap().clone()
}

#[test]
fn runs_are_listed() {
    insta::assert_snapshot!(run_table(&four_runs().read()));
    assert_eq!(run_table(&[]), "no runs here\n");
}

#[test]
fn a_run_is_shown() {
    let reports = four_runs().read();
    insta::assert_snapshot!("shown", find(&reports, "asr-1").to_string());
    insta::assert_snapshot!("shown_going", find(&reports, "going").to_string());
    insta::assert_snapshot!("shown_broken", find(&reports, "broken").to_string());
}

#[test]
fn every_counted_event_is_in_the_history() {
    let history = find(&four_runs().read(), "asr-1").history;
    let RunHistory { skipped, out_of_memory, lowered, rate_lowered, left_out, unfit, over_plan, not_saved, .. } =
        history;
    assert_eq!((skipped, out_of_memory, lowered, rate_lowered), (1, 1, 0, 1));
    assert_eq!((left_out, unfit, over_plan, not_saved), (2, 3, 1, 1));
}

#[test]
fn runs_are_compared() {
    let reports = four_runs().read();
    let pair = [find(&reports, "asr-1"), find(&reports, "asr-2")];
    let comparison = Comparison::new(&pair);
    insta::assert_snapshot!("compared", comparison);
    insta::assert_snapshot!("compared_json", format!("{:#}", serde_json::to_value(comparison).unwrap()));
    let mut ended = pair.clone();
    ended[1].final_scores = ended[0].final_scores.iter().map(|score| Measure { value: 0.1, ..score.clone() }).collect();
    let text = Comparison::new(&ended).to_string();
    assert!(text.contains("at the end (and") && text.contains("10.00 % (+2.88 %)"), "{text}");
    // Any selection can be compared: none, one, and runs that have nothing to compare.
    for some in [&[][..], &pair[..1], &[find(&reports, "begun"), pair[0].clone()], &reports] {
        let comparison = Comparison::new(some);
        assert_eq!(comparison.runs.len(), some.len());
        assert!(comparison.to_string().starts_with("Results"), "{comparison}");
    }
}

#[test]
fn a_report_serializes() {
    let short = Fixture::new();
    short.plan("asr-1", 17, 3, 4);
    short.record("asr-1", &[step(1, 3.5), step(2, 2.25), validated(2, 0.5, 0.75, true)]);
    insta::assert_snapshot!(format!("{:#}", serde_json::to_value(short.read()).unwrap()));
}

#[test]
fn a_repeated_step_counts_once() {
    let check = |legs: &[(u64, u64)], steps: u64, points: usize| {
        let fixture = Fixture::new();
        fixture.plan("a", 1, 1, 300);
        let records: Vec<Record> = (1..)
            .zip(legs)
            .flat_map(|(leg, &(from, to))| (from..=to).map(move |at| step(at, f64::from(leg))))
            .collect();
        fixture.record("a", &records);
        let history = fixture.read()[0].history.clone();
        let last = legs.len() as f64;
        assert_eq!(
            (history.steps, history.losses.0.len(), history.losses.last()),
            (steps, points, Some(last)),
            "{legs:?}"
        );
        assert!((history.train_seconds.0 - 0.1 * points as f64).abs() < 1e-9, "{legs:?}");
        assert!((history.audio_seconds_per_second.unwrap() - 10.0).abs() < 1e-9, "{legs:?}");
    };
    check(&[(1, 50)], 50, 50);
    check(&[(1, 50), (41, 60)], 60, 60);
    // It was stopped again before it reached its first end.
    check(&[(1, 50), (41, 45)], 45, 45);
    check(&[(1, 50), (41, 45), (41, 80), (81, 90)], 90, 90);
}

#[test]
fn a_repeated_step_replaces_its_events() {
    let fixture = Fixture::new();
    let left_out = || left_out(&["a"]);
    let first = [step(1, 1.0), left_out(), step(2, 1.0), skipped(3), step(3, 1.0), validated(3, 0.1, 0.1, true)];
    let check = |second: &[Record], steps: u64, counts: (u64, u64), cers: &[f64]| {
        fixture.record("a", &[&first[..], second].concat());
        let history = fixture.read()[0].history.clone();
        let found: Vec<f64> = history.validations.iter().map(|validation| validation.scores[0].value).collect();
        let sums = (history.left_out, history.skipped);
        assert_eq!((history.steps, sums, &found[..]), (steps, counts, cers), "{second:?}");
    };
    check(&[], 3, (1, 1), &[0.1]);
    check(&[step(4, 1.0)], 4, (1, 1), &[0.1]);
    check(&[left_out(), step(2, 1.0), step(3, 1.0), validated(3, 0.3, 0.3, false)], 3, (1, 0), &[0.3]);
    check(&[skipped(2), step(2, 1.0)], 2, (0, 1), &[]);
    // A skipped step at the end of the first leg; then a second leg that starts far before it.
    check(&[skipped(4), step(2, 1.0)], 2, (0, 0), &[]);
    check(&[skipped(4)], 3, (1, 2), &[0.1]);
    // The run was resumed at its end, and at a checkpoint before it, only to be validated.
    check(&[validated(3, 0.1, 0.1, false)], 3, (1, 1), &[0.1]);
    check(&[validated(2, 0.4, 0.4, false)], 2, (1, 0), &[0.4]);
    // A checkpoint of an earlier step that fails late removes no later step.
    check(&[at(1.0, Event::NotSaved { step: 1, reason: "r".into() })], 3, (1, 1), &[0.1]);
}

#[test]
fn the_status_follows_from_summary_and_last_record() {
    let check = |summary: Option<Value>, last: f64, expected: RunStatus| {
        let fixture = Fixture::new();
        fixture.record("a", &[at(last, Event::Step(StepEvent { step: 300, ..StepEvent::default() }))]);
        if let Some(summary) = &summary {
            fixture.write("a", "summary.json", &summary.to_string());
        }
        assert_eq!(fixture.read()[0].status, expected, "{summary:?} {last}");
    };
    check(None, 995.0, RunStatus::Running);
    check(None, 900.0, RunStatus::Stopped);
    check(Some(json!({"complete": true, "steps": 300})), 995.0, RunStatus::Complete);
    check(Some(json!({"complete": true})), 900.0, RunStatus::Complete);
    check(Some(json!({"complete": false, "steps": 300})), 900.0, RunStatus::Stopped);
    // It was complete and was resumed with a later end.
    check(Some(json!({"complete": true, "steps": 200})), 995.0, RunStatus::Running);
}

#[test]
fn a_run_that_ended_is_not_listed_as_running() {
    use EndKind::{Complete, Failed, Stopped};
    let ended = |end| at(995.0, Event::Ended { step: 300, end, reason: String::new(), times: TimeShares::default() });
    let saved = || at(996.0, Event::Saved { step: 300, path: "a".into() });
    let step = |step| at(997.0, Event::Step(StepEvent { step, ..StepEvent::default() }));
    let status = |records: &[Record], has_summary: bool| {
        let fixture = Fixture::new();
        fixture.record("a", records);
        if has_summary {
            fixture.write("a", "summary.json", r#"{"complete": true, "steps": 300}"#);
        }
        fixture.read()[0].status
    };
    assert_eq!(status(&[step(300), ended(Failed)], false), RunStatus::Failed);
    assert_eq!(status(&[step(300), ended(Failed), saved()], false), RunStatus::Failed);
    assert_eq!(status(&[step(300), ended(Stopped), saved()], false), RunStatus::Stopped);
    // The last step is done, and the best model is evaluated.
    assert_eq!(status(&[step(300), ended(Complete)], false), RunStatus::Running);
    assert_eq!(status(&[step(300), ended(Complete)], true), RunStatus::Complete);
    assert_eq!(status(&[step(300), ended(Complete), ended(Failed)], false), RunStatus::Failed);
    // It was resumed.
    assert_eq!(status(&[step(300), ended(Failed), step(301)], false), RunStatus::Running);
}

#[test]
fn a_run_without_a_step_is_not_complete() {
    let report = |summary: &str| {
        let fixture = Fixture::new();
        fixture.record("a", &[]);
        fixture.write("a", "summary.json", summary);
        fixture.read().remove(0)
    };
    for empty in [r#"{"complete": true, "steps": 0}"#, r#"{"complete": true}"#] {
        assert_eq!(report(empty).status, RunStatus::Stopped, "{empty}");
    }
    // The record of a complete run was emptied.
    let report = report(r#"{"complete": true, "steps": 300, "epochs": 2}"#);
    assert_eq!((report.status, report.history.steps, report.notes.len()), (RunStatus::Complete, 300, 1));
    assert!(report.to_string().contains("complete after step 300, epochs completed: 2"), "{report}");
}

#[test]
fn a_missing_folder_is_named() {
    let error = read_runs(Path::new("no/such/folder"), UNIX_EPOCH).unwrap_err();
    assert_eq!(error.to_string(), "cannot access no/such/folder");
    assert!(RunReport::read(Path::new("no/such/folder"), UNIX_EPOCH).is_none());
}

/// Tests that files from before the schema had a version are still read.
#[test]
fn an_old_run_is_read() {
    let fixture = Fixture::new();
    let plan = "version = \"0.1.0\"\ncommit = \"0c03081\"\nseed = 17\ndevice = \"the CPU, 2 threads\"\nparameters = 9\n\
                [training]\ntotal_steps = 4\n[features]\nhop_length = 160\nsample_rate = 16000\n[config]\ntask = \"asr\"\n";
    fixture.write("old", "plan.toml", plan);
    let lines = r#"
{"event":"step","frames":100,"loss":8.25,"norm":1.5,"padding":0.0,"peak_bytes":1048576,"pieces":2,"position":{"batch":3,"epoch":1},"rate":0.001,"step":1,"step_seconds":0.5,"time":1700000000.25,"wait_seconds":0.5,"of_the_future":[1]}
{"event":"lowered","limit":4,"peak_bytes":0,"step":1,"time":1700000001.0}
{"event":"validated","best":true,"epoch":1,"peak_bytes":0,"scores":[["cer",0.5],["wer",null]],"seconds":2.5,"step":1,"time":1700000002.0}
{"event":"from_another_program","step":1,"time":1700000002.0}
{"event":"rate_lowered","factor":0.5,"step":1,"time":1700000003.0}
"#;
    fixture.write("old", "metrics.jsonl", lines.trim_start());
    fixture.write("old", "summary.json", r#"{"complete": true, "steps": 1, "cer": 0.25, "held_out": 3}"#);
    let RunReport { status, setup, history, final_scores, notes, .. } = fixture.read().remove(0);
    assert_eq!((status, notes), (RunStatus::Complete, Vec::<String>::new()));
    assert_eq!((setup.task.as_deref(), setup.seed, setup.parameters), (Some("asr"), Some(17), Some(9)));
    assert_eq!((setup.total_steps, setup.hop_seconds), (Some(4), Some(0.01)));
    assert_eq!((history.steps, history.losses.last(), history.epochs), (1, Some(8.25), 1));
    assert_eq!((history.lowered, history.rate_lowered, history.audio_seconds_per_second), (1, 1, Some(1.0)));
    assert_eq!(history.validations[0].scores, [Measure::share("cer", "cer", 0.5)]);
    assert_eq!(final_scores, [Measure::share("cer", "cer", 0.25)]);
}

#[test]
fn a_newer_schema_is_noted() {
    let fixture = Fixture::new();
    let (schema_version, newer) = (SCHEMA_VERSION + 1, step(2, 1.0));
    fixture.record("a", &[step(1, 1.0), Record { schema_version, ..newer }]);
    let report = fixture.read().remove(0);
    assert_eq!(report.history.steps, 2);
    assert!(report.notes[0].contains("schema version 2"), "{:?}", report.notes);
}
