//! Tests with small files in the style of GPT-2, XTTS and SentencePiece, which treat spaces and unknown characters
//! differently.

use std::fs;

use serde_json::json;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::*;
use crate::Tokenizer;

fn check_saved(tokenizer: &Tokenizer, text: &str) {
    let saved = serde_json::to_string(tokenizer).unwrap();
    let read: Tokenizer = serde_json::from_str(&saved).unwrap();
    assert_eq!(&read, tokenizer);
    assert_eq!(serde_json::to_string(&read).unwrap(), saved);
    assert_eq!(read.encode_lossy(text), tokenizer.encode_lossy(text));
    assert_eq!(read.names(), tokenizer.names());
}

/// Writes `content` to a file and reads it with [`Tokenizer::from_file`].
fn from_file(content: &Value) -> Result<Tokenizer, TextError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    fs::write(&path, content.to_string()).unwrap();
    Tokenizer::from_file(&path)
}

/// Builds a file in the style of GPT-2: a character for every byte, no unknown token, and settings that would change
/// ids from call to call.
fn byte_level() -> Value {
    let mut characters: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    characters.sort_unstable();
    let pieces =
        characters.iter().map(char::to_string).chain(["he", "ll", "hell", "hello", "Ġw", "Ġwo"].map(String::from));
    let vocab: serde_json::Map<String, Value> = pieces.zip(0..).map(|(piece, id)| (piece, id.into())).collect();
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "!"},
        "added_tokens": [{"id": 262, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false, "special": true}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": 0.9, "unk_token": null, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocab, "merges": ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o"]},
    })
}

#[test]
fn byte_level_files_are_read() {
    let tokenizer = from_file(&byte_level()).unwrap();
    let names = tokenizer.names();
    assert_eq!(names.len(), tokenizer.size());
    assert_eq!((tokenizer.size(), names[266].as_str()), (267, "<|endoftext|>"));
    let ids = tokenizer.encode("hello  world").unwrap();
    let pieces: Vec<&str> = ids.iter().map(|&id| names[id as usize].as_str()).collect();
    assert_eq!(pieces, ["hello", "Ġwo", "r", "l", "d"]);
    assert_eq!(tokenizer.decode(&ids), "hello world");
    // All bytes are known, so all characters are; a special token, a start and a language are dropped.
    for text in ["देव बरें करूं", "می‌خواهم", "日本 👋🏽", "", "hello hello"] {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids), text);
        assert_eq!(tokenizer.decode(&[&[2, 266], &ids[..], &[0, 3]].concat()), text);
    }
    // The file's normalizer composes characters, which loses none.
    let ids = tokenizer.encode("cafe\u{301}").unwrap();
    assert_eq!(tokenizer.decode(&ids), "café");
    assert_eq!(tokenizer.decode(&[ids[0], 1, 1000]), "c\u{fffd}\u{fffd}");
    check_saved(&tokenizer, "hello देव");
    let with = tokenizer.clone().with_languages(["en".into()]);
    assert_eq!((with.language("en"), with.size()), (Some(267), 268));
    check_saved(&with, "hello");
}

/// Builds a file in the style of XTTS: a token for the space, which is not part of a word, a token for each language,
/// and no decoder.
fn with_space_token() -> Value {
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "[STOP]"), special(1, "[UNK]"), special(2, "[SPACE]"), special(9, "[en]"),
                         special(10, "[fa]")],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": "[UNK]", "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false,
                  "vocab": {"[STOP]": 0, "[UNK]": 1, "[SPACE]": 2, "a": 3, "b": 4, "س": 5, "ل": 6, "ab": 7, "سل": 8,
                            "[en]": 9, "[fa]": 10},
                  "merges": ["a b", "س ل"]},
    })
}

#[test]
fn the_space_token_replaces_spaces() {
    let tokenizer = from_file(&with_space_token()).unwrap();
    let ids = tokenizer.encode(" ab  سل a").unwrap();
    assert_eq!(ids, [11, 6, 12, 6, 7]);
    assert_eq!(tokenizer.decode(&ids), "ab سل a");
    assert_eq!(tokenizer.encode_lossy("abxक سل😀"), (vec![11, 1, 1, 6, 12, 1], 3));
    assert_eq!(tokenizer.unknown_characters("abxक سل😀"), ['x', 'क', '😀'].into());
    assert_eq!(
        tokenizer.encode("a z").unwrap_err().to_string(),
        "the character `z` (U+007A) in \"a z\" is not in the vocabulary"
    );
    assert_eq!(tokenizer.decode(&[13, 11, 1, 6, 5, 7, 4]), "ab\u{fffd} \u{fffd}a");
    check_saved(&tokenizer, "ab سل");
}

#[test]
fn a_language_of_the_file_keeps_its_id() {
    let tokenizer = from_file(&with_space_token()).unwrap();
    assert_eq!((tokenizer.size(), tokenizer.language("en")), (15, None));
    let with = tokenizer.with_languages(["kok", "fa", "en", "de"].map(String::from));
    assert_eq!(["de", "en", "fa", "kok"].map(|name| with.language(name)), [Some(15), Some(13), Some(14), Some(16)]);
    assert_eq!(with.size(), 17);
    assert_eq!(with.names()[13..], ["[en]", "[fa]", "[de]", "[kok]"]);
    assert_eq!(with.decode(&[14, 11, 16, 6, 11, 15]), "ab ab");
    check_saved(&with, "ab");
}

/// Builds a file in the style of a converted SentencePiece model: a mark before each word, and either one unknown token
/// for unknown characters or none.
fn with_mark(unknown: bool) -> Value {
    let mark = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": mark, "post_processor": null, "decoder": mark,
        "model": {"type": "BPE", "dropout": null, "unk_token": unknown.then_some("<unk>"), "fuse_unk": true,
                  "vocab": {"<unk>": 0, "▁": 1, "a": 2, "b": 3, "▁a": 4, "▁ab": 7},
                  "merges": [["▁", "a"], ["▁a", "b"]]},
    })
}

#[test]
fn every_unknown_character_is_counted() {
    for unknown in [true, false] {
        let tokenizer = from_file(&with_mark(unknown)).unwrap();
        let ids = tokenizer.encode("ab b a").unwrap();
        assert_eq!(ids, [11, 5, 7, 8]);
        assert_eq!(tokenizer.decode(&ids), "ab b a");
        assert_eq!(
            tokenizer.encode_lossy("xab abxyb xyz"),
            (vec![5, 1, 6, 7, 11, 1, 1, 7, 5, 1, 1, 1], 6),
            "{unknown}"
        );
        assert_eq!(tokenizer.decode(&tokenizer.encode_lossy("ax xb").0), "a\u{fffd} \u{fffd}b");
        check_saved(&tokenizer, "ab xx");
        // Ids 5 and 6 of the file are gaps.
        assert_eq!(tokenizer.names()[8..], ["▁a", "<unused>", "<unused>", "▁ab"]);
        assert_eq!(tokenizer.decode(&[11, 9]), "ab\u{fffd}");
    }
}

#[test]
fn unsupported_files_are_refused_with_a_reason() {
    let mut not_listed = with_space_token();
    not_listed["model"]["unk_token"] = "<unknown>".into();
    let mut other_version = with_space_token();
    other_version["version"] = "2.0".into();
    let word_piece = json!({"version": "1.0", "added_tokens": [], "model": {
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0}}});
    for (file, cause) in [
        (not_listed, "the Hugging Face tokenizer names `<unknown>` as its unknown token, but does not list it"),
        (other_version, "the Hugging Face tokenizer cannot be used: Unknown tokenizer version '2.0'"),
        (word_piece, "the Hugging Face tokenizer has a WordPiece model; only BPE is supported"),
    ] {
        let error = from_file(&file).unwrap_err();
        let TextError::Json { source, .. } = error else { panic!("{error}") };
        assert_eq!(source.to_string(), cause);
    }
}
