//! Tests of Lhotse's lists: what its library wrote is read as the library reads it (made by `fixtures/lhotse_lists.py`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll_audio::{AudioSegment, read_audio_segment};
use serde_json::Value;

use super::*;
use crate::Manifest;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/data/lhotse")
}

fn counts(manifest: &Manifest) -> BTreeMap<&'static str, usize> {
    crate::select::count_by_name(&manifest.issues)
}

#[test]
fn lists_of_lhotse_give_the_utterances_and_samples_of_lhotse() {
    let expected = fs::read_to_string(folder().join("expected.json")).unwrap();
    let expected: BTreeMap<String, Vec<Value>> = serde_json::from_str(&expected).unwrap();
    assert_eq!(expected.len(), 7);
    for (name, parts) in expected {
        let list = if name == "pairs" { "pairs_supervisions".into() } else { format!("{name}_cuts") };
        let manifest = Manifest::read(folder().join(format!("{list}.jsonl.gz"))).unwrap();
        assert_eq!(manifest.utterances.len(), parts.len(), "{name}: {:?}", manifest.issues);
        for part in parts {
            let found: Vec<_> =
                manifest.utterances.iter().filter(|u| u.text == part["text"].as_str().unwrap()).collect();
            let [utterance] = *found else { panic!("{name}: {found:?}") };
            let segment = AudioSegment { offset: utterance.offset, duration: Some(utterance.duration) };
            let rate = part["rate"].as_u64().unwrap() as u32;
            let samples = read_audio_segment(utterance.audio, segment, rate).unwrap().samples;
            assert!(
                samples.len().abs_diff(part["samples"].as_u64().unwrap() as usize) <= 1,
                "{name}: {}",
                samples.len()
            );
            let power: f64 = samples.iter().map(|&sample| f64::from(sample).powi(2)).sum();
            let (rms, expected) = ((power / samples.len() as f64).sqrt(), part["rms"].as_f64().unwrap());
            // Two resamplers differ at the ends of a part.
            let tolerance = if rate == 8_000 { 1e-4 } else { 0.01 };
            assert!((rms / expected - 1.0).abs() < tolerance, "{name} {}: {rms} and {expected}", utterance.text);
        }
    }
}

#[test]
fn texts_beyond_their_windows_and_repetitions_are_issues() {
    let read = |name: &str| Manifest::read(folder().join(format!("{name}_cuts.jsonl.gz"))).unwrap();
    let windows = read("windows");
    // The second supervision lies in two windows, in part in each.
    assert_eq!(counts(&windows), [("text beyond its cut", 2)].into());
    let overlapping = counts(&read("overlapping"));
    assert!(overlapping["listed twice"] > 0 && overlapping["text beyond its cut"] > 0, "{overlapping:?}");
    let first = windows.issues[0].to_string();
    assert!(first.ends_with("its text is spoken from 0.800s to 1.200s of a cut that lasts 1.000s"), "{first}");
}

#[test]
fn resampling_below_the_file_is_counted() {
    let read = |name: &str| Manifest::read(folder().join(name)).unwrap().resampled;
    assert_eq!(read("resampled_cuts.jsonl.gz"), [(4_000, 4)].into());
    assert_eq!(read("pairs_supervisions.jsonl.gz"), [(4_000, 4)].into());
    assert_eq!(read("raised_cuts.jsonl.gz"), BTreeMap::new());
}

#[test]
fn a_duration_of_null_is_an_issue() {
    let audio = folder().join("mono.flac").canonicalize().unwrap();
    let cut = |id: &str, duration: &str, spoken: &str| {
        format!(
            "{{\"id\": \"{id}\", \"start\": 0{duration}, \"channel\": 0, \"supervisions\": [{{\"start\": 0{spoken}, \"text\": \"one\"}}], \
             \"recording\": {{\"sources\": [{{\"type\": \"file\", \"channels\": [0], \"source\": {audio:?}}}], \"sampling_rate\": 8000}}}}"
        )
    };
    let (known, null) = (r#", "duration": 1"#, r#", "duration": null"#);
    let lines =
        [cut("whole", known, known), cut("cut", null, known), cut("both", null, null), cut("text", known, null)];
    let folder = write(&[("cuts.jsonl", lines.join("\n").as_bytes())]);
    let manifest = Manifest::read(folder.path()).unwrap();
    let ids: Vec<&str> = manifest.utterances.iter().map(|utterance| utterance.id).collect();
    assert_eq!((ids, counts(&manifest)), (vec!["whole"], [("unknown duration", 3)].into()), "{:?}", manifest.issues);
}

#[test]
fn wrong_sample_rate_is_an_issue_at_every_depth() {
    let audio = folder().join("mono.flac").canonicalize().unwrap();
    let cut = |id: &str, recording: &str| {
        format!(
            r#"{{"id": "{id}", "start": 0, "duration": 1, "channel": 0, "type": "MonoCut", "supervisions": [{{"text": "{id}"}}],
            "recording": {{"sources": [{{"type": "file", "channels": [0], "source": {audio:?}}}], {recording}}}}}"#
        )
        .replace('\n', "")
    };
    let resample = |from: u32, to: u32| {
        let kwargs = format!(r#"{{"source_sampling_rate": {from}, "target_sampling_rate": {to}}}"#);
        format!(r#""sampling_rate": {to}, "transforms": [{{"name": "Resample", "kwargs": {kwargs}}}]"#)
    };
    let lines = [
        cut("good", r#""sampling_rate": 8000"#),
        cut("unknown", r#""duration": 3.0"#),
        cut("lowered", &resample(8_000, 4_000)),
        cut("wrong", r#""sampling_rate": 16000"#),
        cut("wrong source", &resample(16_000, 8_000)),
    ];
    let folder = write(&[("cuts.jsonl", lines.join("\n").as_bytes())]);
    let manifest = Manifest::read(folder.path()).unwrap();
    let ids: Vec<&str> = manifest.utterances.iter().map(|utterance| utterance.id).collect();
    assert_eq!(ids, ["good", "unknown", "lowered"], "{:?}", manifest.issues);
    let [first, second] = &*manifest.issues else { panic!("{:?}", manifest.issues) };
    for issue in [first, second] {
        let expected = "its list gives a sample rate of 16000 Hz, and its audio file has 8000 Hz";
        assert!(issue.to_string().ends_with(expected), "{issue}");
    }
}

/// Makes a track of a mixed cut: `length` seconds of a recording from `start` on.
fn track(recording: &str, start: f64, length: f64, offset: f64, text: &str) -> String {
    let audio = folder().join("mono.flac").canonicalize().unwrap();
    let said = match text {
        "" => String::new(),
        text => format!(r#"{{"id": "{recording}-s", "start": 0, "duration": {length}, "text": "{text}"}}"#),
    };
    format!(
        r#"{{"type": "MonoCut", "offset": {offset}, "cut": {{"id": "{recording}", "start": {start}, "duration": {length}, "channel": 0, "type": "MonoCut",
        "supervisions": [{said}], "recording": {{"id": "{recording}", "sampling_rate": 8000,
        "sources": [{{"type": "file", "channels": [0], "source": {audio:?}}}]}}}}}}"#
    )
}

fn silence(offset: f64) -> String {
    format!(
        r#"{{"type": "PaddingCut", "offset": {offset}, "cut": {{"id": "pad", "duration": 2.0, "sampling_rate": 8000, "type": "PaddingCut"}}}}"#
    )
}

fn mixed(id: &str, tracks: &[String], more: &str) -> String {
    let tracks = tracks.join(", ");
    format!(r#"{{"id": "{id}", "type": "MixedCut", "tracks": [{tracks}]{more}}}"#).replace('\n', "")
}

#[test]
fn cuts_that_join_cuts_or_add_silence_are_read() {
    let reverb = r#", "transforms": [{"name": "ReverbWithImpulseResponse", "kwargs": {}}]"#;
    let lines = [
        mixed("padded", &[track("a", 0.1, 0.5, 0.0, "one"), silence(0.5)], ""),
        mixed("before", &[silence(0.0), track("a", 0.1, 0.7, 2.0, "two")], ""),
        mixed("joined", &[track("a", 1.0, 0.5, 0.0, "three"), track("b", 2.0, 0.6, 0.5, "four")], ""),
        mixed("paused", &[track("a", 1.6, 0.3, 0.0, ""), track("b", 2.7, 0.2, 0.3, "five")], ""),
        mixed("called", &[silence(0.0), track("a", 0.5, 0.25, 2.0, "ten"), track("b", 1.2, 0.4, 2.25, "eleven")], "")
            .replace(r#""channels": [0]"#, r#""channels": [0, 1]"#),
        mixed("noisy", &[track("a", 1.0, 0.5, 0.0, "six"), track("noise", 0.0, 0.5, 0.25, "")], ""),
        mixed("echo", &[track("a", 1.0, 0.5, 0.0, "seven")], reverb),
        mixed("silent", &[silence(0.0)], ""),
        mixed("wordless", &[track("a", 1.0, 0.5, 0.0, "")], ""),
    ];
    let corpus = write(&[("cuts.jsonl", lines.join("\n").as_bytes())]);
    let seen = seen_at(corpus.path(), corpus.path(), &ImportOptions::default());
    let audio = folder().join("mono.flac").canonicalize().unwrap();
    insta::assert_snapshot!(seen.replace(&*audio.to_string_lossy(), "mono.flac"), @r"
    lhotse
    padded: mono.flac 100ms..600ms [- -] one (cuts.jsonl:1)
    before: mono.flac 100ms..800ms [- -] two (cuts.jsonl:2)
    joined-1: mono.flac 1s..1.5s [- -] three (cuts.jsonl:3)
    joined-2: mono.flac 2s..2.6s [- -] four (cuts.jsonl:3)
    paused: mono.flac 2.7s..2.9s [- -] five (cuts.jsonl:4)
    called-1: mono.flac:ch0 500ms..750ms [- -] ten (cuts.jsonl:5)
    called-2: mono.flac:ch0 1.2s..1.6s [- -] eleven (cuts.jsonl:5)
    ! cuts.jsonl:6: `noisy`: it mixes several recordings at 250ms, and only recordings one after the other can be read
    ! cuts.jsonl:7: `echo`: its recording is changed by `ReverbWithImpulseResponse`, and files are only read as they are
    ! cuts.jsonl:8: `silent`: it has no audio: none of its tracks is a recording
    ! cuts.jsonl:9: `wordless`: it has no text
    ");
}

#[test]
fn all_channels_of_a_recording_are_one_or_one_is_taken() {
    let cut = |id: &str, channels: &str| {
        format!(
            r#"{{"id": "{id}", "type": "MultiCut", "start": 0, "duration": 1, "channel": {channels}, "supervisions": [{{"text": "{id}"}}], "recording": {{"sources": [{{"type": "file", "channels": [0, 1], "source": "x.wav"}}]}}}}"#
        )
    };
    let spoken = cut("ann", "[0, 1]").replace(r#"{"text": "ann"}"#, r#"{"text": "ann", "channel": 0}"#);
    let lines = [cut("both", "[0, 1]"), cut("one", "[1]"), spoken].join("\n");
    insta::assert_snapshot!(seen(&[("cuts.jsonl", lines.as_bytes())], &ImportOptions::default()), @r"
    lhotse
    both: x.wav 0s..1s [- -] both (cuts.jsonl:1)
    one: x.wav:ch1 0s..1s [- -] one (cuts.jsonl:2)
    ann: x.wav:ch0 0s..1s [- -] ann (cuts.jsonl:3)
    ");
}
