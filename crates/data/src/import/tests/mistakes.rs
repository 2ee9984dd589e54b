//! Tests of the first mistakes with a corpus: sounds without texts, texts without sounds, tables of other columns, copies.

use super::*;

fn about(files: Files<'_>) -> String {
    seen(files, &ImportOptions::default())
}

#[test]
fn a_folder_that_is_no_corpus_is_described_with_the_remedy() {
    let many: Vec<String> = (0..100).map(|n| format!("{n:03}.wav")).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
    let all = [
        about(&many),
        about(&[("a/x.wav", b""), ("a/y.mp3", b""), ("b/z.MP3", b""), ("notes.md", b"x")]),
        about(&[("a.wav", b""), ("labels.csv", b"name;words\na;one\n")]),
        about(&[("a.wav", b""), ("labels.csv", b"")]),
        about(&[("a.txt", b"one"), ("b.txt", b"two")]),
        about(&[("a1.wav", b""), ("a2.wav", b""), ("b1.txt", b"one"), ("b2.txt", b"two")]),
        about(&[("a1.wav", b""), ("LICENSE.txt", b"free")]),
        about(&[("wavs/a.wav", b""), ("txt/a.txt", b"one")]),
        about(&[]),
    ];
    insta::assert_snapshot!(all.concat(), @r"
    CORPUS has 100 WAV files and no texts; put NAME.txt beside each sound, or write a manifest.jsonl with `audio_filepath` and `text`
    CORPUS has 2 MP3 and 1 WAV files and no texts; put NAME.txt beside each sound, or write a manifest.jsonl with `audio_filepath` and `text`
    CORPUS has 1 WAV file and no texts beside them; the table `labels.csv` has columns separated by semicolons: `name`, `words`; put NAME.txt beside each sound, or write a manifest.jsonl with `audio_filepath` and `text`
    CORPUS has 1 WAV file and no texts beside them; `labels.csv` is no list that is read; put NAME.txt beside each sound, or write a manifest.jsonl with `audio_filepath` and `text`
    CORPUS has 2 text files and no sounds; put NAME.wav or another sound beside each NAME.txt, or write a manifest.jsonl with `audio_filepath` and `text`
    CORPUS has 2 WAV files and 2 text files, and no text lies beside a sound of its name: the first are `a1.wav` and `b1.txt`; give each sound its text in a file of the same name beside it, or write a manifest.jsonl with `audio_filepath` and `text`
    CORPUS has 1 WAV file and 1 text file, and no text lies beside a sound of its name: the first are `a1.wav` and `LICENSE.txt`; give each sound its text in a file of the same name beside it, or write a manifest.jsonl with `audio_filepath` and `text`
    CORPUS has 1 WAV file and 1 text file, and no text lies beside a sound of its name: the first are `wavs/a.wav` and `txt/a.txt`; give each sound its text in a file of the same name beside it, or write a manifest.jsonl with `audio_filepath` and `text`
    CORPUS is an empty folder; put sounds and their texts there, or give the folder or the list that has them
    ");
}

#[test]
fn sounds_that_are_not_read_and_single_files_are_described() {
    let at = |name: &str, content: &[u8]| {
        let folder = write(&[(name, content)]);
        seen_at(&folder.path().join(name), folder.path(), &ImportOptions::default())
    };
    let all = [
        about(&[("a.wma", b""), ("b.WMA", b""), ("a.txt", b"one")]),
        about(&[("a.sph", b"")]),
        at("a.wav", b""),
        at("list.xlsx", b"PK"),
        at("train.txt", b"a.wav|one\n"),
        at("train.txt", b"one\n"),
    ];
    insta::assert_snapshot!(all.concat(), @r"
    CORPUS has 2 WMA files, whose sound is not read, and 1 text file; convert each with `ffmpeg -i IN -ar 16000 OUT.flac`
    CORPUS has 1 SPH file, whose sound is not read; convert each with `ffmpeg -i IN -ar 16000 OUT.flac`
    a.wav is one sound; give the folder of sounds with their texts, or a list
    list.xlsx is a spreadsheet; save it as CSV, with the columns `file_name` and `text`
    train.txt is a text file with `|` in its lines; call it metadata.csv if they are `id|text`
    train.txt is a text file; give the folder of sounds with their texts, or a list
    ");
}

#[test]
fn one_text_of_many_sounds_is_a_corpus_with_issues() {
    let found = about(&[("a.wav", b""), ("a.txt", b"one"), ("b.wav", b"")]);
    assert_eq!(found, "folder\na: a.wav 0s..end [- -] one (a.wav)\n! b.wav: `b`: it has no text\n");
}

#[test]
fn the_columns_of_an_unknown_table_are_named() {
    let at = |name: &str, content: &[u8]| {
        let folder = write(&[(name, content)]);
        seen_at(&folder.path().join(name), folder.path(), &ImportOptions::default())
    };
    let all = [
        at("x.csv", b"id;words\na;one\n"),
        at("x.tsv", b"path,sentence\na.mp3,one\n"),
        at("x.csv", b"words\n"),
        about(&[("metadata.csv", b"id;words\na;one\n"), ("x.md", b"")]),
    ];
    insta::assert_snapshot!(all.concat(), @r"
    x.csv has columns separated by semicolons: `id`, `words`; a table needs a header with `file_name` and `text` (`huggingface`), a header with `path` and `sentence`, separated by tabs (`common-voice`), or lines of `id|text` (`ljspeech`)
    x.tsv has columns separated by commas: `path`, `sentence`; a table needs a header with `file_name` and `text` (`huggingface`), a header with `path` and `sentence`, separated by tabs (`common-voice`), or lines of `id|text` (`ljspeech`)
    x.csv has one column: `words`; a table needs a header with `file_name` and `text` (`huggingface`), a header with `path` and `sentence`, separated by tabs (`common-voice`), or lines of `id|text` (`ljspeech`)
    CORPUS has no list that is read: `metadata.csv` has columns separated by semicolons: `id`, `words`; a table needs a header with `file_name` and `text` (`huggingface`), a header with `path` and `sentence`, separated by tabs (`common-voice`), or lines of `id|text` (`ljspeech`)
    ");
}

#[test]
fn a_wrong_delimiter_is_named() {
    let all = [
        seen(&[("metadata.csv", b"a\tone\nb;two;two\nc|three\n")], &as_format(Format::LjSpeech)),
        seen(&[("train.tsv", b"path,sentence\na.mp3,one\n")], &as_format(Format::CommonVoice)),
        seen(&[("train.tsv", b"file,sentence\na.mp3,one\n")], &as_format(Format::CommonVoice)),
    ];
    insta::assert_snapshot!(all.concat(), @r"
    ljspeech
    c: wavs/c.wav 0s..end [- -] three (metadata.csv:3)
    ! metadata.csv:1: its columns are separated by tabs, and its layout separates them by `|`
    ! metadata.csv:2: its columns are separated by semicolons, and its layout separates them by `|`
    common-voice
    ! train.tsv:1: its columns are separated by commas, and its layout separates them by tabs
    common-voice
    ! train.tsv:1: the header names no column `path`, so nothing of this file can be read
    ");
}

#[test]
fn tables_with_a_header_are_read_with_their_own_delimiter() {
    let expected = about(&[("metadata.csv", b"file_name,text\na.wav,one\nb.wav,\"two; more\"\n")]);
    for (delimiter, more) in [(';', "\"two; more\""), ('\t', "two; more"), ('|', "two; more")] {
        let content = format!("file_name{delimiter}text\na.wav{delimiter}one\nb.wav{delimiter}{more}\n");
        assert_eq!(about(&[("metadata.csv", content.as_bytes())]), expected, "{delimiter}");
    }
}

#[test]
fn lines_may_end_with_a_carriage_return_alone() {
    for files in [
        &[("metadata.csv", &b"a|one\nb|two\nc|three\n"[..])][..],
        &[("metadata.csv", b"file_name,text\na.wav,one\nb.wav,\"two\"\n")],
        &[("train.tsv", b"path\tsentence\na.mp3\tone\nb.mp3\ttwo\n")],
        &[("wav.scp", b"a a.wav\nb b.wav\n"), ("text", b"a one\nb two\n")],
        &[(
            "manifest.jsonl",
            b"{\"audio\": \"a.wav\", \"text\": \"one\"}\n{\"audio\": \"b.wav\", \"text\": \"two\"}\n",
        )],
        &[("a.txt", b"one\ntwo\n"), ("a.wav", b"")],
    ] {
        let expected = about(files);
        let returned: Vec<(&str, Vec<u8>)> = files
            .iter()
            .map(|(name, content)| (*name, content.iter().map(|&b| if b == b'\n' { b'\r' } else { b }).collect()))
            .collect();
        let returned: Vec<(&str, &[u8])> = returned.iter().map(|(name, content)| (*name, &**content)).collect();
        assert_eq!(about(&returned), expected);
        assert!(!expected.contains('!'), "{expected}");
    }
    // A return inside a text is no end.
    let found = about(&[("metadata.csv", b"a|one\r two\nb|two\n")]);
    assert_eq!(found.lines().count(), 3, "{found}");
}

#[test]
fn a_compressed_copy_of_a_list_is_no_second_list() {
    let recordings = br#"{"id": "r", "sources": [{"type": "file", "channels": [0], "source": "r.wav"}]}"#;
    let supervisions = br#"{"id": "s", "recording_id": "r", "start": 1.0, "duration": 2.5, "text": "hello"}"#;
    let cuts = br#"{"id": "c", "start": 0, "duration": 1, "supervisions": [{"text": "x"}], "recording": {"sources": [{"type": "file", "channels": [0], "source": "r.wav"}]}}"#;
    let manifest = br#"{"audio": "a.wav", "text": "one"}"#;
    let pairs: Files<'_> = &[("recordings.jsonl", recordings), ("supervisions.jsonl", supervisions)];
    let copies: Files<'_> = &[("recordings.jsonl.gz", recordings), ("supervisions.jsonl.gz", supervisions)];
    let expected = about(pairs);
    assert_eq!(about(&[pairs, copies].concat()), expected);
    assert_eq!(about(&[&pairs[..1], copies].concat()).replace(".gz", ""), expected);
    assert_eq!(about(&[("x_cuts.jsonl", cuts), ("x_cuts.jsonl.gz", cuts)]), about(&[("x_cuts.jsonl", cuts)]));
    let one = about(&[("manifest.jsonl", manifest)]);
    assert_eq!(about(&[("manifest.jsonl.gz", manifest)]).replace(".gz", ""), one);
    assert_eq!(about(&[("manifest.jsonl", manifest), ("manifest.jsonl.gz", manifest)]), one);
}

#[test]
fn a_list_without_its_partner_is_named() {
    let file = "x_supervisions.jsonl";
    let folder = write(&[(file, br#"{"id": "s", "recording_id": "r", "text": "x"}"#)]);
    let found = seen_at(&folder.path().join(file), folder.path(), &ImportOptions::default());
    let expected = "x_supervisions.jsonl lists supervisions, and no list of recordings lies beside it; put `x_recordings.jsonl` beside it\n";
    assert_eq!(found, expected);
}

#[test]
fn null_is_named_where_a_text_is_needed() {
    let found = about(&[("manifest.jsonl", b"{\"audio\": \"a.wav\", \"text\": null}\n{\"audio\": \"b.wav\"}\n")]);
    insta::assert_snapshot!(found, @r"
    manifest
    ! manifest.jsonl:1: `text` is null, and a text was expected
    ! manifest.jsonl:2: the key `text` is missing
    ");
}

#[test]
fn a_rate_that_a_command_asks_for_counts_by_the_rate_of_the_file() {
    let folder = write(&[
        ("wav.scp", b"low sox low.wav -r 8000 -t wav - |\nhigh sox high.wav -r 8000 -t wav - |\nnote ffmpeg -i high.wav -ar 16000 -f wav - |\n"),
        ("text", b"low one\nhigh two\nnote three\n"),
    ]);
    for (name, rate) in [("low.wav", 8_000), ("high.wav", 44_100)] {
        crate::testing::write_wav(&folder.path().join(name), &[0.1; 8_000], rate);
    }
    let listing = import(folder.path(), &ImportOptions::default()).unwrap();
    let rates: Vec<_> = listing.entries.iter().map(|entry| (&*entry.id, entry.resampled)).collect();
    assert_eq!(rates, [("low", None), ("note", Some(16_000))]);
    let [issue] = &*listing.issues else { panic!("{:?}", listing.issues) };
    let expected =
        "`high`: a command, which is not run, reduces its 44100 Hz to 8000 Hz, and audio is read as its file has it";
    assert!(issue.to_string().ends_with(expected), "{issue}");
}
