//! Tests that no change of this crate changes issues, splits, fingerprints or batches: sums recorded from an older version.

use std::fmt::Write;
use std::fs;
use std::num::NonZeroU32;

use plimsoll_core::{Bytes, Key, Seconds};
use tempfile::TempDir;

use crate::store::StoreKey;
use crate::testing::write_wav;
use crate::{
    BatchSize, BatchingConfig, CorpusFingerprint, Dataset, ImportOptions, Limits, Manifest, epoch_batches, hold_out,
};
use plimsoll_audio::{LogMel, LogMelConfig};
use plimsoll_text::Tokenizer;

/// Number of lists.
const LISTS: u64 = 240;

fn pick<'a>(key: Key, of: &[&'a str]) -> &'a str {
    of[key.below(of.len() as u64) as usize]
}

/// Writes one line of a manifest: mostly sound, sometimes not.
fn line(key: Key, n: u64) -> String {
    let words =
        ["one", "two  ", "t\\u00e9n", "cafe\u{301}", "देव", "बरें", "\\n", "a", "bb", "\\\"", "x\\\\y", "9", "\u{a0}"];
    let count = key.with("count").below(12);
    let text: String = (0..count).map(|w| pick(key.with("word").at(w), &words).to_string() + " ").collect();
    let audio =
        pick(key.with("audio"), &["a.wav", "a.wav", "b/c.wav", "./a.wav", "gone.wav", "a.wav:0+44", "a.wav:9+999999"]);
    let audio_key = pick(key.with("ak"), &["audio_filepath", "audio_filepath", "audio_filepath", "audio", "wav"]);
    let text_key = pick(key.with("tk"), &["text", "text", "text", "text", "sentence", "transcript"]);
    let id = key.with("id").below(400);
    let id = match key.with("idk").below(8) {
        0 => String::new(),
        1 => format!("\"id\": {id}, "),
        2 => format!("\"id\": \" é{n} \", "),
        3 => format!("\"id\": \"{id}\", "),
        _ => format!("\"id\": \"u-{n:05}\", "),
    };
    let seconds = 0.1 + 20.0 * key.with("seconds").unit().powi(2);
    let duration = match key.with("dk").below(24) {
        0 => ", \"duration\": null".into(),
        1 => ", \"duration\": \"1.5\"".into(),
        2 => ", \"duration\": -1".into(),
        3 => String::new(),
        4 => ", \"duration\": 3".into(),
        5 => ", \"duration\": \"soon\"".into(),
        6 => ", \"duration\": 0.0".into(),
        7 => format!(", \"duration\": {seconds}, \"offset\": 0.25"),
        8 => format!(", \"duration\": {seconds}, \"offset\": \"1e-2\", \"offset\": 0.5"),
        _ => format!(", \"duration\": {seconds}"),
    };
    let rest = pick(
        key.with("rest"),
        &[
            "",
            "",
            "",
            ", \"speaker\": \"Anna\"",
            ", \"speaker\": \"Bo\"",
            ", \"speaker\": 7",
            ", \"speaker_id\": \"Cy\"",
            ", \"speaker\": null, \"lang\": \"kok\"",
            ", \"lang\": \"en\", \"speaker\": \"Di\"",
            ", \"frames\": 7, \"tokens\": 9",
            ", \"extra\": [1, {\"a\": null}]",
            ", \"speaker\": \" \"",
            ", \"speaker\": [1]",
            ", \"locale\": \"hi\"",
        ],
    );
    match key.with("whole").below(60) {
        0 => "not JSON".into(),
        1 => "{\"id\": \"cut".into(),
        2 => "[1]".into(),
        3 => "  ".into(),
        4 => format!("  {{{id}\"{audio_key}\": \"{audio}\"{duration}}}\r"),
        _ => format!("{{{id}\"{audio_key}\": \"{audio}\", \"{text_key}\": \"{text}\"{duration}{rest}}}"),
    }
}

fn list(key: Key) -> String {
    let count = 1 + key.with("lines").below(160);
    let lines: Vec<String> = (0..count).map(|n| line(key.at(n), n)).collect();
    match key.with("form").below(9) {
        0 => format!("\u{feff}{}", lines.join("\r\n")),
        1 => {
            format!("[{}]", lines.iter().filter(|line| line.starts_with('{')).cloned().collect::<Vec<_>>().join(",\n"))
        }
        2 => lines.join("\n\n"),
        _ => lines.join("\n") + "\n",
    }
}

fn sum(text: &str) -> String {
    StoreKey::new(&[text.as_bytes()]).short()
}

/// Reads a list and describes everything that a run makes of it.
fn summary(folder: &TempDir, key: Key) -> String {
    outcome(folder, key).replace(folder.path().to_str().unwrap(), "F")
}

fn outcome(folder: &TempDir, key: Key) -> String {
    let name = ["manifest.jsonl", "other.json"][key.with("name").below(2) as usize];
    let path = folder.path().join(name);
    fs::write(&path, list(key)).unwrap();
    let options = ImportOptions {
        speaker: (key.with("os").below(4) == 0).then(|| "Ed".into()),
        language: (key.with("ol").below(4) == 0).then(|| "pt".into()),
        ..ImportOptions::default()
    };
    let mut text = String::new();
    let manifest = match Manifest::read_with(&path, &options) {
        Ok(manifest) => manifest,
        Err(error) => return error.to_string(),
    };
    let issues: Vec<String> = manifest.issues.iter().map(ToString::to_string).collect();
    write!(text, "{:?}\n{}\n", manifest.resampled, issues.join("\n")).unwrap();
    writeln!(text, "{:?} {}", manifest.duration(), manifest.unusable_share()).unwrap();
    for utterance in manifest.utterances.iter() {
        writeln!(text, "{:?}", utterance.to_owned()).unwrap();
    }
    let texts: Vec<String> = manifest.utterances.iter().map(|utterance| utterance.text.to_string()).collect();
    let tokenizer = Tokenizer::characters(texts.iter().take(40));
    let output_frames = |length: Seconds| (length.0 * 25.0) as u64;
    let limits = Limits {
        shortest: Seconds(0.3),
        longest: Seconds(15.0),
        output_frames: (key.with("ctc").below(2) == 0).then_some(&output_frames as &dyn Fn(Seconds) -> u64),
        tokenizer: (key.with("tokens").below(2) == 0).then_some(&tokenizer),
        longest_text: Some(40),
    };
    let selection = manifest.select(&limits);
    let excluded: Vec<String> = selection.excluded.iter().map(ToString::to_string).collect();
    writeln!(text, "{}\n{:?}", excluded.join("\n"), selection.counts()).unwrap();
    let share = [0.01, 0.2, 0.6, 0.97][key.with("share").below(4) as usize];
    let split = match hold_out(&selection.kept, share, key.with("hold out"), None) {
        Ok(split) => split,
        Err(error) => return text + &error.to_string(),
    };
    let fingerprint = CorpusFingerprint::new(&split.train, &split.validation);
    write!(text, "{:?} {}\n{}", split.by, fingerprint.summary(), fingerprint.to_lines()).unwrap();
    writeln!(text, "{:?}", fingerprint.held_out()).unwrap();
    let dataset = Dataset::new(split.train, LogMel::new(&LogMelConfig::default()).unwrap(), tokenizer)
        .with_memory_cache(Bytes::mib(1));
    let metas = dataset.metas();
    writeln!(text, "{metas:?} {}", dataset.unknown_characters()).unwrap();
    for size in [BatchSize::Utterances(NonZeroU32::new(7).unwrap()), BatchSize::Seconds(Seconds(40.0))] {
        for shapes in [None, NonZeroU32::new(12)] {
            let config = BatchingConfig { window: NonZeroU32::new(4), shapes, ..BatchingConfig::new(size) };
            writeln!(text, "{:?}", epoch_batches(&metas, &config, key.with("data"), 3)).unwrap();
        }
    }
    text
}

#[test]
fn nothing_changes_what_a_run_makes_of_its_lists() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("b")).unwrap();
    for name in ["a.wav", "b/c.wav"] {
        write_wav(&folder.path().join(name), &[0.1; 32_000], 8_000);
    }
    let sums: String = (0..LISTS).map(|n| sum(&summary(&folder, Key::new(n).with("lists"))) + "\n").collect();
    if let Some(file) = std::env::var_os("PLIMSOLL_RECORD_ORDER") {
        fs::write(file, &sums).unwrap();
    }
    let expected = include_str!("../../../fixtures/data/order.txt");
    for (n, (found, expected)) in sums.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "list {n}:\n{}", summary(&folder, Key::new(n as u64).with("lists")));
    }
    assert_eq!(sums.lines().count(), expected.lines().count());
}
