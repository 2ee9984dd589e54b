//! Tests of reading manifests, good and broken.

use tempfile::TempDir;

use super::*;
use crate::testing::write_wav;
use crate::told::told;

/// A folder with `a.wav` and `wavs/b.wav`, of one second each.
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
         {\"id\": 7, \"audio_filepath\": \"wavs/b.wav\", \"text\": \"\", \"duration\": 0.5, \"speaker\": 12, \"lang\": \"kok\"}",
    );
    let utterances = read.unwrap().utterances;
    let seen: Vec<_> = utterances
        .iter()
        .map(|u| {
            (u.id.as_str(), u.offset.0, u.duration.0, u.text.as_str(), u.speaker.as_deref(), u.language.as_deref())
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("a.wav", 0.0, 1.0, "नमस्कार", None, None),
            ("a.wav@0.25", 0.25, 0.75, "two", None, None),
            ("7", 0.0, 0.5, "", Some("12"), Some("kok")),
        ]
    );
    assert!(utterances[2].audio.ends_with("wavs/b.wav") && utterances[2].audio.is_absolute());
}

#[test]
fn ljspeech_is_read_with_two_or_three_columns() {
    for (line, text) in
        [("b|He said \"12\".|He said \"twelve\".", "He said \"twelve\"."), ("b|two", "two"), ("b|raw|", "raw")]
    {
        let read = read("metadata.csv", line).unwrap();
        assert_eq!((read.utterances[0].id.as_str(), read.utterances[0].text.as_str()), ("b", text));
        assert_eq!(read.duration(), Seconds(1.0));
    }
}

#[test]
fn a_folder_is_searched() {
    let folder = folder();
    let none = Manifest::read(folder.path()).unwrap_err().to_string();
    assert!(none.ends_with("holds neither manifest.jsonl nor metadata.csv"), "{none}");
    fs::write(folder.path().join("metadata.csv"), "b|text").unwrap();
    assert_eq!(Manifest::read(folder.path()).unwrap().utterances.len(), 1);
}

/// The message without the folder, which differs from run to run.
fn problem(name: &str, text: &str) -> String {
    let folder = folder();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    let message = told(&Manifest::read(&path).unwrap_err());
    message.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn errors_name_the_file_the_line_and_what_was_expected() {
    let json =
        |line: &str| problem("m.jsonl", &format!("{{\"audio_filepath\": \"a.wav\", \"text\": \"x\"}}\n{line}\n"));
    insta::assert_snapshot!(
        [
            problem("m.jsonl", " \n\n"),
            json("audio.wav hello"),
            json(r#"{"text": "x"}"#),
            json(r#"{"audio_filepath": "a.wav"}"#),
            json(r#"{"audio_filepath": "c.wav", "text": "x"}"#),
            json(r#"{"audio_filepath": "c.wav", "text": "x", "duration": 1}"#),
            json(r#"{"audio_filepath": "a.wav", "text": "x", "duration": -1}"#),
            json(r#"{"audio_filepath": "a.wav", "text": "x", "duration": NaN}"#),
            json(r#"{"audio_filepath": "a.wav", "text": "x", "duration": "1s"}"#),
            json(r#"{"audio_filepath": "a.wav", "text": "x", "offset": 2}"#),
            json(r#"{"audio_filepath": "a.wav", "text": "x"}"#),
            problem("m.csv", "b|one|two|three"),
            problem("m.csv", "c|one"),
        ].join("\n"), @r#"
    manifest m.jsonl is empty
    line 2 of manifest m.jsonl is no utterance: a JSON object such as {"audio_filepath": "a.wav", "text": "hello"} was expected: expected value at column 1
    line 2 of manifest m.jsonl is no utterance: the key `audio_filepath` is missing
    line 2 of manifest m.jsonl is no utterance: the key `text` is missing
    line 2 of manifest m.jsonl is no utterance: audio file c.wav does not exist
    line 2 of manifest m.jsonl is no utterance: audio file c.wav does not exist
    line 2 of manifest m.jsonl is no utterance: `duration` is -1, and a number of seconds was expected
    line 2 of manifest m.jsonl is no utterance: a JSON object such as {"audio_filepath": "a.wav", "text": "hello"} was expected: expected value at column 54
    line 2 of manifest m.jsonl is no utterance: a JSON object such as {"audio_filepath": "a.wav", "text": "hello"} was expected: invalid type: string "1s", expected f64 at column 57
    line 2 of manifest m.jsonl is no utterance: the utterance begins at 2s, and a.wav lasts 1s
    line 2 of manifest m.jsonl is no utterance: the id `a.wav` is already that of line 1
    line 1 of manifest m.csv is no utterance: `id|text` or `id|text|normalised` was expected, and 4 columns were found
    line 1 of manifest m.csv is no utterance: audio file wavs/c.wav does not exist
    "#);
    assert_eq!(Manifest::read("no/such.jsonl").unwrap_err().to_string(), "manifest no/such.jsonl does not exist");
}
