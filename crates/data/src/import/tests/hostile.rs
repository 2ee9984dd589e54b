//! Tests of hostile input: no panic, bounded memory, and only valid entries.

use proptest::prelude::*;

use super::*;
use crate::import::lines::MAX_LINE_BYTES;

/// Names of all files that some layout reads.
const LISTS: [&str; 22] = [
    "manifest.jsonl",
    "manifest.json",
    "metadata.csv",
    "metadata.jsonl",
    "train/metadata.csv",
    "1-2.trans.txt",
    "1_2_3_4.normalized.txt",
    "1_2_3_4.original.txt",
    "validated.tsv",
    "train.tsv",
    "clip_durations.tsv",
    "wav.scp",
    "text",
    "segments",
    "utt2spk",
    "utt2lang",
    "utt2dur",
    "reco2dur",
    "cuts.jsonl",
    "recordings.jsonl",
    "supervisions.jsonl",
    "a.txt",
];

/// Pieces of valid lists, which reach deeper into the readers than random bytes.
const PIECES: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "|",
    "\t",
    "\n",
    "\r\n",
    " ",
    "-1",
    "0.5",
    "1e308",
    "null",
    "a.wav",
    "a b",
    "é",
    "\"id\":",
    "\"text\":",
    "\"audio_filepath\":",
    "\"duration\":",
    "\"offset\":",
    "\"file_name\":",
    "\"start\":",
    "\"supervisions\":[{",
    "\"recording\":{\"sources\":[{\"source\":\"a.wav\"}]}",
    "}]",
    "\"recording_id\":\"a\"",
    "file_name,text\n",
    "path\tsentence\n",
    "a a.wav\n",
    "a x\n",
    "a a 0 1\n",
    "a|b\n",
    "\u{feff}",
    "\0",
    "|\n",
    "{\"id\":\"a\",\"audio\":\"a\",\"text\":\"x\"}\n",
];

fn content() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        pieces.prop_map(|pieces| pieces.concat().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..100).prop_map(|bytes| compressed(&bytes)),
        // The first bytes of a compressed file, then garbage.
        prop::collection::vec(any::<u8>(), 0..100).prop_map(|bytes| [&[0x1f, 0x8b, 8][..], &bytes].concat()),
    ]
}

/// Imports the folder in every layout, and checks the guarantees of each listing, such as unique ids.
fn check(folder: &Path) {
    let options = Format::ALL.map(as_format).into_iter().chain([ImportOptions::default()]);
    for options in options {
        let Ok(listing) = import(folder, &options) else { continue };
        let mut ids: Vec<&str> = listing.entries.iter().map(|entry| entry.id.as_str()).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
        for Entry { id, text, offset, duration, audio, .. } in &listing.entries {
            assert!(![id, text].into_iter().any(|name| name.trim().is_empty() || name.contains('\n')), "{listing:?}");
            assert!(!audio.as_os_str().is_empty());
            assert!(offset.0.is_finite() && offset.0 >= 0.0);
            assert!(duration.is_none_or(|duration| duration.0.is_finite() && duration.0 >= 0.0));
        }
        assert_eq!(import(folder, &options).unwrap(), listing);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn garbage_in_every_list_is_only_issues(contents in prop::collection::vec(content(), LISTS.len())) {
        let mut files: Vec<(&str, &[u8])> = LISTS.into_iter().zip(contents.iter().map(Vec::as_slice)).collect();
        files.push(("a.wav", b""));
        files.push(("wavs/a.mp3", b""));
        check(write(&files).path());
    }

    #[test]
    fn garbage_in_one_list_is_only_issues(list in prop::sample::select(&LISTS[..]), content in content()) {
        let folder = write(&[(list, &content)]);
        check(folder.path());
        for format in Format::ALL {
            let _ = import(folder.path().join(list), &as_format(format));
        }
    }
}

#[test]
fn an_endless_line_is_one_issue() {
    let good =
        |id: &str| format!("{{\"id\": \"{id}\", \"audio_filepath\": \"a.wav\", \"text\": \"x\"}}\n").into_bytes();
    let long = [vec![b'x'; 3 * MAX_LINE_BYTES], b"\n".to_vec()].concat();
    let listing = seen(&[("manifest.jsonl", &[good("a"), long, good("b")].concat())], &ImportOptions::default());
    insta::assert_snapshot!(listing, @r#"
    manifest
    a: a.wav 0s..end [- -] x (manifest.jsonl:1)
    b: a.wav 0s..end [- -] x (manifest.jsonl:3)
    ! manifest.jsonl:2: the line is longer than 4194304 bytes
    "#);
}

#[test]
fn long_fields_are_issues_with_short_quotes() {
    let long = "y".repeat(2 << 20);
    let lines = [format!("{long}|x"), format!("a|{long}"), format!("b{long}"), "z|last".into()].join("\n");
    let listing = seen(&[("metadata.csv", lines.as_bytes())], &ImportOptions::default());
    assert!(listing.len() < 1_500, "{}", listing.len());
    insta::assert_snapshot!(listing.replace(&"y".repeat(200), "yyy"), @r#"
    ljspeech
    z: wavs/z.wav 0s..end [- -] last (metadata.csv:4)
    ! metadata.csv:1: `yyy…`: the name is longer than 4096 bytes
    ! metadata.csv:2: `a`: the text is longer than 1048576 bytes
    ! metadata.csv:3: expected `id|text` or `id|text|normalized`; columns found: 1
    "#);
    let wrong = format!("{{\"audio\": \"a.wav\", \"text\": \"x\", \"duration\": \"{long}\"}}");
    assert!(seen(&[("manifest.jsonl", wrong.as_bytes())], &ImportOptions::default()).len() < 500);
}

#[test]
fn a_decompression_bomb_is_stopped() {
    let line = [b"{\"audio\": \"a.wav\", \"text\": \"".to_vec(), vec![b' '; 1 << 20], b"\"}\n".to_vec()].concat();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    (0..300).for_each(|_| encoder.write_all(&line).unwrap());
    let folder = write(&[]);
    let file = folder.path().join("manifest.jsonl.gz");
    fs::write(&file, encoder.finish().unwrap()).unwrap();
    let listing = import(&file, &ImportOptions::default()).unwrap();
    let last = listing.issues.last().unwrap().to_string();
    assert!(last.ends_with("unpacks to more than 200 times its size"), "{last}");
    assert!(listing.issues.len() <= 257 && listing.entries.is_empty(), "{}", listing.issues.len());
}

#[cfg(unix)]
#[test]
fn a_link_to_a_parent_folder_does_not_loop() {
    let folder = write(&[("a/x.wav", b""), ("a/x.txt", b"one"), ("b/y.wav", b""), ("b/y.txt", b"two")]);
    for link in ["a/up", "b/up"] {
        std::os::unix::fs::symlink(folder.path(), folder.path().join(link)).unwrap();
    }
    let listing = import(folder.path(), &ImportOptions::default()).unwrap();
    assert_eq!((listing.entries.len(), listing.issues.len()), (2, 0));
}
