//! Tests of the files that a corpus consists of: special files, names in other Unicode forms, arrays, duplicates.

use super::*;
use crate::testing::write_wav;
use crate::{Manifest, ManifestError};

fn second(folder: &TempDir, name: &str) {
    write_wav(&folder.path().join(name), &[0.1; 8_000], 8_000);
}

fn durations(folder: &TempDir) -> Vec<(String, f64)> {
    let manifest = Manifest::read(folder.path()).unwrap();
    manifest.utterances.iter().map(|utterance| (utterance.id.to_owned(), utterance.duration.0)).collect()
}

#[cfg(unix)]
#[test]
fn special_files_are_issues_in_every_layout() {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    let kinds = ["a pipe", "a device", "a loop", "a folder", "a dangling link", "an empty file"];
    let special = |folder: &TempDir, kind: &str, name: &str| {
        let path = folder.path().join(name);
        match kind {
            "a pipe" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
            "a device" => symlink("/dev/zero", &path).unwrap(),
            "a loop" => symlink(&path, &path).unwrap(),
            "a folder" => fs::create_dir(&path).unwrap(),
            "a dangling link" => symlink("gone", &path).unwrap(),
            _ => fs::write(&path, "").unwrap(),
        }
    };
    for kind in kinds {
        // As audio.
        for files in [
            &[(
                "manifest.jsonl",
                &b"{\"audio\": \"a.wav\", \"text\": \"x\"}\n{\"audio\": \"b.wav\", \"text\": \"x\"}"[..],
            )][..],
            &[("wav.scp", b"a a.wav\nb b.wav\n"), ("text", b"a x\nb x\n")],
            &[("metadata.csv", b"file_name,text\na.wav,x\nb.wav,x\n")],
            &[("a.txt", b"x"), ("b.txt", b"x")],
        ] {
            let folder = write(files);
            special(&folder, kind, "a.wav");
            second(&folder, "b.wav");
            let ids: Vec<String> = durations(&folder).into_iter().map(|(id, _)| id.replace(".wav", "")).collect();
            assert_eq!(ids, ["b"], "{kind} {files:?}");
        }
        // As a list.
        for list in ["manifest.jsonl", "metadata.csv", "cuts.jsonl.gz", "list.json", "validated.tsv", "text"] {
            let folder = write(&[]);
            special(&folder, kind, list);
            assert!(import(folder.path().join(list), &ImportOptions::default()).is_err(), "{kind} {list}");
            let _ = import(folder.path(), &ImportOptions::default());
            for format in Format::ALL {
                let _ = import(folder.path(), &as_format(format));
                let _ = import(folder.path().join(list), &as_format(format));
            }
        }
    }
    let folder = write(&[]);
    special(&folder, "a pipe", "list");
    let seen = seen_at(&folder.path().join("list"), folder.path(), &ImportOptions::default());
    assert_eq!(seen, "cannot read list: it is a named pipe, not a file\n");
}

#[test]
fn accents_in_names_may_be_written_in_both_ways() {
    let (composed, separate) = ("caf\u{e9}", "cafe\u{301}");
    for (listed, on_disk) in [(composed, separate), (separate, composed)] {
        let list = format!("{{\"id\": \"x\", \"audio\": \"{listed}/{listed}.wav\", \"text\": \"x\"}}\n");
        let ljspeech = format!("{listed}|x\n");
        let text = format!("{listed}.txt");
        for (name, content, audio) in [
            ("manifest.jsonl", list.as_str(), format!("{on_disk}/{on_disk}.wav")),
            ("metadata.csv", &ljspeech, format!("wavs/{on_disk}.wav")),
            (&text, "x", format!("{on_disk}.wav")),
        ] {
            let folder = write(&[(name, content.as_bytes()), (&audio, b"")]);
            second(&folder, &audio);
            let manifest = Manifest::read(folder.path()).unwrap();
            assert_eq!((manifest.utterances.len(), manifest.issues.len()), (1, 0), "{name} {listed:?}");
            assert!(manifest.utterances.get(0).audio.ends_with(&audio), "{:?}", manifest.utterances);
        }
    }
    let list = "{\"id\": \"x\", \"audio\": \"th\u{e9}.wav\", \"text\": \"x\"}\n";
    let folder = write(&[("manifest.jsonl", list.as_bytes())]);
    assert!(matches!(Manifest::read(folder.path()), Err(ManifestError::NothingUsable { .. })));
}

#[test]
fn array_is_read_like_lines() {
    let items = [
        r#"{"audio_filepath": "a.wav", "text": "one, [two]"}"#,
        r#"{"audio_filepath": "b.wav", "text": "a \"quoted\" }"}"#,
        r#"{"audio_filepath": "c.wav", "text": ["x"]}"#,
        r#"{"audio_filepath": "d.wav", "text": "four"}"#,
    ];
    let pretty = items.map(|item| item.replace(", \"text", ",\n    \"text")).join(",\n  ");
    let lines = seen(&[("m.json", items.join("\n").as_bytes())], &ImportOptions::default());
    let read = |content: &str| {
        let folder = write(&[("m.json", content.as_bytes())]);
        import(folder.path().join("m.json"), &ImportOptions::default()).unwrap()
    };
    let texts = |listing: &Listing| listing.entries.iter().map(|entry| entry.text.clone()).collect::<Vec<_>>();
    let expected = read(&items.join("\n"));
    assert!(lines.contains("is not a corpus in a known layout"), "{lines}");
    assert_eq!((expected.format, expected.entries.len(), expected.issues.len()), (Format::Manifest, 3, 1));
    for content in [
        format!("[{}]", items.join(",")),
        format!("[\n{}\n]\n", items.join(",\n")),
        format!("\u{feff}  [\n  {pretty}\n  ]"),
        format!("[{}]\n[{}, {}]", items[0], items[1], items[2..].join(",")),
        format!("[{}]\n{}\n{}", items[0], items[1], items[2..].join("\n")),
    ] {
        let listing = read(&content);
        assert_eq!((texts(&listing), listing.issues.len()), (texts(&expected), 1), "{content}");
        assert_eq!(listing.issues[0].kind, expected.issues[0].kind);
    }
    let lines: Vec<Option<usize>> =
        read(&format!("[\n{pretty}\n]")).entries.iter().map(|entry| entry.location.line).collect();
    assert_eq!(lines, [Some(2), Some(4), Some(8)]);
}

#[test]
fn damaged_arrays_keep_their_readable_items() {
    let good = |n: u8| format!("{{\"audio\": \"{n}.wav\", \"text\": \"x\"}}");
    let seen = |content: &str| {
        let folder = write(&[("manifest.json", content.as_bytes())]);
        seen_at(&folder.path().join("manifest.json"), folder.path(), &as_format(Format::Manifest))
    };
    let long = "y".repeat(5 << 20);
    let content = format!(
        "[{},\n5, {{\"audio\": \"cut\n\"}}, {},\n{{\"audio\": \"{long}\"}},\n{},\n{{\"audio\": [1}}]",
        good(1),
        good(2),
        good(3)
    );
    insta::assert_snapshot!(seen(&content), @"
    manifest
    1.wav: 1.wav 0s..end [- -] x (manifest.json:1)
    3.wav: 3.wav 0s..end [- -] x (manifest.json:5)
    ! manifest.json:2: a JSON object was expected: a number was found
    ! manifest.json:2: a JSON object was expected: a text does not end in its line
    ! manifest.json:3: a JSON object was expected: a text does not end in its line
    ! manifest.json:4: the item is longer than 4194304 bytes
    ! manifest.json:6: a JSON object was expected: expected `,` or `]` at column 13
    ! manifest.json:6: a JSON object was expected: the file ends inside an array
    ");
}

#[test]
fn list_that_cannot_be_read_is_described() {
    let error = |files: Files<'_>, name: &str| {
        let folder = write(files);
        let path = if name.is_empty() { folder.path().to_path_buf() } else { folder.path().join(name) };
        import(path, &ImportOptions::default()).unwrap_err().to_string()
    };
    for (files, name, expected) in [
        (&[("shards/0.tar.xz", &b""[..]), ("shards/1.zip", b"")][..], "", "holds compressed archives"),
        (&[("x.zip", b"")], "x.zip", "holds compressed archives"),
        (&[("x.json", b"{\n \"a\": {\"wav\": \"a.wav\", \"words\": \"x\"}\n}")], "x.json", "is one JSON object"),
        (&[("x.json", b"[{\"path\": \"a.wav\"}]")], "x.json", "its objects have no path of an audio file"),
        (&[("x.json", b"3")], "x.json", "is not a corpus in a known layout"),
    ] {
        let message = error(files, name);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn null_is_an_unknown_duration_where_other_lines_give_theirs() {
    let line = |id: u8, duration: &str| format!("{{\"id\": {id}, \"audio\": \"a.wav\", \"text\": \"x\"{duration}}}\n");
    let read = |lines: &[String]| {
        let folder = write(&[("manifest.jsonl", lines.concat().as_bytes())]);
        second(&folder, "a.wav");
        durations(&folder)
    };
    let known = line(1, ", \"duration\": 0.5");
    let expected = [("1".to_owned(), 0.5)];
    assert_eq!(read(&[line(1, ", \"duration\": null"), known.clone()]), expected);
    assert_eq!(read(&[known.clone(), line(1, ", \"duration\": null")]), expected);
    assert_eq!(read(&[line(2, ", \"duration\": null"), known.clone(), line(3, ", \"duration\": \"\"")]), expected);
    let whole = |id: u8| (id.to_string(), 1.0);
    assert_eq!(
        read(&[line(2, ", \"duration\": null"), line(1, ""), line(3, ", \"duration\": null")]),
        [2, 1, 3].map(whole)
    );
    assert_eq!(read(&[known, line(2, "")]), [("1".to_owned(), 0.5), whole(2)]);
}

#[test]
fn duplicate_replaces_an_utterance_that_cannot_be_used() {
    let line = |id: &str, audio: &str, text: &str| {
        format!("{{\"id\": \"{id}\", \"audio\": \"{audio}\", \"text\": \"{text}\", \"duration\": 0.5}}\n")
    };
    let lines = [
        line("x", "a.wav", "before"),
        line("y", "gone.wav", "missing"),
        line("z", "a.wav", "after"),
        line("y", "gone too.wav", "missing"),
        line("y", "a.wav", "found"),
        line("y", "a.wav", "too late"),
        line("z", "a.wav", "again"),
    ];
    let folder = write(&[("manifest.jsonl", lines.concat().as_bytes())]);
    second(&folder, "a.wav");
    let manifest = Manifest::read(folder.path()).unwrap();
    let texts: Vec<&str> = manifest.utterances.iter().map(|utterance| utterance.text).collect();
    assert_eq!(texts, ["before", "found", "after"]);
    let lines: Vec<_> = manifest.issues.iter().map(|issue| issue.location.as_ref().unwrap().line.unwrap()).collect();
    assert_eq!(lines, [4, 6, 7, 2]);
}
