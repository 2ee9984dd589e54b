//! Tests of run states, and states that the tests of the views draw.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use plimsoll_core::{
    Bytes, EndKind, Event, Measure, OutOfMemory, PlanHeader, Position, Record, Stage, StepEvent, TimeOwner, TimeShares,
};

use super::*;
use crate::sample::{GpuSample, HostSample, Missing, Origin, Reading, Sample, SampledProcess, ThrottleReason};
use crate::{RunLock, RunSetup, RunStatus};

/// Time of the first record: 2026-11-21 14:03 UTC.
const START: f64 = 1_795_269_780.0;

/// A step in which computing takes a varying part, and data a fixed one.
pub(crate) fn step(step: u64) -> StepEvent {
    let mut times = TimeShares::default();
    times.add(TimeOwner::Data, 0.125);
    times.add(TimeOwner::Submit, 0.0625);
    times.add(TimeOwner::Compute, 0.5 + 0.01 * (step % 7) as f64);
    times.add(TimeOwner::Optimizer, 0.03125);
    StepEvent {
        step,
        position: Position { epoch: step / 100, ..Position::default() },
        loss: 8.0 / (1.0 + step as f64 * 0.05),
        norm: 1.5,
        rate: 1e-3,
        frames: 16_000,
        padding: 0.0625,
        peak_bytes: Bytes::mib(900 + step % 50),
        times,
        ..StepEvent::default()
    }
}

fn record(seconds: f64, event: Event) -> Record {
    Record::new(START + seconds, event)
}

/// A run in the middle of its training.
pub(crate) fn running() -> RunView {
    let mut run = RunView::new("birch-07");
    run.set_setup(&RunSetup {
        task: Some("asr".into()),
        device: Some("CUDA device 0".into()),
        total_steps: Some(1000),
        hop_seconds: Some(0.01),
        ..RunSetup::default()
    });
    run.set_planned_bytes(Some(Bytes::mib(1000)));
    (1..=240).for_each(|number| run.observe(&record(number as f64, Event::Step(step(number)))));
    let scores = vec![Measure::share("cer", "character error rate", 0.125)];
    let validated = Event::Validated { step: 200, epoch: 2, scores, seconds: 2.5, best: true, peak_bytes: Bytes(0) };
    let failure = OutOfMemory { stage: Stage::Backward, reason: "no\nmemory".into() };
    for event in [
        validated,
        Event::Saved { step: 200, path: "runs/birch-07/checkpoints/000200".into() },
        Event::OutOfMemory { step: 231, failure, limit: 4 },
    ] {
        run.observe(&record(241.0, event));
    }
    run.set_now(START + 243.0);
    run
}

/// Readings of a machine with a GPU, of which some are missing.
pub(crate) fn sample() -> Sample {
    let nvml = |value| Reading::new(value, Origin::Nvml);
    let bytes = |gib| Reading::new(Bytes::gib(gib), Origin::Nvml);
    let process = |pid, name: Option<&str>, memory, is_own| SampledProcess {
        pid,
        name: name.map(Into::into),
        memory,
        is_own,
        is_other: !is_own,
    };
    let gpu = GpuSample {
        index: 0,
        uuid: "GPU-8f6d2f0a-0000-4000-8000-000000000001".into(),
        name: "NVIDIA H200".into(),
        cuda_index: Some(0),
        utilization: nvml(0.97),
        memory_utilization: nvml(0.5),
        sm_active: Reading::new(0.41, Origin::Gpm),
        tensor_active: Reading::missing(Missing::NotSupported, Origin::Gpm),
        memory_total: bytes(141),
        memory_used: bytes(17),
        memory_free: bytes(124),
        power: nvml(431.5),
        power_limit: nvml(700.0),
        temperature: nvml(54.0),
        sm_clock: nvml(1755.0),
        sm_clock_max: nvml(1980.0),
        throttle: Reading::new(vec![ThrottleReason::PowerLimit], Origin::Nvml),
        processes: Reading::new(
            vec![
                process(4242, Some("plimsoll"), bytes(16), true),
                process(77, None, Reading::missing(Missing::NoPermission, Origin::Nvml), false),
            ],
            Origin::Nvml,
        ),
        ..GpuSample::default()
    };
    let host = HostSample {
        cpu: Reading::new(0.625, Origin::System),
        own_cpus: Reading::new(3.5, Origin::System),
        other_cpus: Reading::missing(Missing::NeedsTwoReadings, Origin::System),
        cpus: Reading::new(8, Origin::ControlGroup),
        memory_total: Reading::new(Bytes::gib(32), Origin::ControlGroup),
        memory_available: Reading::new(Bytes::gib(20), Origin::ControlGroup),
        own_memory: Reading::new(Bytes::gib(3), Origin::System),
        ..HostSample::default()
    };
    Sample { time: START + 242.0, host, gpus: vec![gpu], no_gpu: None }
}

/// The same run on a machine whose GPU can be read.
pub(crate) fn running_on_gpu() -> RunView {
    let mut run = running();
    run.sample(sample());
    run
}

#[test]
fn a_running_run_is_described() {
    let run = running();
    let verdict = run.verdict();
    assert_eq!((verdict.owner, verdict.steps), (Some(TimeOwner::Compute), 50));
    assert_eq!(verdict.text, "computing: 71 % of the time of the last 50 steps, then waiting for data: 17 %");
    assert_eq!((run.status(), run.step(), run.epoch()), (Some(RunStatus::Running), Some(240), Some(2)));
    let window = run.window();
    let left = 760.0 * window.times.total() / 50.0;
    assert!((run.time_left().unwrap().0 - left).abs() < 1e-9);
    let speed = run.audio_seconds_per_second().unwrap();
    assert!((speed - 50.0 * 160.0 / window.times.total()).abs() < 1e-9, "{speed}");
    assert_eq!((run.peak_bytes(), run.planned_bytes()), (Some(Bytes::mib(949)), Some(Bytes::mib(1000))));
    assert_eq!(
        run.events().next().unwrap().text,
        "out of memory in backward; micro-batches now have at most 4 utterances"
    );
    assert_eq!(run.record_age().unwrap().0, 2.0);
    let counts = run.counts();
    assert_eq!((counts.steps, counts.validations, counts.checkpoints, counts.out_of_memory), (240, 1, 1, 1));
}

#[test]
fn a_verdict_needs_measured_steps() {
    let mut run = RunView::new("a");
    assert_eq!(run.verdict().text, "not enough data: no step yet");
    for number in 1..=9 {
        let measured = if number > 5 { step(number).times } else { TimeShares::default() };
        run.observe(&record(0.0, Event::Step(StepEvent { times: measured, step_seconds: 1.0, ..step(number) })));
        let expected =
            if number == 5 { "not enough data: no measured times in the last 5 steps" } else { "not enough" };
        assert!(run.verdict().text.starts_with(expected), "{number}: {}", run.verdict().text);
    }
    run.observe(&record(0.0, Event::Step(step(10))));
    assert_eq!(run.verdict().owner, Some(TimeOwner::Unknown));
}

#[test]
fn what_nothing_measured_is_missing() {
    let mut run = RunView::new("a");
    run.observe(&record(0.0, Event::Step(StepEvent { step: 1, ..StepEvent::default() })));
    let json = serde_json::to_value(&run).unwrap();
    for key in ["loss", "learning_rate", "peak_bytes", "planned_bytes", "audio_seconds_per_second", "seconds_left"] {
        assert!(json[key].is_null(), "{key}: {}", json[key]);
    }
    assert_eq!((&json["schema_version"], &json["step"]), (&SNAPSHOT_VERSION.into(), &1.into()));
}

#[test]
fn a_snapshot_has_the_reasons_of_missing_readings() {
    let json = serde_json::to_value(running_on_gpu()).unwrap();
    let gpu = &json["sample"]["gpus"][0];
    assert_eq!(
        (&gpu["utilization"]["value"], &gpu["tensor_active"]["value"]),
        (&0.97.into(), &serde_json::Value::Null)
    );
    assert_eq!(
        (&gpu["tensor_active"]["missing"], &gpu["ecc_errors"]["missing"]),
        (&"not_supported".into(), &"not_read".into())
    );
    assert_eq!(json["sample_age_seconds"], 1.0);
}

#[test]
fn repeated_steps_replace_the_first_ones_and_still_count_as_time() {
    let mut run = running();
    let (before, frames) = (run.total().times.total(), run.counts().frames);
    run.observe(&record(300.0, Event::Step(step(201))));
    assert_eq!((run.step(), run.losses().last().unwrap().0), (Some(201), 201));
    assert!(run.losses().points().windows(2).all(|pair| pair[0].step < pair[1].step));
    assert_eq!((run.window().steps, run.counts().steps), (1, 241));
    assert!(run.total().times.total() > before && run.counts().frames > frames);
}

#[test]
fn an_end_decides_the_status_and_a_resumed_run_runs() {
    for (end, expected) in [
        (EndKind::Complete, RunStatus::Complete),
        (EndKind::Stale, RunStatus::Complete),
        (EndKind::Stopped, RunStatus::Stopped),
        (EndKind::Failed, RunStatus::Failed),
    ] {
        let mut run = running();
        let ended = Event::Ended { step: 240, end, reason: "full disk\u{1b}[2J".into(), times: TimeShares::default() };
        run.observe(&record(400.0, ended));
        run.observe(&record(401.0, Event::Saved { step: 240, path: "a".into() }));
        assert_eq!((run.status(), run.time_left()), (Some(expected), None));
        assert!(run.events().all(|event| !event.text.contains(char::is_control)));
        run.observe(&record(402.0, Event::Step(step(241))));
        assert_eq!(run.status(), Some(RunStatus::Running));
    }
}

#[test]
fn a_series_keeps_its_mean_and_its_bound() {
    for count in [0_u64, 1, 2, 511, 512, 513, 5000] {
        let mut series = Series::default();
        (1..=count).for_each(|step| series.push(step, step as f64));
        series.push(count + 1, f64::NAN);
        let points = series.points();
        assert!(points.len() <= 512 && points.windows(2).all(|pair| pair[0].step < pair[1].step), "{count}");
        assert_eq!(points.last().map(|point| point.step), (count > 0).then_some(count));
        assert_eq!(series.last(), (count > 0).then_some((count, count as f64)));
        assert!(series.range().is_none_or(|(low, high)| low >= 1.0 && high <= count as f64));
    }
}

fn append(path: &Path, text: &str) {
    File::options().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn line(number: u64) -> String {
    serde_json::to_string(&record(number as f64, Event::Step(step(number)))).unwrap() + "\n"
}

#[test]
fn a_follower_reads_whole_lines_as_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let (run_folder, mut run) = (folder.path().join("birch"), RunView::default());
    let mut follower = RunFollower::new(&run_folder);
    assert!(!follower.refresh(&mut run).unwrap());
    fs::create_dir(&run_folder).unwrap();
    let path = run_folder.join("metrics.jsonl");
    let text: String = (1..=3).map(line).collect::<String>() + "broken\n" + &line(4);
    let bytes: Vec<char> = text.chars().collect();
    for part in bytes.chunks(97) {
        append(&path, &part.iter().collect::<String>());
        follower.refresh(&mut run).unwrap();
    }
    assert_eq!((run.counts().steps, run.step(), follower.skipped_lines()), (4, Some(4), 1));
    assert!(!follower.refresh(&mut run).unwrap());
    // A killed process leaves a part of a line, and the next one removes it.
    append(&path, "{\"event\":\"st");
    follower.refresh(&mut run).unwrap();
    crate::Recorder::append(&path).unwrap().record(&Event::Step(step(5))).unwrap();
    follower.refresh(&mut run).unwrap();
    assert_eq!((run.counts().steps, follower.skipped_lines(), follower.start().name()), (5, 1, "birch"));
}

#[test]
fn a_follower_starts_again_with_another_record() {
    for lines in [1, 3, 9] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut follower = RunFollower::new(folder.path());
        let mut run = follower.start();
        fs::write(&path, (1..=3).map(line).collect::<String>()).unwrap();
        assert!(follower.refresh(&mut run).unwrap());
        fs::write(&path, (11..11 + lines).map(line).collect::<String>()).unwrap();
        assert!(follower.refresh(&mut run).unwrap());
        assert_eq!((run.counts().steps, run.step()), (lines, Some(10 + lines)));
    }
}

#[test]
fn a_follower_reads_the_plan_and_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let mut follower = RunFollower::new(folder.path());
    let mut run = follower.start();
    let header = PlanHeader { total_steps: Some(70), hop_seconds: Some(0.01), ..PlanHeader::default() };
    let plan = toml::to_string(&header).unwrap();
    for memory in [
        "[memory.plan]\npeak = 1024\nbudget = 2048\n",
        "[memory]\naround = 24\nsharing = 2\n[memory.plan]\npeak = 500\n",
    ] {
        fs::write(folder.path().join("plan.toml"), format!("{plan}{memory}")).unwrap();
        assert!(follower.refresh(&mut run).unwrap());
        assert_eq!((run.total_steps(), run.planned_bytes()), (Some(70), Some(Bytes(1024))));
    }
    append(&folder.path().join("metrics.jsonl"), &line(1));
    let lock = RunLock::take(folder.path()).unwrap();
    follower.refresh(&mut run).unwrap();
    assert_eq!(run.status(), Some(RunStatus::Running));
    drop(lock);
    assert!(follower.refresh(&mut run).unwrap());
    assert_eq!(run.status(), Some(RunStatus::Stopped));
    assert!(!follower.refresh(&mut run).unwrap());
}

/// A process writes its report after the end of its record, and holds the lock meanwhile.
#[test]
fn a_process_that_holds_the_lock_after_its_end_has_ended_as_it_recorded() {
    for (end, expected) in [
        (EndKind::Complete, RunStatus::Complete),
        (EndKind::Stopped, RunStatus::Stopped),
        (EndKind::Failed, RunStatus::Failed),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut follower = RunFollower::new(folder.path());
        let mut run = follower.start();
        let path = folder.path().join("metrics.jsonl");
        let ended = Event::Ended { step: 2, end, reason: String::new(), times: TimeShares::default() };
        let saved = Event::Saved { step: 2, path: "a".into() };
        let lock = RunLock::take(folder.path()).unwrap();
        append(&path, &line(1));
        for event in [ended, saved] {
            append(&path, &(serde_json::to_string(&record(2.0, event)).unwrap() + "\n"));
            follower.refresh(&mut run).unwrap();
            assert_eq!(run.status(), Some(RunStatus::Running));
        }
        drop(lock);
        assert!(follower.refresh(&mut run).unwrap());
        assert_eq!(run.status(), Some(expected));
        // A resumed run.
        let _lock = RunLock::take(folder.path()).unwrap();
        follower.refresh(&mut run).unwrap();
        assert_eq!(run.status(), Some(RunStatus::Running));
    }
}

#[test]
fn every_thread_sees_the_newest_state() {
    let live = LiveRun::default();
    let reader = live.clone();
    live.publish(running());
    assert_eq!(reader.latest().step(), Some(240));
}
