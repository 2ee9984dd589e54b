//! Tests of report pages: their shape, their size, and their numbers.

mod looks;
mod machine;

use std::fs;
use std::path::Path;

use plimsoll_core::{
    Bytes, EndKind, Event, Measure, OutOfMemory, PlanHeader, PoolMemory, Record, Skipped, Stage, StepEvent, TimeOwner,
    TimeShares,
};
use serde_json::Value;

use super::*;
use crate::{Example, Summary};

/// Text that would run, break out of an attribute or end an element if a page did not escape it.
const HOSTILE: &str = "</script><script>alert(1)</script>\" onload='x' <img src=//evil> &amp; \u{202e}";

fn step(number: u64) -> StepEvent {
    let mut times = TimeShares::default();
    times.add(TimeOwner::Compute, 0.5 + number as f64 % 3.0 * 0.125);
    times.add(TimeOwner::Data, 0.0625);
    times.add(TimeOwner::Unknown, 0.03125);
    StepEvent {
        step: number,
        loss: 4.0 / number as f64 + 0.25,
        rate: 1e-3,
        norm: 1.0,
        frames: 500 + number % 10,
        padding: 0.1,
        step_seconds: 0.5 + number as f64 % 3.0 * 0.125,
        wait_seconds: 0.0625,
        peak_bytes: Bytes::mib(100 + number % 50),
        times,
        ..StepEvent::default()
    }
}

fn write(folder: &Path, events: &[Event]) {
    fs::create_dir_all(folder).unwrap();
    let lines = events.iter().map(|event| serde_json::to_string(&Record::new(1.8e9, event)).unwrap() + "\n");
    fs::write(folder.join("metrics.jsonl"), lines.collect::<String>()).unwrap();
    let header = PlanHeader { hop_seconds: Some(0.01), total_steps: Some(10_000), ..PlanHeader::default() };
    let plan = "[memory]\nsharing = 2\naround = 10\n[memory.plan]\npeak = 1000\n";
    fs::write(folder.join("plan.toml"), toml::to_string(&header).unwrap() + plan).unwrap();
}

fn run_of(events: &[Event]) -> RunData {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), events);
    RunData::read(folder.path()).unwrap()
}

/// Checks what holds for every page, and returns its numbers.
#[track_caller]
fn checked(page: &str) -> Value {
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.len() < PAGE_BYTES_MAX, "{}", page.len());
    // Nothing is loaded from anywhere, and nothing runs.
    for forbidden in ["http://", "https://", "src=\"//", "@import", "<link", "<iframe"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("url(").count(), 1);
    for tag in ["section", "table", "tr", "td", "th", "figure", "svg", "details", "div", "span", "p", "del", "ins", "b"]
    {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    for wrong in ["NaN", "Infinity", "=\"inf", "#FE0"] {
        assert!(!page.contains(wrong), "{wrong}");
    }
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let numbers: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(numbers["schema_version"], NUMBERS_VERSION);
    numbers
}

fn page_of(runs: &[RunData]) -> (String, Value) {
    let html = ReportPage::new(runs).to_html();
    let numbers = checked(&html);
    (html, numbers)
}

#[test]
fn a_page_without_runs_or_steps_is_whole() {
    let (html, numbers) = page_of(&[]);
    assert!(html.contains("There is no run") && numbers["runs"].as_array().unwrap().is_empty());
    let (html, numbers) = page_of(&[run_of(&[])]);
    assert!(html.contains("The record holds no times") && !html.contains("class=\"plot\""));
    assert_eq!((&numbers["runs"][0]["step_events"], &numbers["runs"][0]["last_loss"]), (&0.into(), &Value::Null));
    assert!(RunData::read(Path::new("no/such/folder")).is_none());
}

#[test]
fn one_step_is_a_sentence_and_no_chart() {
    let memory = PoolMemory { reserved_bytes: Bytes::mib(70), ..PoolMemory::default() };
    let (html, numbers) = page_of(&[run_of(&[Event::Step(step(1)), Event::Pools { step: 1, memory }])]);
    assert!(html.contains("memory pools at the end") && html.contains("70 MiB reserved"));
    assert!(html.contains("<b>87\u{a0}%</b> computing") && html.contains("No curve yet"));
    assert!(!html.contains("class=\"plot\"") && !html.contains("class=\"dot"));
    assert_eq!(numbers["runs"][0]["bars"].as_array().unwrap().len(), 1);
    assert_eq!(numbers["runs"][0]["planned_peak_bytes"], 2010);
}

#[test]
fn the_numbers_of_a_page_are_the_sums_of_the_record() {
    for count in [1u64, 7, 120, 3000] {
        let steps: Vec<StepEvent> = (1..=count).map(step).collect();
        let mut events: Vec<Event> = steps.iter().cloned().map(Event::Step).collect();
        let mut times = TimeShares::default();
        times.add(TimeOwner::Checkpoint, 2.0);
        events.push(Event::Ended { step: count, end: EndKind::Complete, reason: String::new(), times });
        let (_, numbers) = page_of(&[run_of(&events)]);
        let run = &numbers["runs"][0];
        steps.iter().for_each(|step| times.add_all(&step.times));
        let close = |value: &Value, expected: f64| {
            let value = value.as_f64().unwrap();
            assert!((value - expected).abs() < 1e-4, "{count}: {value} is not {expected}");
        };
        for (owner, seconds) in times.iter() {
            close(&run["times"][owner.name()], seconds);
            let bars = run["bars"].as_array().unwrap();
            assert!(bars.len() <= 121);
            let sum: f64 = bars.iter().filter_map(|bar| bar["times"][owner.name()].as_f64()).sum();
            close(&sum.into(), seconds);
        }
        close(&run["total_seconds"], times.total());
        close(&run["step_seconds"], steps.iter().map(|step| step.step_seconds).sum());
        close(&run["wait_seconds"], steps.iter().map(|step| step.wait_seconds).sum());
        close(&run["loss_sum"], steps.iter().map(|step| step.loss).sum());
        assert_eq!(run["frames"], steps.iter().map(|step| step.frames).sum::<u64>());
        assert_eq!(run["peak_bytes"], steps.iter().map(|step| step.peak_bytes.0).max().unwrap());
        close(&run["padding"], 0.1);
        assert_eq!(run["step_events"], count);
    }
}

#[test]
fn times_of_repeated_steps_count_and_their_curves_do_not() {
    let events: Vec<Event> = (1..=10).chain(6..=12).map(|number| Event::Step(step(number))).collect();
    let (html, numbers) = page_of(&[run_of(&events)]);
    let run = &numbers["runs"][0];
    assert_eq!((&run["step_events"], &run["steps_repeated"]), (&12.into(), &5.into()));
    let total: f64 = (1..=10).chain(6..=12).map(|number| step(number).times.total()).sum();
    assert!((run["total_seconds"].as_f64().unwrap() - total).abs() < 1e-6);
    assert!(html.contains("include 5 steps"));
}

#[test]
fn numbers_that_are_none_and_damaged_lines_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let events: Vec<Event> = (1..=30)
        .map(|number| {
            let odd = number % 2 == 1;
            let loss = if odd { f64::NAN } else { f64::INFINITY };
            Event::Step(StepEvent { loss, norm: f64::NAN, rate: f64::NAN, ..step(number) })
        })
        .collect();
    write(folder.path(), &events);
    let path = folder.path().join("metrics.jsonl");
    let mut text = fs::read(&path).unwrap();
    text.splice(0..0, b"\xff\xfe broken {\n\n[]\n".iter().copied());
    text.extend(b"{\"event\":\"step\",\"step\":31,\"times\":{\"compute\":1e308,\"data\":-5,\"read\":null}}\n");
    text.extend(
        b"{\"event\":\"step\",\"step\":18446744073709551615,\"frames\":18446744073709551615,\"loss\":-1e308}\n",
    );
    text.extend(b"{\"event\":\"step\",\"ste");
    fs::write(&path, text).unwrap();
    fs::write(folder.path().join("summary.json"), "{").unwrap();
    fs::write(folder.path().join("config.toml"), "= =").unwrap();
    let (html, numbers) = page_of(&[RunData::read(folder.path()).unwrap()]);
    assert_eq!(numbers["runs"][0]["steps_without_loss"], 31);
    assert_eq!(numbers["runs"][0]["damaged_lines"], 3);
    assert!(html.contains("Steps without a finite loss, which have no point: 31"));
}

#[test]
fn a_record_without_owners_shows_waiting_and_unknown() {
    let events: Vec<Event> =
        (1..=5).map(|number| Event::Step(StepEvent { times: TimeShares::default(), ..step(number) })).collect();
    let (html, numbers) = page_of(&[run_of(&events)]);
    let run = &numbers["runs"][0];
    assert_eq!(run["times_from"], "step_and_wait");
    assert_eq!(run["times"]["data"], 0.3125);
    assert!(html.contains("<b>8.8\u{a0}%</b> waiting for data, <b>91\u{a0}%</b> unknown"));
}

#[test]
fn several_runs_are_compared() {
    let fast: Vec<Event> = (1..=100).map(|number| Event::Step(step(number))).collect();
    let slow: Vec<Event> =
        (1..=50).map(|number| Event::Step(StepEvent { wait_seconds: 1.0, ..step(number) })).collect();
    let mut runs = vec![run_of(&fast), run_of(&slow)];
    for (run, name) in runs.iter_mut().zip(["first", "second"]) {
        run.report.name = name.into();
        run.report.setup.config.insert("model.layers".into(), name.len().to_string());
        run.report.setup.config.insert("task".into(), "asr".into());
    }
    let (html, numbers) = page_of(&runs);
    assert_eq!(numbers["runs"].as_array().unwrap().len(), 2);
    assert!(html.contains("<small>−50 %</small>"));
    let (_, differences) = html.split_once("<h2>Configuration</h2>").unwrap();
    let (differences, _) = differences.split_once("<details>").unwrap();
    assert!(differences.contains("model.layers") && !differences.contains("task"));
    let many: Vec<RunData> = (0..20).flat_map(|_| runs.clone()).collect();
    let (html, numbers) = page_of(&many);
    assert_eq!((numbers["runs"].as_array().unwrap().len(), &numbers["runs_left_out"]), (RUNS_MAX, &32.into()));
    assert!(html.contains("Runs that do not fit on this page: 32."));
}

fn hostile_events() -> Vec<Event> {
    let text = || HOSTILE.to_string();
    let score = |value| Measure { name: text().into(), label: text().into(), value, ..Measure::share("", "", 0.0) };
    let parts = [(text().into(), 1.0), ("b".into(), 2.0)];
    let failure = OutOfMemory { stage: Stage::Forward, reason: text() };
    vec![
        Event::LeftOut { samples: vec![Skipped { name: text(), reason: text() }] },
        Event::OutOfMemory { step: 1, failure, limit: 1 },
        Event::Step(StepEvent { parts: parts.into(), ..step(1) }),
        Event::Skipped { step: 2, reason: text() },
        Event::Unfit { step: 2, names: vec![text()] },
        Event::Validated {
            step: 1,
            epoch: 0,
            scores: vec![score(0.5)],
            seconds: 1.0,
            best: true,
            peak_bytes: Bytes(0),
        },
        Event::Saved { step: 1, path: text().into() },
        Event::NotSaved { step: 1, reason: text() },
        Event::Ended { step: 1, end: EndKind::Failed, reason: text(), times: TimeShares::default() },
    ]
}

#[test]
fn hostile_texts_stay_texts() {
    let folder = tempfile::tempdir().unwrap();
    // A file name can hold everything but a slash.
    let run = folder.path().join(HOSTILE.replace('/', "|"));
    write(&run, &hostile_events());
    let quoted = Value::from(HOSTILE).to_string();
    fs::write(run.join("config.toml"), format!("{quoted} = {quoted}\n")).unwrap();
    let example = Example { name: HOSTILE.into(), truth: HOSTILE.into(), output: format!("{HOSTILE} {HOSTILE}") };
    Summary { complete: true, steps: 1, examples: vec![example], ..Summary::default() }.write(&run).unwrap();
    fs::create_dir(run.join("samples")).unwrap();
    let picture = format!("{}.svg", HOSTILE.replace('/', "|"));
    fs::write(run.join("samples").join(picture), "<svg onload='alert(1)'/>").unwrap();
    let data = RunData::read(&run).unwrap();
    for runs in [&[data.clone()][..], &[data.clone(), data]] {
        let (html, numbers) = page_of(runs);
        assert_eq!(numbers["runs"][0]["scores"][0]["label"], HOSTILE);
        for raw in ["<img src=//", "onload='", "\u{202e}\"", "alert(1)</script>"] {
            let body = html.split_once("<script").unwrap().0;
            assert!(!body.contains(raw), "{raw}");
        }
        assert!(html.contains("&lt;/script&gt;&lt;script&gt;alert(1)"));
        assert!(html.contains("data:image/svg+xml;base64,"));
    }
}

#[test]
fn sounds_leave_room_for_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let events: Vec<Event> = (1..=2500).map(|number| Event::Step(step(number))).collect();
    write(folder.path(), &events);
    let samples = folder.path().join("samples");
    fs::create_dir(&samples).unwrap();
    for number in 1..=6 {
        fs::write(samples.join(format!("step-000020-{number}.wav")), vec![7; 300 << 10]).unwrap();
        fs::write(samples.join(format!("step-000010-{number}.wav")), vec![7; 300 << 10]).unwrap();
    }
    fs::write(samples.join("step-000020-1.svg"), "<svg/>").unwrap();
    fs::write(samples.join("huge.wav"), vec![7; 3 << 20]).unwrap();
    let run = RunData::read(folder.path()).unwrap();
    let (html, _) = page_of(std::slice::from_ref(&run));
    let sounds = html.matches("<audio").count();
    assert!((2..6).contains(&sounds));
    assert!(html.contains("step-000020-1.wav") && !html.contains("step-000010-1.wav"));
    assert!(html.contains("not on this page"));
    let (html, numbers) = page_of(&vec![run; 8]);
    assert_eq!(numbers["runs"].as_array().unwrap().len(), 8);
    assert!(html.matches("<audio").count() <= sounds && html.contains("image/svg+xml"));
}

#[test]
fn sounds_of_a_text_are_side_by_side_and_say_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[Event::Step(step(1))]);
    let samples = folder.path().join("samples");
    fs::create_dir(&samples).unwrap();
    let sounds = [
        ("recording-1.wav", "the recording"),
        ("truth-1-vocoder.wav", "from the log-mels of the recording, by the vocoder"),
        ("truth-1.wav", "from the log-mels of the recording"),
        ("griffin-lim-1.wav", "by Griffin-Lim"),
        ("best-1-vocoder.wav", "said by the best model, by the vocoder"),
        ("best-1.wav", "said by the best model"),
        ("step-000020-1.wav", "said"),
    ];
    for (name, _) in sounds {
        fs::write(samples.join(name), [7; 30]).unwrap();
    }
    fs::write(samples.join("best-x.wav"), [7; 30]).unwrap();
    let run = RunData::read(folder.path()).unwrap();
    let (html, _) = page_of(std::slice::from_ref(&run));
    let places: Vec<Option<usize>> =
        sounds.iter().map(|(name, meaning)| html.find(&format!("<b>{meaning}</b> {name}"))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    assert!(html.contains("<b></b> best-x.wav"), "a name that says nothing");
}

#[test]
fn each_level_of_detail_shows_less_and_sounds_go_first() {
    let levels: Vec<Detail> = Detail::levels().collect();
    let sizes = |at: &Detail| [at.sound_bytes, at.picture_bytes, at.points, at.bars, at.rows, at.text];
    for pair in levels.windows(2) {
        let [more, less] = [sizes(&pair[0]), sizes(&pair[1])];
        assert!(more.iter().zip(&less).all(|(more, less)| more >= less) && more != less, "{more:?} {less:?}");
        assert!(less[0] == 0 || less[1..] == more[1..], "{less:?}");
        assert!(less[1] == 0 || less[2..] == more[2..], "{less:?}");
    }
}

#[test]
fn long_lists_and_texts_fit() {
    let folder = tempfile::tempdir().unwrap();
    let long = "long & <text> ".repeat(5000);
    let sample = |number: u64| Skipped { name: format!("{number} {long}"), reason: long.clone() };
    let mut events = hostile_events();
    events.extend((0..300).map(|number| Event::LeftOut { samples: vec![sample(number)] }));
    events.extend((2..4000).map(|number| Event::Step(step(number))));
    write(folder.path(), &events);
    let keys = (0..3000).map(|key| format!("key_{key} = \"{}\"\n", "v".repeat(300)));
    fs::write(folder.path().join("config.toml"), keys.collect::<String>()).unwrap();
    let run = RunData::read(folder.path()).unwrap();
    let (html, numbers) = page_of(&vec![run; 8]);
    assert_eq!(numbers["runs"][0]["events"]["left_out"], 301);
    assert!(html.contains("Not shown: "));
}
