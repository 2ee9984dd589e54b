//! Tests of layout detection, and of the messages for unknown layouts.

use super::good::corpora;
use super::*;

#[test]
fn every_format_is_detected_by_its_files() {
    for (format, files) in corpora() {
        let folder = write(&files);
        assert_eq!(Format::detect(folder.path()), Some(format));
        assert_eq!(Format::from_name(format.name()), Some(format));
    }
    let formats: Vec<Format> = corpora().into_iter().map(|(format, _)| format).collect();
    assert_eq!(formats, Format::ALL);
    assert_eq!(Format::from_name("nemo"), None);
}

#[test]
fn a_file_is_detected_by_its_first_lines() {
    for (name, content, expected) in [
        ("train.json", r#"{"audio_filepath": "a.wav", "text": "x"}"#, Some(Format::Manifest)),
        ("train.json", "[\n{\n", None),
        ("x.jsonl", "rubbish", Some(Format::Manifest)),
        ("x.jsonl", "rubbish\n{\"file_name\": \"a.wav\"}", Some(Format::HuggingFace)),
        ("x.jsonl.gz", r#"{"id": "c", "type": "MonoCut"}"#, Some(Format::Lhotse)),
        ("x.jsonl", r#"{"id": "s", "recording_id": "r"}"#, Some(Format::Lhotse)),
        ("metadata.csv", "a|b", Some(Format::LjSpeech)),
        ("metadata.csv", "text,\"file_name\"\na|b,c", Some(Format::HuggingFace)),
        ("metadata.csv", "path,text\n", None),
        ("x.tsv", "sentence\tpath\n", Some(Format::CommonVoice)),
        ("x.tsv", "sentence path\n", None),
        ("wav.scp", "", Some(Format::Kaldi)),
        ("1-2.trans.txt", "", Some(Format::LibriSpeech)),
        ("a.wav", "", None),
    ] {
        let folder = write(&[(name, content.as_bytes())]);
        assert_eq!(Format::detect(&folder.path().join(name)), expected, "{name}: {content}");
    }
}

#[test]
fn an_unreadable_corpus_says_what_was_looked_for() {
    let default = ImportOptions::default();
    let mut all = vec![
        seen(&[("x.md", b"")], &default),
        seen(&[("data/train-00000.arrow", b"ARROW1")], &default),
        seen(&[("data/train-00000.arrow", b"ARROW1")], &as_format(Format::HuggingFace)),
        seen(&[("manifest.jsonl", b" \n\n")], &default),
        seen_at(Path::new("no/such"), Path::new("?"), &default),
    ];
    all.extend(Format::ALL.map(|format| seen(&[("x.md", b"")], &as_format(format))));
    insta::assert_snapshot!(all.concat(), @r#"
    CORPUS is not a corpus in a known layout; looked for manifest.jsonl, or JSON lines or an array with `audio_filepath` (`manifest`); metadata.csv with lines of `id|text` (`ljspeech`); files called *.trans.txt (`librispeech`); files called *.normalized.txt or *.original.txt (`libritts`); validated.tsv, train.tsv, dev.tsv or test.tsv with columns `path` and `sentence` (`common-voice`); wav.scp and text (`kaldi`); *cuts*.jsonl or *recordings*.jsonl with *supervisions*.jsonl, perhaps ending in .gz (`lhotse`); metadata.jsonl or metadata.csv with `file_name` (`huggingface`); tar files, or a pattern such as `train-{000..012}.tar` (`webdataset`); Parquet files, or a pattern such as `data/train-*.parquet`, with columns `audio` and `text` (`parquet`); Arrow files, or a pattern such as `train/data-*.arrow`, with columns `audio` and `text` (`arrow`); audio files with .txt or .lab files of the same name (`folder`)
    arrow
    ! data/train-00000.arrow: damaged at byte 0, so what lies behind is lost: it has no message of Arrow here
    huggingface
    ! data/train-00000.arrow: damaged at byte 0, so what lies behind is lost: it has no message of Arrow here
    CORPUS lists no utterance
    corpus no/such does not exist
    CORPUS is not of the format `manifest`, which has manifest.jsonl, or JSON lines or an array with `audio_filepath`
    CORPUS is not of the format `ljspeech`, which has metadata.csv with lines of `id|text`
    CORPUS is not of the format `librispeech`, which has files called *.trans.txt
    CORPUS is not of the format `libritts`, which has files called *.normalized.txt or *.original.txt
    CORPUS is not of the format `common-voice`, which has validated.tsv, train.tsv, dev.tsv or test.tsv with columns `path` and `sentence`
    CORPUS is not of the format `kaldi`, which has wav.scp and text
    CORPUS is not of the format `lhotse`, which has *cuts*.jsonl or *recordings*.jsonl with *supervisions*.jsonl, perhaps ending in .gz
    CORPUS is not of the format `huggingface`, which has metadata.jsonl or metadata.csv with `file_name`
    CORPUS is not of the format `webdataset`, which has tar files, or a pattern such as `train-{000..012}.tar`
    CORPUS is not of the format `parquet`, which has Parquet files, or a pattern such as `data/train-*.parquet`, with columns `audio` and `text`
    CORPUS is not of the format `arrow`, which has Arrow files, or a pattern such as `train/data-*.arrow`, with columns `audio` and `text`
    CORPUS is not of the format `folder`, which has audio files with .txt or .lab files of the same name
    "#);
}

#[test]
fn utf16_and_marked_utf8_lists_are_read() {
    let text = "id1|“Déjà vu” सगळें\r\nid2|good\r\n";
    let little: Vec<u8> = [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect();
    let marked = format!("\u{feff}{text}").into_bytes();
    for (name, content) in
        [("metadata.csv", &little), ("a.csv.gz", &little), ("metadata.csv", &big), ("metadata.csv", &marked)]
    {
        let folder = write(&[(name, content)]);
        let listing = import(folder.path().join(name), &as_format(Format::LjSpeech)).unwrap();
        let read: Vec<(&str, &str)> = listing.entries.iter().map(|e| (e.id.as_str(), e.text.as_str())).collect();
        assert_eq!(read, [("id1", "“Déjà vu” सगळें"), ("id2", "good")]);
    }
}

#[test]
fn damaged_utf16_lines_are_issues() {
    let saved = |letters: &[u16]| -> Vec<u8> { letters.iter().flat_map(|letter| letter.to_le_bytes()).collect() };
    let line = |text: &str| -> Vec<u16> { text.encode_utf16().collect() };
    let half = [&[0xfeff], &line("a|fine\nb|brok")[..], &[0xd800], &line("en\nc|fine\nd|cut")[..]].concat();
    // The last character lacks a byte.
    let mut content = saved(&half);
    content.pop();
    insta::assert_snapshot!(seen(&[("metadata.csv", &content)], &ImportOptions::default()), @r"
    ljspeech
    a: wavs/a.wav 0s..end [- -] fine (metadata.csv:1)
    c: wavs/c.wav 0s..end [- -] fine (metadata.csv:3)
    ! metadata.csv:2: not UTF-16, from character 7 on
    ! metadata.csv:4: not UTF-16, from character 5 on
    ");
}
