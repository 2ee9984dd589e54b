//! Tests of prepared indexes: they give what the list gives, whatever is done to them.

use std::fs;
use std::io::Write;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::import::{IndexError, index_list};

/// Writes a list of `count` utterances.
fn list(folder: &Path, count: usize, seed: u64) {
    let line = |n: usize| {
        let pick = (n as u64).wrapping_mul(seed | 1).wrapping_add(seed) % 7;
        let id = if pick == 3 { String::new() } else { format!("\"id\": \"u{n}\", ") };
        let offset = if pick < 2 { format!(", \"offset\": {pick}.5") } else { String::new() };
        let speaker = if pick == 5 { String::new() } else { format!(", \"speaker\": \"s{}\"", n % 5) };
        let lang = if pick.is_multiple_of(2) { ", \"lang\": \"kok\"" } else { "" };
        let text = "one two é ".repeat(1 + pick as usize);
        format!(
            "{{{id}\"audio_filepath\": \"w/{n}.wav\", \"duration\": {pick}.25, \"text\": \"{text}\"{offset}{speaker}{lang}}}\n"
        )
    };
    fs::write(folder.join("manifest.jsonl"), (0..count).map(line).collect::<String>()).unwrap();
}

fn read(folder: &Path) -> Listing {
    import(folder, &ImportOptions::default()).unwrap()
}

proptest! {
    #[test]
    fn an_index_gives_what_its_list_gives(
        count in 1usize..60, seed in any::<u64>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        list(folder.path(), count, seed);
        let listed = read(folder.path());
        let made = index_list(folder.path()).unwrap();
        prop_assert_eq!(made.utterances, count);
        prop_assert_eq!(&read(folder.path()), &listed);
        // Damage changes nothing.
        let mut bytes = fs::read(&made.file).unwrap();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] ^= byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        fs::write(&made.file, bytes).unwrap();
        prop_assert_eq!(&read(folder.path()), &listed);
    }
}

#[test]
fn an_index_is_of_one_state_and_place_of_its_list() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("a");
    fs::create_dir(&corpus).unwrap();
    list(&corpus, 9, 4);
    let made = index_list(&corpus).unwrap();
    assert_eq!(
        (made.file.clone(), made.bytes),
        (corpus.join("manifest.jsonl.index"), fs::metadata(&made.file).unwrap().len())
    );
    // The list itself is not read: a change that keeps size and time is not seen.
    let listed = corpus.join("manifest.jsonl");
    let modified = fs::metadata(&listed).unwrap().modified().unwrap();
    fs::write(&listed, fs::read_to_string(&listed).unwrap().replace("one", "six")).unwrap();
    fs::File::options().append(true).open(&listed).unwrap().set_modified(modified).unwrap();
    assert!(read(&corpus).entries.iter().all(|entry| entry.text.starts_with("one")));
    // Options change what is read, so the index is not used.
    let options = ImportOptions { speaker: Some("me".into()), ..ImportOptions::default() };
    assert!(import(&corpus, &options).unwrap().entries.iter().all(|entry| entry.speaker.is_some()));
    let moved = folder.path().join("b");
    fs::rename(&corpus, &moved).unwrap();
    assert!(read(&moved).entries.iter().all(|entry| entry.audio.starts_with(&moved)));
    index_list(&moved).unwrap();
    let line = "{\"id\": \"new\", \"audio_filepath\": \"n.wav\", \"duration\": 1, \"text\": \"one\"}\n";
    fs::OpenOptions::new().append(true).open(moved.join("manifest.jsonl")).unwrap().write_all(line.as_bytes()).unwrap();
    assert_eq!(read(&moved).entries.len(), 10);
}

#[test]
fn a_long_list_gets_an_index_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    list(folder.path(), 9, 4);
    let size = fs::metadata(folder.path().join("manifest.jsonl")).unwrap().len();
    let index = folder.path().join("manifest.jsonl.index");
    let import_from = |index_from| {
        let options = ImportOptions { index_from, ..ImportOptions::default() };
        let listing = import(folder.path(), &options).unwrap();
        (listing, options.watch.take_index())
    };
    let (plain, made) = import_from(Some(size + 1));
    assert!(made.is_none() && !index.exists());
    let (first, made) = import_from(Some(size));
    let made = made.unwrap();
    assert_eq!((made.file.clone(), made.utterances), (index.clone(), 9));
    assert_eq!(first.root, plain.root);
    assert!(first.entries == plain.entries && import_from(Some(0)).0.entries == plain.entries);
    assert!(import_from(Some(0)).1.is_none(), "it is there");
    let options = ImportOptions::default();
    crate::Manifest::read_with(folder.path(), &options).unwrap_err();
    assert_eq!((options.watch.found(), options.watch.sought()), (9, 9), "the audio of each utterance is looked for");
    // A list that changed gets a new one; what is not ours is left; a list that cannot have one is read all the same.
    let text = fs::read_to_string(folder.path().join("manifest.jsonl")).unwrap();
    fs::write(folder.path().join("manifest.jsonl"), text.replace("one", "three")).unwrap();
    assert_eq!(import_from(Some(0)).1.unwrap().utterances, 9);
    fs::write(&index, "mine").unwrap();
    assert!(import_from(Some(0)).1.is_none());
    assert_eq!(fs::read(&index).unwrap(), b"mine");
    fs::remove_file(&index).unwrap();
    fs::write(folder.path().join("manifest.jsonl"), text.clone() + "nonsense\n").unwrap();
    let (flawed, made) = import_from(Some(0));
    assert_eq!((flawed.entries.len(), flawed.issues.len(), made), (9, 1, None));
    assert!(!index.exists());
}

#[test]
fn audio_lies_beside_a_link_to_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    fs::create_dir(&a).unwrap();
    fs::create_dir(&b).unwrap();
    list(&a, 9, 4);
    std::os::unix::fs::symlink(a.join("manifest.jsonl"), b.join("manifest.jsonl")).unwrap();
    let listed = read(&b);
    index_list(&b).unwrap();
    assert_eq!(read(&b), listed);
    assert!(listed.entries.iter().all(|entry| entry.audio.starts_with(&b)));
}

#[test]
fn nothing_but_an_index_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    list(folder.path(), 3, 1);
    let file = folder.path().join("manifest.jsonl.index");
    fs::write(&file, "precious").unwrap();
    assert!(matches!(index_list(folder.path()), Err(IndexError::Taken(_))));
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    fs::remove_file(&file).unwrap();
    index_list(folder.path()).unwrap();
    index_list(folder.path()).unwrap();
    let error = index_list(folder.path().join("nowhere.jsonl")).unwrap_err().to_string();
    assert!(error.ends_with("nowhere.jsonl does not exist"), "{error}");
}

#[test]
fn lists_that_are_not_whole_get_no_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.jsonl");
    let line = |id: &str, rest: &str| {
        format!("{{\"id\": \"{id}\", \"audio_filepath\": \"a.wav\", \"text\": \"one\"{rest}}}\n")
    };
    let timed = |id: &str| line(id, ", \"duration\": 1.5");
    for lines in [
        [timed("a"), timed("a")].concat(),
        [timed("a"), "{}\n".into()].concat(),
        [timed("a"), line("b", "")].concat(),
        [timed("a"), line("b", ", \"duration\": null")].concat(),
    ] {
        fs::write(&path, &lines).unwrap();
        let error = index_list(&path).unwrap_err();
        assert!(matches!(error, IndexError::Incomplete { .. }), "{lines}: {error}");
    }
    fs::write(folder.path().join("metadata.csv"), "a|one\n").unwrap();
    let error = index_list(folder.path().join("metadata.csv")).unwrap_err();
    assert!(matches!(error, IndexError::NoList { .. }), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
}
