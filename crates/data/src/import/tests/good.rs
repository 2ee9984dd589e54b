//! Tests of corpora in their published form.

use super::*;

/// Layout, and the files of a corpus in it.
type Corpus = (Format, Vec<(&'static str, &'static [u8])>);

/// Returns one corpus of each layout.
pub(super) fn corpora() -> Vec<Corpus> {
    vec![
        (Format::Manifest, vec![("manifest.jsonl", MANIFEST)]),
        (
            Format::LjSpeech,
            vec![("metadata.csv", LJSPEECH), ("wavs/LJ001-0002.flac", b""), ("wavs/LJ001-0003.wav", b"")],
        ),
        (
            Format::LibriSpeech,
            vec![
                (
                    "dev-clean/84/121123/84-121123.trans.txt",
                    b"84-121123-0000 GO DO YOU HEAR\n84-121123-0001 BUT IN LESS\n",
                ),
                ("dev-clean/84/121123/84-121123-0000.flac", b""),
                ("dev-clean/84/121123/84-121123-0001.flac", b""),
                ("dev-clean/174/50561/174-50561.trans.txt", b"174-50561-0000 FORGOTTEN TOO\n"),
                ("SPEAKERS.TXT", b"; a list\n"),
            ],
        ),
        (
            Format::LibriTts,
            vec![
                ("84/121123/84_121123_000007_000001.wav", b""),
                ("84/121123/84_121123_000007_000001.normalized.txt", b"Doctor Who.\n"),
                ("84/121123/84_121123_000007_000001.original.txt", b"Dr. Who."),
                ("84/121123/84_121123_000008_000000.original.txt", b"Only printed."),
                ("84/121123/84_121123.trans.tsv", b"84_121123_000007_000001\tDr. Who.\tDoctor Who.\n"),
            ],
        ),
        (
            Format::CommonVoice,
            vec![
                ("train.tsv", COMMON_VOICE),
                ("test.tsv", b"client_id\tpath\tsentence\nspk3\tcv_kok_3.mp3\tx\n"),
                ("invalidated.tsv", b"client_id\tpath\tsentence\nspk3\tcv_kok_4.mp3\tx\n"),
                ("clip_durations.tsv", b"clip\tduration[ms]\ncv_kok_1.mp3\t4608\n"),
            ],
        ),
        (Format::Kaldi, KALDI.to_vec()),
        (Format::Lhotse, vec![("cuts_train.jsonl.gz", CUTS)]),
        (
            Format::HuggingFace,
            vec![
                (
                    "train/metadata.csv",
                    b"file_name,transcription,speaker_id\na.wav,\"Well, \"\"so\"\".\",7\nsub/b.mp3,\"two\nlines\",8\n",
                ),
                ("test/metadata.jsonl", b"{\"file_name\": \"c.flac\", \"text\": \"three\", \"locale\": \"mr\"}\n"),
            ],
        ),
        (Format::WebDataset, vec![("train-000.tar", WEBDATASET)]),
        (Format::Parquet, vec![("data/train-00000-of-00001.parquet", PARQUET), ("README.md", b"x")]),
        (Format::Arrow, vec![("train/data-00000-of-00001.arrow", ARROW)]),
        (
            Format::Folder,
            vec![
                ("ann/a.WAV", b""),
                ("ann/a.txt", "\u{feff}one\r\ntwo\r\n".as_bytes()),
                ("bob/a.ogg", b""),
                ("bob/a.lab", b"three"),
                ("notes.md", b"x"),
                ("bob/.hidden.wav", b""),
            ],
        ),
    ]
}

const MANIFEST: &[u8] = "\u{feff}{\"audio_filepath\": \"a.wav\", \"text\": \"नमस्कार\"}\r\n\n\
    {\"audio_filepath\": \"a.wav\", \"text\": \" two \", \"offset\": 0.25, \"extra\": [1]}\n\
    {\"id\": 7, \"audio\": \"/b.wav\", \"sentence\": \"x\", \"duration\": \"0.5\", \"speaker\": 12, \"lang\": \"kok\"}"
    .as_bytes();

const LJSPEECH: &[u8] = b"LJ001-0001|He said \"12\".|He said \"twelve\".\nLJ001-0002|two\nLJ001-0003|raw|\n\
    LJ001-0004.ogg|four\nwavs/LJ001-0005.wav|five\n";

const KALDI: &[(&str, &[u8])] = &[
    ("wav.scp", b"rec1 sph2pipe -f wav -p /data/rec1.flac |\nrec2 audio/rec 2.wav\n"),
    ("text", b"a-1 one two\nb-1 three\nb-2 four\n"),
    ("segments", b"a-1 rec1 0.5 2.25\nb-1 rec2 1 -1\nb-2 rec1 3 -1\n"),
    ("utt2spk", b"a-1 a\nb-1 b\nb-2 b\n"),
    ("utt2lang", b"a-1 kok\n"),
    ("reco2dur", b"rec2 7.5\n"),
];

const COMMON_VOICE: &[u8] = "client_id\tpath\tsentence_id\tsentence\tup_votes\tlocale\tsegment\r\n\
    spk1\tcv_kok_1.mp3\t9\t\"देव\" बरें करूं\t2\tkok\t\r\n\
    spk2\tcv_kok_2\t9\tsecond\t2\tkok\t\r\n"
    .as_bytes();

const CUTS: &[u8] = br#"{"id": "cut-1", "start": 1.5, "duration": 2.0, "channel": 0, "supervisions": [{"id": "s-1", "recording_id": "r", "start": 0.0, "duration": 2.0, "channel": 0, "text": "one", "language": "English", "speaker": "ann"}], "recording": {"id": "r", "sources": [{"type": "file", "channels": [0], "source": "r.flac"}], "sampling_rate": 16000, "num_samples": 160000, "duration": 10.0}, "type": "MonoCut"}
{"id": "cut-2", "start": 4.0, "duration": 6.0, "channel": 1, "supervisions": [{"id": "s-2", "start": 0.5, "duration": 2.0, "text": "two"}, {"id": "s-3", "start": 3.0, "text": "three"}], "recording": {"id": "r", "sources": [{"type": "file", "channels": [0], "source": "r0.wav"}, {"type": "file", "channels": [1], "source": "r1.wav"}], "transforms": [{"name": "Resample", "kwargs": {}}]}, "type": "MonoCut"}
"#;

#[test]
fn every_format_is_read() {
    let options = ImportOptions { language: Some("en".into()), ..ImportOptions::default() };
    let all: Vec<String> = corpora().iter().map(|(_, files)| seen(files, &options)).collect();
    insta::assert_snapshot!(all.join("\n"), @r#"
    manifest
    a.wav: a.wav 0s..end [- en] नमस्कार (manifest.jsonl:1)
    a.wav@0.25: a.wav 250ms..end [- en] two (manifest.jsonl:3)
    7: /b.wav 0s..500ms [12 kok] x (manifest.jsonl:4)

    ljspeech
    LJ001-0001: wavs/LJ001-0001.wav 0s..end [- en] He said "twelve". (metadata.csv:1)
    LJ001-0002: wavs/LJ001-0002.flac 0s..end [- en] two (metadata.csv:2)
    LJ001-0003: wavs/LJ001-0003.wav 0s..end [- en] raw (metadata.csv:3)
    LJ001-0004: wavs/LJ001-0004.ogg 0s..end [- en] four (metadata.csv:4)
    LJ001-0005: wavs/LJ001-0005.wav 0s..end [- en] five (metadata.csv:5)

    librispeech
    174-50561-0000: dev-clean/174/50561/174-50561-0000.flac 0s..end [174 en] FORGOTTEN TOO (dev-clean/174/50561/174-50561.trans.txt:1)
    84-121123-0000: dev-clean/84/121123/84-121123-0000.flac 0s..end [84 en] GO DO YOU HEAR (dev-clean/84/121123/84-121123.trans.txt:1)
    84-121123-0001: dev-clean/84/121123/84-121123-0001.flac 0s..end [84 en] BUT IN LESS (dev-clean/84/121123/84-121123.trans.txt:2)

    libritts
    84_121123_000007_000001: 84/121123/84_121123_000007_000001.wav 0s..end [84 en] Doctor Who. (84/121123/84_121123_000007_000001.normalized.txt)
    84_121123_000008_000000: 84/121123/84_121123_000008_000000.wav 0s..end [84 en] Only printed. (84/121123/84_121123_000008_000000.original.txt)

    common-voice
    cv_kok_1: clips/cv_kok_1.mp3 0s..4.6s [spk1 kok] "देव" बरें करूं (train.tsv:2)
    cv_kok_2: clips/cv_kok_2.mp3 0s..end [spk2 kok] second (train.tsv:3)
    cv_kok_3: clips/cv_kok_3.mp3 0s..end [spk3 en] x (test.tsv:2)

    kaldi
    a-1: /data/rec1.flac 500ms..2.2s [a kok] one two (text:1)
    b-1: audio/rec 2.wav 1s..7.5s [b en] three (text:2)
    b-2: /data/rec1.flac 3s..end [b en] four (text:3)

    lhotse
    cut-1: r.flac 1.5s..3.5s [ann English] one (cuts_train.jsonl.gz:1)
    s-2: r1.wav 4.5s..6.5s [- en] two (cuts_train.jsonl.gz:2)
    s-3: r1.wav 7s..10s [- en] three (cuts_train.jsonl.gz:2)

    huggingface
    test/c: test/c.flac 0s..end [- mr] three (test/metadata.jsonl:1)
    train/a: train/a.wav 0s..end [7 en] Well, "so". (train/metadata.csv:2)
    train/sub/b: train/sub/b.mp3 0s..end [8 en] two lines (train/metadata.csv:3)

    webdataset
    utt-0: train-000.tar:3584+1644 0s..end [- en] text numéro 0 (train-000.tar)
    utt-1: train-000.tar:9216+2124 0s..end [- en] text numéro 1 (train-000.tar)
    utt-2: train-000.tar:15360+2604 0s..end [- en] text numéro 2 (train-000.tar)
    utt-3: train-000.tar:22016+3084 0s..end [- en] text numéro 3 (train-000.tar)
    utt-4: train-000.tar:29184+3564 0s..end [- en] text numéro 4 (train-000.tar)

    parquet
    utt-0: data/train-00000-of-00001.parquet:100+1180 0s..end [bob en] text numéro 0 (data/train-00000-of-00001.parquet:1)
    utt-1: data/train-00000-of-00001.parquet:1284+1493 0s..end [ann en] text numéro 1 (data/train-00000-of-00001.parquet:2)
    utt-2: data/train-00000-of-00001.parquet:2781+1816 0s..end [bob en] text numéro 2 (data/train-00000-of-00001.parquet:3)
    utt-3: data/train-00000-of-00001.parquet:4884+2130 0s..end [ann en] text numéro 3 (data/train-00000-of-00001.parquet:4)
    utt-4: data/train-00000-of-00001.parquet:7018+2454 0s..end [bob en] text numéro 4 (data/train-00000-of-00001.parquet:5)

    arrow
    utt-4: train/data-00000-of-00001.arrow:1120+2454 0s..end [bob en] text numéro 4 (train/data-00000-of-00001.arrow:1)

    folder
    ann/a: ann/a.WAV 0s..end [ann en] one two (ann/a.WAV)
    bob/a: bob/a.ogg 0s..end [bob en] three (bob/a.ogg)
    "#);
}

#[test]
fn recordings_and_supervisions_are_one_corpus() {
    let folder = write(&[
        ("x_recordings_dev.jsonl.gz", br#"{"id": "r", "sources": [{"type": "file", "channels": [0], "source": "audio/r.wav"}], "duration": 9.5}"#),
        ("x_supervisions_dev.jsonl.gz", br#"{"id": "s", "recording_id": "r", "start": 1.0, "duration": 2.5, "channel": 0, "text": "hello", "speaker": "ann"}
{"id": "t", "recording_id": "r", "start": 4.0, "channel": 0, "text": "to the end"}"#),
    ]);
    let whole = seen_at(folder.path(), folder.path(), &ImportOptions::default());
    insta::assert_snapshot!(whole, @r#"
    lhotse
    s: audio/r.wav 1s..3.5s [ann -] hello (x_supervisions_dev.jsonl.gz:1)
    t: audio/r.wav 4s..9.5s [- -] to the end (x_supervisions_dev.jsonl.gz:2)
    "#);
    for one in ["x_recordings_dev.jsonl.gz", "x_supervisions_dev.jsonl.gz"] {
        assert_eq!(seen_at(&folder.path().join(one), folder.path(), &ImportOptions::default()), whole);
    }
}

#[test]
fn audio_root_moves_relative_paths() {
    let options =
        ImportOptions { audio_root: Some("/elsewhere".into()), speaker: Some("me".into()), ..ImportOptions::default() };
    let all: Vec<String> = corpora().iter().map(|(_, files)| seen(files, &options)).collect();
    let paths: Vec<&str> = all.iter().filter_map(|seen| seen.lines().nth(1)).collect();
    insta::assert_snapshot!(paths.join("\n"), @r#"
    a.wav: /elsewhere/a.wav 0s..end [me -] नमस्कार (manifest.jsonl:1)
    LJ001-0001: /elsewhere/LJ001-0001.wav 0s..end [me -] He said "twelve". (metadata.csv:1)
    174-50561-0000: /elsewhere/dev-clean/174/50561/174-50561-0000.flac 0s..end [174 -] FORGOTTEN TOO (dev-clean/174/50561/174-50561.trans.txt:1)
    84_121123_000007_000001: /elsewhere/84/121123/84_121123_000007_000001.wav 0s..end [84 -] Doctor Who. (84/121123/84_121123_000007_000001.normalized.txt)
    cv_kok_1: /elsewhere/cv_kok_1.mp3 0s..4.6s [spk1 kok] "देव" बरें करूं (train.tsv:2)
    a-1: /data/rec1.flac 500ms..2.2s [a kok] one two (text:1)
    cut-1: /elsewhere/r.flac 1.5s..3.5s [ann English] one (cuts_train.jsonl.gz:1)
    test/c: /elsewhere/test/c.flac 0s..end [me mr] three (test/metadata.jsonl:1)
    utt-0: train-000.tar:3584+1644 0s..end [me -] text numéro 0 (train-000.tar)
    utt-0: data/train-00000-of-00001.parquet:100+1180 0s..end [bob -] text numéro 0 (data/train-00000-of-00001.parquet:1)
    utt-4: train/data-00000-of-00001.arrow:1120+2454 0s..end [bob -] text numéro 4 (train/data-00000-of-00001.arrow:1)
    ann/a: ann/a.WAV 0s..end [ann -] one two (ann/a.WAV)
    "#);
}

#[test]
fn any_folder_of_the_tree_can_be_read() {
    let folder = write(&[("root/84/1/84-1.trans.txt", b"84-1-0000 YES\n"), ("root/84/1/84-1-0000.flac", b"")]);
    for below in ["root", "root/84", "root/84/1"] {
        let listing = import(folder.path().join(below), &ImportOptions::default()).unwrap();
        assert_eq!((listing.format, listing.entries[0].id.as_str()), (Format::LibriSpeech, "84-1-0000"));
        assert_eq!(listing.entries[0].speaker.as_deref(), Some("84"));
        assert!(listing.issues.is_empty());
    }
}

#[test]
fn validated_replaces_all_other_lists() {
    let row = |n: u8| format!("path\tsentence\n{n}.mp3\tx\n").into_bytes();
    let folder = write(&[("train.tsv", &row(1)), ("dev.tsv", &row(2)), ("other.tsv", &row(3))]);
    let ids = || -> Vec<String> {
        let listing = import(folder.path(), &ImportOptions::default()).unwrap();
        listing.entries.into_iter().map(|entry| entry.id).collect()
    };
    assert_eq!(ids(), ["1", "2"]);
    fs::write(folder.path().join("validated.tsv"), row(9)).unwrap();
    assert_eq!(ids(), ["9"]);
}

#[test]
fn folders_are_speakers_only_directly_below_the_root() {
    let speakers = |files: &[&str]| -> Vec<Option<String>> {
        let files: Vec<(String, String)> = files.iter().map(|f| (format!("{f}.wav"), format!("{f}.txt"))).collect();
        let both: Vec<(&str, &[u8])> =
            files.iter().flat_map(|(wav, txt)| [(wav.as_str(), &b""[..]), (txt.as_str(), &b"x"[..])]).collect();
        let listing = import(write(&both).path(), &ImportOptions::default()).unwrap();
        listing.entries.into_iter().map(|entry| entry.speaker).collect()
    };
    assert_eq!(speakers(&["ann/1", "bob/2"]), [Some("ann".into()), Some("bob".into())]);
    for no_speakers in [&["all/1", "all/2"][..], &["1", "ann/2"], &["ann/x/1", "bob/2"]] {
        assert_eq!(speakers(no_speakers), [None, None]);
    }
}

const WEBDATASET: &[u8] = include_bytes!("../../../../../fixtures/data/containers/text.tar");
/// File that `datasets` wrote, with two row groups.
const PARQUET: &[u8] = include_bytes!("../../../../../fixtures/data/containers/parquet/default.parquet");
/// File that `datasets` saved.
const ARROW: &[u8] = include_bytes!("../../../../../fixtures/data/containers/arrow/test/data-00000-of-00001.arrow");
