//! Tests of manifests: reading, selecting and writing.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::Utterance;
use crate::testing::write_wav;
use plimsoll_audio::LogMelConfig;
use plimsoll_core::error_chain;
use std::collections::BTreeMap;

/// Creates a folder with `a.wav` and `wavs/b.wav`, of one second each.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("wavs")).unwrap();
    for name in ["a.wav", "wavs/b.wav"] {
        write_wav(&folder.path().join(name), &[0.1; 8_000], 8_000);
    }
    folder
}

fn read(name: &str, text: &str) -> Result<Manifest, ManifestError> {
    let folder = folder();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    Manifest::read(path)
}

#[test]
fn json_lines_are_read_with_and_without_the_optional_keys() {
    let read = read(
        "manifest.jsonl",
        "\u{feff}{\"audio_filepath\": \"a.wav\", \"text\": \"नमस्कार\"}\r\n\n\
         {\"audio_filepath\": \"a.wav\", \"text\": \"two\", \"offset\": 0.25, \"extra\": [1]}\n\
         {\"id\": 7, \"audio_filepath\": \"wavs/b.wav\", \"text\": \"x\", \"duration\": 0.5, \"speaker\": 12, \"lang\": \"kok\"}",
    );
    let utterances = read.unwrap().utterances;
    let seen: Vec<_> =
        utterances.iter().map(|u| (u.id, u.offset.0, u.duration.0, u.text, u.speaker, u.language)).collect();
    assert_eq!(
        seen,
        [
            ("a.wav", 0.0, 1.0, "नमस्कार", None, None),
            ("a.wav@0.25", 0.25, 0.75, "two", None, None),
            ("7", 0.0, 0.5, "x", Some("12"), Some("kok")),
        ]
    );
    assert!(utterances.get(2).audio.ends_with("wavs/b.wav") && utterances.get(2).audio.is_absolute());
}

#[test]
fn moved_folder_keeps_the_ids_of_utterances_without_one() {
    let folder = folder();
    let ids = |name: &str| {
        let root = folder.path().join(name);
        fs::create_dir_all(&root).unwrap();
        fs::copy(folder.path().join("a.wav"), root.join("a.wav")).unwrap();
        let audio = root.join("a.wav");
        let line = |offset: f64| format!("{{\"audio_filepath\": {audio:?}, \"offset\": {offset}, \"text\": \"x\"}}\n");
        fs::write(root.join("manifest.jsonl"), line(0.0) + &line(0.5)).unwrap();
        let utterances = Manifest::read(&root).unwrap().utterances;
        assert!(utterances.iter().all(|utterance| utterance.audio == audio));
        utterances.iter().map(|utterance| utterance.id.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("old"), ["a.wav", "a.wav@0.5"]);
    assert_eq!(ids("new"), ids("old"));
}

#[test]
fn a_folder_is_read_in_the_layout_that_it_has() {
    let folder = folder();
    fs::write(folder.path().join("metadata.csv"), "b|text\n").unwrap();
    let read = Manifest::read(folder.path()).unwrap();
    assert_eq!((read.format, read.utterances.len(), read.duration()), (Format::LjSpeech, 1, Seconds(1.0)));
}

#[test]
fn written_manifests_are_read_back_unchanged() {
    let folder = folder();
    let log_mel = LogMel::new(&LogMelConfig::default()).unwrap();
    let utterance = |id: &str, audio: &str, offset: f64, speaker: Option<&str>| Utterance {
        id: id.into(),
        audio: folder.path().join(audio),
        offset: Seconds(offset),
        duration: Seconds(0.7501),
        text: "سلام \"ok\"".into(),
        speaker: speaker.map(Into::into),
        language: Some("fa".into()),
    };
    let all = [utterance("1", "a.wav", 0.0, None), utterance("2", "wavs/b.wav", 0.2499, Some("x y"))];
    let path = folder.path().join("manifest.jsonl");
    let all = Utterances::from(&all[..]);
    Manifest::write(&path, &all, &log_mel).unwrap();
    let lines = fs::read_to_string(&path).unwrap();
    assert!(lines.contains("\"audio_filepath\":\"wavs/b.wav\"") && lines.contains("\"tokens\":9"), "{lines}");
    assert_eq!(Manifest::read(&path).unwrap().utterances, all);
    let error = error_chain(&Manifest::write(folder.path().join("no/x.jsonl"), &all, &log_mel).unwrap_err());
    assert!(error.contains("cannot write manifest"), "{error}");
}

#[test]
fn a_bad_line_costs_only_its_own_utterance() {
    let good = "{\"audio_filepath\": \"a.wav\", \"text\": \"x\"}\n";
    let manifest = read("m.jsonl", &format!("{good}not JSON\n{good}")).unwrap();
    assert_eq!((manifest.utterances.len(), manifest.issues.len()), (1, 2));
    assert!((manifest.unusable_share() - 2.0 / 3.0).abs() < 1e-9);
    let gone = read("m.jsonl", "{\"audio_filepath\": \"c.wav\", \"text\": \"x\"}").unwrap_err().to_string();
    assert!(gone.starts_with("not one utterance of "), "{gone}");
    assert!(gone.contains(" can be used (1 listed); the first: ") && gone.ends_with("c.wav does not exist"), "{gone}");
    assert_eq!(Manifest::read("no/such.jsonl").unwrap_err().to_string(), "corpus no/such.jsonl does not exist");
}

fn utterance(id: &str, duration: f64, text: &str) -> Utterance {
    Utterance {
        id: id.into(),
        audio: "x.wav".into(),
        offset: Seconds(0.0),
        duration: Seconds(duration),
        text: text.into(),
        speaker: None,
        language: None,
    }
}

#[test]
fn every_utterance_is_kept_or_excluded_with_a_reason() {
    let utterances = vec![
        utterance("short", 0.05, "x"),
        utterance("good", 1.0, "abcde fghi"),
        utterance("long", 20.5, "x"),
        utterance("silent", 1.0, " \n"),
        utterance("fast", 0.4, "abcde fghi"),
        utterance("repeats", 1.0, "aaaaaa"),
        utterance("nothing", 0.0, "x"),
        utterance("wordy", 9.0, "abcde fghijk"),
    ];
    let manifest = Manifest {
        path: "m".into(),
        format: Format::Manifest,
        utterances: utterances.into(),
        issues: vec![],
        more_issues: 0,
        resampled: BTreeMap::new(),
    };
    let ten_a_second = |duration: Seconds| (duration.0 * 10.0) as u64;
    let limits = Limits {
        shortest: Seconds(0.1),
        longest: Seconds(20.0),
        output_frames: Some(&ten_a_second),
        longest_text: Some(10),
        ..Limits::default()
    };
    let selection = manifest.select(&limits);
    assert_eq!(selection.kept, manifest.utterances.part([1]));
    let excluded: Vec<String> = selection.excluded.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(excluded.join("\n"), @r#"
`short`: too short: it lasts 50ms
`long`: too long: it lasts 20.5s
`silent`: empty text
`fast`: too little audio for the text: 10 frames needed, 4 there
`repeats`: too little audio for the text: 11 frames needed, 10 there
`nothing`: too short: it lasts 0s
`wordy`: too long a text: it has 12 characters
"#);
    assert_eq!(selection.counts()["too little audio for the text"], 2);
    assert_eq!(selection.counts().values().sum::<usize>(), 7);
    let lax = manifest.select(&Limits::default());
    assert_eq!(lax.counts().into_iter().collect::<Vec<_>>(), [("empty text", 1), ("too short", 1)]);
}

#[cfg(unix)]
#[test]
fn names_that_are_not_utf8_are_left_out_and_leave_nothing_behind() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let folder = folder();
    let log_mel = LogMel::new(&LogMelConfig::default()).unwrap();
    let audio = folder.path().join(OsStr::from_bytes(b"caf\xe9.wav"));
    write_wav(&audio, &[0.1; 8_000], 8_000);
    let good = Utterance { audio: folder.path().join("a.wav"), ..utterance("good", 1.0, "x") };
    let mut all = Utterances::from(vec![Utterance { audio, ..utterance("wrong", 1.0, "x") }, good.clone()]);
    let out = folder.path().join("list.jsonl");
    let names = || {
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    assert!(Manifest::write(&out, &all, &log_mel).is_err());
    assert_eq!(names(), before);
    let issues = Manifest::take_unlistable(&mut all, folder.path());
    let [issue] = &*issues else { panic!("{issues:?}") };
    let expected = "`wrong`: the path of its audio file is not UTF-8, so no list can name it: caf\u{fffd}.wav";
    assert_eq!(issue.to_string(), expected);
    assert_eq!(all, Utterances::from(vec![good]));
    Manifest::write(&out, &all, &log_mel).unwrap();
    assert_eq!(Manifest::read(&out).unwrap().utterances, all);
    assert_eq!(names().len(), before.len() + 1);
}
