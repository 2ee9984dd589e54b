//! Tests of the framework: time limits, panics, order, the page, and the archive.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn report(id: &str, outcome: Outcome) -> CheckReport {
    CheckReport::new(id, "a title", outcome, Duration::from_millis(250))
}

fn example() -> DoctorReport {
    let machine = MachineSummary {
        system: "linux x86_64".into(),
        logical_cpus: 16,
        memory: 64 << 30,
        usable_memory: 32 << 30,
        container: true,
        driver: Some("580.82.07".into()),
        cuda: Some("13.0".into()),
        gpus: vec![DoctorGpu { name: "NVIDIA T4".into(), memory: Some(16 << 30), ..DoctorGpu::default() }],
        ..MachineSummary::default()
    };
    let checks = vec![
        report("driver", Outcome::pass("driver 580.82.07").with_detail("cuda", "13.0")),
        report("driver-permission", Outcome::fail("cannot open /dev/nvidia0").with_fix("ask\nthe administrator")),
        report("gpu-memory", Outcome::warn("GPU 0: 2 GiB free\nGPU 1: 3 GiB free").with_fix("end \u{1b}[2J others")),
        report("wsl", Outcome::skip("this is not Linux under Windows")),
    ];
    DoctorReport::new(1_700_000_000.0, Some(machine), checks)
}

#[test]
fn the_page_is_aligned() {
    insta::assert_snapshot!(example());
}

#[test]
fn colors_add_only_escapes() {
    let colored = example().page(true);
    let codes = ["\u{1b}[0m", "\u{1b}[2m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[1;31m"];
    let plain = codes.iter().fold(colored.clone(), |text, code| text.replace(code, ""));
    assert_ne!(colored, plain);
    assert_eq!(plain, example().page(false));
}

#[test]
fn the_report_for_programs_is_stable() {
    let text = serde_json::to_string_pretty(&example()).unwrap();
    insta::assert_snapshot!(text);
    assert_eq!(serde_json::from_str::<DoctorReport>(&text).unwrap(), example());
}

#[test]
fn the_exit_code_is_that_of_the_worst_check() {
    let check = |outcomes: &[Outcome], expected| {
        let checks = outcomes.iter().map(|outcome| report("x", outcome.clone())).collect();
        assert_eq!(DoctorReport::new(0.0, None, checks).exit_code(), expected, "{outcomes:?}");
    };
    let [pass, warn, fail, skip] = [Outcome::pass("x"), Outcome::warn("x"), Outcome::fail("x"), Outcome::skip("x")];
    check(&[], 0);
    check(&[pass.clone(), skip.clone()], 0);
    check(&[warn.clone(), pass.clone()], 1);
    check(&[pass, fail, warn, skip], 2);
}

#[test]
fn a_check_that_never_answers_is_a_warning() {
    let sleep = |_: &CheckContext| loop {
        std::thread::park();
    };
    let limit = Duration::from_millis(50);
    let report = Doctor::new()
        .with(Check::new("hangs", "hangs", sleep).with_limit(limit))
        .with(Check::new("after", "after", |_| Outcome::pass("ran")))
        .run(|_| {});
    assert_eq!(report.checks[0].outcome.status, CheckStatus::Warn);
    assert_eq!(report.checks[0].outcome.finding, "no answer within 0.05 s");
    assert_eq!(report.checks[1].outcome.finding, "ran");
}

#[test]
fn a_panic_is_a_failure_with_its_message() {
    let report = Doctor::new()
        .with(Check::new("text", "text", |_| panic!("a fixed text")))
        .with(Check::new("formatted", "formatted", |_| panic!("number {}", 7)))
        .with(Check::new("value", "value", |_| std::panic::panic_any(7)))
        .run(|_| {});
    let findings: Vec<&str> = report.checks.iter().map(|check| check.outcome.finding.as_str()).collect();
    let expected = ["a fixed text", "number 7", "without a message"].map(|text| format!("the check panicked: {text}"));
    assert_eq!(findings, expected);
    assert_eq!(report.count(CheckStatus::Fail), 3);
}

#[test]
fn progress_comes_in_order() {
    let mut seen = Vec::new();
    let doctor = ["b", "a", "c"].into_iter().fold(Doctor::new(), |doctor, id| {
        doctor.with(Check::new(id, id, |context| Outcome::pass(format!("{}", !context.remaining().is_zero()))))
    });
    let report = doctor.run(|progress| match progress {
        DoctorProgress::Started { index, count, id, .. } => seen.push(format!("{index}/{count} {id}")),
        DoctorProgress::Finished { check, .. } => seen.push(check.outcome.finding.clone()),
    });
    assert_eq!(seen, ["0/3 b", "true", "1/3 a", "true", "2/3 c", "true"]);
    assert_eq!(report.checks.iter().map(|check| check.id.as_str()).collect::<Vec<_>>(), ["b", "a", "c"]);
}

#[test]
#[should_panic(expected = "two checks with the name `a`")]
fn names_are_unique() {
    let check = || Check::new("a", "a", |_| Outcome::pass("x"));
    let _ = Doctor::new().with(check()).with(check());
}

#[test]
fn names_are_in_lower_case_with_hyphens() {
    for id in ["", "A", "a b", "a_b", "-a", "a-", "a--b"] {
        assert!(std::panic::catch_unwind(|| Check::new(id, "", |_| Outcome::pass(""))).is_err(), "{id}");
    }
    Check::new("gpu-memory-2", "", |_| Outcome::pass(""));
}

fn unpack(path: &std::path::Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (entry.path().unwrap().display().to_string(), text)
    };
    archive.entries().unwrap().map(read).collect()
}

#[test]
fn an_archive_holds_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("driver");
    std::fs::create_dir_all(driver.join("gpus/0000:01:00.0")).unwrap();
    std::fs::write(driver.join("version"), "NVRM version: 580 (builder@ann-laptop)\n").unwrap();
    std::fs::write(driver.join("gpus/0000:01:00.0/information"), "Model: T4\n").unwrap();
    let pairs = [
        ("HOME", "/home/ann"),
        ("USER", "ann"),
        ("SECRET_THING", "squeamish\"ossifrage"),
        ("PLIMSOLL_CACHE", "/home/ann/cache"),
        ("PLIMSOLL_API_KEY", "12345"),
        ("PATH", "/usr/bin"),
        ("TERM", "xterm"),
    ];
    let variables = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let mut report = example();
    report.checks.push(self::report(
        "loader",
        Outcome::warn("read /home/ann/data with squeamish\"ossifrage")
            .with_fix("ask ann@ann-laptop")
            .with_detail("path", json!(["/home/ann/x", "squeamish\"ossifrage"])),
    ));
    let path = folder.path().join("report.tar.gz");
    let redactor = Redactor::new(&variables, Some("ann-laptop"));
    report.write_bundle(&path, &redactor, &variables, &driver).unwrap();

    let files = unpack(&path);
    let names: Vec<&str> = files.keys().map(|name| name.strip_prefix("plimsoll-doctor/").unwrap()).collect();
    let expected = [
        "driver/gpus-0000-01-00.0-information.txt",
        "driver/modules.txt",
        "driver/version.txt",
        "environment.txt",
        "report.json",
        "report.txt",
    ];
    assert_eq!(names, expected);
    for (name, text) in &files {
        for secret in ["ossifrage", "/home/ann", "laptop", "12345"] {
            assert!(!text.contains(secret), "{name} has {secret}: {text}");
        }
    }
    let environment = "PLIMSOLL_API_KEY=<redacted>\nPLIMSOLL_CACHE=~/cache\nTERM=xterm\n";
    assert_eq!(files["plimsoll-doctor/environment.txt"], environment);
    let json: Value = serde_json::from_str(&files["plimsoll-doctor/report.json"]).unwrap();
    assert_eq!(json["checks"][4]["details"]["path"], json!(["~/x", "<redacted>"]));
    assert_eq!(json["checks"][0]["status"], "pass");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_random_secret_is_in_no_file_of_an_archive(
        secret in "[A-Za-z0-9+/=_.@!$%^*\"\\\\ -]{8,30}",
        word in "[A-Za-z0-9]{8,20}", is_known: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut variables = BTreeMap::from([("PLIMSOLL_SERVER".to_owned(), "https://h/x".to_owned())]);
        // A secret that no variable holds must stand where one expects it: in a URL, or after its name.
        let (inside, hidden) = if is_known {
            variables.insert("HUB_TOKEN".into(), secret.clone());
            (format!("/data/{secret}/x: {secret}"), secret)
        } else {
            (format!("https://bob:{word}@h/x?api_key={word}&y --token {word}"), word)
        };
        variables.insert("PLIMSOLL_CACHE".into(), inside.clone());
        let outcome = Outcome::fail(inside.clone()).with_fix(inside.clone()).with_detail("a", json!({ "b": [inside] }));
        let mut report = example();
        report.checks.push(self::report("loader", outcome));
        let path = folder.path().join("report.tgz");
        report.write_bundle(&path, &Redactor::new(&variables, None), &variables, folder.path()).unwrap();
        let escaped = serde_json::to_string(&hidden).unwrap();
        for (name, text) in unpack(&path) {
            prop_assert!(!text.contains(&hidden), "{name}: {text}");
            prop_assert!(!text.contains(escaped.trim_matches('"')), "{name}: {text}");
        }
    }
}

#[test]
fn an_archive_needs_a_known_ending_and_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let error = |name: &str| example().bundle(&folder.path().join(name)).unwrap_err();
    assert!(matches!(error("report.rar"), BundleError::Format { .. }));
    assert!(matches!(error("none/report.tgz"), BundleError::Write { .. }));
    example().bundle(&folder.path().join("report.tgz")).unwrap();
}
