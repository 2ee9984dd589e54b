//! Tests of damaged corpora: readable lines are read, and every other line has an issue.

use super::*;

fn damaged(files: Files<'_>) -> String {
    seen(files, &ImportOptions::default())
}

#[test]
fn a_damaged_manifest_keeps_its_readable_lines() {
    insta::assert_snapshot!(damaged(&[("manifest.jsonl", &[
        br#"{"audio_filepath": "a.wav", "text": "x"}"#,
        &br#"audio.wav hello"#[..],
        br#"[1]"#,
        br#"{"text": "x"}"#,
        br#"{"id": "no text", "audio_filepath": "b.wav"}"#,
        br#"{"audio_filepath": "b.wav", "text": " "}"#,
        br#"{"audio_filepath": "", "text": "x"}"#,
        br#"{"audio_filepath": "b.wav", "text": ["x"]}"#,
        br#"{"audio_filepath": "b.wav", "text": "x", "duration": -1}"#,
        br#"{"audio_filepath": "b.wav", "text": "x", "offset": "1s"}"#,
        br#"{"audio_filepath": "b.wav", "text": "x", "duration": NaN}"#,
        b"{\"audio_filepath\": \"b.wav\", \"text\": \"\xff\"}",
        br#"{"audio_filepath": "a.wav", "text": "again"}"#,
        br#"{"audio_filepath": "b.wav", "text": "cut o"#,
        br#"{"audio_filepath": "z.wav", "text": "the last"}"#,
    ].join(&b'\n'))]), @r#"
    manifest
    a.wav: a.wav 0s..end [- -] x (manifest.jsonl:1)
    z.wav: z.wav 0s..end [- -] the last (manifest.jsonl:15)
    ! manifest.jsonl:2: a JSON object was expected: expected value at column 1
    ! manifest.jsonl:3: a JSON object was expected: a list was found
    ! manifest.jsonl:4: the key `audio_filepath` is missing
    ! manifest.jsonl:5: `no text`: the key `text` is missing
    ! manifest.jsonl:6: `b.wav`: it has no text
    ! manifest.jsonl:7: it has no audio: its path is empty
    ! manifest.jsonl:8: `text` is a list, and a text was expected
    ! manifest.jsonl:9: `duration` is -1, and a number of seconds was expected
    ! manifest.jsonl:10: `offset` is `1s`, and a number of seconds was expected
    ! manifest.jsonl:11: a JSON object was expected: expected value at column 54
    ! manifest.jsonl:12: not UTF-8, from byte 38 on
    ! manifest.jsonl:13: `a.wav`: its id is already used at manifest.jsonl:1
    ! manifest.jsonl:14: a JSON object was expected: EOF while parsing a string at column 42
    "#);
}

#[test]
fn a_damaged_ljspeech_keeps_its_readable_lines() {
    insta::assert_snapshot!(damaged(&[("metadata.csv",
        b"a|one|one\nb\nc|one|two|three\n|text|text\nd||\na|again\ne|\xc3\x28\nf|six|\xe2\x80\nz|the last")]), @r#"
    ljspeech
    a: wavs/a.wav 0s..end [- -] one (metadata.csv:1)
    z: wavs/z.wav 0s..end [- -] the last (metadata.csv:9)
    ! metadata.csv:2: expected `id|text` or `id|text|normalized`; columns found: 1
    ! metadata.csv:3: expected `id|text` or `id|text|normalized`; columns found: 4
    ! metadata.csv:4: it has no id
    ! metadata.csv:5: `d`: it has no text
    ! metadata.csv:6: `a`: its id is already used at metadata.csv:1
    ! metadata.csv:7: not UTF-8, from byte 3 on
    ! metadata.csv:8: not UTF-8, from byte 7 on
    "#);
}

#[test]
fn a_damaged_librispeech_keeps_its_readable_lines() {
    insta::assert_snapshot!(damaged(&[
        ("84/1/84-1.trans.txt", b"84-1-0000 YES\n84-1-0001\n84-1-0000 AGAIN\n84-1-0002 \xff\n84-1-0003 GONE\n"),
        ("84/1/84-1-0000.flac", b""),
        ("84/1/84-1-0001.flac", b""),
        ("84/1/84-1-0002.flac", b""),
        ("84/1/84-1-0009.flac", b""),
        ("85/1/85-1-0000.flac", b""),
    ]), @r#"
    librispeech
    84-1-0000: 84/1/84-1-0000.flac 0s..end [84 -] YES (84/1/84-1.trans.txt:1)
    84-1-0003: 84/1/84-1-0003.flac 0s..end [84 -] GONE (84/1/84-1.trans.txt:5)
    ! 84/1/84-1.trans.txt:2: `84-1-0001`: it has no text
    ! 84/1/84-1.trans.txt:3: `84-1-0000`: its id is already used at 84/1/84-1.trans.txt:1
    ! 84/1/84-1.trans.txt:4: not UTF-8, from byte 11 on
    ! 84/1/84-1-0002.flac: `84-1-0002`: it has no text
    ! 84/1/84-1-0009.flac: `84-1-0009`: it has no text
    ! 85/1/85-1-0000.flac: `85-1-0000`: it has no text
    "#);
}

#[test]
fn a_damaged_libritts_keeps_its_readable_lines() {
    insta::assert_snapshot!(damaged(&[
        ("84/1/84_1_0_0.wav", b""),
        ("84/1/84_1_0_0.normalized.txt", b"fine"),
        ("84/1/84_1_0_1.wav", b""),
        ("84/1/84_1_0_1.normalized.txt", b""),
        ("84/1/84_1_0_1.original.txt", b"is not looked at"),
        ("84/1/84_1_0_2.wav", b""),
        ("84/1/84_1_0_2.normalized.txt", b"caf\xe9"),
        ("84/1/84_1_0_3.wav", b""),
        ("84/2/84_1_0_0.normalized.txt", b"again"),
    ]), @r#"
    libritts
    84_1_0_0: 84/1/84_1_0_0.wav 0s..end [84 -] fine (84/1/84_1_0_0.normalized.txt)
    ! 84/1/84_1_0_1.normalized.txt: `84_1_0_1`: it has no text
    ! 84/1/84_1_0_2.normalized.txt: `84_1_0_2`: not UTF-8, from byte 4 on
    ! 84/2/84_1_0_0.normalized.txt: `84_1_0_0`: its id is already used at 84/1/84_1_0_0.normalized.txt
    ! 84/1/84_1_0_3.wav: `84_1_0_3`: it has no text
    "#);
}

#[test]
fn a_damaged_common_voice_keeps_its_readable_lines() {
    insta::assert_snapshot!(damaged(&[
        ("train.tsv", b"path\tclient_id\tsentence\n1.mp3\ts\tone\n2.mp3\ts\n\ts\tthree\n4.mp3\ts\t\n1.mp3\ts\tagain\n\
            5.mp3\ts\tfive\ttoo many\n6.mp3\t\xff\tsix\n9.mp3\ts\tthe last\n"),
        ("dev.tsv", b"file\tsentence\n7.mp3\tseven\n"),
        ("clip_durations.tsv", b"clip\tduration[ms]\n1.mp3\tlong\n9.mp3\t1500\n4.mp3\t-3\n"),
    ]), @r#"
    common-voice
    1: clips/1.mp3 0s..end [s -] one (train.tsv:2)
    9: clips/9.mp3 0s..1.5s [s -] the last (train.tsv:9)
    ! clip_durations.tsv:2: `1.mp3`: `duration[ms]` is `long`, and a number of seconds was expected
    ! clip_durations.tsv:4: `4.mp3`: `duration[ms]` is -3, and a number of seconds was expected
    ! train.tsv:3: expected 3 columns as in the header; columns found: 2
    ! train.tsv:4: it has no audio: its path is empty
    ! train.tsv:5: `4`: it has no text
    ! train.tsv:6: `1`: its id is already used at train.tsv:2
    ! train.tsv:7: expected 3 columns as in the header; columns found: 4
    ! train.tsv:8: not UTF-8, from byte 7 on
    ! dev.tsv:1: the header names no column `path`, so nothing of this file can be read
    "#);
}

#[test]
fn a_damaged_kaldi_keeps_its_readable_lines() {
    insta::assert_snapshot!(damaged(&[
        ("wav.scp", b"r1 r1.wav\nr2 sox r2.wav -t wav - speed 1.1 |\nr3 raw.ark:1234\nr4\nr1 other.wav\n"),
        ("segments", b"a r1 0 1\nb r2 0 1\nc r3 0 1\nd r4 0 1\ne r5 0 1\nf r1 2 1\ng r1 x 1\nh r1 0\ni r1 5 6\nj r1 -1 2\n"),
        ("text", b"a one\nb x\nc x\nd x\ne x\nf x\ng x\nh x\nj x\nk x\na again\nl \xff\nm\n"),
        ("utt2spk", b"a ann\nb \xff\n"),
        ("utt2dur", b"a soon\n"),
    ]), @r#"
    kaldi
    a: r1.wav 0s..1s [ann -] one (text:1)
    c: raw.ark:1234 0s..1s [- -] x (text:3)
    ! wav.scp:5: `r1`: its id is already used at wav.scp:1
    ! utt2spk:2: not UTF-8, from byte 3 on
    ! utt2dur:1: `a`: `duration` is `soon`, and a number of seconds was expected
    ! text:11: `a`: its id is already used at text:1
    ! text:12: not UTF-8, from byte 3 on
    ! wav.scp:2: `b`: its audio is changed by `speed` in a command, which is not run: sox r2.wav -t wav - speed 1.1 |
    ! wav.scp:4: `d`: it has no audio: its path is empty
    ! text:5: `e`: it has no audio: wav.scp does not name `r5`
    ! segments:6: `f`: it begins at 2 and ends at 1
    ! segments:7: `g`: `start` is `x`, and a number of seconds was expected
    ! segments:8: `h`: expected `utterance recording start end`, perhaps with a channel; columns found: 3
    ! segments:10: `j`: `start` is -1, and a number of seconds was expected
    ! text:10: `k`: it has no audio: segments does not name `k`
    ! text:13: `m`: it has no audio: segments does not name `m`
    ! segments:9: `i`: it has no text
    "#);
}

#[test]
fn damaged_cuts_keep_their_readable_lines() {
    let recording = r#""recording": {"sources": [{"type": "file", "channels": [0], "source": "r.wav"}]}"#;
    let said = r#""supervisions": [{"text": "x"}]"#;
    let with = |id: &str, rest: &str| format!(r#"{{"id": "{id}", "start": 0, "duration": 1, "channel": 0, {rest}}}"#);
    let sources = |sources: &str| format!(r#"{said}, "recording": {{"sources": [{sources}]}}"#);
    let lines = [
        with("good", &format!("{said}, {recording}")),
        "{}".into(),
        with("mixed", r#""type": "MixedCut", "tracks": []"#),
        with("silent", &format!(r#""supervisions": [], {recording}"#)),
        with("wordless", &format!(r#""supervisions": [{{"id": "s"}}], {recording}"#)),
        with("features", said),
        with("empty", &sources("")),
        with("memory", &sources(r#"{"type": "memory", "source": "AAAA"}"#)),
        with("nowhere", &sources(r#"{"type": "file"}"#)),
        with("stereo", &sources(r#"{"type": "file", "channels": [0, 1], "source": "r.wav"}"#)),
        with("fast", &format!(r#"{said}, "recording": {{"transforms": [{{"name": "Speed"}}], "sources": []}}"#)),
        with("early", &format!(r#""supervisions": [{{"text": "x", "start": -3}}], {recording}"#)),
        with("twice", &format!(r#""supervisions": [{{"id": "good", "text": "x"}}, {{"text": "y"}}], {recording}"#)),
        "{\"id\": \"cut o".into(),
        with("last", &format!("{said}, {recording}")),
    ];
    insta::assert_snapshot!(damaged(&[("cuts.jsonl", lines.join("\n").as_bytes())]), @r#"
    lhotse
    good: r.wav 0s..1s [- -] x (cuts.jsonl:1)
    stereo: r.wav:ch0 0s..1s [- -] x (cuts.jsonl:10)
    twice-2: r.wav 0s..1s [- -] y (cuts.jsonl:13)
    ! cuts.jsonl:2: the key `id` is missing
    ! cuts.jsonl:3: `mixed`: it has no audio: none of its tracks is a recording
    ! cuts.jsonl:4: `silent`: it has no text
    ! cuts.jsonl:5: `wordless`: it has no text
    ! cuts.jsonl:6: `features`: it has no audio: it names no recording
    ! cuts.jsonl:7: `empty`: it has no audio: its recording has no file of its channel
    ! cuts.jsonl:8: `memory`: its audio is of type `memory`, and only files can be read
    ! cuts.jsonl:9: `nowhere`: the key `source` is missing
    ! cuts.jsonl:11: `fast`: its recording is changed by `Speed`, and files are only read as they are
    ! cuts.jsonl:12: `early`: its text is spoken from -3.000s to 1.000s of a cut that lasts 1.000s
    ! cuts.jsonl:13: `good`: the same text of the same audio is already listed at cuts.jsonl:1
    ! cuts.jsonl:14: a JSON object was expected: EOF while parsing a string at column 13
    ! cuts.jsonl:15: `last`: the same text of the same audio is already listed at cuts.jsonl:1
    "#);
}

#[test]
fn damaged_supervisions_keep_their_readable_lines() {
    insta::assert_snapshot!(damaged(&[
        ("recordings.jsonl", br#"{"id": "r", "sources": [{"type": "file", "channels": [0], "source": "r.wav"}]}
{"id": "u", "sources": [{"type": "url", "channels": [0], "source": "https://x"}]}
{"sources": []}
nothing"#),
        ("supervisions.jsonl", br#"{"id": "a", "recording_id": "r", "start": 0, "duration": 1, "text": "x"}
{"id": "b", "recording_id": "u", "start": 0, "duration": 1, "text": "x"}
{"id": "c", "recording_id": "?", "start": 0, "duration": 1, "text": "x"}
{"id": "d", "start": 0, "duration": 1, "text": "x"}
{"recording_id": "r"}"#),
    ]), @r#"
    lhotse
    a: r.wav 0s..1s [- -] x (supervisions.jsonl:1)
    ! recordings.jsonl:3: the key `id` is missing
    ! recordings.jsonl:4: a JSON object was expected: expected ident at column 2
    ! supervisions.jsonl:2: `b`: its audio is of type `url`, and only files can be read
    ! supervisions.jsonl:3: `c`: it has no audio: no list names its recording `?`
    ! supervisions.jsonl:4: `d`: the key `recording_id` is missing
    ! supervisions.jsonl:5: the key `id` is missing
    "#);
}

#[test]
fn a_truncated_compressed_list_keeps_its_beginning() {
    let line = |n: usize| format!("{{\"id\": \"{n}\", \"audio_filepath\": \"a.wav\", \"text\": \"{n}\"}}\n");
    let whole = compressed((0..5_000).map(line).collect::<String>().as_bytes());
    let folder = write(&[]);
    let file = folder.path().join("manifest.jsonl");
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let listing = import(&file, &ImportOptions::default()).unwrap();
    assert!(listing.entries.len() > 1_000, "{}", listing.entries.len());
    let [issue] = &*listing.issues else { panic!("{:?}", listing.issues) };
    assert_eq!(issue.location.as_ref().unwrap().line, Some(listing.entries.len() + 1));
    assert_eq!(issue.kind.name(), "unreadable");
}

#[test]
fn a_damaged_hugging_face_keeps_its_readable_lines() {
    insta::assert_snapshot!(damaged(&[
        ("metadata.csv", b"file_name,text\na.wav,one\nb.wav\nc.wav,\"never closed\nd.wav,four\ne.wav,\"five\"\n\
            f.wav,\"a\nb\"\ng.wav,\n,x\na.wav,again\nh.wav,\xff\ni.wav,\"open to the end\n"),
        ("test/metadata.csv", b"file_name,label\nz.wav,x\n"),
        ("train/metadata.jsonl", b"{\"file_name\": \"a.wav\"}\n{\"text\": \"x\"}\n{\"file_name\": \"b.wav\", \"text\": \"fine\"}\n!"),
    ]), @r#"
    huggingface
    a: a.wav 0s..end [- -] one (metadata.csv:2)
    d: d.wav 0s..end [- -] four (metadata.csv:5)
    e: e.wav 0s..end [- -] five (metadata.csv:6)
    f: f.wav 0s..end [- -] a b (metadata.csv:7)
    train/b: train/b.wav 0s..end [- -] fine (train/metadata.jsonl:3)
    ! metadata.csv:3: expected 2 columns as in the header; columns found: 1
    ! metadata.csv:4: a quotation mark opens a field, and none closes it
    ! metadata.csv:9: `g`: it has no text
    ! metadata.csv:10: it has no audio: its path is empty
    ! metadata.csv:11: `a`: its id is already used at metadata.csv:2
    ! metadata.csv:12: not UTF-8, from byte 7 on
    ! metadata.csv:13: a quotation mark opens a field, and none closes it
    ! test/metadata.csv:1: the header names no column `transcription`, so nothing of this file can be read
    ! train/metadata.jsonl:1: `a.wav`: the key `transcription` is missing
    ! train/metadata.jsonl:2: the key `file_name` is missing
    ! train/metadata.jsonl:4: a JSON object was expected: expected value at column 1
    "#);
}

#[test]
fn a_damaged_folder_keeps_its_readable_lines() {
    insta::assert_snapshot!(damaged(&[
        ("a.wav", b""), ("a.txt", b"fine"),
        ("a.flac", b""),
        ("b.wav", b""),
        ("c.txt", b"no audio"),
        ("d.wav", b""), ("d.txt", b" \n"),
        ("e.wav", b""), ("e.txt", b"\xfex\0"),
        ("f/g.opus", b""), ("f/g.lab", b"below"),
    ]), @r#"
    folder
    a: a.wav 0s..end [- -] fine (a.wav)
    f/g: f/g.opus 0s..end [- -] below (f/g.opus)
    ! a.flac: `a`: its id is already used at a.wav
    ! b.wav: `b`: it has no text
    ! d.wav: `d`: it has no text
    ! e.wav: `e`: not UTF-8, from byte 1 on
    ! c.txt: it has no audio: no audio file of the same name lies beside it
    "#);
}

#[test]
fn times_beyond_three_years_are_issues() {
    let line = |id: &str, times: &str| {
        format!("{{\"id\": \"{id}\", \"audio_filepath\": \"a.wav\", \"text\": \"one\", {times}}}\n")
    };
    let lines = [
        line("good", "\"offset\": 9e7, \"duration\": 1.5"),
        line("late", "\"offset\": 1e300, \"duration\": 1.5"),
        line("long", "\"duration\": 2e8"),
    ];
    let folder = write(&[("manifest.jsonl", lines.concat().as_bytes())]);
    let listing = import(folder.path(), &ImportOptions::default()).unwrap();
    assert_eq!(listing.entries.iter().map(|entry| &*entry.id).collect::<Vec<_>>(), ["good"]);
    let issues: Vec<String> = listing.issues.iter().map(ToString::to_string).collect();
    assert!(listing.issues.iter().all(|issue| issue.kind.name() == "wrong time"), "{issues:?}");
    assert!(issues.len() == 2 && issues.iter().all(|issue| issue.len() < 200), "{issues:?}");
}
